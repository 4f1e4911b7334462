"""Stateless calls at the HTTP machine: what waits for a client, what is counted, and how they end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpsite import Site, tool_call
from httpwire import Exchange, MemoryWire, RawClient
from keptsite import KeptSite
from stateless import LEVEL
from statelesshttp import ONE_ERA, TWO_ERAS, Post, calls_of, engine_of, post_to, server_of

from mcpio import Context, Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import InsufficientScope, NoBackChannel, RequestError
from mcpio.events import CloseReason, ConnectionClosed, IncomingId, RequestReceived
from mcpio.http.calls import Calls
from mcpio.http.model import HttpOptions, Reset
from mcpio.http.server import CLOSING
from mcpio.revisions import REVISIONS
from mcpio.types import CallToolResult, LoggingMessageNotification, TextContent

LONG = "x" * 1000


def logging_call(site: Site, **headers: str) -> tuple[Exchange, IncomingId]:
    """Make a call whose client wants log messages."""
    post = Post(name="x")
    post.meta[LEVEL] = "debug"
    response = post_to(site, post, **headers)
    return response, site.requests()[-1].id


def log(site: Site, id: IncomingId, text: str = "hi") -> None:
    engine_of(site).send_notification(LoggingMessageNotification("info", text), related_to=id)


def done(coroutine: Any) -> Any:
    """Run what waits for nothing."""
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    return end.value.value


def test_client_that_does_not_read_gets_everything_later_in_order() -> None:
    site = Site(engine=TWO_ERAS)
    response, id = logging_call(site)
    site.stall(response)
    for number in range(200):
        log(site, id, f"{number} {LONG}")
    name = site.name(response)
    waiting = engine_of(site).held_for(id)
    assert waiting.output > 200_000
    assert engine_of(site).held_for(id) is waiting
    assert site.machine._ledger.total > 200_000
    items = site.machine.responses_to_send(name, 5000)
    assert site.machine.next_ready() == name
    engine_of(site).send_result(id, CallToolResult((TextContent("ok"),)))
    for item in items:
        response.take(item)
    site.unstall(response)
    site.settle()
    while (ready := site.machine.next_ready()) is not None:
        for item in site.machine.responses_to_send(ready):
            response.take(item)
    *logs, last = response.new_messages()
    assert [message["params"]["data"].split()[0] for message in logs] == [str(number) for number in range(200)]
    assert (last["result"]["content"][0]["text"], response.is_over) == ("ok", True)
    assert (site.machine._ledger.total, engine_of(site).is_serving, site.machine.next_deadline()) == (0, False, None)


@pytest.mark.parametrize("answers", ["auto", "json", "sse"])
@pytest.mark.parametrize("begins", [False, True])
def test_answer_that_waits_to_be_pulled_is_counted(answers: Any, begins: bool) -> None:
    site = Site(HttpOptions(answers=answers), engine=TWO_ERAS)
    response, id = logging_call(site)
    site.stall(response)
    if begins and answers != "json":
        log(site, id)
    engine_of(site).send_result(id, CallToolResult((TextContent("x" * 100_000),)))
    assert 100_000 < site.machine._ledger.total < 130_000
    site.unstall(response)
    assert response.is_over
    assert site.machine._ledger.total == 0


def test_waiting_answers_beyond_the_total_give_way_to_503() -> None:
    site = Site(limits=Limits(total_bytes=300_000), engine=TWO_ERAS)
    calls = [logging_call(site) for _ in range(5)]
    for response, id in calls:
        site.stall(response)
        engine_of(site).send_result(id, CallToolResult((TextContent("x" * 100_000),)))
        assert site.machine._ledger.total <= 300_000
    for response, _ in calls:
        site.unstall(response)
    assert sorted(response.status for response, _ in calls) == [200, 200, 503, 503, 503]
    assert site.machine._ledger.total == 0


def test_client_that_leaves_too_much_unread_is_cut_off() -> None:
    limits = Limits(queued_bytes=20_000)
    site = Site(limits=limits, engine=Options(revisions=REVISIONS, limits=limits))
    response, id = logging_call(site)
    site.stall(response)
    for _ in range(30):
        log(site, id, LONG)
    site.unstall(response)
    assert (response.status, response.json["error"]["code"]) == (503, -32603)
    assert site.kinds() == ["RequestReceived", "CancelReceived"]
    assert engine_of(site).held_for(id).total == 0


def test_dropped_log_messages_are_counted() -> None:
    options = Options(revisions=REVISIONS, limits=Limits(queued_logs=2))
    site = Site(limits=options.limits, engine=options)
    response, id = logging_call(site)
    site.stall(response)
    for number in range(5):
        log(site, id, str(number))
    engine_of(site).send_result(id, CallToolResult(()))
    site.unstall(response)
    assert [message["params"]["data"] for message in response.new_messages()[:-1]] == ["3", "4"]
    assert engine_of(site).stats.dropped_logs == 3


def test_client_that_takes_no_events_gets_the_answer_only() -> None:
    site = Site(HttpOptions(answers="json"), engine=TWO_ERAS)
    post = Post(name="x")
    post.meta.update({LEVEL: "debug", "progressToken": "p"})
    response = post_to(site, post)
    id = site.requests()[-1].id
    with pytest.raises(NoBackChannel):
        log(site, id)
    engine_of(site).send_progress(id, 1)
    site.advance(100)
    engine_of(site).send_result(id, CallToolResult(()))
    site.settle()
    assert response.json["id"] == 7


def test_stream_that_is_not_read_is_not_silent() -> None:
    site = Site(HttpOptions(keep_alive=10.0), engine=TWO_ERAS)
    response, id = logging_call(site)
    log(site, id)
    site.settle()
    site.advance(11)
    assert b":\n\n" in response.data
    site.stall(response)
    log(site, id)
    before = len(response.data)
    site.advance(25)
    site.unstall(response)
    assert response.data[before:].count(b":\n\n") == 0
    again, other = logging_call(site)
    log(site, other)
    site.settle()
    site.advance(9)
    log(site, other)
    site.settle()
    site.advance(2)  # not ten seconds since the last message
    assert again.data.count(b":\n\n") == 0
    quiet = Site(HttpOptions(keep_alive=None), engine=TWO_ERAS)
    logging_call(quiet)
    assert quiet.machine.next_deadline() is None


def test_waiting_call_has_nothing_to_send() -> None:
    site = Site(engine=TWO_ERAS)
    response, _ = logging_call(site)
    assert site.machine.responses_to_send(site.name(response)) == []


def test_waiting_call_holds_its_parameters_and_no_output() -> None:
    site = Site(engine=TWO_ERAS)
    _, id = logging_call(site)
    held = engine_of(site).held_for(id)
    assert (held.requests > 0, held.output, held.unwritten) == (True, 0, 0)


def test_call_counts_less_and_reports_room_as_its_output_is_taken() -> None:
    site = Site(engine=TWO_ERAS)
    response, id = logging_call(site)
    site.stall(response)
    for _ in range(100):
        log(site, id, LONG)
    reported: list[int] = []
    calls_of(site).on_room = lambda: reported.append(site.machine._ledger.total)
    before = site.machine._ledger.total
    site.machine.responses_to_send(site.name(response), 60_000)
    assert len(reported) == 1
    assert reported[0] < before - 50_000


def test_answered_call_whose_client_leaves_is_not_cancelled() -> None:
    site = Site(engine=TWO_ERAS)
    response, id = logging_call(site)
    site.stall(response)
    log(site, id)
    engine_of(site).send_result(id, CallToolResult(()))
    site.settle()
    site.reset(response)
    assert site.kinds() == ["RequestReceived"]
    assert site.machine._ledger.total == 0


def test_closing_server_gives_its_calls_the_shorter_grace_and_ends() -> None:
    site = Site(HttpOptions(keep_alive=6.0), engine=TWO_ERAS)
    running, _ = logging_call(site)
    site.machine.close(0.0, None)
    site.machine.close(0.0, 9.0)
    site.machine.close(0.0, 5.0)
    assert site.post(tool_call(), mcp_protocol_version="2026-07-28").status == 503
    assert not site.machine.closed
    assert site.machine.next_deadline() == 5.0
    site.machine.handle_timeout(6.0)  # the end of all, then the stream that was due to begin
    site.settle()
    assert running.is_over
    ends = [event for _, event in site.events if isinstance(event, ConnectionClosed)]
    assert [end.reason for end in ends] == [CloseReason.CLOSED]
    assert (site.machine.closed, engine_of(site).closed) == (True, True)


def test_stream_of_a_call_that_outlasts_the_grace_ends_as_a_stream() -> None:
    site = Site(engine=TWO_ERAS)
    response, id = logging_call(site)
    log(site, id)
    site.settle()
    site.machine.close(0.0, 1.0)
    site.machine.handle_timeout(1.0)
    site.settle()
    assert (response.status, response.is_over, response.is_broken) == (200, True, False)
    assert site.machine.closed


def test_first_call_of_a_closing_server_is_refused() -> None:
    site, post = Site(engine=TWO_ERAS), Post(name="x")
    fields = {name.replace("-", "_"): value for name, value in post.fields.items()}
    usual = {"content_type": "application/json", "accept": "application/json, text/event-stream"}
    response = site.ask("POST", body=None, **usual, **fields)
    site.machine.close(0.0)
    site.complete(response, json.dumps(post.body).encode())
    assert response.status == 503
    assert site.machine.closed


@pytest.mark.parametrize(
    ("reason", "status"), [(CloseReason.OVERLOADED, 503), (CloseReason.SLOW_CONSUMER, 503), (CloseReason.ABORTED, 500)]
)
def test_request_of_a_session_without_an_id_that_is_cut_off_is_not_answered_with_404(
    reason: CloseReason, status: int
) -> None:
    site = Site(HttpOptions(sessions=False))
    response, _ = site.call(None, mcp_protocol_version="2025-11-25")
    site.machine.end(site.session(), reason)
    site.settle()
    assert response.status == status


def test_request_without_a_session_that_a_closing_server_cuts_off_says_so() -> None:
    site = Site(HttpOptions(sessions=False))
    response, _ = site.call(None, mcp_protocol_version="2025-11-25")
    site.machine.close(site.now, grace=5.0)
    site.machine.end(site.session())
    site.settle()
    assert (response.status, response.json["error"]["message"]) == (503, CLOSING.message)


@pytest.mark.parametrize(("is_closing", "status"), [(False, 500), (True, 503)])
def test_request_of_a_session_that_ends_is_not_answered_with_404(is_closing: bool, status: int) -> None:
    site = Site()
    response, _ = site.call(site.open())
    if is_closing:
        site.machine.close(site.now, grace=5.0)
    site.machine.end(site.session())
    site.settle()
    assert response.status == status


def test_request_of_a_session_that_is_handed_over_is_answered_as_the_store_says() -> None:
    site = KeptSite(options=HttpOptions(answers="json"))
    response, _ = site.call(site.open())
    site.machine.close(site.now, grace=1.0)
    site.settle()
    site.advance(2.0)
    assert (response.status, response.headers.get("retry-after")) == (503, "1")


def test_session_without_an_id_is_forgotten_with_its_answer() -> None:
    site = Site(HttpOptions(sessions=False))
    response, event = site.call(None, mcp_protocol_version="2025-11-25")
    assert len(site.machine.sessions) == 1
    site.answer(event)
    assert (response.status, len(site.machine.sessions)) == (200, 0)
    assert site.kinds()[-1] == "SessionClosed"


def test_exchange_that_broke_off_is_not_ready() -> None:
    site = Site()
    session = site.open()
    response, event = site.call(session)
    site.session().connection.send_result(event.id, CallToolResult(()))
    site.machine.touch(site.session(), site.now)
    while site.machine.next_event() is not None:
        pass
    site.machine.receive(Reset(site.name(response)), site.now)
    while site.machine.next_event() is not None:
        pass
    assert site.machine.next_ready() is None


def test_request_without_a_session_whose_client_left_runs_on_while_there_is_room() -> None:
    site = Site(HttpOptions(sessions=False), limits=Limits(exchanges=2))
    response, _ = site.call(None, mcp_protocol_version="2025-11-25")
    (alone,) = site.machine.sessions
    site.reset(response)
    for is_open in (True, False):
        site.call(None, mcp_protocol_version="2025-11-25")
        assert site.machine.is_open(alone) is is_open


@pytest.mark.parametrize(("exchanges", "is_kept"), [(2, False), (3, True)])
def test_running_calls_take_room_from_a_request_whose_client_left(exchanges: int, is_kept: bool) -> None:
    site = Site(HttpOptions(sessions=False), limits=Limits(exchanges=exchanges), engine=TWO_ERAS)
    response, _ = site.call(None, mcp_protocol_version="2025-11-25")
    (alone,) = site.machine.sessions
    site.reset(response)
    logging_call(site)
    assert site.machine.is_open(alone)
    logging_call(site)
    assert site.machine.is_open(alone) is is_kept


def test_call_that_a_closing_server_refuses_ends_no_request_whose_client_left() -> None:
    site, post = Site(HttpOptions(sessions=False), limits=Limits(exchanges=2), engine=TWO_ERAS), Post(name="x")
    response, _ = site.call(None, mcp_protocol_version="2025-11-25")
    (alone,) = site.machine.sessions
    site.reset(response)
    logging_call(site)
    fields = {name.replace("-", "_"): value for name, value in post.fields.items()}
    usual = {"content_type": "application/json", "accept": "application/json, text/event-stream"}
    late = site.ask("POST", body=None, **usual, **fields)
    site.machine.close(0.0)
    site.complete(late, json.dumps(post.body).encode())
    assert (late.status, site.machine.is_open(alone)) == (503, True)


def test_events_of_calls_name_no_session() -> None:
    site = Site(engine=TWO_ERAS)
    logging_call(site)
    ((session, event),) = site.events
    assert isinstance(event, RequestReceived)
    assert isinstance(session, Calls)
    assert (session, session.id) == (calls_of(site), None)
    assert repr(event.context.via) == f"call {int(event.id)}"
    site.machine.refuse(session, event.context.via, event.id, frozenset({"a"}))
    assert not site.machine.interrupt(session, event.context.via, 0.0)
    session.connection.send_error(event.id, RequestError(5, "no"))
    site.touch(session)
    (response,) = site._responses.values()
    assert (response.status, response.headers["www-authenticate"].partition(" ")[0]) == (403, "Bearer")


# Behind a host


class Alone:
    """A server behind HTTP, and a client without a session."""

    def __init__(self, server: Server, **options: Any) -> None:
        self.server = server
        self.wire = MemoryWire(server, HttpOptions(**options))
        self.client = RawClient(self.wire)

    def post(self, post: Post) -> Exchange:
        exchange: Exchange = done(post.to(self.client))
        return exchange

    def call(self, name: str, **arguments: Any) -> Exchange:
        return self.post(Post(name=name, arguments=arguments))

    def wait(self, seconds: float) -> None:
        done(self.wire.pass_time(seconds))


def test_tool_that_is_added_later_is_served() -> None:
    alone = Alone(Server("late", "1", options=ONE_ERA))
    alone.server.prompt(lambda: "early", name="early")  # before the first request
    assert alone.call("late").status == 404
    alone.server.tool(lambda: "here", name="late")
    assert alone.call("late").json["result"]["content"][0]["text"] == "here"
    alone.server.handlers["x/y"] = lambda scope, request: {"found": True}
    assert alone.post(Post("x/y")).json["result"]["found"] is True


def test_calls_share_a_session_that_counts_while_they_run() -> None:
    server, seen = Server("s", "1", options=TWO_ERAS), list[Any]()

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append((ctx.session, server.sessions, ctx.session.health().serving, ctx.account))
        ctx.session.close()
        await ctx.session.aclose()
        await ctx.sleep(1)
        return "seen"

    alone = Alone(server)
    first, second = alone.call("look"), alone.call("look")
    assert [*server.sessions] == [seen[0][0]]
    alone.wait(2)
    assert [exchange.status for exchange in (first, second)] == [200, 200]
    assert seen[0][0] is seen[1][0]
    assert [each[2] for each in seen] == [1, 2]
    assert seen[0][3] != seen[1][3]  # of nobody known, each counts alone
    assert not server.sessions
    alone.wire.host.close(0)
    alone.wire.run()
    assert seen[0][0].ended is not None


def test_waiting_for_the_end_of_the_shared_session_ends_with_its_server() -> None:
    server, ended = Server("s", "1", options=TWO_ERAS), list[str]()

    @server.tool
    async def linger(ctx: Context) -> str:
        driver = ctx.session.driver

        async def wait() -> None:
            await driver.wait_closed()
            ended.append("closed")

        driver.runtime.spawn(wait())
        return "ok"

    alone = Alone(server)
    assert alone.call("linger").status == 200
    assert ended == []
    alone.wire.host.close(0)
    alone.wire.run()
    assert ended == ["closed"]


def test_error_for_missing_scopes_has_status_403_and_a_challenge() -> None:
    server = Server("s", "1", options=TWO_ERAS)

    @server.tool
    async def guarded(ctx: Context) -> str:
        await ctx.sleep(0)
        raise InsufficientScope(frozenset({"files:write"}))

    alone = Alone(server)
    answer = alone.call("guarded")
    assert answer.status == 403
    assert 'scope="files:write"' in answer.headers["www-authenticate"]


def test_log_messages_are_limited_for_each_client() -> None:
    limits = Limits(logs_per_second=2)
    server = Server(
        "s", "1", options=Options(revisions=REVISIONS, limits=limits), log_filter=lambda _, message: message
    )

    @server.tool
    def chat(ctx: Context) -> str:
        for number in range(3):
            ctx.info(number)
        seen.append(ctx.session)
        return "done"

    seen: list[Any] = []
    alone = Alone(server)
    post = Post(name="chat", arguments={})
    post.meta[LEVEL] = "debug"
    counts = []
    for user in ("ada", "ada", "bob"):
        post.fields["x-user"] = user
        answer = alone.post(post)
        is_stream = answer.headers["content-type"] == "text/event-stream"
        counts.append(len(answer.new_messages()) - 1 if is_stream else 0)
    assert counts == [2, 0, 2]
    assert seen[0].dropped_logs == 1 + 3 + 1


def test_log_rates_of_the_clients_that_were_quiet_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpio.app.server_session._MOST_OUTLETS", 2)
    limits = Limits(logs_per_second=1)
    server = Server(
        "s", "1", options=Options(revisions=REVISIONS, limits=limits), log_filter=lambda _, message: message
    )

    @server.tool
    def chat(ctx: Context) -> str:
        seen.append(ctx.session)
        for _ in range(2):
            ctx.info("hi")
        return "done"

    seen: list[Any] = []
    alone = Alone(server)
    post = Post(name="chat", arguments={})
    post.meta[LEVEL] = "debug"
    for user in ("a", "b", "c"):
        post.fields["x-user"] = user
        alone.post(post)
    assert (len(seen[0]._outlets), seen[0].dropped_logs) == (2, 3)


def test_handlers_that_are_cut_off_are_answered_for() -> None:
    alone = Alone(server_of())
    exchange = alone.call("wait", seconds=50)
    session, _ = alone.wire.host._stateless or (None, None)
    assert session is not None
    running = session._running
    cut_off = dict(running)
    running.clear()
    alone.wire.host.fail_abandoned()
    alone.wire.run()
    running.update(cut_off)  # for the coroutine, which ends with the test
    assert exchange.json["error"]["code"] == -32603


def test_fault_after_the_answer_is_reported_only(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(server_of())
    assert alone.post(Post("tools/list")).status == 200
    session, _ = alone.wire.host._stateless or (None, None)
    assert session is not None
    serve = type(session)._serve

    def faulty(self: Any, event: Any) -> None:
        serve(self, event)
        raise RuntimeError("late")

    monkeypatch.setattr(type(session), "_serve", faulty)
    answer = alone.post(Post("tools/list"))
    assert "tools" in json.dumps(answer.json["result"])
    assert alone.wire.reports == ["a call failed"]


def test_progress_before_the_answer_of_a_plain_tool_makes_a_stream() -> None:
    server = Server("s", "1", options=TWO_ERAS)

    @server.tool
    def work(ctx: Context) -> str:
        ctx.progress(1, 2)
        ctx.progress(2, 2)
        return "done"

    post = Post(name="work", arguments={})
    post.meta["progressToken"] = "p"
    answer = Alone(server).post(post)
    *reports, last = answer.new_messages()
    assert [report["params"]["progress"] for report in reports] in ([1, 2], [2])
    assert (last["result"]["content"][0]["text"], answer.is_over) == ("done", True)


def test_subscription_over_http_is_ended_by_its_server() -> None:
    server = server_of()
    alone = Alone(server)
    exchange = alone.post(Post("subscriptions/listen", notifications={"toolsListChanged": True}))
    alone.wire.host.close(5)
    alone.wire.run()
    first, last = exchange.new_messages()
    assert (first["method"], last["id"], exchange.is_over) == ("notifications/subscriptions/acknowledged", 7, True)


def test_subscription_is_a_stream_where_answers_are_json() -> None:
    alone = Alone(server_of(), answers="json")
    exchange = alone.post(Post("subscriptions/listen", notifications={"toolsListChanged": True}))
    assert exchange.headers["content-type"] == "text/event-stream"
    assert [message["method"] for message in exchange.new_messages()] == ["notifications/subscriptions/acknowledged"]
