from __future__ import annotations

import json
from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.session import SavedSession
from mcpio.engine.server import ServerConnection
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.types import ClientCapabilities, CustomRequest, ElicitationCapability, ElicitFormRequest, ElicitSchema


def serving() -> Server:
    server = Server("s")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.resource("memo://note")
    def note() -> str:
        return "text"

    return server


def driver(link: Link) -> Any:
    make: Any = type(link.session.driver)
    return make(link, link.pair.server)


def moved(link: Link, server: Server, unanswered: Any = "again", *, cut: Any = lambda value: value) -> None:
    """Write the server's session out and go on with one that was made from that."""
    snapshot = cut(json.loads(json.dumps(link.session.snapshot())))
    server.forget(link.session)
    saved = SavedSession.read(snapshot)
    link.pair.server = server.connection(saved=saved, now=link.pair.now)
    link.session = server.session(link.pair.server, driver(link))
    link.session._resume(saved, unanswered)
    link.run()


def test_snapshot_includes_the_clients_settings() -> None:
    server = serving()
    link = Link(server, era="handshake")
    link.do(link.client.set_log_level("error"))
    link.do(link.client.subscribe_resource("memo://note"))
    moved(link, server)
    assert link.session.log_level == "error"
    assert link.session.subscriptions == ("memo://note",)
    assert link.call("add", a=1, b=2).structured_content == {"result": 3}
    assert server.notify_resource_updated("memo://note") == 1


def test_snapshot_keeps_open_url_elicitations() -> None:
    server = serving()
    link = Link(server, capabilities=ClientCapabilities(elicitation=ElicitationCapability(url={})), era="handshake")
    for id in ("under way", "done"):
        link.session._known_url_elicitations().begin(id)
    assert link.session.notify_elicitation_complete("done")
    link.run()
    moved(link, server)
    assert not link.session.notify_elicitation_complete("done")
    assert link.session._has_elicitation("under way")


def test_a_request_that_is_being_served_is_served_again() -> None:
    server = serving()
    runs: list[Any] = []

    @server.tool
    async def wait(ctx: Context, n: int) -> int:
        runs.append((ctx.meta, ctx.peer.revision.name, ctx.raw["method"]))
        gate = link.runtime.one_shot()
        gates.append(gate)
        await gate.wait()
        return n

    gates: list[Any] = []
    link = Link(server, era="handshake")
    call = link.start(link.client.call_tool("wait", {"n": 5}))
    moved(link, server)
    assert len(runs) == 2
    assert runs[0] == runs[1]
    gates[1].set(None)
    link.run()
    assert call.result.structured_content == {"result": 5}


def test_running_request_fails_with_unanswered_fail() -> None:
    server = serving()

    @server.tool
    async def wait() -> None:
        await link.runtime.one_shot().wait()

    link = Link(server)
    call = link.start(link.client.call_tool("wait"))
    moved(link, server, "fail")
    assert isinstance(call.error, RequestError)
    assert (call.error.code, call.error.data) == (-32603, {"reason": "interrupted"})


def test_a_method_outside_the_protocol_is_served_again() -> None:
    server = serving()
    runs: list[Any] = []

    async def act(_: Any, request: CustomRequest) -> dict[str, Any]:
        runs.append(request)
        if len(runs) == 1:
            await link.runtime.one_shot().wait()
        return {"done": True}

    server.handlers["acme/act"] = act
    link = Link(server, era="handshake")
    call = link.start(link.client.request(CustomRequest("acme/act", {"a": 1})))
    moved(link, server)
    assert runs == [CustomRequest("acme/act", {"a": 1})] * 2
    assert call.result == {"done": True}


def test_restored_request_that_is_no_longer_valid_fails() -> None:
    server = serving()

    @server.tool
    async def wait() -> None:
        await link.runtime.one_shot().wait()

    def without_name(snapshot: Any) -> Any:
        for request in snapshot["engine"]["incoming"]:
            request["message"]["params"] = {}
        return snapshot

    def forgotten(snapshot: Any) -> Any:
        for request in snapshot["engine"]["incoming"]:
            del request["message"]
        return snapshot

    for cut in (without_name, forgotten):
        link = Link(server, era="handshake")
        call = link.start(link.client.call_tool("wait"))
        moved(link, server, cut=cut)
        assert isinstance(call.error, RequestError)


def test_restored_question_without_a_waiter_is_cancelled() -> None:
    server = serving()
    cancelled: list[bool] = []

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit(ElicitFormRequest("?", ElicitSchema({})))
        return "asked"

    async def elicit(scope: Any, request: Any) -> Any:
        try:
            await link.runtime.one_shot().wait()
        finally:
            cancelled.append(scope.cancelled)

    link = Link(server, elicitation=elicit, era="handshake")
    link.start(link.client.call_tool("ask"))
    moved(link, server, "fail")
    assert cancelled == [True]


def test_client_continues_from_a_snapshot() -> None:
    server = serving()
    link = Link(server)
    call = link.start(link.client.call_tool("add", {"a": 1, "b": 2}))
    assert call.result.structured_content == {"result": 3}
    saved = SavedSession.read(link.client.snapshot())
    link.client._resume(saved)
    link.client._resume()
    assert saved.state == {}
    assert link.call("add", a=1, b=2).structured_content == {"result": 3}


def test_connection_restored_separately_fails_open_requests() -> None:
    server = serving()

    @server.tool
    async def wait() -> None:
        await link.runtime.one_shot().wait()

    link = Link(server)
    call = link.start(link.client.call_tool("wait"))
    snapshot = link.pair.server.snapshot(0.0)
    link.pair.server = ServerConnection.restore(snapshot, 0.0)
    link.session = server.session(link.pair.server, driver(link))
    link.session._resume()
    link.run()
    assert isinstance(call.error, RequestError)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda value: 5, "not the snapshot of a session: it has no version"),
        (lambda value: {**value, "session": True}, "it has no version"),
        (lambda value: {**value, "session": 2}, "the snapshot has version 2; this library reads up to 1"),
        (lambda value: {**value, "engine": None}, r"expected an object @ snapshot\.engine"),
        (lambda value: {**value, "engine": {"version": 99}}, "the snapshot has version 99"),
        (lambda value: {**value, "state": {"log_level": "loud"}}, "expected a log level"),
        (lambda value: {**value, "state": {"log_level": []}}, "expected a log level"),
        (lambda value: {**value, "state": {"subscriptions": "x"}}, "expected URIs"),
        (lambda value: {**value, "state": {"subscriptions": [5]}}, "expected URIs"),
        (lambda value: {**value, "state": {"visits": {"a": 5}}}, "expected elicitations by id"),
        (lambda value: {**value, "state": {"visits": []}}, "expected elicitations by id"),
        (lambda value: {**value, "transport": []}, r"expected an object @ snapshot\.transport"),
    ],
)
def test_malformed_snapshot_raises(change: Any, fault: str) -> None:
    server = serving()
    link = Link(server)
    with pytest.raises(LocalProtocolError, match=fault):
        moved(link, server, cut=change)


def test_unanswered_option_takes_again_or_fail() -> None:
    server = serving()
    link = Link(server)
    with pytest.raises(ValueError, match="unanswered must be 'again' or 'fail', not 'maybe'"):
        moved(link, server, "maybe")


def test_after_the_end_there_is_nothing_to_save() -> None:
    link = Link(serving())
    link.client.close()
    link.run()
    with pytest.raises(LocalProtocolError, match="a closed connection has no state worth keeping"):
        link.session.snapshot()
