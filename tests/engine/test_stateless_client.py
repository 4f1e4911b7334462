"""A client of both eras: how it opens, what its stateless requests carry, and what it takes from a server."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from stateless import BOTH, CAPABILITIES, CLIENT, INFO, LEVEL, MODERN, SERVER, SUBSCRIPTION, VERSION

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    MessageTooLarge,
    RemoteProtocolError,
    RequestCancelled,
    RequestError,
    RequestTimeout,
)
from mcpio.events import (
    CloseReason,
    ConnectionClosed,
    IgnoreReason,
    MessageIgnored,
    Negotiated,
    NotificationReceived,
    ProgressReceived,
    ProtocolViolated,
    RequestFailed,
    ResponseReceived,
    SubscriptionAcknowledged,
    SubscriptionNotified,
    VersionMismatched,
)
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Era
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    CustomRequest,
    DiscoverRequest,
    DiscoverResult,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    ListRootsRequest,
    ListToolsRequest,
    LoggingMessageNotification,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    TextContent,
    ToolListChangedNotification,
    ToolsCapability,
)

NEW, OLD = "2026-07-28", "2025-11-25"
OFFERED = {"tools": {"listChanged": True}, "logging": {}}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": [NEW, OLD],
    "capabilities": OFFERED,
    "instructions": "be kind",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {SERVER: {"name": "s", "version": "2"}},
}
WELCOME = {"protocolVersion": OLD, "capabilities": OFFERED, "serverInfo": {"name": "old", "version": "1"}}


class Talk:
    """A client, and a server that the test plays."""

    def __init__(self, revisions: Any = BOTH, capabilities: ClientCapabilities | None = None, **options: Any) -> None:
        self.connection = ClientConnection(INFO, capabilities, options=Options(revisions=revisions, **options))
        self.now = 0.0

    @classmethod
    def operating(cls, **options: Any) -> Talk:
        talk = cls(**options)
        talk.connection.adopt(
            REV_2026_07_28, DiscoverResult((NEW,), ServerCapabilities(ToolsCapability(list_changed=True)))
        )
        return talk

    def negotiate(self, **how: Any) -> dict[str, Any]:
        self.connection.negotiate(self.now, cookie="opening", **how)
        (sent,) = self.sent()
        return sent

    def sent(self) -> list[dict[str, Any]]:
        chunks = [chunk for chunk in self.connection.data_to_send() if chunk is not None]
        return [json.loads(line) for line in b"".join(chunks).splitlines()]

    def feed(self, *messages: dict[str, Any]) -> list[Any]:
        for message in messages:
            self.connection.receive_data(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n", self.now)
        return list(self.connection.events())

    def answer(self, id: Any, result: dict[str, Any] | None = None, **error: Any) -> list[Any]:
        return self.feed({"id": id, "result": result} if result is not None else {"id": id, "error": error})

    def wait(self, seconds: float) -> list[Any]:
        self.now += seconds
        self.connection.handle_timeout(self.now)
        return list(self.connection.events())

    def ask(self, request: Any, **how: Any) -> dict[str, Any]:
        self.connection.send_request(request, self.now, **how)
        (sent,) = self.sent()
        return sent


def kinds(events: list[Any]) -> list[type]:
    return [type(event) for event in events]


# Opening


@pytest.mark.req("ERA-02", "VER-04")
def test_discovery_settles_the_stateless_era() -> None:
    talk = Talk()
    sent = talk.negotiate()
    assert sent["method"] == "server/discover"
    assert (talk.connection.phase, talk.connection.era, talk.connection.peer) == (Phase.DISCOVERING, None, None)
    (event,) = talk.answer(sent["id"], DISCOVERED)
    assert event == Negotiated(
        REV_2026_07_28, Implementation("s", "2"), event.capabilities, "be kind", event.raw, sent["id"], "opening"
    )
    connection = talk.connection
    assert (connection.phase, connection.era, connection.revision) == (Phase.OPERATING, Era.STATELESS, REV_2026_07_28)
    assert connection.peer is not None
    assert (connection.peer.info, connection.peer.instructions) == (Implementation("s", "2"), "be kind")
    # No notifications/initialized, and no second opening.
    assert talk.sent() == []
    with pytest.raises(LocalProtocolError):
        connection.negotiate(0.0)
    with pytest.raises(LocalProtocolError):
        connection.send_initialize(0.0)


@pytest.mark.parametrize("said", [None, "s", {"name": "s"}])
def test_server_without_a_usable_name_is_unknown(said: Any) -> None:
    talk = Talk()
    (event,) = talk.answer(talk.negotiate()["id"], {**DISCOVERED, "_meta": {SERVER: said}})
    assert event.info == Implementation("unknown", "0")


@pytest.mark.req("ERA-02", "ERA-04")
@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"result": {"anything": "else"}},
        {"result": {**DISCOVERED, "supportedVersions": [OLD]}},
        {"error": {"code": -32022, "message": "no", "data": {"supported": [OLD], "requested": NEW}}},
    ],
)
def test_server_of_the_handshake_era_is_initialized(answer: dict[str, Any]) -> None:
    talk = Talk()
    probe = talk.negotiate()
    assert talk.feed({"id": probe["id"], **answer}) == []
    (initialize,) = talk.sent()
    assert (initialize["method"], initialize["params"]["protocolVersion"]) == ("initialize", OLD)
    assert initialize["id"] != probe["id"]
    assert "_meta" not in initialize["params"]
    assert talk.connection.phase is Phase.INITIALIZING
    (event,) = talk.answer(initialize["id"], WELCOME)
    assert (type(event), event.revision, event.cookie) == (Negotiated, REV_2025_11_25, "opening")
    assert talk.connection.era is Era.HANDSHAKE
    assert [each["method"] for each in talk.sent()] == ["notifications/initialized"]


@pytest.mark.req("ERA-03")
def test_silent_server_is_initialized_and_its_late_answer_ignored() -> None:
    talk = Talk(probe_timeout=2.0)
    probe = talk.negotiate()
    assert talk.wait(1.9) == []
    assert talk.wait(0.1) == []
    # Not even told that the probe was given up: it expects initialize first.
    (initialize,) = talk.sent()
    assert initialize["method"] == "initialize"
    (late,) = talk.answer(probe["id"], DISCOVERED)
    assert (type(late), late.reason) == (MessageIgnored, IgnoreReason.LATE_RESPONSE)
    assert kinds(talk.answer(initialize["id"], WELCOME)) == [Negotiated]


@pytest.mark.req("VER-02")
def test_refused_version_is_probed_once_more() -> None:
    talk = Talk()
    refusal: dict[str, Any] = {"code": -32022, "message": "no", "data": {"supported": [NEW], "requested": NEW}}
    assert talk.answer(talk.negotiate()["id"], **refusal) == []
    (again,) = talk.sent()
    assert again["method"] == "server/discover"
    failed, mismatch, closed = talk.answer(again["id"], **refusal)
    assert (type(failed), failed.cookie, type(failed.error)) == (RequestFailed, "opening", ConnectFailed)
    assert mismatch == VersionMismatched(NEW, NEW)
    assert (type(closed), closed.reason) == (ConnectionClosed, CloseReason.VERSION_MISMATCH)


@pytest.mark.req("ERA-16")
def test_server_of_a_later_revision_only_is_refused() -> None:
    talk = Talk()
    failed, mismatch, closed = talk.answer(talk.negotiate()["id"], {**DISCOVERED, "supportedVersions": ["2027-01-01"]})
    assert "the server speaks 2027-01-01, this client 2026-07-28, 2025-11-25" in str(failed.error)
    assert mismatch.offered == "2027-01-01"
    assert closed.reason is CloseReason.VERSION_MISMATCH
    assert talk.sent() == []


def test_missing_capability_is_refused() -> None:
    talk = Talk()
    data: Any = {"requiredCapabilities": {"roots": {}}}
    failed, closed = talk.answer(talk.negotiate()["id"], code=-32021, message="roots", data=data)
    assert failed.error.code == -32021
    assert closed.reason is CloseReason.HANDSHAKE_FAILED


@pytest.mark.req("ERA-03")
def test_end_during_the_discovery_differs_from_other_ends() -> None:
    talk = Talk()
    talk.negotiate()
    talk.connection.receive_data(None, 0.0)
    (failed,) = talk.connection.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, ConnectFailed)
    assert failed.error.era_probe
    assert isinstance(failed.error.__cause__, ConnectionLost)
    assert talk.connection.phase is Phase.CLOSING


@pytest.mark.req("ERA-03")
def test_refused_initialize_that_names_a_stateless_revision_is_probed_again() -> None:
    talk = Talk(probe_timeout=1.0)
    talk.negotiate()
    talk.wait(1.0)
    (initialize,) = talk.sent()
    refusal: dict[str, Any] = {"code": -32022, "message": "locked", "data": {"supported": [NEW], "requested": OLD}}
    assert talk.answer(initialize["id"], **refusal) == []
    (probe,) = talk.sent()
    assert (probe["method"], talk.connection.phase) == ("server/discover", Phase.DISCOVERING)
    (event,) = talk.answer(probe["id"], DISCOVERED)
    assert event.revision is REV_2026_07_28


def test_refused_initialize_after_a_second_probe_is_final() -> None:
    talk = Talk(probe_timeout=1.0)
    refusal: dict[str, Any] = {"code": -32022, "message": "locked", "data": {"supported": [NEW], "requested": OLD}}
    talk.negotiate()
    talk.wait(1.0)
    talk.answer(talk.sent()[0]["id"], **refusal)
    talk.answer(talk.sent()[0]["id"], code=-32601, message="no")
    (initialize,) = talk.sent()
    assert initialize["method"] == "initialize"
    assert kinds(talk.answer(initialize["id"], **refusal)) == [RequestFailed, ConnectionClosed]


def test_handshake_era_sends_no_probe() -> None:
    assert Talk(era="handshake").negotiate()["method"] == "initialize"
    assert Talk(revisions=(REV_2025_11_25,)).negotiate()["method"] == "initialize"


@pytest.mark.req("ERA-08")
@pytest.mark.parametrize("options", [{"era": "stateless"}, {"revisions": MODERN}])
def test_stateless_era_never_initializes(options: Any) -> None:
    talk = Talk(**options)
    failed, closed = talk.answer(talk.negotiate()["id"], code=-32601, message="no such method")
    assert "does not speak 2026-07-28" in str(failed.error)
    assert closed.reason is CloseReason.HANDSHAKE_FAILED
    talk = Talk(**options, initialize_timeout=5.0, probe_timeout=1.0)
    talk.negotiate()
    assert talk.wait(1.0) == []
    failed, closed = talk.wait(4.0)
    assert isinstance(failed.error, ConnectFailed)
    with pytest.raises(LocalProtocolError, match="no revision with a handshake"):
        Talk(revisions=MODERN).connection.send_initialize(0.0)


def test_timeout_of_the_call_is_that_of_a_discovery_without_a_fallback() -> None:
    talk = Talk(revisions=MODERN)
    talk.negotiate(timeout=2.0)
    failed, _ = talk.wait(2.0)
    assert isinstance(failed.error.__cause__, RequestTimeout)


def test_answer_to_initialize_cannot_name_a_stateless_revision() -> None:
    talk = Talk(era="handshake")
    initialize = talk.negotiate()
    events = talk.answer(initialize["id"], {**WELCOME, "protocolVersion": NEW})
    assert VersionMismatched(OLD, NEW) in events


def test_odd_members_of_a_discovery_are_reported() -> None:
    talk = Talk()
    events = talk.answer(talk.negotiate()["id"], {**DISCOVERED, "instructions": 5})
    assert kinds(events) in ([Negotiated, ProtocolViolated], [ProtocolViolated, Negotiated], [Negotiated])


@pytest.mark.req("VER-04")
def test_revision_can_be_adopted_without_asking() -> None:
    talk = Talk()
    talk.connection.adopt(REV_2026_07_28)
    assert (talk.connection.phase, talk.connection.era) == (Phase.OPERATING, Era.STATELESS)
    assert talk.sent() == []
    with pytest.raises(LocalProtocolError, match="tools"):
        talk.connection.send_request(ListToolsRequest(), 0.0)
    with pytest.raises(LocalProtocolError):
        talk.connection.adopt(REV_2026_07_28)


@pytest.mark.parametrize("revision", [REV_2025_11_25, None])
def test_other_revisions_cannot_be_adopted(revision: Any) -> None:
    with pytest.raises(LocalProtocolError, match="not a stateless revision of this client"):
        Talk().connection.adopt(revision)


def test_lost_session_is_opened_again() -> None:
    talk = Talk.operating(reopens=True)
    talk.connection.connection_lost(None, 0.0)
    assert talk.connection.phase is Phase.NEW
    assert talk.negotiate()["method"] == "server/discover"
    talk.connection.connection_lost(None, 0.0)
    assert kinds(list(talk.connection.events())) == [RequestFailed]
    assert talk.negotiate()["method"] == "server/discover"


# What requests carry


@pytest.mark.req("ENV-01", "ENV-02", "ENV-08")
def test_each_request_carries_its_context() -> None:
    talk = Talk.operating(capabilities=ClientCapabilities(roots=RootsCapability()))
    mine = {VERSION: NEW, CAPABILITIES: {"roots": {}}, CLIENT: {"name": "test", "version": "1"}}
    assert talk.ask(ListToolsRequest())["params"] == {"_meta": mine}
    talk.connection.log_level = "warning"
    talk.connection.capabilities = ClientCapabilities()
    called = talk.ask(CallToolRequest("t", meta={"example.com/a": 1}), progress=True)
    token = called["id"]
    expected = {**mine, CAPABILITIES: {}, LEVEL: "warning", "example.com/a": 1, "progressToken": token}
    assert called["params"]["_meta"] == expected
    assert talk.connection.log_level == "warning"
    assert talk.ask(DiscoverRequest())["method"] == "server/discover"
    assert CLIENT not in Talk.operating(identify=False).ask(ListToolsRequest())["params"]["_meta"]


def test_log_level_is_checked() -> None:
    with pytest.raises(LocalProtocolError, match="logging/setLevel"):
        Talk().connection.log_level = "info"
    assert Talk().connection.log_level is None
    with pytest.raises(LocalProtocolError, match="a log level must be one of"):
        Talk.operating().connection.log_level = "loud"
    talk = Talk.operating()
    talk.connection.log_level = None


def test_methods_of_the_handshake_era_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="ping does not exist in revision 2026-07-28"):
        Talk.operating().connection.send_request(PingRequest(), 0.0)


# What comes back


@pytest.mark.req("ENV-10", "ENV-11")
@pytest.mark.parametrize("said", [{"resultType": "complete"}, {}])
def test_complete_result_is_typed(said: dict[str, Any]) -> None:
    talk = Talk.operating()
    id = talk.ask(CallToolRequest("t"))["id"]
    (event,) = talk.answer(id, {**said, "content": [{"type": "text", "text": "hi"}]})
    assert event.result == CallToolResult((TextContent("hi"),))


@pytest.mark.req("ENV-11")
@pytest.mark.parametrize("kind", ["weird", "task", 5, None])
def test_unknown_kind_of_result_is_invalid(kind: Any) -> None:
    talk = Talk.operating()
    id = talk.ask(CallToolRequest("t"))["id"]
    (event,) = talk.answer(id, {"resultType": kind, "content": []})
    assert isinstance(event.error, InvalidMessage)
    assert event.error.path == "resultType"


@pytest.mark.req("MRTR-01", "MRTR-02")
def test_question_is_a_result_where_it_may_be() -> None:
    talk = Talk.operating(capabilities=ClientCapabilities(roots=RootsCapability()))
    id = talk.ask(CallToolRequest("t"))["id"]
    (event,) = talk.answer(id, {"resultType": "input_required", "requestState": "s"})
    assert event.result == InputRequiredResult(request_state="s")
    id = talk.ask(CallToolRequest("t", input_responses={"k": ElicitResult("decline")}))["id"]
    (event,) = talk.answer(id, {"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}})
    assert event.result == InputRequiredResult({"r": ListRootsRequest()})
    id = talk.ask(CallToolRequest("t"))["id"]
    (event,) = talk.answer(id, {"resultType": "input_required", "inputRequests": {}})
    assert "needs inputRequests or requestState" in str(event.error)
    id = talk.ask(ListToolsRequest())["id"]
    (event,) = talk.answer(id, {"resultType": "input_required", "requestState": "s"})
    assert "does not answer tools/list" in str(event.error)


@pytest.mark.req("MRTR-03", "MRTR-04")
@pytest.mark.parametrize(
    ("question", "error", "match"),
    [
        ({"method": "tools/call"}, InvalidMessage, r"inputRequests\.k\.method"),
        (
            {"method": "elicitation/create", "params": {"message": 5}},
            InvalidMessage,
            r"inputRequests\.k\.params\.message",
        ),
        (
            {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
            RemoteProtocolError,
            "sampling",
        ),
        (
            {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a.example"}},
            RemoteProtocolError,
            "the capability elicitation was not declared",
        ),
    ],
)
def test_wrong_question_fails_the_request(question: Any, error: type, match: str) -> None:
    talk = Talk.operating()
    id = talk.ask(CallToolRequest("t"))["id"]
    (event,) = talk.answer(id, {"resultType": "input_required", "inputRequests": {"k": question}})
    assert isinstance(event.error, error)
    assert re.search(match, str(event.error))


def test_custom_result_is_plain_and_an_error_an_error() -> None:
    talk = Talk.operating()
    id = talk.ask(CustomRequest("example.com/x", {}))["id"]
    (event,) = talk.answer(id, {"a": 1})
    assert event.result == {"a": 1}
    id = talk.ask(CustomRequest("example.com/x", {}))["id"]
    (event,) = talk.answer(id, code=-5, message="no")
    assert isinstance(event.error, RequestError)


@pytest.mark.req("PAT-01")
def test_request_of_a_server_is_a_violation_and_not_answered() -> None:
    talk = Talk.operating()
    (event,) = talk.feed({"id": 1, "method": "roots/list"})
    assert isinstance(event, ProtocolViolated)
    assert "stateless servers do not send any" in str(event.error)
    assert talk.sent() == []


@pytest.mark.req("PAT-02")
def test_progress_and_logs_of_a_request_are_reported() -> None:
    talk = Talk.operating()
    id = talk.ask(CallToolRequest("t"), progress=True)["id"]
    progress, log = talk.feed(
        {"method": "notifications/progress", "params": {"progressToken": id, "progress": 1}},
        {"method": "notifications/message", "params": {"level": "info", "data": 1}},
    )
    assert isinstance(progress, ProgressReceived)
    assert isinstance(log, NotificationReceived)
    assert log.notification == LoggingMessageNotification("info", 1)


# Subscriptions


LISTEN = SubscriptionsListenRequest(SubscriptionFilter(tools_list_changed=True))


def on(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"method": f"notifications/{method}", "params": {**params, "_meta": {SUBSCRIPTION: id}}}


@pytest.mark.req("SUB-02", "SUB-05")
def test_notifications_of_a_subscription_have_its_id_and_cookie() -> None:
    talk = Talk.operating()
    first = talk.ask(LISTEN, timeout=None, cookie="first")["id"]
    second = talk.ask(LISTEN, timeout=None, cookie="second")["id"]
    ack, change = talk.feed(
        on(second, "subscriptions/acknowledged", notifications={"toolsListChanged": True}),
        on(first, "tools/list_changed"),
    )
    assert ack == SubscriptionAcknowledged(second, SubscriptionFilter(tools_list_changed=True), "second", ack.raw)
    assert (type(change), change.id, change.cookie) == (SubscriptionNotified, first, "first")
    assert isinstance(change.notification, ToolListChangedNotification)


@pytest.mark.req("SUB-08")
def test_subscription_ends_by_its_result_or_by_a_cancellation() -> None:
    talk = Talk.operating()
    id = talk.ask(LISTEN, timeout=None)["id"]
    ended, late = talk.feed(
        {"id": id, "result": {"resultType": "complete", "_meta": {SUBSCRIPTION: id}}},
        {"method": "notifications/cancelled", "params": {"requestId": id}},
    )
    assert isinstance(ended, ResponseReceived)
    assert (type(late), late.reason) == (MessageIgnored, IgnoreReason.UNKNOWN_REQUEST)
    for reason, said in (("shutting down", "shutting down"), (5, "by the server")):
        id = talk.ask(LISTEN, timeout=None)["id"]
        (ended,) = talk.feed({"method": "notifications/cancelled", "params": {"requestId": id, "reason": reason}})
        assert isinstance(ended.error, RequestCancelled)
        assert ended.error.reason == said


@pytest.mark.req("SUB-07")
def test_cancelled_subscription_notifies_the_server() -> None:
    talk = Talk.operating()
    id = talk.ask(LISTEN, timeout=None)["id"]
    talk.connection.cancel_request(talk.connection.pending.outgoing[0], "enough")
    (sent,) = talk.sent()
    assert (sent["method"], sent["params"]["requestId"]) == ("notifications/cancelled", id)


@pytest.mark.parametrize("id", [99, "1", None, True])
def test_notification_of_no_subscription_changes_nothing(id: Any) -> None:
    talk = Talk.operating()
    talk.ask(ListToolsRequest())
    (event,) = talk.feed(on(id, "tools/list_changed"))
    assert isinstance(event, MessageIgnored | NotificationReceived)


def test_malformed_notification_of_a_subscription_is_a_violation() -> None:
    talk = Talk.operating()
    id = talk.ask(LISTEN, timeout=None)["id"]
    (event,) = talk.feed(on(id, "resources/updated", uri=5))
    assert isinstance(event, ProtocolViolated)


def test_cancelled_discovery_ends_the_opening() -> None:
    talk = Talk()
    sent = talk.negotiate()
    talk.connection.cancel_request(sent["id"])
    assert kinds(list(talk.connection.events())) == [RequestFailed, ConnectionClosed]
    assert talk.answer(sent["id"], DISCOVERED) == []


def test_initialize_after_a_lost_stateless_session_carries_no_envelope() -> None:
    talk = Talk.operating()
    talk.connection.reset_session(0.0)
    talk.connection.send_initialize(0.0)
    (hello,) = talk.sent()
    assert "_meta" not in hello["params"]
    assert (talk.connection.is_stateless, talk.connection.era) == (False, None)
    (event,) = talk.answer(
        hello["id"],
        {"protocolVersion": OLD, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}},
    )
    assert (type(event), talk.connection.revision) == (Negotiated, REV_2025_11_25)


@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_opening_that_cannot_be_written_changes_nothing(era: Any) -> None:
    talk = Talk.operating(era=era, limits=Limits(sent_message_bytes=60))
    talk.connection.reset_session(0.0)
    before = talk.connection.snapshot(0.0)
    with pytest.raises(MessageTooLarge):
        talk.connection.negotiate(0.0)
    assert talk.connection.snapshot(0.0) == before
    assert (talk.connection.phase, talk.connection.era) == (Phase.NEW, Era.STATELESS)


def test_handshake_after_a_lost_opening_is_not_turned_into_a_probe() -> None:
    talk = Talk()
    talk.answer(talk.negotiate()["id"], code=-32601, message="no")
    talk.connection.reset_session(0.0)
    list(talk.connection.events())
    talk.sent()
    talk.connection.send_initialize(0.0, cookie="again")
    (hello,) = talk.sent()
    failed, *rest = talk.answer(
        hello["id"],
        code=-32022,
        message="no",
        data={"supported": [NEW], "requested": hello["params"]["protocolVersion"]},
    )
    assert (type(failed), failed.cookie) == (RequestFailed, "again")
    assert isinstance(rest[-1], ConnectionClosed)
    assert talk.sent() == []


def test_initialize_that_cannot_be_written_after_a_probe_fails_the_opening() -> None:
    options = Options(identify=False, limits=Limits(sent_message_bytes=200))
    connection = ClientConnection(Implementation("c" * 100, "1"), options=options)
    connection.negotiate(0.0, cookie="opening")
    (probe,) = connection.data_to_send()
    assert probe is not None
    connection.receive_data(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}\n', 1.0)
    failed, closed = connection.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, MessageTooLarge)
    assert failed.cookie == "opening"
    assert isinstance(closed, ConnectionClosed)
    assert closed.reason is CloseReason.HANDSHAKE_FAILED


def test_timeout_whose_cancellation_cannot_be_written_is_reported() -> None:
    talk = Talk(revisions=(REV_2025_11_25,))
    hello = talk.negotiate()
    talk.answer(
        hello["id"],
        {"protocolVersion": OLD, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}},
    )
    talk.sent()
    options = Options(revisions=(REV_2025_11_25,), limits=Limits(sent_message_bytes=60))
    client = ClientConnection.restore(talk.connection.snapshot(0.0), 0.0, options=options)
    client.send_request(PingRequest(), 0.0, timeout=1.0)
    client.data_to_send()
    client.handle_timeout(1.0)
    (failed,) = client.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, RequestTimeout)
    assert client.data_to_send() == []
