from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import trio
import trio.testing
from acting import ACT, act, both, failing_with, serving, waiting
from linked import Link
from tasked import Wire

from mcpio.app.context import Context, RequestScope
from mcpio.app.server import Server
from mcpio.app.session import checked_callback
from mcpio.engine.limits import Timeout
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    NoBackChannel,
    RequestError,
    RequestTimeout,
    ToolError,
)
from mcpio.events import CancelReceived, CloseReason, IncomingId, RequestFailed, ResponseReceived
from mcpio.testing import ManualCancelled
from mcpio.trio import connect, serve
from mcpio.types import (
    CallToolRequest,
    CreateMessageRequest,
    CreateMessageResult,
    CustomNotification,
    CustomRequest,
    EmptyResult,
    PingRequest,
    SamplingMessage,
    ServerCapabilities,
    TextContent,
    ToolListChangedNotification,
)

Act = Callable[[Context], Any]


# Requests of our own


def test_a_request_gives_the_typed_result() -> None:
    link = Link(serving(lambda _, request: {"got": request.params}), era="handshake")
    assert link.do(link.client.request(CustomRequest("test/act", {"a": 1}))) == {"got": {"a": 1}}
    assert link.do(link.client.request(PingRequest())) == EmptyResult()


def test_error_response_is_raised() -> None:
    link = Link(failing_with(RequestError(7, "no", {"why": "not"}), later=False))
    with pytest.raises(RequestError, match=r"^no \(7\)$") as caught:
        act(link)
    assert caught.value.data == {"why": "not"}


@pytest.mark.parametrize("timeout", [5, Timeout(5), Timeout(None, 5)])
def test_a_request_that_takes_too_long_fails(timeout: Any) -> None:
    server, seen = waiting()
    link = Link(server)
    ask = link.start(link.client.request(ACT, timeout=timeout))
    link.advance(4.9)
    assert ask.state == "waits"
    link.advance(0.2)
    with pytest.raises(RequestTimeout):
        _ = ask.result
    assert seen[0].cancelled
    assert seen[1:] == ["over"]
    assert link.reports == []


def test_cancelling_the_wait_cancels_the_request() -> None:
    server, seen = waiting()
    link = Link(server, era="handshake")
    ask = link.start(link.client.request(ACT))
    ask.cancel()
    assert ask.state == "cancelled"
    assert seen[0].cancelled
    assert seen[1:] == ["over"]
    assert len(link.session.connection.pending.incoming) == 0
    assert link.do(link.client.request(PingRequest())) == EmptyResult()
    assert link.reports == []


def test_a_request_fails_when_the_connection_does() -> None:
    server, seen = waiting()
    link = Link(server)
    ask = link.start(link.client.request(ACT))
    link.pair.lose(OSError("cut"))
    link.run()
    with pytest.raises(ConnectionLost, match="the channel broke"):
        _ = ask.result
    assert seen[0].cancelled
    assert seen[1:] == ["over"]
    for session in (link.client, link.session):
        assert session.ended is not None
        assert session.ended.reason is CloseReason.LOST
    assert link.reports == []


def test_malformed_result_raises() -> None:
    server = Server("s")

    @server.tool
    def echo() -> None: ...

    link = Link(server)
    server.handlers["tools/call"] = lambda ctx, _: link.session.connection.send_raw_result(ctx.id, b'{"content": 5}')
    with pytest.raises(InvalidMessage, match=r"^content: expected an array"):
        link.call("echo")


def test_nothing_is_sent_on_a_closed_connection() -> None:
    link = Link(Server("s"))
    link.client.close()
    for call in (
        lambda: link.do(link.client.request(PingRequest())),
        lambda: link.client.notify(CustomNotification("a/b", {})),
        link.client.check_open,
    ):
        with pytest.raises(NoBackChannel, match=r"^the connection is closed$"):
            call()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (CallToolRequest("a"), "needs the capability tools"),
        (ACT, None),
    ],
)
def test_undeclared_request_raises(payload: Any, reason: str | None) -> None:
    link = Link(Server("s"))
    expected: type[Exception] = RequestError if reason is None else LocalProtocolError
    with pytest.raises(expected, match=reason):
        link.do(link.client.request(payload))


def test_non_request_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"^request must be a request of mcpio.types, not ToolListChangedNotification"):
        Link(Server("s"), era="handshake").do(
            Link(Server("s"), era="handshake").client.request(ToolListChangedNotification())
        )


def test_notify_returns_before_the_peer_handles_the_notification() -> None:
    server, seen = Server("s"), []
    server.notification_handlers["a/b"] = lambda _, notification: seen.append(notification)
    link = Link(server, era="handshake")
    link.client.notify(CustomNotification("a/b", {"c": 1}))
    assert seen == []
    link.run()
    assert seen == [CustomNotification("a/b", {"c": 1})]


def test_client_serves_requests_of_the_server() -> None:
    scopes: list[RequestScope] = []

    def sample(scope: RequestScope, _: CreateMessageRequest) -> CreateMessageResult:
        scopes.append(scope)
        return CreateMessageResult("assistant", TextContent("hi"), "model")

    link = Link(Server("s"), sampling=sample, era="handshake")
    asked = link.session.request(CreateMessageRequest((SamplingMessage("user", TextContent("hello")),), 10))
    assert link.do(asked).content == TextContent("hi")
    assert not isinstance(scopes[0], Context)


def test_undeclared_notification_raises() -> None:
    link = Link(Server("s"), era="handshake")
    with pytest.raises(LocalProtocolError, match="needs the capability tools"):
        link.session.notify(ToolListChangedNotification())


def test_aclose_waits_for_the_end() -> None:
    link = Link(Server("s"))
    ask = link.start(link.client.aclose(grace=0))
    link.advance(0)
    assert ask.state == "returned"
    assert link.client.ended is not None
    assert link.client.ended.reason is CloseReason.CLOSED
    link.client.close()


# Progress


def test_progress_reaches_its_callback() -> None:
    def report(ctx: Context, _: CustomRequest) -> dict[str, Any]:
        for progress in (1, 3, 2, 3, 4.5):
            ctx.session._send_progress(ctx.id, progress, 10, "so far")
        return {}

    seen: list[Any] = []
    link = Link(serving(report))
    link.do(link.client.request(ACT, on_progress=lambda *said: seen.append(said)))
    # What waits to be written is told once, with the newest figures.
    assert seen == [(4.5, 10, "so far")]


@pytest.mark.parametrize("error", [ValueError("callback"), ManualCancelled("callback")])
def test_failing_progress_callback_is_reported_and_the_call_continues(error: BaseException) -> None:
    async def report(ctx: Context) -> dict[str, Any]:
        ctx.progress(1)
        return {"done": True}

    def fail(*_: Any) -> None:
        raise error

    link = Link(serving(lambda ctx, _: report(ctx)), era="handshake")
    assert link.do(link.client.request(ACT, on_progress=fail)) == {"done": True}
    assert (link.reports, link.errors) == (["a progress callback failed"], [error])


async def waits_for_progress(*_: Any) -> None: ...


@pytest.mark.parametrize("callback", [waits_for_progress, "progress"])
def test_async_progress_callback_raises_at_the_call(callback: Any) -> None:
    link = Link(Server("s"), era="handshake")
    with pytest.raises(TypeError, match=r"^on_progress must be a plain function, called without waiting, not "):
        link.do(link.client.request(PingRequest(), on_progress=callback))
    assert link.do(link.client.request(PingRequest())) == EmptyResult()


@pytest.mark.parametrize("give", [waits_for_progress, lambda *_: Later()])
def test_progress_callback_returning_an_awaitable_is_reported(give: Callable[..., Any]) -> None:
    server = Server("s")
    server.notification_handlers["a/b"] = give
    link = Link(server, era="handshake")
    link.client.notify(CustomNotification("a/b", {}))
    link.run()
    assert link.reports == ["the handler of a/b failed"]
    assert "which is never awaited: make it a plain function" in str(link.errors[0])


class Later:
    def __await__(self) -> Generator[None, None, None]:
        yield


def test_a_callback_is_a_plain_function() -> None:
    assert checked_callback("on_log", None, "(message)") is None
    assert checked_callback("on_log", print, "(message)") is print


def test_invalid_progress_raises_in_the_handler() -> None:
    def report(ctx: Context, _: CustomRequest) -> dict[str, Any]:
        for wrong in ("half", float("nan")):
            with pytest.raises(LocalProtocolError):
                ctx.progress(wrong)  # type: ignore[arg-type]  # the mistake
        return {}

    link = Link(serving(report))
    link.do(link.client.request(ACT, on_progress=print))
    assert link.reports == []


@pytest.mark.req("PROG-03")
def test_progress_after_the_end_is_left_out() -> None:
    seen: list[Context] = []

    def keep(ctx: Context, _: CustomRequest) -> dict[str, Any]:
        seen.append(ctx)
        return {}

    link = Link(serving(keep))
    link.do(link.client.request(ACT, on_progress=print))
    seen[0].progress(1)
    link.run()
    assert link.reports == []


# Handlers


@pytest.mark.req("RPC-19")
@both
@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        ToolError("only tools may"),
        InvalidMessage("a", "b"),
        LocalProtocolError("c"),
        ExceptionGroup("nursery", [ValueError("secret"), KeyError("secret")]),
    ],
)
def test_other_failures_are_reported_but_not_sent(later: bool, error: Exception) -> None:
    link = Link(failing_with(error, later=later), era="handshake")
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$") as caught:
        act(link)
    assert caught.value.data is None
    assert link.reports == ["the handler of test/act failed"]
    assert link.errors == [error]
    assert link.do(link.client.request(PingRequest())) == EmptyResult()


@both
@pytest.mark.parametrize(
    "error",
    [RequestError(7, "no", object()), RequestError(7, "no", float("nan")), RequestError("7", "no")],  # type: ignore[arg-type]  # the mistake
)
def test_unencodable_error_is_sent_as_an_internal_error(later: bool, error: Exception) -> None:
    link = Link(failing_with(error, later=later))
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        act(link)
    assert link.reports == ["the error for test/act cannot be sent"]


@both
def test_request_answered_by_its_handler_is_not_answered_again(later: bool) -> None:
    async def nothing() -> None: ...

    def answer(ctx: Context, _: CustomRequest) -> Any:
        ctx.session.connection.send_result(ctx.id, {"by": "itself"})
        return nothing() if later else None

    link = Link(serving(answer), era="handshake")
    assert act(link) == {"by": "itself"}
    assert link.reports == ["the result of test/act cannot be sent"]


def test_cancellation_without_a_handler_changes_nothing() -> None:
    """Such as a request that was taken over from a snapshot."""
    link = Link(Server("s"))
    link.session._handle(CancelReceived(IncomingId(7), None, {}))
    assert link.reports == []


@both
def test_a_handler_whose_own_wait_is_cancelled_fails_like_any_other(later: bool) -> None:
    """asyncio raises the same exception in a task that is cancelled, and in whatever asks a cancelled future."""
    link = Link(failing_with(ManualCancelled(), later=later))
    with pytest.raises(RequestError, match="Internal error"):
        act(link)
    assert link.reports == ["the handler of test/act was cancelled from inside"]


def test_handler_cancelled_with_its_session_is_not_answered() -> None:
    server, seen = Server("s"), []

    @server.tool
    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            seen.append("over")

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery, trio.open_nursery() as serving:
            serving.start_soon(serve, server, far)
            client = await connect(near, nursery=nursery)
            nursery.start_soon(call, client)
            await trio.testing.wait_all_tasks_blocked()
            serving.cancel_scope.cancel()

    async def call(client: Any) -> None:
        with pytest.raises(ConnectionLost):
            await client.call_tool("wait")

    trio.run(main)
    assert seen == ["over"]


def test_abandoned_requests_of_a_surviving_session_get_an_internal_error() -> None:
    server = Server("s")

    @server.tool
    async def wait(ctx: Context) -> None:
        await ctx.session.driver.runtime.one_shot().wait()

    wire = Wire(Link(server, era="handshake"))
    first, second = wire.send("tools/call", name="wait"), wire.send("tools/call", name="wait")
    session = wire.link.session
    session._fail_abandoned()
    wire.look()
    assert (wire.answer_to(first), wire.answer_to(second)) == (None, None)
    cut_off = min(session._running)
    handler = session._running.pop(cut_off)
    session._fail_abandoned()
    wire.look()
    session._running[cut_off] = handler
    error = {"code": -32603, "message": "Internal error"}
    assert wire.answer_to(first) == {"jsonrpc": "2.0", "id": first, "error": error}
    assert wire.answer_to(second) is None


@both
def test_a_handler_may_end_the_program(later: bool) -> None:
    link = Link(failing_with(SystemExit(3), later=later))
    with pytest.raises(SystemExit) as caught:
        act(link)
    assert caught.value.code == 3


def test_handlers_end_with_their_session() -> None:
    server, seen = waiting()
    link = Link(server)
    asks = [link.start(link.client.request(ACT)) for _ in range(3)]
    link.session.connection.abort()
    link.run()
    assert [ask.state for ask in asks] == ["failed"] * 3
    assert [each for each in seen if each == "over"] == ["over"] * 3
    assert all(each.cancelled for each in seen if each != "over")


def test_handler_that_blocks_the_loop_is_reported_with_advice() -> None:
    server = Server("s")

    @server.tool
    def work(seconds: float) -> None:
        link.pair.now += seconds

    @server.tool
    def fail(seconds: float) -> None:
        link.pair.now += seconds
        raise ToolError("no")

    link = Link(server)
    link.call("work", seconds=0.04)
    assert link.reports == []
    link.call("work", seconds=0.06)
    link.call("fail", seconds=0.07)
    fix = "make its function async, or register it with blocking=True to run it in a thread"
    assert link.reports == [
        f"tools/call 'work' held up everything else for 60 ms: {fix}",
        f"tools/call 'fail' held up everything else for 70 ms: {fix}",
    ]


def test_advice_is_given_only_for_functions_of_the_program() -> None:
    server = Server("s")

    def visible(_: object) -> bool:
        link.pair.now += 0.06
        return True

    server.tool(lambda: None, name="work", visible=visible)
    link = Link(server)
    link.do(link.client.list_tools())
    assert link.reports == ["tools/list held up everything else for 60 ms"]


# Events


def test_request_refused_by_the_engine_is_not_reported() -> None:
    link = Link(Server("s"))
    with pytest.raises(RequestError, match=r"^Method not found: test/act \(-32601\)$"):
        act(link)
    assert link.reports == []


def test_outcomes_of_foreign_requests_are_ignored() -> None:
    def report(ctx: Context, _: CustomRequest) -> dict[str, Any]:
        ctx.progress(1)
        return {}

    link = Link(serving(report))
    for cookie in (None, "mine", object()):
        link.client.connection.send_request(ACT, now=0, cookie=cookie, progress=True)
    link.client.connection.send_request(CustomRequest("a/b", {}), now=0, cookie="mine")
    link.run()
    outcomes = [event for event in link.pair.client_events if isinstance(event, ResponseReceived | RequestFailed)]
    assert len(outcomes) == 4
    assert link.reports == []


def test_unencodable_capabilities_are_reported() -> None:
    with pytest.raises(LocalProtocolError, match="not expressible in JSON"):
        Server("s", capabilities=ServerCapabilities(experimental={"a": object()}))
    experimental: dict[str, Any] = {}
    link = Link(
        Server("s", capabilities=ServerCapabilities(experimental=experimental)), shake_hands=False, era="handshake"
    )
    experimental["a"] = object()
    with pytest.raises(ConnectFailed):
        link.do(link.client.initialize())
    assert link.reports == ["initialize cannot be answered"]
    assert "object" in str(link.errors[0])


def test_a_driver_has_all_events_processed_at_once() -> None:
    link = Link(serving(lambda _, __: {"a": 1}), era="handshake")
    connection = link.client.connection
    ask = link.start(link.client.request(ACT))
    assert ask.result == {"a": 1}
    connection.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n' * 3, 0)
    link.client._process()
    assert connection.next_event() is None
    assert sum(len(chunk) for chunk in connection.data_to_send() if chunk) > 0


def test_peer_faults_are_reported_and_the_session_continues() -> None:
    link = Link(Server("s"), era="handshake")
    link.pair.client.receive_data(b"Welcome!\n" * 3 + b"[]\n", 0)
    link.run()
    assert link.reports[:3] == ["a line that is not a message, 8 bytes: 'Welcome!'"] * 3
    assert link.reports[3].startswith("the peer broke a rule: ")
    link.do(link.client.ping())
    link.client.close()
    link.run()
    assert len(link.reports) == 4
