from __future__ import annotations

import json
import math
from collections.abc import Hashable
from typing import Any

import pytest
from httpwire import Exchange, MemoryWire, RawClient
from stateless import stateless, tool_call
from statelessly import StatelessClient

from mcpio import Context, Server
from mcpio.app.http_host import HttpHost
from mcpio.app.session_store import MemorySessionStore
from mcpio.engine.server import ServerConnection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.errors import LocalProtocolError
from mcpio.events import ConnectionClosed, IncomingId
from mcpio.http.model import Body, End, HttpOptions, RequestHead
from mcpio.observe.tap import Tap, add_tap
from mcpio.revisions import REV_2025_11_25
from mcpio.testing import ManualRuntime


class Hosted:
    """A server behind HTTP in virtual time, and a client that shook hands with it."""

    def __init__(self, server: Server, options: HttpOptions | None = None) -> None:
        self.wire = MemoryWire(server, options or HttpOptions())
        self.client = RawClient(self.wire)
        done(self.client.initialize())

    def call(self, tool: str, id: Any = 1, *, progress: Any = None, **arguments: Any) -> Exchange:
        exchange: Exchange = done(self.client.call(tool, id, progress=progress, **arguments))
        return exchange

    def wait(self, seconds: float) -> None:
        done(self.wire.pass_time(seconds))


def slow_server(seconds: float) -> Server:
    server = Server("s", "1")

    @server.tool
    async def slow(ctx: Context) -> str:
        """Take a while."""
        await ctx.sleep(seconds)
        return "done"

    return server


def done(coroutine: Any) -> Any:
    """Run what waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def text_of(answer: Any) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


def test_handlers_of_several_sessions_have_their_own_session_and_the_servers_state() -> None:
    server = Server("s", "1")

    @server.tool
    def who(ctx: Context) -> str:
        """Say who asks, and what there is."""
        return f"{ctx.peer.principal} {ctx.state}"

    runtime = ManualRuntime()
    ready: list[Any] = []
    host = HttpHost(
        server,
        runtime,
        clock=lambda: runtime.now,
        on_ready=ready.append,
        on_deadline=lambda when: None,
        report=lambda message, error: None,
        options=HttpOptions(sessions=False),
        state="the state",
    )
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}}
    fields = ((b"content-type", b"application/json"), (b"accept", b"*/*"))
    for principal in ("me", "you"):
        head = RequestHead(principal, "POST", "/mcp", fields, principal)
        host.receive(head, Body(principal, json.dumps(call).encode()), End(principal))
    runtime.run()
    assert ready == ["me", "you"]
    for principal in ready:
        _, body, end = host.responses_to_send(principal)
        assert isinstance(body, Body)
        assert isinstance(end, End)
        assert text_of(json.loads(body.data)) == f"{principal} the state"
    assert host.machine.sessions == ()


def test_on_connection_gets_a_connection_before_its_first_message() -> None:
    server = Server("s", "1")
    seen: list[ServerConnection] = []
    runtime = ManualRuntime()
    host = HttpHost(
        server,
        runtime,
        clock=lambda: 0.0,
        on_ready=lambda exchange: None,
        on_deadline=lambda when: None,
        report=lambda message, error: None,
        on_connection=seen.append,
    )
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    fields = ((b"content-type", b"application/json"), (b"accept", b"*/*"))
    host.receive(RequestHead(1, "POST", "/mcp", fields), Body(1, json.dumps(message).encode()), End(1))
    assert [connection.revision for connection in seen] == [REV_2025_11_25]


def test_on_connection_gets_the_engine_of_all_stateless_requests_once() -> None:
    server, seen, heard = Server("s", "1"), list[Any](), list[str]()
    server.tool(lambda: "ok", name="x")

    class Listening(Tap):
        def event(self, event: Any, now: float) -> None:
            heard.append(type(event).__name__)

    def attach(engine: Any) -> None:
        seen.append(engine)
        add_tap(engine, Listening())

    host = HttpHost(
        server,
        ManualRuntime(),
        clock=lambda: 0.0,
        on_ready=lambda exchange: None,
        on_deadline=lambda when: None,
        report=lambda message, error: None,
        on_connection=attach,
    )
    body = json.dumps(tool_call()).encode()
    fields = {
        "content-type": "application/json",
        "accept": "*/*",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "x",
    }
    head = tuple((name.encode(), value.encode()) for name, value in fields.items())
    for number in (1, 2):
        host.receive(RequestHead(number, "POST", "/mcp", head), Body(number, body), End(number))
    assert [type(engine) for engine in seen] == [StatelessEngine]
    assert heard == ["RequestReceived"] * 2


def test_response_callback_may_write_and_deadline_changes_are_reported() -> None:
    hosted = Hosted(slow_server(1), HttpOptions(sse_after=0.5))
    told: list[float | None] = []
    host = hosted.wire.host
    inner = host._on_deadline

    def tell(when: float | None) -> None:
        told.append(when)
        inner(when)

    host._on_deadline = tell
    exchange = hosted.call("slow")
    assert told[-1] == 0.5
    host.handle_timeout()
    assert told[-1] == 0.5
    hosted.wait(2)
    assert text_of(exchange.new_messages()[-1]) == "done"
    assert exchange.is_over


def test_work_caused_by_a_callback_is_processed_in_the_same_drain() -> None:
    server = Server("s", "1")

    @server.tool
    def fine() -> str:
        """Work."""
        return "fine"

    hosted = Hosted(server)
    host = hosted.wire.host
    inner, told, depths = host._on_ready, 0, []

    def tell(exchange: Any) -> None:
        nonlocal told
        told += 1
        depths.append(told)
        host.handle_timeout()
        inner(exchange)
        told -= 1

    host._on_ready = tell
    assert text_of(hosted.call("fine").json) == "fine"
    assert set(depths) == {1}


def test_reports_of_a_session_go_to_the_hosts_operator() -> None:
    server = Server("s", "1")

    @server.tool
    def fail() -> None:
        """Fail."""
        raise OSError("the disk is full")

    hosted = Hosted(server)
    assert hosted.call("fail").json["result"]["isError"]
    (report,) = hosted.wire.reports
    assert "fail" in report


def test_a_session_that_fails_is_reported_and_ends_alone() -> None:
    server = Server("s", "1")

    @server.tool
    def fine() -> str:
        """Work."""
        return "fine"

    wire = MemoryWire(server, HttpOptions())
    bad, good = RawClient(wire), RawClient(wire)
    done(bad.initialize())
    done(good.initialize())
    served = wire.host._sessions[1].session

    inner = served._handle

    def fail(event: Any) -> bool:
        if type(event) is not ConnectionClosed:
            raise RuntimeError("a fault of the library's")
        return inner(event)

    # There is no such fault to be had otherwise.
    served._handle = served._serve = fail  # type: ignore[method-assign]  # on purpose
    assert done(bad.call("fine")).status == 500
    assert done(bad.call("fine")).status == 404
    assert wire.reports == ["a session failed"]
    assert text_of(done(good.call("fine")).json) == "fine"
    assert done(bad.call("fine")).status == 404


@pytest.mark.req("SESS-05")
def test_session_closed_by_its_handler_answers_first() -> None:
    server = Server("s", "1")
    ended: list[str] = []

    @server.tool
    def leave(ctx: Context) -> str:
        """End the session."""
        driver = ctx.session.driver
        with pytest.raises(LocalProtocolError):
            driver.close(-1)

        async def wait() -> None:
            await driver.wait_closed()
            ended.append("ended")
            await driver.wait_closed()
            ended.append("at once")

        driver.runtime.spawn(wait())
        driver.close(5.0)
        return "bye"

    hosted = Hosted(server)
    assert text_of(hosted.call("leave").json) == "bye"
    assert ended == ["ended", "at once"]
    assert hosted.call("leave").status == 404


@pytest.mark.req("HTTP-19", "HTTP-20")
def test_interrupted_stream_is_resumed_for_the_answer() -> None:
    server = Server("s", "1")

    @server.tool
    async def later(ctx: Context) -> str:
        """Say so later."""
        for invalid in (-1, math.nan, "soon"):
            with pytest.raises(ValueError, match="retry must be a number of seconds"):
                ctx.interrupt_stream(retry=invalid)  # type: ignore[arg-type]  # on purpose
        assert ctx.interrupt_stream(retry=0.5)
        await ctx.sleep(1)
        return "later"

    hosted = Hosted(server)
    exchange = hosted.call("later")
    assert exchange.is_over
    assert [event.retry for event in exchange.new_events()] == [None, 500]
    hosted.wait(2)
    again = done(hosted.client.listen(last_event_id=exchange.last_event_id or ""))
    assert text_of(again.new_messages()[0]) == "later"


@pytest.mark.req("HTTP-24")
def test_handler_continues_after_its_client_disconnects() -> None:
    server = Server("s", "1")
    finished: list[str] = []

    @server.tool
    async def slow(ctx: Context) -> str:
        """Take a while."""
        await ctx.sleep(1)
        finished.append("yes")
        return "done"

    hosted = Hosted(server)
    done(hosted.wire.leave(hosted.call("slow")))
    hosted.wait(2)
    assert finished == ["yes"]


@pytest.mark.req("CANC-10")
def test_a_handler_stops_when_its_request_is_cancelled() -> None:
    hosted = Hosted(slow_server(10))
    exchange = hosted.call("slow")
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert done(hosted.client.post(note)).status == 202
    assert (exchange.status, exchange.is_over, exchange.data) == (200, True, b"")


def test_handler_cancelled_by_the_loop_is_answered() -> None:
    hosted = Hosted(slow_server(10))
    exchange = hosted.call("slow")
    served = hosted.wire.host._sessions[1].session
    task: Any = served._running[IncomingId(1)][1]
    task._coroutine.close()  # as event loops do with what is left
    hosted.wire.host.fail_abandoned()
    hosted.wire.run()
    assert exchange.json["error"]["code"] == -32603
    done(hosted.wire.close(0))
    hosted.wait(0)
    assert hosted.wire.host.machine.closed


def test_log_of_a_cancelled_handler_goes_to_the_general_stream() -> None:
    server = Server("s", "1")

    @server.tool
    async def waits(ctx: Context) -> None:
        try:
            await ctx.sleep(100)
        finally:
            ctx.info("cleaned up")

    hosted = Hosted(server)
    hosted.call("waits", id=7)
    listening: Exchange = done(hosted.client.listen())
    done(hosted.client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}))
    (message,) = listening.new_messages()
    assert message["params"] == {"level": "info", "data": "cleaned up"}


def test_broadcast_reaches_each_listening_client() -> None:
    server = Server("s", "1")

    @server.tool
    def old() -> str:
        """Be there before."""
        return "old"

    wire = MemoryWire(server, HttpOptions())
    clients = [RawClient(wire), RawClient(wire)]
    listening = []
    for client in clients:
        done(client.initialize())
        listening.append(done(client.listen()))

    @server.tool
    def new() -> str:
        """Be new."""
        return "new"

    wire.run()
    for exchange in listening:
        assert [each["method"] for each in exchange.new_messages()] == ["notifications/tools/list_changed"]


def test_closed_server_answers_running_requests_and_ends_streams() -> None:
    hosted = Hosted(slow_server(1))
    listening = done(hosted.client.listen())
    exchange = hosted.call("slow")
    done(hosted.wire.close(5.0))
    hosted.wait(2)
    assert text_of(exchange.new_messages()[-1]) == "done"
    assert exchange.is_over
    assert listening.is_over
    assert hosted.wire.host.machine.closed


# Sessions that outlive the process


def patient_server() -> Server:
    server = Server("s", "1")

    @server.tool
    async def wait(ctx: Context) -> str:
        """Say something, and take a second."""
        ctx.progress(1)
        await ctx.sleep(1.0)
        return "waited"

    return server


@pytest.mark.parametrize("unanswered", ["again", "fail"])
def test_stored_session_continues_in_another_host(unanswered: str) -> None:
    store = MemorySessionStore()
    first = MemoryWire(patient_server(), HttpOptions(), store=store)
    client = RawClient(first)
    done(client.initialize())
    exchange: Exchange = done(client.call("wait", progress=1))
    exchange.new_events()
    second = MemoryWire(patient_server(), HttpOptions(), store=store, unanswered=unanswered)
    seen: list[ServerConnection] = []
    second.host._on_connection = seen.append
    client.wire = second
    rest: Exchange = done(client.listen(last_event_id=exchange.last_event_id or ""))
    done(second.pass_time(2))
    (answer,) = rest.new_messages()
    if unanswered == "again":
        assert text_of(answer) == "waited"
    else:
        assert answer["error"]["data"] == {"reason": "interrupted"}
    assert (len(seen), rest.is_over) == (1, True)
    for wire in (first, second):
        wire.host.close(0)
        wire.run()


def test_invalid_policy_raises_at_once() -> None:
    with pytest.raises(ValueError, match="unanswered must be 'again' or 'fail', not 'maybe'"):
        MemoryWire(patient_server(), HttpOptions(), store=MemorySessionStore(), unanswered="maybe")


@pytest.mark.parametrize(
    ("broken", "report"),
    [
        ({"state": {"log_level": "loud"}}, "a stored session cannot go on"),
        ({"engine": {}}, "a stored session cannot be taken up"),
    ],
)
def test_malformed_stored_session_is_reported_and_deleted(broken: dict[str, Any], report: str) -> None:
    store = MemorySessionStore()
    first = MemoryWire(patient_server(), HttpOptions(), store=store)
    client = RawClient(first)
    done(client.initialize())
    (key,) = store._records
    record, at = store._records[key]
    said = json.loads(record)
    said["saved"] |= broken
    store._records[key] = (json.dumps(said).encode(), at)
    client.wire = second = MemoryWire(patient_server(), HttpOptions(), store=store)
    assert done(client.call("wait")).status == 404
    assert second.reports == [report]
    for wire in (first, second):
        wire.host.close(0)
        wire.run()


def test_store_that_fails_for_each_request_does_not_flood_the_log() -> None:
    class Away(MemorySessionStore):
        def write(self, changes: Any) -> None:
            raise OSError("no disk")

    wire = MemoryWire(patient_server(), HttpOptions(), store=Away())
    for _ in range(50):
        done(RawClient(wire).initialize())
    first, *later = wire.reports
    assert first == "the store of sessions failed"
    assert all(each.startswith("the store of sessions failed again: OSError('no disk')") for each in later)
    assert 1 <= len(later) <= 20
    wire.host.close(0)
    wire.run()


def test_session_that_cannot_start_is_reported_once_and_removed() -> None:
    server = Server("s", "1")

    def fail(*_: Any) -> Any:
        raise RuntimeError("no session today")

    server.session = fail  # type: ignore[method-assign,assignment]  # as a subclass of it may fail
    wire = MemoryWire(server, HttpOptions())
    client = RawClient(wire)
    done(client.initialize())
    assert done(client.call("fine")).status == 404
    assert wire.reports == ["a session failed"]
    assert wire.host.machine.sessions == ()


class Direct:
    """A server whose requests are served in one call each."""

    def __init__(self, options: HttpOptions | None = None) -> None:
        server = Server("s", "1")
        server.tool(lambda: "ok", name="quick")
        server.tool(lambda: "x" * 100_000, name="long")

        @server.tool
        async def slow(ctx: Context) -> str:
            await ctx.sleep(1)
            return "late"

        self.runtime = ManualRuntime()
        self.ready: list[Any] = []
        self.host = HttpHost(
            server,
            self.runtime,
            clock=lambda: self.runtime.now,
            on_ready=self.ready.append,
            on_deadline=lambda when: None,
            report=lambda message, error: None,
            options=options,
        )
        self.fields: dict[str, str] = {}
        self.asked = 0

    def post(self, message: Any, **fields: str) -> Any:
        self.asked += 1
        given = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        head = tuple((name.encode(), value.encode()) for name, value in (given | self.fields | named).items())
        return self.host.serve(RequestHead(self.asked, "POST", "/mcp", head), json.dumps(message).encode())

    def shake_hands(self) -> None:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        answer = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self.fields = {"mcp-session-id": dict(answer.headers)[b"mcp-session-id"].decode()}
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202

    def call(self, tool: str, *, is_stateless: bool) -> Any:
        if not is_stateless:
            return self.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}})
        message = tool_call()
        message["params"]["name"] = tool
        fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": tool}
        return self.post(message, **fields)

    def pulled(self, exchange: int) -> bytes:
        found = b""
        while items := self.host.responses_to_send(exchange):
            found += b"".join(item.data for item in items if isinstance(item, Body))
        return found


@pytest.mark.parametrize("is_stateless", [False, True])
def test_whole_request_is_answered_within_the_call(is_stateless: bool) -> None:
    direct = Direct()
    if not is_stateless:
        direct.shake_hands()
    answer = direct.call("quick", is_stateless=is_stateless)
    assert answer.status == 200
    assert dict(answer.headers)[b"content-length"] == str(len(answer.body)).encode()
    assert text_of(json.loads(answer.body)) == "ok"
    assert (direct.ready, direct.host.responses_to_send(direct.asked)) == ([], [])
    assert (
        direct.post({"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}, accept="text/plain").status == 406
    )


def test_listen_requests_of_a_host_can_be_answered_while_it_serves_the_others() -> None:
    direct = Direct()
    direct.host.finish_listening()  # before anyone listens
    wanted = {"toolsListChanged": True}
    elsewhere = StatelessClient(direct.host.server, direct.runtime).begin(
        "subscriptions/listen", {"notifications": wanted}
    )
    message = stateless("subscriptions/listen", notifications=wanted)
    assert direct.post(message, mcp_protocol_version="2026-07-28", mcp_method="subscriptions/listen") is None
    listening = direct.asked
    assert direct.call("slow", is_stateless=True) is None
    assert b"subscriptions/acknowledged" in direct.pulled(listening)
    direct.host.finish_listening()
    direct.runtime.run()
    assert b'"resultType":"complete"' in direct.pulled(listening)
    direct.runtime.advance_to(1)
    assert b"late" in direct.pulled(direct.asked)
    assert [each["method"] for each in elsewhere.said] == ["notifications/subscriptions/acknowledged"]


@pytest.mark.parametrize("is_stateless", [False, True])
def test_answer_that_is_long_or_late_is_pulled(is_stateless: bool) -> None:
    direct = Direct()
    if not is_stateless:
        direct.shake_hands()
    assert direct.call("long", is_stateless=is_stateless) is None
    assert set(direct.ready) == {direct.asked}
    assert len(text_of(json.loads(direct.pulled(direct.asked)))) == 100_000
    direct.ready.clear()
    assert direct.call("slow", is_stateless=is_stateless) is None
    assert direct.ready == []
    direct.runtime.advance_to(2)
    assert text_of(json.loads(direct.pulled(direct.asked))) == "late"
    assert direct.host.machine._exchanges == {}


def test_session_of_one_request_ends_with_its_answer() -> None:
    direct = Direct(HttpOptions(sessions=False))
    direct.fields = {"mcp-protocol-version": "2025-11-25"}
    assert direct.call("quick", is_stateless=False).status == 200
    assert (direct.host.machine.sessions, direct.host._sessions) == ((), {})


def test_taps_see_the_answer_to_a_whole_request() -> None:
    direct, texts = Direct(), list[bytes]()

    class Watching(Tap):
        def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
            texts.append(text)

    def watch(connection: Any) -> None:
        add_tap(connection, Watching())

    direct.host._on_connection = watch
    direct.shake_hands()
    answer = direct.call("quick", is_stateless=False)
    body = direct.pulled(direct.asked) if answer is None else answer.body
    assert text_of(json.loads(body)) == "ok"
    assert texts[-1] == body
