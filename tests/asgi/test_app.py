"""The ASGI application: kinds of scopes, where its endpoint is, whom it serves, and its lifespan."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiwire import AsgiWire, EventLoop, as_call
from httpwire import RawClient

from mcpio import Context, LocalProtocolError, Server
from mcpio.asgi import app
from mcpio.http.model import Denied, HostPolicy, HttpOptions
from mcpio.observe import Tap


def small_server(**options: Any) -> Server:
    server = Server("small", "1", **options)

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    def who(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    return server


async def said(wire: AsgiWire, *messages: dict[str, Any], type: str) -> list[dict[str, Any]]:
    """Hold a conversation that is no HTTP, and return what the application said."""
    waiting, said = list(messages), list[dict[str, Any]]()

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    await wire.application({"type": type}, receive, send)
    return said


def test_arguments_of_wrong_types_are_rejected() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"^server must be Server, not 5$"):
        app(wrong)
    with pytest.raises(TypeError, match=r"^options must be HttpOptions, not 5$"):
        app(small_server(), options=wrong)


# Kinds of calls


def test_websocket_scope_is_closed(loop: EventLoop) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server()), loop)
        said_there = await said(wire, {"type": "websocket.connect"}, type="websocket")
        assert said_there == [{"type": "websocket.close", "code": 1000}]

    loop.run(main)


def test_unknown_scope_raises_value_error(loop: EventLoop) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="serves http and websocket, not telegraph"):
            await said(AsgiWire(app(small_server()), loop), type="telegraph")

    loop.run(main)


# Where it is


@pytest.mark.parametrize(
    ("path", "root", "endpoint"),
    [
        ("/mcp", "", "/mcp"),
        ("/mcp/", "", "/mcp"),
        ("/", "", "/mcp"),
        ("", "", "/mcp"),
        ("/tools", "/tools", "/mcp"),
        ("/tools/", "/tools", "/mcp"),
        ("/tools/", "/tools/", "/mcp"),
        ("/tools/mcp", "/tools", "/mcp"),
        ("/", "/tools", "/mcp"),
        ("/mcp", "/tools", "/mcp"),
        ("/mcp", "/mc", "/mcp"),
        ("/a/b/mcp", "/a/b", "/mcp"),
        ("/a/b", "/a/b", "/elsewhere"),
    ],
)
def test_endpoint_is_the_mount_point(loop: EventLoop, path: str, root: str, endpoint: str) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server(), options=HttpOptions(path=endpoint)), loop)
        call = await wire.begin("GET", path, {}, [b""], scope={"root_path": root})
        # The endpoint wants a session; anything else is not found.
        assert call.status in (400, 406)

    loop.run(main)


@pytest.mark.parametrize("path", ["/other", "/mcp/other", "/mcp?x", "/toolsmcp"])
def test_other_paths_are_not_found(loop: EventLoop, path: str) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server()), loop)
        # A question mark in a path was sent as %3F, and begins no query.
        call = await wire.begin("GET", "", {}, [b""], scope={"path": path, "root_path": "/tools"})
        assert call.status == 404

    loop.run(main)


def test_query_and_legacy_paths_are_served_below_the_mount_point(loop: EventLoop) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server(), options=HttpOptions(health="/health")), loop)
        call = await wire.begin("GET", "/tools/health?deep=1", {}, [b""], scope={"root_path": "/tools"})
        assert (call.status, call.data) == (200, b'{"status":"ok"}')

    loop.run(main)


def test_minimal_scope_is_served(loop: EventLoop) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server(), options=HttpOptions(health="/health")), loop)
        scope = {"type": "http", "method": "GET", "path": "/health", "headers": iter([])}
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            messages.append(message)

        await wire.application(scope, receive, send)
        assert [message["type"] for message in messages] == ["http.response.start", "http.response.body"]
        assert messages[0]["status"] == 200

    loop.run(main)


# Whom it serves


@pytest.mark.req("HTTP-04", "HTTP-05")
def test_default_policy_follows_the_server_address(loop: EventLoop) -> None:
    async def status(wire: AsgiWire, server: Any, host: str, **origin: str) -> int:
        headers = {"host": host, "accept": "text/event-stream", **origin}
        return (await wire.begin("GET", "/mcp", headers, [b""], scope={"server": server})).status

    async def main() -> None:
        wire = AsgiWire(app(small_server()), loop)
        here, away = ("127.0.0.1", 8000), ("203.0.113.1", 8000)
        assert await status(wire, here, "localhost:8000") == 400
        assert await status(wire, here, "evil.example:8000") == 403
        assert await status(wire, away, "this.example:8000") == 400
        assert await status(wire, here, "evil.example:8000") == 403
        assert await status(wire, ("::1", 8000), "evil.example") == 403
        assert await status(wire, here, "localhost:8000", origin="http://evil.example") == 403
        assert await status(wire, away, "this.example", origin="http://evil.example") == 403
        assert await status(wire, away, "this.example", origin="http://203.0.113.1:8000") == 400
        assert await status(wire, ("/run/mcp.sock", None), "any.example") == 400
        assert await status(wire, None, "any.example") == 400

    loop.run(main)


def test_given_policy_overrides_the_server_address(loop: EventLoop) -> None:
    async def main() -> None:
        policy = HostPolicy(frozenset({"mcp.example"}), None)
        wire = AsgiWire(app(small_server(), options=HttpOptions(policy=policy)), loop, server=("127.0.0.1", 80))
        for host, status in (("mcp.example", 400), ("localhost", 403)):
            call = await wire.ask("GET", "/mcp", {"host": host, "accept": "text/event-stream"}, b"")
            assert call.status == status

    loop.run(main)


@pytest.mark.req("SESS-09")
@pytest.mark.parametrize("later", [False, True])
def test_principal_hook_binds_the_session(loop: EventLoop, later: bool) -> None:
    async def find(scope: Any) -> Any:
        await loop.sleep(0)
        return scope["client"][0]

    async def main() -> None:
        application = app(small_server(), principal=find if later else lambda scope: scope["client"][0])
        client = RawClient(AsgiWire(application, loop))
        await client.initialize()
        answer = await client.call("who")
        assert answer.json["result"]["content"][0]["text"] == "'203.0.113.9'"

    loop.run(main)


def test_denied_principal_is_rejected(loop: EventLoop) -> None:
    async def main() -> None:
        denied = Denied(headers=((b"www-authenticate", b"Bearer"),))
        refused = await RawClient(AsgiWire(app(small_server(), principal=lambda _: denied), loop)).initialize()
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")

    loop.run(main)


def test_look_up_of_a_principal_that_does_not_end_is_answered_with_503(loop: EventLoop) -> None:
    async def find(scope: Any) -> None:
        await loop.event().wait()

    async def main() -> None:
        wire = AsgiWire(app(small_server(), principal=find), loop)
        call = as_call(await wire.ask("GET", "/mcp", {}, b""))
        await loop.sleep(31)
        await loop.settle()
        assert (call.status, call.headers["retry-after"], call.returned()) == (503, "5", True)

    loop.run(main)


def test_principal_hook_error_propagates(loop: EventLoop) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server(), principal=lambda scope: scope["user"]), loop)
        call = await wire.ask("GET", "/mcp", {}, b"")
        assert isinstance(call.raised, KeyError)
        assert call.messages == []

    loop.run(main)


# Lifespan


class Opened:
    """A lifespan that says when it is entered and left."""

    def __init__(self, *, fails_at: str = "") -> None:
        self.seen: list[str] = []
        self.fails_at = fails_at

    @contextlib.asynccontextmanager
    async def __call__(self, server: Server) -> AsyncIterator[str]:
        self._step("entered")
        yield "the state"
        self._step("left")

    def _step(self, step: str) -> None:
        if self.fails_at == step:
            raise ValueError(f"could not be {step}")
        self.seen.append(step)


STARTUP, SHUTDOWN = {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}


def test_lifespan_protocol_enters_and_leaves_the_lifespan(loop: EventLoop) -> None:
    opened = Opened()
    server = small_server(lifespan=opened)

    @server.tool
    def state(ctx: Context) -> str:
        return f"{ctx.state}, {opened.seen}"

    async def main() -> None:
        wire = AsgiWire(app(server), loop)
        may_end = loop.event()
        messages, told = [STARTUP, SHUTDOWN], list[Any]()

        async def receive() -> Any:
            if len(messages) == 1:
                await may_end.wait()
            return messages.pop(0)

        async def send(message: Any) -> None:
            told.append(message)

        loop.start(lambda: wire.application({"type": "lifespan"}, receive, send))
        await loop.settle()
        assert told == [{"type": "lifespan.startup.complete"}]
        client = RawClient(wire)
        await client.initialize()
        listening = await client.listen()
        answer = await client.call("state")
        assert answer.json["result"]["content"][0]["text"] == "the state, ['entered']"
        may_end.set()
        await loop.settle()
        assert told[1:] == [{"type": "lifespan.shutdown.complete"}]
        assert opened.seen == ["entered", "left"]
        assert listening.is_over
        refused = await wire.ask("GET", "/mcp", {}, b"")
        assert isinstance(refused.raised, RuntimeError)

    loop.run(main)


@pytest.mark.parametrize(
    ("fails_at", "told"), [("entered", "lifespan.startup.failed"), ("left", "lifespan.shutdown.failed")]
)
def test_failing_lifespan_is_reported_to_the_server(loop: EventLoop, fails_at: str, told: str) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server(lifespan=Opened(fails_at=fails_at))), loop)
        *_, failed = await said(wire, STARTUP, SHUTDOWN, type="lifespan")
        assert failed["type"] == told
        assert failed["message"].endswith(f"ValueError: could not be {fails_at}\n")

    loop.run(main)


def test_unentered_lifespan_raises_runtime_error(loop: EventLoop) -> None:
    async def main() -> None:
        wire = AsgiWire(app(small_server(lifespan=Opened())), loop)
        call = await wire.ask("GET", "/mcp", {}, b"")
        assert "enter app.lifespan()" in str(call.raised)

    loop.run(main)


def test_framework_lifespan_serves_requests(loop: EventLoop) -> None:
    opened = Opened()

    async def main() -> None:
        application = app(small_server(lifespan=opened))
        client = RawClient(AsgiWire(application, loop))
        for _ in range(2):  # as often as it likes
            async with application.lifespan():
                with pytest.raises(RuntimeError, match="is entered already"):
                    await application.lifespan().__aenter__()
                client.headers.clear()
                assert (await client.initialize()).status == 200
        assert opened.seen == ["entered", "left"] * 2

    loop.run(main)


def test_lifespan_error_propagates_unwrapped(loop: EventLoop) -> None:
    async def main() -> None:
        for application in (app(small_server()), app(small_server(lifespan=Opened()))):
            with pytest.raises(ValueError, match="as it is"):
                async with application.lifespan():
                    raise ValueError("as it is")

    loop.run(main)


def test_server_without_lifespan_is_served_outside_and_inside_one(loop: EventLoop) -> None:
    async def main() -> None:
        application = app(small_server())
        wire = AsgiWire(application, loop)
        before = RawClient(wire)
        await before.initialize()
        async with application.lifespan():
            within = RawClient(wire)
            await within.initialize()
            assert (await within.call("echo", text="x")).status == 200
        after = RawClient(wire)
        assert (await after.initialize()).status == 200
        assert (await within.call("echo", text="x")).status == 404

    loop.run(main)


# Closing


@pytest.mark.req("SESS-05")
def test_close_ends_streams_and_rejects_new_requests(loop: EventLoop) -> None:
    async def main() -> None:
        application = app(small_server())
        wire = AsgiWire(application, loop)
        client = RawClient(wire)
        await client.initialize()
        listening = as_call(await client.listen())
        assert not listening.over()
        application.close()
        await loop.settle()
        assert listening.is_over
        assert listening.returned()
        del client.headers["mcp-session-id"], client.headers["mcp-protocol-version"]
        assert (await client.initialize()).status == 503
        application.close(0)
        await loop.settle()

    loop.run(main)


@pytest.mark.parametrize("in_session", [True, False])
def test_stream_beyond_the_grace_ends_with_an_error(loop: EventLoop, in_session: bool) -> None:
    ended: list[str] = []

    async def main() -> None:
        server = small_server()

        @server.tool
        async def hold() -> None:
            try:
                await loop.event().wait()
            finally:
                ended.append("hold")

        application = app(server, options=HttpOptions(answers="sse", sessions=in_session))
        client = RawClient(AsgiWire(application, loop))
        if in_session:
            await client.initialize()
        call = as_call(await client.call("hold"))
        application.close(0)
        await loop.sleep(0.01)
        await loop.settle()
        assert (call.is_over, call.returned(), ended) == (True, True, ["hold"])
        assert call.new_messages()[-1]["error"]["message"] == "Service unavailable: the server is closing"

    loop.run(main)


def test_close_without_requests_and_without_grace(loop: EventLoop) -> None:
    unserved, waiting = app(small_server()), app(small_server(lifespan=Opened()))
    waiting.close()
    unserved.close()
    for grace in (-1, float("nan")):
        with pytest.raises(LocalProtocolError):
            unserved.close(grace)

    async def main() -> None:
        assert (await RawClient(AsgiWire(unserved, loop)).initialize()).status == 503

    loop.run(main)


# Taps


def test_tap_is_attached_to_each_session(loop: EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    class Heard(Tap):
        def event(self, event: Any, now: float) -> None:
            heard.append((number, type(event).__name__))

    heard: list[tuple[int, str]] = []
    number = 0

    def make() -> Any:
        nonlocal number
        number += 1
        return Heard() if number == 1 else "no tap"

    async def main() -> None:
        wire = AsgiWire(app(small_server(), tap=make), loop)
        for _ in range(2):
            assert (await RawClient(wire).initialize()).status == 200

    loop.run(main)
    assert (1, "Initialized") in heard
    assert [record.getMessage() for record in caplog.records] == ["a tap cannot be attached to a session"]
