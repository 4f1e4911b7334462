"""Connections that are in operation, as bytes brought them there: what tests of channels need."""

from __future__ import annotations

import json
from typing import Any

from wires import INFO, INITIALIZED

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.events import CloseReason, ConnectionClosed, Initialized, Negotiated
from mcpio.types.features import ClientCapabilities, ServerCapabilities, ToolsCapability

CAPABILITIES = ServerCapabilities(tools=ToolsCapability(), logging={})
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "c", "version": "1"},
    },
}
INITIALIZE_RESULT = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    },
}


CLOSED = ConnectionClosed(CloseReason.CLOSED, None)


def lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def ping(id: int | str = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "ping"}


def call(id: int | str = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "x"}}


def operating_server(**limits: Any) -> ServerConnection:
    server = ServerConnection(INFO, CAPABILITIES, options=Options(limits=Limits(**limits)))
    server.receive_data(lines(INITIALIZE, INITIALIZED), 0.0)
    assert [type(event) for event in server.events()] == [Negotiated, Initialized]
    server.data_to_send()
    return server


def operating_client(**options: Any) -> ClientConnection:
    client = ClientConnection(INFO, ClientCapabilities(), options=Options(**options))
    client.send_initialize(now=0.0)
    client.receive_data(lines(INITIALIZE_RESULT), 0.0)
    (settled,) = client.events()
    assert isinstance(settled, Negotiated)
    client.data_to_send()
    return client
