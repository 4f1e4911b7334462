"""The relay before a server at a URL: HTTP/1.1 on loopback, passed on message by message of HTTP."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Iterable
from contextlib import suppress
from http.client import responses
from typing import Any, Final, NoReturn

import h11
import trio

from mcpio.cli.relaying.chaos import Chaos, Fault
from mcpio.cli.relaying.traffic import MOST_BYTES, Traffic
from mcpio.framing.lines import Overlong
from mcpio.framing.sse import SseParser
from mcpio.http.client import Location
from mcpio.http.model import HostPolicy
from mcpio.trio._event_loop import TrioEventLoop

HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade".split()
)
"""The fields that concern one connection. Transfer-Encoding does too, but h11 keeps to what it says."""
FRAMING: Final = frozenset([b"content-length", b"transfer-encoding"])
END_TO_END: Final = FRAMING | {b"content-type", b"host"}
"""The fields that stay though Connection names them: the message cannot be read without."""

HOST: Final = "127.0.0.1"
BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError)
LINGER: Final = 1.0
"""Seconds that a host has to read why its connection is closed."""
AGAIN: Final = 30.0
"""Seconds that the answer to a duplicated request is read."""


class _Over(Exception):
    """Both connections end here."""


class _Malformed(Exception):
    """One side sent what h11 does not read."""

    def __init__(self, peer: _Peer, error: h11.RemoteProtocolError) -> None:
        super().__init__(str(error))
        self.peer = peer
        self.status = error.error_status_hint


class _Peer:
    """One side of an exchange: a connection, and its HTTP."""

    def __init__(self, stream: Any, role: type[h11.CLIENT | h11.SERVER]) -> None:
        self.stream = stream
        self.http = h11.Connection(role, max_incomplete_event_size=1 << 18)
        self.has_left = False
        """Whether it has ended its side."""

    async def next_event(self) -> Any:
        """Wait for the next event. Raises _Malformed."""
        try:
            while (event := self.http.next_event()) is h11.NEED_DATA:
                data = await self.stream.receive_some(65536)
                self.has_left = not data
                self.http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise _Malformed(self, error) from error
        return event

    async def send(self, event: Any) -> None:
        """Write an event."""
        data = self.http.send(event)
        if data:
            await self.stream.send_all(data)

    def restart(self) -> bool:
        """Prepare for the next exchange, and return whether the connection can have one."""
        if self.http.our_state is h11.IDLE and self.http.their_state is h11.IDLE:
            return True  # the relay answered in place of the server
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        return True


class HttpRelay:
    """Passes requests for one server on."""

    def __init__(
        self, location: Location, traffic: Traffic, chaos: Chaos, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self.location = location
        self.traffic = traffic
        self.chaos = chaos
        self.hosts: frozenset[str] = frozenset()
        """The Host values that are served."""
        self.exchanges = 0
        self._loop = TrioEventLoop()
        self._context = (ssl_context or ssl.create_default_context()) if location.scheme == "https" else None

    async def serve(self, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        """Listen on loopback until cancelled; ``task_status`` gets the port. Raises OSError if it is not available."""
        listeners = await trio.open_tcp_listeners(port, host=HOST)
        port = listeners[0].socket.getsockname()[1]
        # The server sees its own name as Host, so it cannot prevent DNS rebinding itself.
        self.hosts = HostPolicy.for_address(HOST, port).hosts or frozenset()
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            task_status.started(port)
            await trio.serve_listeners(self._serve_connection, listeners, handler_nursery=nursery)

    async def connect(self) -> _Peer:
        """Return a connection to the server. Raises OSError and the errors of TLS."""
        location = self.location
        stream: Any = await self._loop.open_stream(location.host, location.port, location.unix)
        if self._context is not None:
            stream = await self._loop.start_tls(stream, self._context, location.host)
        return _Peer(stream, h11.CLIENT)

    def is_stale(self, server: _Peer) -> bool:
        """Whether the server has closed an idle connection."""
        return self._loop.is_readable(server.stream)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        connection = _Connection(self, stream)
        try:
            await connection.run()
        except* _Malformed as group:
            await connection.refuse(_first(group))
        except* (*BROKEN, _Over):
            pass  # Both sides see the end.
        except* Exception as group:
            self.traffic.note(f"a connection failed: {group.exceptions[0]!r}")  # the others go on
        finally:
            await connection.close()


class _Connection:
    """A connection of the host, and the one to the server that carries its requests."""

    def __init__(self, relay: HttpRelay, stream: trio.SocketStream) -> None:
        self._relay = relay
        self._client = _Peer(stream, h11.SERVER)
        self._server: _Peer | None = None
        self._left = trio.Event()

    async def run(self) -> None:
        """Pass requests on, one after the other."""
        client = self._client
        while isinstance(request := await client.next_event(), h11.Request):
            self._relay.exchanges += 1
            seen = _Seen(self._relay.traffic, self._relay.exchanges, request)
            try:
                await self._exchange(request, seen)
            finally:
                seen.ended()
            # With both, another party on the way may see another request here (RFC 9112, 6.1).
            if _names(request) >= FRAMING or not client.restart():
                return
            if self._server is not None and not self._server.restart():
                await self._drop_server()

    async def _drop_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await trio.aclose_forcefully(server.stream)

    async def close(self) -> None:
        """Close both connections."""
        for peer in (self._client, self._server):
            if peer is not None:
                with trio.CancelScope(shield=True), trio.move_on_after(1):
                    await peer.stream.aclose()

    async def refuse(self, error: _Malformed) -> None:
        """Answer a message that cannot be passed on, unless that side has left, or the answer has begun."""
        client, is_request = self._client, error.peer is self._client
        if is_request and client.has_left:
            return
        side = "the request" if is_request else f"the response of {self._relay.location.place}"
        text = f"the relay cannot read {side}: {error}"
        self._relay.traffic.note(text)
        if error.peer.has_left or client.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        with trio.move_on_after(LINGER), suppress(*BROKEN):
            await self._send_answer(error.status if is_request else 502, text, [(b"Connection", b"close")])
            await client.stream.send_eof()
            while await client.stream.receive_some(65536):
                pass  # closing with unread bytes would reset the connection before the answer is read

    async def _exchange(self, request: h11.Request, seen: _Seen) -> None:
        """Pass a request and its response on, or answer in place of the server."""
        relay = self._relay
        hosts = {value.decode("latin-1").lower() for name, value in request.headers if name == b"host"}
        if not hosts <= relay.hosts:
            await self._answer(421, f"the relay serves {HOST}, not {' '.join(hosts)}", seen)
        elif (status := seen.hit(relay.chaos, "status", "the relay answers")) is not None:
            await self._answer(int(status.low), f"injected by {status.text}", seen)
        else:
            await self._delay(seen)
            try:
                server = await self._connect()
            except (OSError, *BROKEN) as error:
                await self._answer(502, f"the relay cannot connect to {relay.location.place}: {error}", seen)
                return
            await server.send(self._passed_on(request))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._upload, server, request, seen)
                await self._download(server, seen)
                nursery.cancel_scope.cancel()

    async def _delay(self, seen: _Seen) -> None:
        chaos = self._relay.chaos
        if (slow := chaos.of("slow", "request", seen.number)) is not None:
            seconds = chaos.delay(slow, "request", seen.number)
            seen.inject(slow, f"delayed by {seconds * 1000:.0f} ms")
            await trio.sleep(seconds)

    async def _connect(self) -> _Peer:
        """Return the connection to the server, a new one if the old one was closed."""
        if self._server is not None and self._relay.is_stale(self._server):
            await self._drop_server()
        if self._server is None:
            self._server = await self._relay.connect()
        return self._server

    def _passed_on(self, request: h11.Request) -> h11.Request:
        host = self._relay.location.authority.encode()
        headers = [(raw, host if raw.lower() == b"host" else value) for raw, value in _without_hops(request)]
        if b"host" not in _names(request):
            headers.insert(0, (b"Host", host))  # which HTTP/1.0 may omit, and the relay's HTTP/1.1 may not
        return h11.Request(method=request.method, target=request.target, headers=headers)

    async def _answer(self, status: int, text: str, seen: _Seen) -> None:
        """Answer in place of the server, once the request was read."""
        while not isinstance(event := await self._client.next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise _Over
            seen.request_body(bytes(event.data))
        seen.request_ended()
        await self._send_answer(status, text, [(b"WWW-Authenticate", b"Bearer")] if status == 401 else [], seen)

    async def _send_answer(
        self, status: int, text: str, fields: list[tuple[bytes, bytes]], seen: _Seen | None = None
    ) -> None:
        body = f"{text}\n".encode()
        headers = [(b"Content-Type", b"text/plain; charset=utf-8"), (b"Content-Length", b"%d" % len(body)), *fields]
        response = h11.Response(status_code=status, headers=headers, reason=responses.get(status, "").encode())
        if seen is not None:
            seen.response(response, by_relay=True)
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            await self._client.send(event)

    async def _upload(self, server: _Peer, request: h11.Request, seen: _Seen) -> None:
        """Pass the body of a request on, and then the end of the host's side."""
        client = self._client
        while not isinstance(event := await client.next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise _Over
            # Seen before it is sent: the response may come before this task goes on.
            seen.request_body(bytes(event.data))
            await server.send(h11.Data(data=event.data))
        seen.request_ended()
        await server.send(h11.EndOfMessage(headers=event.headers))
        if (twice := self._relay.chaos.of("twice", "request", seen.number)) is not None:
            body = seen.whole_body()
            seen.inject(twice, "sent twice" if body is not None else "too long to be sent twice")
            if body is not None:
                self._relay.nursery.start_soon(self._again, self._passed_on(request), body)
        data = await client.stream.receive_some(65536)
        client.http.receive_data(data)
        if not data:
            self._left.set()
            # A host that has left and one that only sends no more look the same: the server decides.
            await (server.stream.send_eof() if hasattr(server.stream, "send_eof") else server.stream.aclose())

    async def _again(self, request: h11.Request, body: bytes) -> None:
        """Send a request once more, and drop its answer."""
        server = None
        try:
            with trio.move_on_after(AGAIN):
                server = await self._relay.connect()
                for event in (request, h11.Data(data=body), h11.EndOfMessage()):
                    await server.send(event)
                while not isinstance(await server.next_event(), h11.EndOfMessage):
                    pass
        except (OSError, _Malformed, *BROKEN):
            pass
        finally:
            if server is not None:
                await trio.aclose_forcefully(server.stream)

    async def _download(self, server: _Peer, seen: _Seen) -> None:
        """Pass a response on as it comes."""
        chaos, client, drops = self._relay.chaos, self._client, False
        while True:
            event = await server.next_event()
            match event:
                case h11.InformationalResponse():
                    await client.send(_respond(event))
                case h11.Response():
                    seen.response(event)
                    if seen.hit(chaos, "stall", "its answer is held") is not None:
                        await self._left.wait()
                        raise _Over
                    drops = seen.hit(chaos, "drop", "its answer is not passed on") is not None
                    if not drops:
                        await client.send(_respond(event))
                case h11.Data():
                    if seen.hit(chaos, "cut", "the connection ends within its answer") is not None:
                        await client.send(h11.Data(data=event.data[: len(event.data) // 2]))
                        raise _Over
                    if not drops:
                        await self._send_data(bytes(event.data), seen)
                    seen.response_body(bytes(event.data))
                case h11.EndOfMessage():
                    seen.response_ended()
                    if drops:
                        raise _Over
                    await client.send(h11.EndOfMessage(headers=event.headers))
                    return
                case _:
                    raise _Over

    async def _send_data(self, data: bytes, seen: _Seen) -> None:
        split = self._relay.chaos.of("split", "request", seen.number)
        size = int(split.low) if split is not None else len(data)
        for start in range(0, len(data), size):
            await self._client.send(h11.Data(data=data[start : start + size]))


class _Seen:
    """One request and its response, for the log and the recording."""

    def __init__(self, traffic: Traffic, number: int, request: h11.Request) -> None:
        self.number = number
        self._traffic = traffic
        headers = _joined(request.headers)
        self._method, target = request.method.decode(), request.target.decode("latin-1")
        # Ids are unique within a session. Without one, each exchange stands for itself.
        self._in_session = "mcp-session-id" in headers
        self._scope = headers.get("mcp-session-id", f" {number}")
        description = "" if self._method == "POST" else f"{self._method} {target} (request {number})"
        traffic.head(True, description, {"method": self._method, "target": target, "headers": headers}, number)
        self._request = _Body()
        self._length = -1 if "transfer-encoding" in headers else int(headers.get("content-length", -1))
        self._has_ended = False
        self._response: _Body | SseParser | None = None
        self._inflate: Any = None

    def hit(self, chaos: Chaos, kind: str, what: str) -> Fault | None:
        """Return the fault of a kind that hits this request, and note it."""
        fault = chaos.of(kind, "request", self.number)
        if fault is not None:
            self.inject(fault, what)
        return fault

    def inject(self, fault: Fault, what: str) -> None:
        """Note an injected fault."""
        self._traffic.note(f"chaos {fault.text}: request {self.number}: {what}")

    def ended(self) -> None:
        """Take the end of the exchange. In a session, another one may bring what is still to come."""
        if not self._in_session:
            self._traffic.forget(self._scope)

    def request_body(self, data: bytes) -> None:
        """Take a piece of the request's body."""
        self._request.add(data)
        if self._request.size == self._length:
            self.request_ended()

    def request_ended(self) -> None:
        """Take the end of the request. Further calls do nothing."""
        if not self._has_ended:
            self._has_ended = True
            self._message(from_client=True, text=self._request.text())

    def whole_body(self) -> bytes | None:
        """Return the body of the request, or ``None`` if it was too long to keep."""
        text = self._request.text()
        return None if isinstance(text, Overlong) else text

    def response(self, response: h11.Response, *, by_relay: bool = False) -> None:
        """Take the head of the response."""
        headers, status = _joined(response.headers), response.status_code
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        status_line = f"HTTP {status} {response.reason.decode('latin-1')}".rstrip()
        status_line += " by the relay" if by_relay else f" {kind}".rstrip()
        if self._method == "POST" and status in (200, 202):
            status_line = ""  # its messages follow
        head = {"status": status, "headers": headers}
        self._traffic.head(False, status_line and f"{status_line} (request {self.number})", head, self.number)
        if headers.get("content-encoding", "").lower() in ("gzip", "deflate"):
            self._inflate = zlib.decompressobj(wbits=47)
        if kind == "text/event-stream":
            self._response = SseParser(MOST_BYTES)
        elif kind == "application/json":
            self._response = _Body()

    def response_body(self, data: bytes) -> None:
        """Take a piece of the response's body."""
        if self._response is None:
            return
        if self._inflate is not None:
            try:
                data = self._inflate.decompress(data, MOST_BYTES)
            except zlib.error:
                self._response = None
                return
        if isinstance(self._response, _Body):
            self._response.add(data)
            return
        for event in self._response.receive(data):
            self._message(from_client=False, text=(event.data or "").encode())

    def response_ended(self) -> None:
        """Take the end of the response."""
        if isinstance(self._response, _Body):
            self._message(from_client=False, text=self._response.text())

    def _message(self, *, from_client: bool, text: bytes | Overlong) -> None:
        if text:  # the body of a GET, and an event that only sets an id, are empty
            self._traffic.message(from_client, text, self._scope, self.number)


class _Body:
    """A body, kept up to a limit."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        """Add a piece."""
        if self.size <= MOST_BYTES:
            self._parts.append(bytes(data))
        self.size += len(data)

    def text(self) -> bytes | Overlong:
        """Return all of it, or its beginning."""
        if self.size <= MOST_BYTES:
            return b"".join(self._parts)
        return Overlong(self.size, self._parts[0][:200])


def _respond(response: Any) -> Any:
    """Return a response, or an informational one, as it is passed on."""
    headers = _without_hops(response)
    return type(response)(status_code=response.status_code, headers=headers, reason=response.reason)


def _without_hops(head: Any) -> list[tuple[bytes, bytes]]:
    """Return the fields of a head that do not concern one connection: neither by name, nor named by Connection.

    Without Content-Length beside Transfer-Encoding, which overrides it (RFC 9112, 6.3).
    """
    options = b",".join(value for name, value in head.headers if name == b"connection").lower().split(b",")
    dropped = HOP_BY_HOP | {each.strip() for each in options} - END_TO_END
    if _names(head) >= FRAMING:
        dropped |= {b"content-length"}
    return [(raw, value) for raw, value in head.headers.raw_items() if raw.lower() not in dropped]


def _first(group: BaseExceptionGroup[_Malformed]) -> _Malformed:
    """Return the first error of a group."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _names(head: Any) -> set[bytes]:
    return {name for name, _ in head.headers}


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        joined[key] = f"{joined[key]}, {text}" if key in joined else text
    return joined
