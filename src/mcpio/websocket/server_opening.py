"""The server's side of the opening handshake (RFC 6455 section 4.2)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from wsproto.utilities import generate_accept_token

from mcpio.http.checks import UPGRADE_CHECKS, Checks, ParsedRequest, Rejection, first_failure
from mcpio.http.model import Headers, RequestHead
from mcpio.http.options import HttpOptions
from mcpio.websocket.deflate import accept_offer
from mcpio.websocket.options import WebSocketOptions

__all__ = [
    "AcceptedHandshake",
    "access_failure",
    "answer_opening",
    "asks_for_websocket",
    "choose_subprotocol",
    "tokens",
]

VERSION: Final = b"13"


@attrs.frozen
class AcceptedHandshake:
    """The answer to a valid handshake, with status 101; the connection is a WebSocket then."""

    headers: Headers
    """The header fields of the answer."""
    subprotocol: str | None
    """The negotiated subprotocol; ``None`` if the server has none."""
    window_bits: int | None
    """The argument of ``WebSocket`` for compression; ``None`` for none."""


def asks_for_websocket(head: RequestHead) -> bool:
    """Return whether a request is a GET that asks for an upgrade to WebSocket."""
    return head.method == "GET" and any(
        name == b"upgrade" and b"websocket" in tokens(value) for name, value in head.headers
    )


def answer_opening(
    head: RequestHead, *, http: HttpOptions, options: WebSocketOptions, subprotocols: Sequence[str]
) -> AcceptedHandshake | Rejection:
    """Return the answer to an opening handshake, or the first reason to reject it.

    Access is checked as for every other HTTP request: by ``Host``, ``Origin`` and the principal, which may be
    ``Denied`` (XPORT-04, HTTP-02, HTTP-04). The caller checks the path. ``subprotocols`` are in order of preference.
    """
    rejection = access_failure(head, http)
    if rejection is not None:
        return rejection
    fields = _gathered(head)
    if not asks_for_websocket(head) or fields.get(b"sec-websocket-version") != VERSION:
        headers = ((b"upgrade", b"websocket"), (b"sec-websocket-version", VERSION))
        return Rejection(426, "Upgrade required: to WebSocket of version 13", headers=headers)
    key = fields.get(b"sec-websocket-key", b"")
    if b"upgrade" not in tokens(fields.get(b"connection", b"")) or not _is_key(key):
        return Rejection(400, "Bad request: Connection or Sec-WebSocket-Key is not that of a handshake")
    # Its bytes would be read as frames.
    if fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in fields:
        return Rejection(400, "Bad request: a handshake has no body")
    offered = [name.strip() for name in fields.get(b"sec-websocket-protocol", b"").decode("latin-1").split(",")]
    subprotocol = choose_subprotocol(offered, subprotocols)
    if isinstance(subprotocol, Rejection):
        return subprotocol
    return _accepted(key, subprotocol, fields.get(b"sec-websocket-extensions") if options.compression else None)


def access_failure(head: RequestHead, http: HttpOptions) -> Rejection | None:
    """Return why a client must not open a WebSocket: its ``Host``, ``Origin`` or principal; ``None`` if it may."""
    return first_failure(ParsedRequest(head), Checks(UPGRADE_CHECKS, ("GET",), http, 0))


def choose_subprotocol(offered: Iterable[str], subprotocols: Sequence[str]) -> str | Rejection | None:
    """Return the preferred one of the offered subprotocols, ``None`` if the server has none, or the rejection."""
    names = frozenset(offered)
    chosen = next((name for name in subprotocols if name in names), None)
    if chosen is None and subprotocols:
        return Rejection(400, f"Bad request: Sec-WebSocket-Protocol must offer {' or '.join(subprotocols)}")
    return chosen


def tokens(value: bytes) -> set[bytes]:
    """Return the tokens of a header field's list, in lower case."""
    return {token.strip().lower() for token in value.split(b",")}


def _accepted(key: bytes, subprotocol: str | None, extensions: bytes | None) -> AcceptedHandshake:
    headers = [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", generate_accept_token(key)),
    ]
    if subprotocol is not None:
        headers.append((b"sec-websocket-protocol", subprotocol.encode()))
    compression = None if extensions is None else accept_offer(extensions.decode("latin-1"))
    if compression is None:
        return AcceptedHandshake(tuple(headers), subprotocol, None)
    answer, bits = compression
    headers.append((b"sec-websocket-extensions", answer.encode()))
    return AcceptedHandshake(tuple(headers), subprotocol, bits)


def _gathered(head: RequestHead) -> Mapping[bytes, bytes]:
    """Return the fields by name, repeated ones joined: one that must be unique is invalid then."""
    found: dict[bytes, bytes] = {}
    for name, value in head.headers:
        found[name] = value if name not in found else found[name] + b", " + value
    return found


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False
