"""Stateless requests and their servers: what tests of revision 2026-07-28 need."""

from __future__ import annotations

from typing import Any

from wires import OFFERS, request

from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.types.features import Implementation, ServerCapabilities

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"
SERVER = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

BOTH = (REV_2025_11_25, REV_2026_07_28)
MODERN = (REV_2026_07_28,)
INFO = Implementation("test", "1")
ME = {SERVER: {"name": "test", "version": "1"}}
HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}


def meta(declared: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return the ``_meta`` of a stateless request."""
    return {VERSION: "2026-07-28", CAPABILITIES: declared or {}, **more}


def stateless(
    method: str, id: Any = 1, declared: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **params: Any
) -> dict[str, Any]:
    """Return a stateless request; ``more`` goes into its ``_meta``."""
    return request(method, id, **params, _meta=meta(declared, **(more or {})))


def tool_call(
    id: Any = 1, declared: dict[str, Any] | None = None, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    return stateless("tools/call", id, declared, more, name="x")


def server_of(revisions: Any = BOTH, offers: ServerCapabilities = OFFERS, **options: Any) -> ServerConnection:
    return ServerConnection(INFO, offers, principal="me", options=Options(revisions=revisions, **options))
