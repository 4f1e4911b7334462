"""A client of a stateless server: the same calls as in the handshake era, with what happens inside of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from linked import Link
from waits import Wait

from mcpio import Context, Server
from mcpio.app.caching import ResultCache
from mcpio.app.client import Client, client_connection
from mcpio.app.listening import Listening, Missed
from mcpio.app.reconnection import SessionReconnector
from mcpio.engine.options import Options
from mcpio.errors import ConnectFailed, LocalProtocolError, RemoteProtocolError, RequestError, RequestTimeout
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_11_25, REVISIONS, STATELESS_REVISIONS, Era
from mcpio.testing import ManualRuntime
from mcpio.types import (
    CallToolRequest,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    InputRequiredResult,
    ResourceUpdatedNotification,
    StringSchema,
    SubscriptionFilter,
    ToolListChangedNotification,
)
from mcpio.types.base import CustomRequest

NEW = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
OFFERED = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
BOTH = Options(revisions=REVISIONS)


def server_that_asks() -> Server:
    server = Server("s", options=BOTH)

    @server.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit(ElicitFormRequest("Who?", ElicitSchema({"name": StringSchema()})))
        return f"{answer.action} {dict(answer.content or {})}"

    return server


def accept(scope: Any, request: Any) -> ElicitResult:
    return ElicitResult("accept", {"name": "Ann"})


@pytest.mark.parametrize(("era", "settled"), [("auto", Era.STATELESS), ("handshake", Era.HANDSHAKE)])
def test_one_call_is_answered_in_both_eras(era: Any, settled: Era) -> None:
    link = Link(server_that_asks(), era=era, elicitation=accept)
    assert link.client.era is settled
    assert link.text("book") == "accept {'name': 'Ann'}"


def test_client_without_era_follows_its_options() -> None:
    assert Link(server_that_asks()).client.era is Era.STATELESS
    assert Link(server_that_asks(), options=BOTH).client.era is Era.STATELESS
    only = Options(revisions=(REV_2025_11_25,))
    assert Link(server_that_asks(), options=only, era="handshake").client.era is Era.HANDSHAKE
    assert Link(server_that_asks(), options=BOTH, era="stateless").client.era is Era.STATELESS
    assert Link(server_that_asks(), options=only, era="auto").client.era is Era.STATELESS
    with pytest.raises(ValueError, match="era must be"):
        Link(server_that_asks(), era="ancient")  # type: ignore[arg-type]  # the mistake


def test_question_is_returned_to_a_caller_that_answers_by_hand() -> None:
    link = Link(server_that_asks(), era="auto", elicitation=accept)
    result = link.do(link.client.request(CallToolRequest("book"), rounds=0))
    assert isinstance(result, InputRequiredResult)


@pytest.mark.parametrize("rounds", [0, -1, "two"])
def test_client_without_rounds_raises(rounds: Any) -> None:
    with pytest.raises(ValueError, match="rounds must be an integer of 1 or more"):
        client_connection(rounds=rounds)


def test_shared_cache_of_the_wrong_type_raises() -> None:
    wrong: Any = {}
    with pytest.raises(TypeError, match="shared_cache"):
        client_connection(shared_cache=wrong)


def test_fresh_takes_a_bool() -> None:
    link = Link(server_that_asks())
    with pytest.raises(TypeError, match="fresh must be a bool"):
        link.do(link.client.list_tools(fresh="yes"))  # type: ignore[arg-type]  # the mistake


def test_call_of_the_other_era_raises_with_the_alternative() -> None:
    link = Link(server_that_asks(), era="auto")
    with pytest.raises(LocalProtocolError, match=r"await client\.discover\(fresh=True\)"):
        link.do(link.client.ping())
    assert link.do(link.client.discover()).supported_versions[0] == NEW
    link.client.notify_roots_changed()  # there is nothing to tell
    link = Link(server_that_asks(), era="handshake")
    with pytest.raises(LocalProtocolError, match="server/discover"):
        link.do(link.client.discover())


DISCOVERED = {"supportedVersions": [NEW], "capabilities": OFFERED, "ttlMs": 0, "cacheScope": "private"}


class Played:
    """A client of a stateless server that the test plays."""

    def __init__(self, *, over_http: bool = False, said: Any = None, **options: Any) -> None:
        options.setdefault("options", Options(revisions=REVISIONS))
        self.runtime = ManualRuntime()
        self.connection = client_connection(**options)
        self.connection.over_http = over_http
        self.reports: list[str] = []
        self.client = Client(self.connection, self, **options)
        self._opening = Wait(self.runtime, self.client.initialize(), self.run)
        (probe,) = self.sent()
        self.answer(probe, {**DISCOVERED, **(said or {})})
        assert self._opening.state == "returned"

    # As a driver

    def now(self) -> float:
        return self.runtime.now

    def wake(self) -> None:
        pass

    def close(self, grace: float) -> None:
        self.connection.close(self.now(), grace=grace)

    async def wait_closed(self) -> None:
        pass

    def report(self, message: str, error: BaseException | None) -> None:
        self.reports.append(message)

    # As a server

    def run(self) -> None:
        self.runtime.run()
        self.client._process()
        self.runtime.run()

    def sent(self) -> list[dict[str, Any]]:
        self.run()
        chunks = [chunk for chunk in self.connection.data_to_send() if chunk is not None]
        return [json.loads(line) for line in b"".join(chunks).splitlines()]

    def feed(self, **message: Any) -> None:
        self.connection.receive_data(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n", self.now())
        self.run()

    def answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        self.feed(id=request["id"], result={"resultType": "complete", **result})

    def notify(self, request: dict[str, Any], method: str, **params: Any) -> None:
        meta = {SUBSCRIPTION: request["id"]}
        self.feed(method=f"notifications/{method}", params={**params, "_meta": meta})

    def acknowledge(self, request: dict[str, Any], **honoured: Any) -> None:
        self.notify(request, "subscriptions/acknowledged", notifications=honoured)

    def start(self, call: Any) -> Wait[Any]:
        return Wait(self.runtime, call, self.run)

    def advance(self, seconds: float) -> None:
        self.runtime.advance_to(self.runtime.now + seconds)
        self.connection.handle_timeout(self.now())
        self.run()

    def listen(self, **wanted: Any) -> tuple[Listening, Wait[Any], dict[str, Any]]:
        listening = self.client.listen(**wanted)
        entering = self.start(listening.__aenter__())
        (request,) = self.sent()
        assert request["method"] == "subscriptions/listen"
        return listening, entering, request


TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}], "ttlMs": 60_000, "cacheScope": "private"}


@pytest.mark.req("CACHE-03", "CACHE-06")
def test_fresh_list_is_not_requested_again_until_it_changed() -> None:
    played = Played()
    first = played.start(played.client.list_tools())
    played.answer(played.sent()[0], TOOLS)
    again = played.start(played.client.list_tools())
    assert played.sent() == []
    assert again.result == first.result
    assert played.start(played.client.list_tools(fresh=True)).state == "waits"
    played.answer(played.sent()[0], TOOLS)
    listening, _, request = played.listen(tools=True)
    played.acknowledge(request, toolsListChanged=True)
    played.notify(request, "tools/list_changed")
    assert isinstance(played.start(listening.__anext__()).result, ToolListChangedNotification)
    assert played.start(played.client.list_tools()).state == "waits"
    assert [each["method"] for each in played.sent()] == ["tools/list"]


@pytest.mark.req("CACHE-01", "CACHE-03")
def test_description_of_the_opening_stays_fresh_as_long_as_the_server_says() -> None:
    played = Played(said={"ttlMs": 60_000, "instructions": "Be kind."})
    assert played.start(played.client.discover()).result.instructions == "Be kind."
    assert played.sent() == []
    fresh = played.start(played.client.discover(fresh=True))
    played.answer(played.sent()[0], {**DISCOVERED, "ttlMs": 60_000, "instructions": "Be quick."})
    assert fresh.result.instructions == "Be quick."
    assert played.start(played.client.discover()).result.instructions == "Be quick."
    played.advance(60)
    assert played.start(played.client.discover()).state == "waits"


def test_any_time_that_the_description_of_the_opening_stays_fresh_is_read() -> None:
    played = Played(said={"ttlMs": 10**400})
    assert played.start(played.client.discover()).state == "returned"
    played.advance(24 * 3600)
    assert played.start(played.client.discover()).state == "waits"


@pytest.mark.parametrize("said", [{"ttlMs": 0}, {"ttlMs": -1}])
def test_description_that_is_stale_at_once_is_requested_again(said: dict[str, Any]) -> None:
    played = Played(said=said)
    assert played.start(played.client.discover()).state == "waits"
    assert [each["method"] for each in played.sent()] == ["server/discover"]


@pytest.mark.req("CACHE-05")
@pytest.mark.parametrize(("scope", "state"), [("public", "returned"), ("private", "waits")])
def test_description_of_the_opening_is_shared_if_it_is_public(scope: str, state: str) -> None:
    shared = ResultCache()
    Played(shared_cache=shared, said={"ttlMs": 60_000, "cacheScope": scope})
    bob = Played(shared_cache=shared)
    assert bob.start(bob.client.discover()).state == state


def test_lost_session_takes_the_description_of_the_opening_with_it() -> None:
    played = Played(said={"ttlMs": 60_000})
    played.client._lose_session()
    assert played.start(played.client.discover()).state == "waits"


@pytest.mark.req("CACHE-05")
def test_clients_share_public_results_through_a_cache_of_theirs() -> None:
    shared = ResultCache()
    ann, bob = Played(shared_cache=shared), Played(shared_cache=shared)
    ann.start(ann.client.list_tools())
    ann.answer(ann.sent()[0], {**TOOLS, "cacheScope": "public"})
    assert bob.start(bob.client.list_tools()).result.tools[0].name == "t"


def test_log_level_goes_with_later_requests() -> None:
    played = Played()
    played.start(played.client.set_log_level("warning"))
    played.start(played.client.list_tools())
    (sent,) = played.sent()
    assert sent["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == "warning"


def test_failed_discovery_is_a_failed_connection() -> None:
    server = Server("s", options=Options(revisions=HANDSHAKE_REVISIONS))
    link = Link(server, shake_hands=False, options=Options(revisions=STATELESS_REVISIONS))
    with pytest.raises(ConnectFailed, match="does not speak 2026-07-28"):
        link.do(link.client.initialize())


@pytest.mark.req("SUB-01", "SUB-04")
def test_subscription_is_one_request_and_its_answer_the_end() -> None:
    played = Played()
    listening, entering, request = played.listen(tools=True, uris=["a:1"])
    assert request["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    assert entering.state == "waits"
    played.acknowledge(request, toolsListChanged=True)
    assert entering.result is listening
    assert listening.honoured == SubscriptionFilter(tools_list_changed=True)
    waiting = played.start(listening.__anext__())
    played.notify(request, "tools/list_changed")
    assert isinstance(waiting.result, ToolListChangedNotification)
    played.answer(request, {"_meta": {SUBSCRIPTION: request["id"]}})
    assert listening.ended == "graceful"
    assert isinstance(played.start(listening.__anext__()).error, StopAsyncIteration)
    assert played.sent() == []


@pytest.mark.req("SUB-08")
def test_cancelled_notification_of_the_server_is_a_graceful_end_too() -> None:
    played = Played()
    listening, _, request = played.listen(tools=True)
    played.acknowledge(request, toolsListChanged=True)
    played.feed(method="notifications/cancelled", params={"requestId": request["id"]})
    assert listening.ended == "graceful"


@pytest.mark.req("SUB-09")
def test_kept_listening_outlives_a_graceful_end() -> None:
    played = Played()
    listening, _, request = played.listen(tools=True, keep=True)
    played.acknowledge(request, toolsListChanged=True)
    played.answer(request, {"_meta": {SUBSCRIPTION: request["id"]}})
    assert listening.ended is None
    waiting = played.start(listening.__anext__())
    played.advance(0.1)
    (again,) = played.sent()
    assert again["method"] == "subscriptions/listen"
    assert waiting.state == "waits"
    played.acknowledge(again, toolsListChanged=True)
    assert waiting.result == Missed()


@pytest.mark.req("SUB-07")
def test_leaving_the_block_cancels_the_subscription() -> None:
    played = Played()
    listening, _, request = played.listen(tools=True)
    played.acknowledge(request, toolsListChanged=True)
    played.start(listening.__aexit__(None, None, None))
    (sent,) = played.sent()
    assert (sent["method"], sent["params"]["requestId"]) == ("notifications/cancelled", request["id"])
    assert listening.ended == "here"


def test_subscription_that_is_not_acknowledged_fails() -> None:
    played = Played()
    _, entering, request = played.listen(tools=True)
    played.feed(id=request["id"], error={"code": -32601, "message": "Method not found"})
    assert isinstance(entering.error, RequestError)
    _, entering, request = played.listen(tools=True)
    played.answer(request, {})
    assert isinstance(entering.error, RemoteProtocolError)
    _, entering, request = played.listen(tools=True)
    played.advance(120)
    assert isinstance(entering.error, RequestTimeout)
    assert [each["method"] for each in played.sent()] == ["notifications/cancelled"]


def test_subscription_that_a_closing_server_refuses_waits_for_the_next_session() -> None:
    played = Played(options=Options(revisions=REVISIONS, reopens=True))
    reconnector = SessionReconnector(played.client, None)
    played.client._reconnector = reconnector
    _, entering, request = played.listen(tools=True)
    refusal = {"code": -32600, "message": "Invalid request: closing", "data": {"reason": "closing"}}
    played.feed(id=request["id"], error=refusal)
    assert (entering.state, played.sent()) == ("waits", [])
    played.connection.connection_lost(None, played.now())
    reconnector.lose()
    played.run()
    opening = played.start(reconnector.open())
    (probe,) = played.sent()
    played.answer(probe, DISCOVERED)
    assert opening.state == "returned"
    (again,) = played.sent()
    assert again["params"]["notifications"] == request["params"]["notifications"]
    played.acknowledge(again, toolsListChanged=True)
    assert entering.state == "returned"


@pytest.mark.parametrize("second", ["a:1", "a:2"])
@pytest.mark.parametrize("is_refused", [False, True])
def test_subscriber_that_comes_while_there_is_no_session_costs_no_second_subscription(
    second: str, is_refused: bool
) -> None:
    played = Played(options=Options(revisions=REVISIONS, reopens=True))
    reconnector = SessionReconnector(played.client, None)
    played.client._reconnector = reconnector
    played.start(played.client.subscribe_resource("a:1"))
    played.acknowledge(played.sent()[0], resourceSubscriptions=["a:1"])
    played.connection.connection_lost(None, played.now())
    reconnector.lose()
    played.run()
    subscribing = played.start(played.client.subscribe_resource(second))
    played.advance(10)
    opening = played.start(reconnector.open())
    (probe,) = played.sent()
    played.answer(probe, DISCOVERED)
    assert opening.state == "returned"
    played.advance(10)
    (again,) = played.sent()
    both = list(dict.fromkeys(["a:1", second]))
    assert again["params"]["notifications"] == {"resourceSubscriptions": both}
    if not is_refused:
        played.acknowledge(again, resourceSubscriptions=both)
        assert subscribing.state == "returned"
        return
    played.feed(id=again["id"], error={"code": -32603, "message": "no room"})
    assert isinstance(subscribing.error, RequestError) == (second == "a:2")
    played.advance(10)
    (first,) = played.sent()
    assert first["params"]["notifications"] == {"resourceSubscriptions": ["a:1"]}


def test_subscription_without_a_timeout_waits_for_its_acknowledgement() -> None:
    from mcpio.engine.limits import Timeout

    played = Played(options=Options(revisions=REVISIONS, request_timeout=Timeout(None)))
    _, entering, request = played.listen(tools=True)
    played.advance(1000)
    assert entering.state == "waits"
    played.acknowledge(request, toolsListChanged=True)
    assert entering.state == "returned"


@pytest.mark.req("SUB-09")
def test_lost_subscription_ends_or_is_renewed() -> None:
    played = Played()
    lost, _, first = played.listen(tools=True)
    played.acknowledge(first, toolsListChanged=True)
    kept, _, second = played.listen(tools=True, keep=True)
    played.acknowledge(second, toolsListChanged=True)
    for request in (first, second):
        # Over HTTP the stream of one request can break without the others.
        played.feed(id=request["id"], error={"code": -32603, "message": "broken"})
    assert lost.ended == "lost"
    played.advance(0.1)
    (third,) = played.sent()
    played.acknowledge(third, toolsListChanged=True)
    assert played.start(kept.__anext__()).result == Missed()
    assert kept.honoured == SubscriptionFilter(tools_list_changed=True)


def test_refused_renewal_ends_a_kept_subscription() -> None:
    played = Played()
    kept, _, request = played.listen(tools=True, keep=True)
    played.acknowledge(request, toolsListChanged=True)
    played.feed(id=request["id"], error={"code": -32603, "message": "broken"})
    played.advance(0.1)
    played.feed(id=played.sent()[0]["id"], error={"code": -32601, "message": "gone"})
    assert kept.ended == "lost"
    assert played.reports == ["the server does not report changes any more"]


# on_notification, and subscriptions without listen()


def test_callbacks_share_one_subscription_of_the_client() -> None:
    seen: list[Any] = []
    played = Played(on_notification=seen.append)
    (first,) = played.sent()
    assert first["params"]["notifications"] == {"toolsListChanged": True}
    played.acknowledge(first, toolsListChanged=True)
    played.notify(first, "tools/list_changed")
    subscribing = played.start(played.client.subscribe_resource("a:1"))
    (second,) = played.sent()  # the old one goes on until the new one is open
    assert second["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    played.acknowledge(second, toolsListChanged=True, resourceSubscriptions=["a:1"])
    assert subscribing.state == "returned"
    (cancelled,) = played.sent()
    assert cancelled["params"]["requestId"] == first["id"]
    played.notify(second, "resources/updated", uri="a:1")
    assert [type(each) for each in seen] == [ToolListChangedNotification, ResourceUpdatedNotification]


def test_tools_are_listed_once_while_changes_are_reported() -> None:
    played = Played(on_notification=lambda _: None)
    played.acknowledge(played.sent()[0], toolsListChanged=True)
    asking = played.start(played.client.tool("t"))
    played.answer(played.sent()[0], {**TOOLS, "ttlMs": 0})
    assert asking.result.name == "t"
    assert played.start(played.client.tool("other")).result is None
    played = Played()
    asking = played.start(played.client.tool("t"))
    played.answer(played.sent()[0], {**TOOLS, "ttlMs": 0})
    # Without a report of changes, a name that is not there is looked up again.
    assert played.start(played.client.tool("other")).state == "waits"


def test_subscriptions_without_a_callback_still_count() -> None:
    played = Played()
    first = played.start(played.client.subscribe_resource("a:1"))
    second = played.start(played.client.subscribe_resource("a:2"))
    (request,) = played.sent()  # one after the other
    played.acknowledge(request, resourceSubscriptions=["a:1"])
    assert first.state == "returned"
    (request,) = [each for each in played.sent() if each["method"] == "subscriptions/listen"]
    assert request["params"]["notifications"] == {"resourceSubscriptions": ["a:1", "a:2"]}
    played.acknowledge(request, resourceSubscriptions=["a:1"])
    assert isinstance(second.error, RequestError)
    played.notify(request, "resources/updated", uri="a:1")
    played.start(played.client.unsubscribe_resource("a:3"))
    leaving = played.start(played.client.unsubscribe_resource("a:1"))
    assert leaving.state == "returned"
    assert [each["method"] for each in played.sent()] == ["notifications/cancelled"] * 2


def test_resource_that_two_tasks_subscribe_to_and_the_server_refuses_fails_both() -> None:
    played = Played()
    first = played.start(played.client.subscribe_resource("a:1"))
    second = played.start(played.client.subscribe_resource("a:1"))
    played.acknowledge(played.sent()[0])
    assert isinstance(first.error, RequestError)
    # A server may come to know a resource at any time, so the second task asks for itself.
    (request,) = [each for each in played.sent() if each["method"] == "subscriptions/listen"]
    played.acknowledge(request)
    assert isinstance(second.error, RequestError)


def test_cancelled_second_subscription_leaves_the_first() -> None:
    played = Played()
    played.start(played.client.subscribe_resource("a:1"))
    played.acknowledge(played.sent()[0], resourceSubscriptions=["a:1"])
    played.start(played.client.subscribe_resource("a:2"))
    second = played.start(played.client.subscribe_resource("a:1"))
    second.cancel()
    played.acknowledge(played.sent()[0], resourceSubscriptions=["a:1", "a:2"])
    played.start(played.client.subscribe_resource("a:3"))
    (request,) = [each for each in played.sent() if each["method"] == "subscriptions/listen"]
    assert request["params"]["notifications"] == {"resourceSubscriptions": ["a:1", "a:2", "a:3"]}


def test_failed_subscription_is_forgotten() -> None:
    played = Played()
    subscribing = played.start(played.client.subscribe_resource("a:1"))
    played.feed(id=played.sent()[0]["id"], error={"code": -32603, "message": "no"})
    assert isinstance(subscribing.error, RequestError)
    played.start(played.client.unsubscribe_resource("a:1"))
    assert played.sent() == []


def test_server_that_reports_no_changes_is_reported() -> None:
    played = Played(on_notification=lambda _: None)
    played.feed(id=played.sent()[0]["id"], error={"code": -32603, "message": "no"})
    assert played.reports == ["the server does not report changes"]


def test_missed_changes_empty_the_cache() -> None:
    played = Played(on_notification=lambda _: None)
    (request,) = played.sent()
    played.acknowledge(request, toolsListChanged=True)
    played.start(played.client.list_tools())
    played.answer(played.sent()[0], TOOLS)
    played.feed(id=request["id"], error={"code": -32603, "message": "broken"})
    played.advance(0.1)
    played.acknowledge(played.sent()[0], toolsListChanged=True)
    assert played.start(played.client.list_tools()).state == "waits"


def test_lost_session_empties_the_cache() -> None:
    played = Played()
    played.start(played.client.list_tools())
    played.answer(played.sent()[0], TOOLS)
    played.client._lose_session()
    assert played.start(played.client.list_tools()).state == "waits"


@pytest.mark.req("HDR-05")
def test_listed_tools_give_the_header_fields_of_their_calls_over_http() -> None:
    played = Played(over_http=True)
    assert played.client._param_headers("t") == ()
    listing = played.start(played.client.list_tools())
    (request,) = played.sent()
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    played.answer(request, {**TOOLS, "tools": [{"name": "t", "inputSchema": schema}]})
    assert listing.state == "returned"
    assert [header.name for header in played.client._param_headers("t")] == ["Region"]
    assert Played().client._param_headers("t") == ()


def test_client_of_the_handshake_era_has_no_cache_to_empty() -> None:
    link = Link(server_that_asks())
    link.client._miss_changes()
    assert link.do(link.client.list_tools()).tools


def test_outcome_of_a_subscription_is_not_waited_for() -> None:
    played = Played()
    listening, entering, request = played.listen(tools=True)
    played.acknowledge(request, toolsListChanged=True)
    assert entering.state == "returned"
    source: Any = listening._source
    with pytest.raises(TypeError, match="is not waited for"):
        source.wait()
    # After its end, a loss changes nothing.
    listening.end("graceful")
    listening.lose()
    assert listening.ended == "graceful"


@pytest.mark.parametrize("revision", [None, REV_2025_11_25])
def test_wrong_request_raises_where_it_is_awaited(revision: Any) -> None:
    link = Link(server_that_asks(), revision=revision)
    call = link.client.request(CustomRequest("tools/list"))
    with pytest.raises(LocalProtocolError, match="tools/list is a method of the protocol: send its own type"):
        link.do(call)
