"""Stateless requests over HTTP: how to distinguish them from those of sessions, and their header fields.

Proxies that do not read bodies decide by these fields, so a server refuses a request whose fields say something else
than its body (HDR-03).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import jsonrpc
from mcpio.framing.headers import decode_field, encode_field
from mcpio.http.model import Headers
from mcpio.revisions import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, Era
from mcpio.types.meta import META_PROTOCOL_VERSION

__all__ = ["HANDSHAKE_NAMES", "STATELESS_NAMES", "check_field", "check_mirrors", "era_of", "mirrored_name"]

HANDSHAKE_NAMES: Final = frozenset(revision.name for revision in HANDSHAKE_REVISIONS)
"""The values of ``MCP-Protocol-Version`` that name a revision with sessions."""
STATELESS_NAMES: Final = frozenset(revision.name for revision in STATELESS_REVISIONS)
"""Those that name one without."""

_NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""By method: the member of the params that ``Mcp-Name`` repeats (HDR-02)."""


def era_of(message: jsonrpc.Message, version: str | None, served: Collection[Era]) -> Era:
    """Return the era of a POST, by the first rule that decides (ERA-12).

    ``version`` is the value of ``MCP-Protocol-Version``, and ``served`` are the eras that the server speaks.

    1. A server of one era takes everything for that.
    2. ``_meta`` names a revision: stateless.
    3. ``initialize``: handshake, whatever the header field says.
    4. The header field names no revision of the handshake era: stateless.
    5. Anything else: handshake.
    """
    if len(served) == 1:
        (era,) = served
        return era
    if isinstance(message, jsonrpc.Request | jsonrpc.Notification):
        meta = message.params.get("_meta")
        if isinstance(meta, dict) and META_PROTOCOL_VERSION in meta:
            return Era.STATELESS
        if message.method == "initialize":
            return Era.HANDSHAKE
    return Era.HANDSHAKE if version is None or version in HANDSHAKE_NAMES else Era.STATELESS


def mirrored_name(method: str, params: Mapping[str, Any]) -> str | None:
    """Return the value of ``Mcp-Name`` for a request, ``None`` for requests without it (HDR-02)."""
    member = _NAMED_BY.get(method)
    name = None if member is None else params.get(member)
    return name if isinstance(name, str) else None


def check_mirrors(request: jsonrpc.Request, fields: Headers) -> None:
    """Raise RequestError if ``Mcp-Method`` or ``Mcp-Name`` does not repeat the body (HDR-03).

    Names of ``fields`` are in lower case.
    """
    method, name, said = request.method, mirrored_name(request.method, request.params), dict(fields)
    # Nearly every client repeats both as it should, each once. Anything else needs a closer look.
    is_single = len(said) == len(fields)
    if not is_single or said.get(b"mcp-method") != method.encode():
        check_field(fields, "Mcp-Method", method, encoded=False)
    if name is not None and not (is_single and said.get(b"mcp-name") == encode_field(name).encode()):
        check_field(fields, "Mcp-Name", name)


def check_field(
    fields: Headers, name: str, expected: str | None, *, encoded: bool = True, number: bool = False
) -> None:
    """Raise RequestError unless a field is there once with the expected value; ``None`` expects no field.

    ``encoded`` says whether the value may be Base64, ``number`` whether it is an integer, which may be written with
    zeros behind a point (HDR-09).
    """
    key = name.lower().encode()
    values = [value for each, value in fields if each == key]
    if expected is None:
        if values:
            raise _mismatch(f"{name} is there, the body has no such value")
        return
    if len(values) != 1:
        raise _mismatch(f"{name} is {'there more than once' if values else 'missing'}, the body says {expected!r:.100}")
    said = values[0].decode("latin-1")
    try:
        said = decode_field(said) if encoded else said
    except ValueError as error:
        raise _mismatch(f"{name} is malformed, {said!r:.100}: {error}") from None
    if number and _INTEGER.fullmatch(said):
        said = str(int(said.partition(".")[0]))
    if said != expected:
        raise _mismatch(f"{name} is {said!r:.100}, the body says {expected!r:.100}")


_INTEGER: Final = re.compile(r"-?[0-9]{1,16}(\.0+)?")
"""Up to 2^53 - 1, which has sixteen digits (HDR-05)."""


def _mismatch(reason: str) -> RequestError:
    return RequestError(ErrorCode.HEADER_MISMATCH, f"Header mismatch: {reason}")
