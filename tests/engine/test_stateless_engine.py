"""The engine of stateless requests: what a carrier gets, and what is left."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import attrs
import pytest
from stateless import BOTH, INFO, LEVEL, SUBSCRIPTION, stateless, tool_call

from mcpio.engine.envelope import read_envelope
from mcpio.engine.limits import Held, Limits
from mcpio.engine.options import Options
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Phase
from mcpio.errors import ErrorCode, LocalProtocolError, MessageTooLarge, NoBackChannel, RequestError
from mcpio.events import RequestReceived
from mcpio.framing import jsonrpc
from mcpio.observe.recording import Recorder, Replay
from mcpio.observe.tap import add_tap
from mcpio.types.features import (
    CallToolResult,
    ListToolsRequest,
    LoggingMessageNotification,
    ServerCapabilities,
    SubscriptionFilter,
    ToolListChangedNotification,
    ToolsCapability,
)

OFFERS = ServerCapabilities(tools=ToolsCapability(True), logging={})


class Response:
    """A carrier that keeps what it gets."""

    def __init__(self, *, takes_notifications: bool = True) -> None:
        self.said: list[Any] = []
        self.answers: list[tuple[Any, bool]] = []
        self.takes_notifications = takes_notifications
        self.held = Held()

    def put(self, text: bytes, kind: int, key: Hashable) -> None:
        self.held.output += len(text)
        self.said.append(json.loads(text))

    def answer(self, text: bytes, *, is_error: bool) -> None:
        self.answers.append((json.loads(text), is_error))


def engine(limits: Limits | None = None, **more: Any) -> StatelessEngine:
    return StatelessEngine(INFO, OFFERS, options=Options(revisions=BOTH, limits=limits or Limits()), **more)


def receive(engine: StatelessEngine, message: dict[str, Any], carrier: Response) -> RequestReceived | None:
    text = json.dumps(message).encode()
    parsed: Any = jsonrpc.parse(text)
    envelope = read_envelope(parsed.params, BOTH)
    return engine.receive(parsed, text, envelope, carrier, "me", 5.0)


def call(engine: StatelessEngine, carrier: Response, **meta: Any) -> RequestReceived:
    event = receive(engine, tool_call(1, more=meta), carrier)
    assert event is not None
    return event


def refused(engine: StatelessEngine, message: dict[str, Any]) -> int:
    with pytest.raises(RequestError) as caught:
        receive(engine, message, Response())
    return caught.value.code


def test_answer_goes_to_the_carrier_of_its_request() -> None:
    served, first, second = engine(), Response(), Response()
    events = [call(served, first), call(served, second)]
    assert [event.context.via for event in events] == [first, second]
    assert served.pending.incoming == tuple(event.id for event in events)
    assert [each.via for each in served.unanswered] == [first, second]
    served.send_result(events[1].id, CallToolResult(()))
    served.send_error(events[0].id, RequestError(5, "no"))
    assert (first.answers[0][0]["error"]["code"], first.answers[0][1]) == (5, True)
    assert (second.answers[0][0]["result"]["content"], second.answers[0][1]) == ([], False)
    assert (served.serving, served.is_serving, served.pending.incoming) == (0, False, ())


def test_mistakes_of_the_caller_change_nothing() -> None:
    served, carrier = engine(Limits(sent_message_bytes=200)), Response()
    event = call(served, carrier)
    long: Any = CallToolResult((), structured_content={"a": "x" * 200})
    with pytest.raises(MessageTooLarge):
        served.send_result(event.id, long)
    with pytest.raises(LocalProtocolError, match="must be a CallToolResult"):
        served.send_result(event.id, ListToolsRequest())
    assert (served.is_pending(event.id), carrier.answers) == (True, [])
    served.send_result(event.id, CallToolResult(()))
    with pytest.raises(LocalProtocolError, match="answered before"):
        served.send_result(event.id, CallToolResult(()))
    never: Any = 99
    with pytest.raises(LocalProtocolError, match="never was"):
        served.send_result(never, CallToolResult(()))
    with pytest.raises(LocalProtocolError, match="there is no session"):
        served.send_notification(ToolListChangedNotification())
    with pytest.raises(LocalProtocolError, match="InputRequiredResult"):
        served.send_request(ListToolsRequest(), now=0.0)


def test_request_is_refused_with_the_code_of_its_first_fault() -> None:
    served = engine()
    assert refused(served, stateless("prompts/get", name="x")) == ErrorCode.METHOD_NOT_FOUND
    assert refused(served, stateless("no/such")) == ErrorCode.METHOD_NOT_FOUND
    assert refused(served, stateless("tools/call", name=5)) == ErrorCode.INVALID_PARAMS
    assert not served.is_serving


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("items", [10, 11])
def test_request_with_too_many_items_is_refused(items: int) -> None:
    served = engine(Limits(message_items=10))
    answers = {f"a{number}": {"action": "decline"} for number in range(items)}
    message = stateless("tools/call", name="x", inputResponses=answers)
    if items > 10:
        assert refused(served, message) == ErrorCode.INVALID_PARAMS
    else:
        assert receive(served, message, Response()) is not None


def test_cancelled_request_is_answered_quietly() -> None:
    served, carrier = engine(), Response()
    event = call(served, carrier)
    cancelled = served.cancel(event.id, "gone")
    assert cancelled is not None
    assert (cancelled.id, cancelled.reason) == (event.id, "gone")
    assert served.cancel(event.id, "again") is None
    served.send_result(event.id, CallToolResult(()))
    served.send_notification(LoggingMessageNotification("error", "x"), related_to=event.id)
    assert (carrier.answers, carrier.said) == ([], [])


def test_notifications_need_a_client_that_takes_them() -> None:
    served, carrier, silent = engine(), Response(), Response(takes_notifications=False)
    log = LoggingMessageNotification("error", "x")
    served.send_notification(log, related_to=call(served, carrier, **{LEVEL: "info"}).id)
    assert [message["method"] for message in carrier.said] == ["notifications/message"]
    event = call(served, silent, **{LEVEL: "info"})
    with pytest.raises(NoBackChannel):
        served.send_notification(log, related_to=event.id)


def test_close_ends_subscriptions_and_lets_calls_run() -> None:
    served, running, begun, fresh = engine(), Response(), Response(), Response()
    asked = stateless("subscriptions/listen", 3, notifications={"toolsListChanged": True})
    event = call(served, running)
    first, second = (receive(served, asked, carrier) for carrier in (begun, fresh))
    assert first is not None
    assert second is not None
    served.acknowledge(first.id, SubscriptionFilter(tools_list_changed=True))
    assert (served.is_acknowledged(first.id), served.is_acknowledged(second.id)) == (True, False)
    assert [each.id for each in served.close()] == [first.id, second.id]
    assert begun.answers[0][0]["result"]["_meta"][SUBSCRIPTION] == 3
    assert fresh.answers[0][0]["error"]["data"] == {"reason": "closing"}
    assert (served.phase, served.pending.incoming) == (Phase.CLOSING, (event.id,))
    served.send_result(event.id, CallToolResult(()))
    served.finish()
    assert (served.phase, served.closed) == (Phase.CLOSED, True)


def test_discovery_is_answered_at_once_and_fails_where_nothing_can_be_said() -> None:
    served, carrier = engine(instructions="be kind"), Response()
    assert receive(served, stateless("server/discover"), carrier) is None
    assert carrier.answers[0][0]["result"]["instructions"] == "be kind"
    faulty = engine(instructions="\udc80")
    assert refused(faulty, stateless("server/discover")) == ErrorCode.INTERNAL_ERROR


@pytest.mark.parametrize("listeners", [0, 5])
def test_changes_are_declared_where_clients_may_listen_for_them(listeners: int) -> None:
    served, carrier = engine(Limits(listeners=listeners)), Response()
    receive(served, stateless("server/discover"), carrier)
    assert ("listChanged" in carrier.answers[0][0]["result"]["capabilities"]["tools"]) is (listeners > 0)


def test_sizes_are_those_of_the_requests_that_run() -> None:
    served, carrier = engine(), Response()
    event = call(served, carrier, **{LEVEL: "info"})
    assert (served.phase, served.size_of(event.id) > 4096) == (Phase.OPERATING, True)
    served.send_notification(LoggingMessageNotification("error", "x"), related_to=event.id)
    assert 0 < served.stats.sent_bytes <= served.stats.queued_bytes
    assert served.held_for(event.id).output == served.stats.queued_bytes > 0
    assert served.held.requests == served.size_of(event.id)
    served.send_result(event.id, CallToolResult(()))
    assert (served.size_of(event.id), served.held_for(event.id).total, served.held.total) == (0, 0, 0)
    assert served.stats.received_bytes > 0 < served.stats.sent_bytes
    assert served.last_received_at == 5.0
    closely = engine(Limits(peer_bytes=1000))
    assert closely.size_of(call(closely, Response()).id) < served.size_of(call(served, Response()).id)


def test_what_is_offered_changes_for_later_requests() -> None:
    served = StatelessEngine(INFO, options=Options(revisions=BOTH))
    assert refused(served, tool_call()) == ErrorCode.METHOD_NOT_FOUND
    served.offer(OFFERS, attrs.evolve(served.options, custom_methods=frozenset({"x/y"})))
    assert served.capabilities is OFFERS
    call(served, Response())
    event = receive(served, stateless("x/y"), Response())
    assert event is not None
    served.send_raw_result(event.id, b"{}")


@pytest.mark.req("RPC-05")
def test_replayed_recording_gives_the_same_events() -> None:
    served, lines, heard = engine(), list[str](), list[str]()
    add_tap(served, Recorder(lines.append), 1.0)
    first, second, lost = Response(), Response(), Response()
    one = call(served, first, progressToken="p", **{LEVEL: "debug"})
    other = call(served, second)
    gone = call(served, lost)
    receive(served, stateless("server/discover"), Response())
    assert refused(served, stateless("no/such")) == ErrorCode.METHOD_NOT_FOUND
    served.send_progress(one.id, 1)
    served.send_notification(LoggingMessageNotification("error", "x"), related_to=one.id)
    served.cancel(gone.id, "gone")
    served.send_result(one.id, CallToolResult(()))
    served.send_result(other.id, CallToolResult(()))
    listening = receive(served, stateless("subscriptions/listen", notifications={}), Response())
    assert listening is not None
    served.acknowledge(listening.id, SubscriptionFilter())
    served.close()
    served.finish()
    assert {json.loads(line)["at"] for line in lines[1:]} == {5.0}
    steps = list(Replay(lines))
    assert [step.differs for step in steps if step.differs] == []
    heard = [type(step.event).__name__ for step in steps if step.event is not None]
    assert heard == [
        *["RequestReceived"] * 3,
        "Answered",
        "Answered",
        "CancelReceived",
        "RequestReceived",
        "CancelReceived",
        "ConnectionClosed",
    ]
    assert b"".join(chunk for step in steps for chunk in step.sent if chunk).count(b'"result"') == 2
