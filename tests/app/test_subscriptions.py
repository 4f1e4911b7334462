"""``subscriptions/listen``, served: what is honoured, what is told, and what it costs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs
import pytest
from statelessly import Exchange, StatelessClient
from waits import Wait

from mcpio.app.registry.resources import UriTemplate
from mcpio.app.server import Server
from mcpio.app.subscriptions import LONGEST, SHORTEST
from mcpio.auth.grant import Grant
from mcpio.engine.envelope import write_envelope
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import RequestError
from mcpio.revisions import REV_2026_07_28
from mcpio.testing import ManualRuntime
from mcpio.types import ClientCapabilities, Implementation, ToolsCapability

ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def notes(**options: Any) -> Server:
    """Return a server that offers one of each."""
    server = Server("notes", **options)
    server.tool(lambda: None, name="tool")
    server.prompt(lambda: "hi", name="prompt")
    server.resource("notes://{name}", name="note")(lambda name: name)
    return server


def run(exchange: Exchange) -> None:
    """Let everything happen that can."""
    exchange.client.runtime.run()  # type: ignore[attr-defined]  # a ManualRuntime


def listening(server: Server, **wanted: Any) -> Exchange:
    """Begin to listen: ``said[0]`` is the acknowledgement."""
    runtime = ManualRuntime()
    exchange = StatelessClient(server, runtime).begin("subscriptions/listen", {"notifications": wanted})
    runtime.run()
    return exchange


def answer(exchange: Exchange) -> dict[str, Any]:
    """Return the result that ended a request. Raises the error in its place."""
    runtime: Any = exchange.client.runtime
    found: dict[str, Any] = Wait(runtime, exchange.result(), runtime.run).result
    return found


def honoured(exchange: Exchange) -> Any:
    """Return what was acknowledged."""
    assert exchange.said[0]["method"] == "notifications/subscriptions/acknowledged"
    return exchange.said[0]["params"]["notifications"]


def told(exchange: Exchange) -> list[str]:
    """Return what was told after the acknowledgement: the URI of a resource, or the kind of a list."""
    return [said["params"].get("uri") or said["method"].split("/")[1] for said in exchange.said[1:]]


@pytest.mark.req("SUB-02")
def test_acknowledgement_comes_first() -> None:
    server = notes()
    listen = listening(server, **ALL, resourceSubscriptions=["notes://a", "notes://b", "notes://a"])
    assert honoured(listen) == {**ALL, "resourceSubscriptions": ["notes://a", "notes://b"]}


def test_other_tasks_get_turns_while_many_resources_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    server, matches, before_turns = Server("notes"), 0, [0]
    for number in range(50):
        server.resource(f"notes://{{name}}/part{number}", name=f"n{number}")(lambda name: name)
    match = UriTemplate.match

    def counted(template: UriTemplate, uri: str) -> Any:
        nonlocal matches
        matches += 1
        return match(template, uri)

    class Counting(ManualRuntime):
        async def sleep(self, seconds: float) -> None:
            before_turns.append(matches)
            await super().sleep(seconds)

    monkeypatch.setattr(UriTemplate, "match", counted)
    runtime = Counting()
    uris = [f"notes://{number}{'a' * 1000}/part{number % 100}" for number in range(200)]
    listen = StatelessClient(server, runtime).begin(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
    )
    runtime.run()
    assert honoured(listen) == {"resourceSubscriptions": [uri for number, uri in enumerate(uris) if number % 100 < 50]}
    assert len(before_turns) > 10
    assert max(after - before for before, after in pairwise([*before_turns, matches])) <= 600
    server.notify_resource_updated(uris[0])
    server.notify_resource_updated(uris[50])
    run(listen)
    assert told(listen) == [uris[0]]


def test_request_that_is_cancelled_while_resources_are_looked_up_leaves_nothing() -> None:
    server = notes()
    runtime = ManualRuntime()
    client = StatelessClient(server, runtime)
    uris = [f"notes://{number}" for number in range(3000)]
    listen = client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    assert not listen.said
    listen.cancel()
    runtime.run()
    assert not listen.said
    assert server.notify_resource_updated(uris[0]) == 0


@pytest.mark.req("SUB-03")
def test_filter_is_honoured_only_for_existing_features() -> None:
    server = Server("tools")
    server.tool(lambda: None, name="tool")
    assert honoured(listening(server, **ALL, resourceSubscriptions=["a:b"])) == {"toolsListChanged": True}
    assert honoured(listening(server, toolsListChanged=False)) == {}
    fixed = Server("fixed", capabilities=attrs.evolve(server.capabilities, tools=ToolsCapability()))
    fixed.tool(lambda: None, name="tool")
    assert honoured(listening(fixed, **ALL)) == {}


@pytest.mark.req("SUB-03", "SUB-08")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {}),
        ({}, {"toolsListChanged": False}),
        ({}, {"resourceSubscriptions": ["other://b"]}),
        ({}, {"taskIds": ["t"]}),
        ({"changes": False}, {**ALL, "resourceSubscriptions": ["notes://a"]}),
    ],
)
def test_subscription_to_nothing_is_acknowledged_and_ends(options: dict[str, Any], wanted: dict[str, Any]) -> None:
    server = notes(**options)
    listen = listening(server, **wanted)
    assert not any(honoured(listen).values())
    assert answer(listen)["resultType"] == "complete"
    assert server.audience._stateless == {}


@pytest.mark.req("SUB-11", "VER-08")
@pytest.mark.parametrize("options", [{"changes": False}, {"options": Options(limits=Limits(listeners=0))}])
def test_server_without_changes_or_listeners_offers_none(options: dict[str, Any]) -> None:
    server = notes(**options)
    found = StatelessClient(server, ManualRuntime()).begin("server/discover", {})
    assert answer(found)["capabilities"] == {"tools": {}, "prompts": {}, "resources": {}, "logging": {}}
    listen = listening(server, **ALL)
    if "changes" in options:
        assert honoured(listen) == {}
        server.tool(lambda: None, name="late")
        assert server.notify_resource_updated("notes://a") == server.undelivered == 0
    else:
        with pytest.raises(RequestError, match="Method not found"):
            answer(listen)


def test_resources_that_do_not_exist_are_not_honoured() -> None:
    listen = listening(notes(), resourceSubscriptions=["notes://a", "other://b"])
    assert honoured(listen) == {"resourceSubscriptions": ["notes://a"]}


@pytest.mark.req("AUTH-34")
def test_resources_beyond_the_scopes_of_the_token_are_not_honoured() -> None:
    server = notes()
    server.resource("notes://secret/plan", name="plan", scopes="admin")(lambda: "x")
    uris = ["notes://secret/plan", "notes://a"]
    assert honoured(listening(server, resourceSubscriptions=uris)) == {"resourceSubscriptions": ["notes://a"]}
    server.require("resources/subscribe", "watch")
    assert honoured(listening(server, resourceSubscriptions=uris)) == {"resourceSubscriptions": []}


@pytest.mark.req("SUB-03", "SUB-13")
def test_requested_changes_are_notified() -> None:
    server = notes()
    everything, tools, one = (
        listening(server, **ALL),
        listening(server, toolsListChanged=True),
        listening(server, resourceSubscriptions=["notes://a"]),
    )
    server.tool(lambda: None, name="another_tool")
    server.prompt(lambda: "hi", name="another_prompt")
    server.resource("notes:all", name="all")(lambda: "all")
    assert server.notify_resource_updated("notes://a") == 1
    assert server.notify_resource_updated("notes://b") == 0
    assert server.notify_resource_updated("notes://c", within="notes://a") == 1
    assert told(everything) == ["tools", "prompts", "resources"]
    assert told(tools) == ["tools"]
    assert told(one) == ["notes://a", "notes://c"]
    assert {said["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for said in one.said} == {1}


@pytest.mark.req("SUB-07")
def test_cancelled_listen_gets_no_notifications() -> None:
    server = notes()
    listen = listening(server, **ALL, resourceSubscriptions=["notes://a"])
    held = listen.connection.held
    assert held.subscriptions > 0
    listen.cancel()
    run(listen)
    server.tool(lambda: None, name="another")
    assert server.notify_resource_updated("notes://a") == 0
    assert (len(listen.said), held.subscriptions) == (1, 0)
    assert server.audience._by_topic == {}
    assert server.undelivered == 0  # requests that stand for themselves are no sessions


def test_broken_connection_ends_only_its_subscriptions() -> None:
    server = notes()
    broken, unreachable, open_ = (listening(server, resourceSubscriptions=["notes://a"]) for _ in range(3))
    broken.connection.abort()
    unreachable.connection.can_reach = lambda _: False
    assert server.notify_resource_updated("notes://a") == 1
    assert (told(broken), told(unreachable), told(open_)) == ([], [], ["notes://a"])


@pytest.mark.req("SUB-08")
def test_server_that_closes_ends_its_subscriptions_gracefully() -> None:
    server = notes()
    listen = listening(server, toolsListChanged=True)
    listen.close()
    ended = Wait(listen.client.runtime, listen.result())  # type: ignore[arg-type]  # a ManualRuntime
    assert ended.result["resultType"] == "complete"
    assert ended.result["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
    run(listen)
    assert server.audience._by_topic == {}


LIMITS = [
    (Limits(subscriptions=2), "too many subscriptions"),
    (Limits(subscription_bytes=500), "too much memory"),
]


@pytest.mark.parametrize(("limits", "reason"), LIMITS)
def test_subscriptions_are_limited(limits: Limits, reason: str) -> None:
    server = notes(options=Options(limits=limits))
    runtime = ManualRuntime()
    uris = [f"notes://{number}" for number in range(3)]
    listen = StatelessClient(server, runtime).begin(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
    )
    wait = Wait(runtime, listen.result())
    assert isinstance(wait.error, RequestError)
    assert reason in wait.error.data["reason"]
    assert listen.said == []
    assert listening(server, resourceSubscriptions=uris[:1]).said


def test_listen_that_cannot_be_acknowledged_holds_nothing() -> None:
    server = notes(options=Options(limits=Limits(sent_message_bytes=1000)))
    runtime = ManualRuntime()
    client = StatelessClient(server, runtime)
    uris = [f"notes://{number:0100}" for number in range(20)]
    wait = Wait(
        runtime, client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}).result()
    )
    assert isinstance(wait.error, RequestError)
    assert (server.audience._stateless, server.audience._listens, server.audience._by_topic) == ({}, {}, {})


LISTENERS = [
    (Limits(listeners=2), "this client listens too often at once"),
    (Limits(total_listeners=2), "too many clients listen"),
]


@pytest.mark.parametrize(("limits", "reason"), LISTENERS)
def test_listens_at_once_are_limited(limits: Limits, reason: str) -> None:
    server, runtime = notes(options=Options(limits=limits)), ManualRuntime()
    client = StatelessClient(server, runtime, principal="ada")
    params = {"notifications": {"toolsListChanged": True}}
    first, _, refused = (client.begin("subscriptions/listen", params) for _ in range(3))
    wait = Wait(runtime, refused.result())
    assert isinstance(wait.error, RequestError)
    assert (wait.error.code, wait.error.data) == (-32603, {"reason": reason, "limit": 2})
    assert refused.said == []
    assert refused.connection.held.subscriptions == 0
    other = StatelessClient(server, runtime, principal="bob").begin("subscriptions/listen", params)
    assert bool(other.said) is (limits.listeners == 2), "another client has a place of its own"
    first.cancel()
    runtime.run()
    again = client.begin("subscriptions/listen", params)
    runtime.run()
    assert honoured(again) == {"toolsListChanged": True}


def test_clients_without_a_principal_are_counted_by_connection() -> None:
    server, runtime = notes(options=Options(limits=Limits(listeners=1))), ManualRuntime()
    client, params = StatelessClient(server, runtime), {"notifications": {"toolsListChanged": True}}
    exchanges = [client.begin("subscriptions/listen", params) for _ in range(3)]
    runtime.run()
    assert [len(exchange.said) for exchange in exchanges] == [1, 1, 1]


def grant(left: float | None) -> Grant:
    now = ManualRuntime().wall_clock()
    return Grant("issuer", "ada", expires_at=None if left is None else now + left)


@pytest.mark.req("SUB-08")
@pytest.mark.parametrize(("left", "lasts"), [(60.0, 60.0), (-5.0, SHORTEST), (1e300, LONGEST)])
def test_listen_ends_gracefully_when_its_token_expires(left: float, lasts: float) -> None:
    server, runtime = notes(), ManualRuntime()
    client = StatelessClient(server, runtime, principal=grant(left))
    listen = client.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    runtime.run()
    ended = Wait(runtime, listen.result())
    runtime.advance_to(lasts - 0.1)
    assert ended.state == "waits"
    runtime.advance_to(lasts)
    assert ended.result["resultType"] == "complete"
    assert ended.result["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
    server.tool(lambda: None, name="another")
    assert told(listen) == ["cancelled"], "what a channel says of a subscription that has ended"


def test_listen_with_a_token_without_expiry_stays_open() -> None:
    server, runtime = notes(), ManualRuntime()
    for principal in (grant(None), "ada"):
        listen = StatelessClient(server, runtime, principal=principal).begin(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        ended = Wait(runtime, listen.result())
        runtime.advance_to(runtime.now + 10 * LONGEST)
        assert ended.state == "waits"


def test_cancelled_listen_leaves_no_timer() -> None:
    server, runtime = notes(), ManualRuntime()
    listen = StatelessClient(server, runtime, principal=grant(60.0)).begin(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
    )
    listen.cancel()
    runtime.run()
    runtime.advance_to(100.0)
    assert listen.client.reports == []


@pytest.mark.req("ERA-10")
def test_stateless_request_leaves_a_session_on_its_connection_its_broadcasts() -> None:
    server, runtime = notes(), ManualRuntime()
    client = StatelessClient(server, runtime)
    exchange = client.begin("tools/list", {})
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    exchange._feed({"jsonrpc": "2.0", "id": 50, "method": "initialize", "params": params})
    exchange._feed({"jsonrpc": "2.0", "method": "notifications/initialized"})
    envelope = write_envelope(REV_2026_07_28, ClientCapabilities(), Implementation("c", "1"), None)
    exchange._feed({"jsonrpc": "2.0", "id": 51, "method": "tools/list", "params": {"_meta": envelope}})
    runtime.run()
    server.tool(lambda: None, name="another")
    runtime.run()
    exchange.session._process()
    exchange.write()
    assert [said["method"] for said in exchange.said if "method" in said] == ["notifications/tools/list_changed"]


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(
    ("limits", "uris"),
    [
        (Limits(subscriptions=2), ["other://a", "other://b", "other://c"]),
        (Limits(subscription_bytes=500), ["other://" + "a" * 600]),
    ],
)
def test_unknown_resources_count_before_they_are_looked_up(
    limits: Limits, uris: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = notes(options=Options(limits=limits))
    looked_up: list[str] = []
    monkeypatch.setattr(server.resources, "find", lambda uri, scope=None: looked_up.append(uri))
    runtime = ManualRuntime()
    listen = StatelessClient(server, runtime).begin(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
    )
    wait = Wait(runtime, listen.result())
    assert isinstance(wait.error, RequestError)
    assert looked_up == []
