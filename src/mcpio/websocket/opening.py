"""The opening handshake of both roles."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs
import h11
from wsproto.utilities import generate_accept_token

from mcpio.errors import AuthorizationRequired, McpError, RemoteProtocolError, UnexpectedResponse
from mcpio.http.checks import UPGRADE_CHECKS, Checks, ParsedRequest, Rejection, first_failure
from mcpio.http.client import Location
from mcpio.http.model import Headers, HttpOptions, RequestHead
from mcpio.websocket.frames import OFFER, WebSocketOptions, accept_offer, read_answer

# ------------------------------------------------------------------------------------------------------- server opening
# The server's side of the opening handshake (RFC 6455 section 4.2).

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
    fields: dict[bytes, bytes] = {}
    for name, value in head.headers:
        fields[name] = value if name not in fields else fields[name] + b", " + value
    return fields


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


# ------------------------------------------------------------------------------------------------------- client opening
# The client's side of the opening handshake (RFC 6455 section 4.1).

QUOTE: Final = 1024
"""Bytes that are read of the body of a refusal."""

HEAD_BYTES: Final = 65536


@attrs.frozen
class CompletedHandshake:
    """The server accepted the handshake; the connection is a WebSocket now."""

    subprotocol: str | None
    """The negotiated subprotocol; ``None`` if none was offered."""
    window_bits: int | None
    """The argument of ``WebSocket`` for compression; ``None`` for none."""
    rest: bytes
    """The bytes after the server's answer, to be fed to the ``WebSocket``."""
    nonce: str | None = None
    """The ``DPoP-Nonce`` of the answer, for the next proof (RFC 9449 section 8.2)."""


class ClientOpening:
    """One opening handshake: write ``request``, feed the answer, and get the outcome.

    ``headers`` are additional header fields of the request, ``subprotocols`` are in order of preference, and
    ``entropy(n)`` returns n random bytes. No answer of the server raises.
    """

    def __init__(
        self,
        location: Location,
        options: WebSocketOptions,
        *,
        subprotocols: Sequence[str],
        headers: Mapping[str, str],
        entropy: Callable[[int], bytes],
    ) -> None:
        self._subprotocols = subprotocols
        self._compression = options.compression
        self._key = base64.b64encode(entropy(16))
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self.request: bytes = self._request(location, headers)
        """The bytes of the request."""
        self._has_authorization = any(name.lower() == "authorization" for name in headers)
        self._status = 0
        self._challenges: list[str] = []
        self._nonce: str | None = None
        self._date: str | None = None
        self._body = b""
        self._has_ended = False
        self._outcome: CompletedHandshake | McpError | None = None

    def receive_data(self, data: bytes | None) -> None:
        """Store bytes, or record the end of the connection (``None``). Ignored after the outcome."""
        if self._outcome is not None or data == b"":
            return
        self._has_ended = data is None
        self._http.receive_data(data or b"")  # to h11, empty bytes are the end; ours were returned above
        while self.outcome() is None and self._take_event():
            pass

    def outcome(self) -> CompletedHandshake | McpError | None:
        """Return the result or the error of the handshake; ``None`` for "feed me".

        The error is an AuthorizationRequired for status 401 and 403, an UnexpectedResponse for any other answer that is
        not a WebSocket with an offered subprotocol, and a RemoteProtocolError if the answer is not HTTP.
        """
        return self._outcome

    @property
    def is_refused(self) -> bool:
        """Whether the server refused, so that only the body may still arrive. Feed ``None`` to skip that."""
        return self._status != 0

    def _request(self, location: Location, headers: Mapping[str, str]) -> bytes:
        fields = [
            ("Host", location.authority),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", self._key.decode()),
            ("Sec-WebSocket-Version", VERSION.decode()),
        ]
        if self._subprotocols:
            fields.append(("Sec-WebSocket-Protocol", ", ".join(self._subprotocols)))
        if self._compression:
            fields.append(("Sec-WebSocket-Extensions", OFFER))
        request = h11.Request(method="GET", target=location.target, headers=[*fields, *headers.items()])
        return (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def _take_event(self) -> bool:
        """Handle the next event of h11; return whether there was one."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._outcome = self._refusal() if self._status else _no_http(error, has_ended=self._has_ended)
            return True
        if isinstance(event, h11.InformationalResponse):
            if event.status_code == 101:
                self._outcome = self._finish(event)
        elif isinstance(event, h11.Response):
            self._status = event.status_code
            self._challenges = [value.decode("latin-1") for name, value in event.headers if name == b"www-authenticate"]
            # The first of each name.
            fields = {name: value.decode("latin-1") for name, value in reversed(list(event.headers))}
            self._nonce, self._date = fields.get(b"dpop-nonce"), fields.get(b"date")
        elif isinstance(event, h11.Data):
            self._body = (self._body + bytes(event.data))[:QUOTE]
            if len(self._body) == QUOTE:
                self._outcome = self._refusal()
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            self._outcome = self._refusal()
        else:
            return False
        return True

    def _finish(self, answer: h11.InformationalResponse) -> CompletedHandshake | McpError:
        """Return the outcome of a 101, which a client must check (RFC 6455, 4.1) before it takes bytes for frames."""
        fields: dict[bytes, bytes] = {}
        for name, value in answer.headers:
            fields[name] = value if name not in fields else fields[name] + b", " + value
        if b"websocket" not in tokens(fields.get(b"upgrade", b"")) or b"upgrade" not in tokens(
            fields.get(b"connection", b"")
        ):
            return UnexpectedResponse(101, "the upgrade is not to WebSocket")
        if fields.get(b"sec-websocket-accept") != generate_accept_token(self._key):
            return UnexpectedResponse(101, "Sec-WebSocket-Accept does not fit the request")
        chosen = fields.get(b"sec-websocket-protocol")
        subprotocol = None if chosen is None else chosen.decode("latin-1")
        if subprotocol not in (self._subprotocols or (None,)):
            offered = " or ".join(self._subprotocols) or "none"
            return UnexpectedResponse(101, f"the subprotocol is {subprotocol!r:.60}, and {offered} was offered")
        extensions = fields.get(b"sec-websocket-extensions")
        if extensions is not None and not (self._compression and read_answer(extensions.decode("latin-1"))):
            return UnexpectedResponse(101, "the server uses an extension that was not offered")
        rest, _ = self._http.trailing_data
        nonce = fields.get(b"dpop-nonce")
        return CompletedHandshake(
            subprotocol,
            # The offer lets no server set a smaller window for this side, so its own is zlib's largest.
            None if extensions is None else 15,
            rest,
            None if nonce is None else nonce.decode("latin-1"),
        )

    def _refusal(self) -> McpError:
        """Return the error for a status other than 101."""
        status, text = self._status, self._body.decode(errors="replace")
        if status in (401, 403):
            reason = "; ".join(self._challenges) or repr(text)[:200]
            message = f"the server refuses the WebSocket with status {status}: {reason}"
            return AuthorizationRequired(
                message,
                status=status,
                challenges=self._challenges,
                nonce=self._nonce,
                date=self._date,
                is_without_auth=not self._has_authorization,
            )
        return UnexpectedResponse(status, "no WebSocket in answer to the handshake", text)


def _no_http(error: Exception, *, has_ended: bool) -> McpError:
    reason = "the connection ended before an answer" if has_ended else f"the answer is not HTTP: {error}"
    failure = RemoteProtocolError(f"the handshake failed: {reason}")
    failure.__cause__ = error
    return failure
