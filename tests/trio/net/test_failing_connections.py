"""An exception in one connection ends that connection only: every acceptor, every step, every operation on a stream."""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from carriers import CARRIERS, added, make_server, over, run, until
from certificates import serving_as, trusting
from http2wire import Http2Client, message, session
from rawframes import FarClient
from triowire import MemoryListener, RawHttp, in_virtual_time, memory_site

from mcpio import McpError, Server
from mcpio._drivers.socket_server import MAX_CONNECTIONS, Acceptor, capped_connections, close_all
from mcpio.trio import open_tcp, open_transport, serve_http, serve_tcp, serve_websocket
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import TrioRuntime


def new_acceptor(**options: Any) -> Acceptor:
    return Acceptor(TrioEventLoop(), **options)


class Oops(Exception):
    """A fault in a connection that nothing expects."""


# Every step of accepting, setting up and serving

ACCEPTING = (
    "trio:SocketListener.accept",
    "mcpio._drivers.socket_server:address_of_peer",
    "mcpio._drivers.socket_server:user_id_of_peer",
)
SESSION = (
    "mcpio._drivers.socket_server:SessionHandler.serve_session",
    "mcpio._drivers.socket_server:prepare_server",
    "mcpio._drivers.setup:Actor",
    "mcpio.app.server:Server.connection",
    "mcpio.app.server:Server.session",
    "mcpio.app.session:Session._handle",
    "mcpio._drivers.socket_server:_SilenceTimer.stop",
)
LINES = (
    "mcpio._drivers.socket_server:set_tcp_keep_alive",
    "mcpio._drivers.socket_server:StreamHandler._principal",
    "mcpio._drivers.socket_server:StreamAdapter",
)
REQUESTS = (
    "mcpio._drivers.http_server:HttpConnectionHandler._recognise",
    "mcpio._drivers.http_server:new_parser",
    "mcpio._drivers.http_server:HttpConnection.run",
    "mcpio._drivers.http_server:HttpConnection._serve",
    "mcpio._drivers.http_server:HttpConnection._step",
    "mcpio._drivers.http_parsers:HttptoolsParser.feed",
    "mcpio._drivers.http_parsers:HttptoolsParser.next_event",
)
HTTP_SESSION = (
    "mcpio.app.server:Server.connection",
    "mcpio.app.server:Server.session",
    "mcpio.app.http_host:HttpHost._open",
    "mcpio.app.http_host:HttpHost._close",
)
# Of every request, and of a request or an answer of one of two kinds: one read or several, at once or later.
EXCHANGE = (
    "mcpio.app.http_host:HttpHost._act",
    "mcpio.app.session:Session._handle",
    "mcpio._drivers.http_server:HttpConnection._begin",
    "mcpio._drivers.http_server:HttpConnection._hand_over",
    "mcpio._drivers.http_server:HttpConnection._write",
    "mcpio._drivers.http_server:HttpConnection._finish",
    "mcpio._drivers.http_parsers:ResponseWriter.head",
    "mcpio._drivers.http_parsers:ResponseWriter.body",
)
# Of a request whose events are taken one by one: all but stateless ones that are answered at once.
EVENTS = (
    "mcpio.app.http_host:HttpHost._drain",
    "mcpio.http.server:HttpServer.next_event",
    "mcpio.http.server:HttpServer.next_ready",
)
WHOLE_REQUEST = (
    "mcpio.app.http_host:HttpHost.serve",
    "mcpio.http.server:HttpServer.serve",
    "mcpio.http.server:HttpServer.only_event",
    "mcpio.http.server:HttpServer.answer_of",
)
DIRECT_ANSWER = ("mcpio._drivers.http_server:HttpConnection._answer",)
PIECES = (
    "mcpio.app.http_host:HttpHost.receive",
    "mcpio.http.server:HttpServer.receive",
    "mcpio._drivers.http_server:HttpConnection._continue",
)
LATER_ANSWER = (
    "mcpio.app.http_host:HttpHost.responses_to_send",
    "mcpio.http.server:HttpServer.responses_to_send",
    "mcpio._drivers.http_server:HttpConnection.wake",
    "mcpio._drivers.http_server:HttpConnection._write_now",
    "mcpio._drivers.http_server:HttpConnection._pull",
)
UPGRADES = (
    "mcpio._drivers.http_server:HttpConnection._look_up",
    "mcpio._drivers.websocket_handler:WebSocketHandler.answer",
    "mcpio._drivers.websocket_handler:WebSocketHandler.carry",
    "mcpio._drivers.websocket_handler:WebSocketAdapter",
    "mcpio._drivers.http_parsers:ResponseWriter.upgrade",
)
STEPS = {
    "tcp": ACCEPTING + LINES + SESSION,
    "unix": ACCEPTING,
    "http": ACCEPTING + REQUESTS + HTTP_SESSION,
    "http+unix": ACCEPTING,
    "websocket": ACCEPTING + REQUESTS + UPGRADES + SESSION,
    "ws+unix": ACCEPTING,
}


def test_every_acceptor_is_among_those_that_are_tested() -> None:
    assert STEPS.keys() | {"stdio"} == CARRIERS.keys()


@attrs.define
class Fault:
    """A function that raises once."""

    name: str
    has_raised: bool = False

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Have the next call of the function raise, for a block."""
        module, _, path = self.name.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
        original = getattr(owner, name)

        def fail(*args: Any, **kwargs: Any) -> Any:
            if not self.has_raised:
                self.has_raised = True
                raise Oops(self.name)
            return original(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, fail)
            yield


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind, steps in STEPS.items() for step in steps])
def test_exception_in_any_step_ends_at_most_one_connection(
    kind: str, step: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Fault(step)

    async def main() -> None:
        async with over(kind, make_server(), tmp_path) as connect, trio.open_nursery() as nursery:
            bystander = await connect(nursery=nursery)
            assert await added(bystander, 0, 1) == 1

            async def be_unlucky() -> None:
                with contextlib.suppress(McpError):
                    unlucky = await connect(nursery=nursery, era="handshake")
                    await added(unlucky, 1, 1)
                    await unlucky.aclose(0)

            with fault.planted():
                nursery.start_soon(be_unlucky)
                await until(lambda: fault.has_raised)
            assert await added(bystander, 1, 2) == 3
            client = await connect(nursery=nursery)
            assert await added(client, 3, 4) == 7
            nursery.cancel_scope.cancel()

    run(main)
    assert [record for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], Oops)]


CALLS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "answered at once": ("add", {"a": 1, "b": 2}, EXCHANGE + WHOLE_REQUEST + DIRECT_ANSWER),
    "answered later": ("pause", {}, EXCHANGE + EVENTS + WHOLE_REQUEST + LATER_ANSWER),
    "in pieces": ("measure", {"text": "x" * 200_000}, EXCHANGE + EVENTS + PIECES + LATER_ANSWER),
}
"""Calls over HTTP: the tool, its arguments, and the steps that the call passes."""
PASSED = [
    (era, call, step) for era in ("stateless", "handshake") for call, (_, _, steps) in CALLS.items() for step in steps
]
PASSED += [("handshake", "answered at once", step) for step in EVENTS]


@pytest.mark.parametrize(("era", "call", "step"), PASSED)
def test_exception_in_any_step_of_a_request_ends_at_most_one_connection(
    era: str, call: str, step: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, fault = make_server(), Fault(step)
    tool, arguments, _ = CALLS[call]

    @server.tool
    async def pause() -> None:
        await trio.sleep(0.001)

    @server.tool
    def measure(text: str) -> int:
        return len(text)

    async def main() -> None:
        async with over("http", server, tmp_path) as connect, trio.open_nursery() as nursery:
            bystanders = [await connect(nursery=nursery, era=each) for each in ("stateless", "handshake")]
            unlucky = await connect(nursery=nursery, era=era)

            # Here the caller would wait without end if neither an answer nor an error came.
            with fault.planted(), contextlib.suppress(McpError):
                await unlucky.call_tool(tool, arguments)
            assert fault.has_raised
            for client in [*bystanders, await connect(nursery=nursery, era=era)]:
                assert await added(client, 1, 2) == 3
            nursery.cancel_scope.cancel()

    run(main)
    assert [record for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], Oops)]


@pytest.mark.parametrize(
    "step", ["mcpio.trio._event_loop:TrioEventLoop.server_stream", "mcpio._drivers.socket_server:SocketPeer"]
)
def test_an_exception_while_a_connection_is_secured_ends_that_one(step: str, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            context = serving_as("localhost", asks=ssl.CERT_OPTIONAL)
            listening = await nursery.start(partial(serve_tcp, server, ssl_context=context))
            open_client = partial(open_tcp, "localhost", listening.port, ssl_context=trusting())
            fault = Fault(step)
            with fault.planted(), contextlib.suppress(McpError):
                async with open_client():
                    pass
            assert fault.has_raised
            async with open_client() as client:
                assert await added(client, 1, 2) == 3
            nursery.cancel_scope.cancel()

    run(main)
    assert "a connection failed" in caplog.messages


# Every operation on a stream


@attrs.define
class FaultyStream(trio.abc.HalfCloseableStream):
    """A stream one of whose operations raises."""

    stream: trio.StapledStream[Any, Any]
    countdown: int
    """How many operations come before that one."""
    error: Callable[[], Exception]
    has_raised: bool = False

    def _count(self) -> None:
        self.countdown -= 1
        if self.countdown == -1:
            self.has_raised = True
            raise self.error()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        self._count()
        return bytes(await self.stream.receive_some(max_bytes))

    async def send_all(self, data: Any) -> None:
        self._count()
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        self._count()
        await self.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        self._count()
        await self.stream.send_eof()

    async def aclose(self) -> None:
        try:
            self._count()
        finally:
            await self.stream.aclose()


async def by_lines(near: trio.abc.Stream) -> None:
    async with open_transport(near) as client:
        assert await added(client, 1, 2) == 3


async def by_http1(near: trio.abc.Stream) -> None:
    client = RawHttp(near)
    await client.initialize()
    assert (await client.post(client.call("add", a=1, b=2))).json["result"]["structuredContent"] == {"result": 3}
    # Refused in the middle of a body, after which the server reads on for a moment.
    await client.say(client.head("POST", content_type="application/json", content_length="99999999999"))
    assert (await client.hear()).status == 413
    await client.rest()
    await near.aclose()


async def by_http2(near: trio.abc.Stream) -> None:
    async with trio.open_nursery() as nursery:
        client = await Http2Client(near).begin(nursery)
        headers = await session(client)
        asked = await client.ask("POST", "/mcp", headers, message("add", a=1, b=2))
        await asked.ended.wait()
        assert asked.json["result"]["structuredContent"] == {"result": 3}
        # What is no HTTP/2 is refused, after which the server reads on for a moment.
        await client.say(b"\xff" * 100)
        nursery.cancel_scope.cancel()
    await near.aclose()


async def by_websocket(near: trio.abc.Stream) -> None:
    far = FarClient(near, "localhost")
    await far.open()
    await far.say(id=1, method="tools/call", params={"name": "add", "arguments": {"a": 1, "b": 2}})
    assert (await far.message())["result"]["structuredContent"] == {"result": 3}
    await near.aclose()


@attrs.frozen
class Way:
    """How to serve, and how to talk to the server."""

    serve: Callable[..., Awaitable[None]]
    talk: Callable[[trio.abc.Stream], Awaitable[None]]
    secured: bool = False


WAYS = {
    "lines": Way(serve_tcp, by_lines),
    "lines over TLS": Way(serve_tcp, by_lines, secured=True),
    "h11": Way(partial(serve_http, parser="h11"), by_http1),
    "httptools": Way(partial(serve_http, parser="httptools"), by_http1),
    "h11 over TLS": Way(partial(serve_http, parser="h11"), by_http1, secured=True),
    "HTTP/1.1 where HTTP/2 is spoken too": Way(partial(serve_http, http2=True), by_http1),
    "HTTP/2": Way(partial(serve_http, http2=True), by_http2),
    "WebSocket": Way(serve_websocket, by_websocket),
}


@pytest.mark.parametrize("error", [Oops, ConnectionResetError])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_exception_in_an_operation_on_a_stream_ends_that_connection_only(
    way: Way, error: Callable[[], Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        listener, server = MemoryListener(), make_server()
        context = serving_as("localhost") if way.secured else None

        def connect(countdown: int) -> tuple[trio.abc.Stream, FaultyStream]:
            near, far = trio.testing.memory_stream_pair()
            faulty = FaultyStream(far, countdown, error)
            end: trio.abc.Stream = listener.connect(lambda: (near, faulty))
            if way.secured:
                end = trio.SSLStream(end, trusting(), server_hostname="localhost", https_compatible=True)
            return end, faulty

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(way.serve, server, listeners=[listener], ssl_context=context))
            count, has_raised, scope = 0, True, trio.CancelScope()
            # The last conversation meets no fault, for it has no more operations than that.
            while has_raised:
                near, faulty = connect(count)
                try:
                    with trio.move_on_after(200) as scope:
                        await way.talk(near)
                except Exception:
                    assert faulty.has_raised
                await trio.aclose_forcefully(near)
                await trio.testing.wait_all_tasks_blocked()
                count, has_raised = count + 1, faulty.has_raised
            assert count > 5
            assert not scope.cancelled_caught
            assert not [session for session in server.sessions if way.talk in (by_lines, by_websocket)]
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    levels = {record.levelno for record in caplog.records}
    assert levels <= {logging.WARNING, logging.ERROR}


# Accepting and closing


class FailingListener(MemoryListener):
    """A listener that cannot always accept, and cannot be closed."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = [*errors]

    async def accept(self) -> trio.abc.Stream:
        if self.errors:
            raise self.errors.pop(0)
        return await super().accept()

    async def aclose(self) -> None:
        await super().aclose()
        raise Oops("closing")


@pytest.mark.parametrize("error", [Oops("accepting"), OSError(errno.EMFILE, "Too many open files")])
def test_failing_listener_is_retried_and_logged_seldom(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    made: list[int] = []

    async def serve(stream: trio.abc.Stream, peer: object) -> None:
        await stream.aclose()

    async def main() -> None:
        listener, good = FailingListener(*[error] * 1000), MemoryListener()
        door = new_acceptor(max_connections=10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.accept, [listener, good], TrioRuntime(nursery), serve, lambda: made.append(1))
            assert await good.connect().receive_some() == b""
            assert await listener.connect().receive_some() == b""
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    texts = [record.getMessage() for record in caplog.records]
    assert texts[:1] == ["a connection could not be accepted"]
    assert [text for text in texts if "times more before" in text]
    assert len(texts) < 30
    assert texts[-1] == "a listener could not be closed"
    # At the limit of open files, connections at rest make room.
    assert bool(made) is isinstance(error, OSError)


def test_all_listeners_are_closed_though_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Closed(MemoryListener):
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        good = Closed()
        await close_all([FailingListener(), good], TrioEventLoop())
        assert good.is_closed

    trio.run(main)
    assert caplog.messages == ["a listener could not be closed"]


def test_failing_make_room_delays_no_waiting_client(caplog: pytest.LogCaptureFixture) -> None:
    class Site:
        """Serves a connection until its client leaves."""

        async def serve(self, stream: trio.abc.Stream, peer: object) -> None:
            await stream.send_all(b"!")
            await stream.receive_some()
            await stream.aclose()

        def make_room(self) -> None:
            raise Oops("making room")

    async def main() -> None:
        listener, site, door = MemoryListener(), Site(), new_acceptor(max_connections=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.accept, [listener], TrioRuntime(nursery), site.serve, site.make_room)
            first, second = listener.connect(), listener.connect()
            assert await first.receive_some() == b"!"
            await trio.testing.wait_all_tasks_blocked()
            await first.aclose()
            assert await second.receive_some() == b"!"
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    assert caplog.messages == ["no connection could be closed for another"]


# The number of connections


@pytest.mark.parametrize(("files", "asked", "given"), [(32, 24, 24), (16, 24, 12), (1, 24, 1), (None, 24, 24)])
def test_connections_leave_a_share_of_open_files_unused(
    files: int | None,
    asked: int,
    given: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("mcpio._drivers.socket_server.max_open_files", lambda: files)
    held = 0

    async def serve(stream: trio.abc.Stream, peer: object) -> None:
        nonlocal held
        held += 1
        await trio.sleep_forever()

    async def main() -> None:
        listener, door = MemoryListener(), new_acceptor(max_connections=asked)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.accept, [listener], TrioRuntime(nursery), serve, lambda: None)
            for _ in range(given + 2):
                listener.connect()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert held == given
    lowered = [f"max_connections is {given} instead of {asked}: the process may open {files} files (ulimit -n)"]
    assert caplog.messages == ([] if given == asked else lowered)


def test_the_default_number_of_connections_fits_into_1024_files(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcpio._drivers.socket_server.max_open_files", lambda: 1024)
        capped_connections(MAX_CONNECTIONS)
        assert not caplog.messages
        capped_connections(MAX_CONNECTIONS + 1)
        assert caplog.messages


def test_max_connections_of_another_type_raises() -> None:
    with pytest.raises(TypeError, match="max_connections must be int, not 'many'"):
        capped_connections("many")  # type: ignore[arg-type]  # as an untyped caller may


# Shared tasks


def test_unwritable_response_affects_no_other_session() -> None:
    """What wakes a connection is the handler of any session, or another connection."""
    server = Server("here", "1.0")
    go_on = trio.Event()

    @server.tool
    async def wait() -> str:
        await go_on.wait()
        return "waited"

    async def main() -> None:
        listener = MemoryListener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve_http, server, listeners=[listener]))
            clients = [RawHttp(listener.connect()) for _ in range(2)]
            for client in clients:
                await client.initialize()
                await client.say(client.posted(client.call("wait")))
            await trio.testing.wait_all_tasks_blocked()
            fault = Fault("mcpio._drivers.http_server:HttpConnection.wake")
            with fault.planted():
                go_on.set()
                await trio.testing.wait_all_tasks_blocked()
            assert fault.has_raised
            heard = []
            for client in clients:
                with contextlib.suppress(EOFError):
                    heard.append((await client.hear()).json["result"]["content"][0]["text"])
            assert heard == ["waited"]
            nursery.cancel_scope.cancel()

    in_virtual_time(main)


def test_failing_http2_deadline_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        listener, fault = MemoryListener(), Fault("mcpio._drivers.http2:Http2Streams.handle_timeout")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve_http, make_server(), listeners=[listener], http2=True))
            with fault.planted():
                client = await Http2Client(listener.connect()).begin(nursery)
                await trio.sleep(100)
                assert fault.has_raised
                assert client.is_closed
            await by_http2(listener.connect())
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    assert caplog.messages == ["a deadline of a connection could not be acted on"]


def test_failing_close_of_one_connection_affects_no_other_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("here", "1.0")

    @server.tool
    async def wait() -> str:
        await trio.sleep(0.1)
        return "waited"

    async def main() -> None:
        async with memory_site(server) as site:
            idle, busy = site.connect(), site.connect()
            await idle.initialize()
            await busy.initialize()
            await busy.say(busy.posted(busy.call("wait")))
            await trio.testing.wait_all_tasks_blocked()
            with Fault("mcpio._drivers.http_server:HttpConnection.close").planted():
                site.scope.cancel()
                assert (await busy.hear()).json["result"]["content"][0]["text"] == "waited"

    in_virtual_time(main)
    assert caplog.messages == ["a connection could not be closed gracefully"]


def test_failing_call_soon_function_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise Oops

    async def main() -> None:
        TrioRuntime(None).call_soon(fail)
        await trio.testing.wait_all_tasks_blocked()

    trio.run(main)
    assert caplog.messages == ["a call from elsewhere failed"]
