"""The client's side of the opening handshake (RFC 6455 section 4.1)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
import h11
from wsproto.utilities import generate_accept_token

from mcpio.errors import AuthorizationRequired, McpError, RemoteProtocolError, UnexpectedResponse
from mcpio.http.location import Location
from mcpio.websocket.deflate import OFFER, read_answer
from mcpio.websocket.options import WebSocketOptions
from mcpio.websocket.server_opening import VERSION, tokens

__all__ = ["ClientOpening", "CompletedHandshake"]

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
                self._outcome = self._opened(event)
        elif isinstance(event, h11.Response):
            self._status = event.status_code
            self._challenges = [value.decode("latin-1") for name, value in event.headers if name == b"www-authenticate"]
            self._nonce = next(
                (value.decode("latin-1") for name, value in event.headers if name == b"dpop-nonce"), None
            )
        elif isinstance(event, h11.Data):
            self._body = (self._body + bytes(event.data))[:QUOTE]
            if len(self._body) == QUOTE:
                self._outcome = self._refusal()
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            self._outcome = self._refusal()
        else:
            return False
        return True

    def _opened(self, answer: h11.InformationalResponse) -> CompletedHandshake | McpError:
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
            None if extensions is None else 15,
            rest,
            None if nonce is None else nonce.decode("latin-1"),
        )

    def _refusal(self) -> McpError:
        """Return the error for a status other than 101."""
        status, text = self._status, self._body.decode(errors="replace")
        if status in (401, 403):
            said = "; ".join(self._challenges) or repr(text)[:200]
            message = f"the server refuses the WebSocket with status {status}: {said}"
            return AuthorizationRequired(
                message,
                status=status,
                challenges=self._challenges,
                nonce=self._nonce,
                is_without_auth=not self._has_authorization,
            )
        return UnexpectedResponse(status, "no WebSocket in answer to the handshake", text)


def _no_http(error: Exception, *, has_ended: bool) -> McpError:
    said = "the connection ended before an answer" if has_ended else f"the answer is not HTTP: {error}"
    found = RemoteProtocolError(f"the handshake failed: {said}")
    found.__cause__ = error
    return found
