"""P7 without sessions: one engine serves the calls of all clients, and none of them sees anything of another."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from httpwire import Exchange
from stateless import CAPABILITIES, CLIENT, LEVEL, VERSION

from mcpio import Context, Server
from mcpio.app.http_host import HttpHost
from mcpio.engine import stateless
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.http.model import Body, End, RequestHead, Reset
from mcpio.http.server import CLOSING
from mcpio.testing import ManualRuntime

PRINCIPALS = [f"user {number}" for number in range(40)]
LEVELS = ("debug", "warning", "error")


class Crowd:
    """Calls of many principals, all with the same id, on one server: some wait, some fail, some lose their clients."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.runtime = ManualRuntime()
        self.reports: list[str] = []
        self.responses: dict[int, Exchange] = {}
        self.asked: dict[int, dict[str, Any]] = {}
        self.lost: set[int] = set()
        self.host = HttpHost(
            self.server(),
            self.runtime,
            clock=lambda: self.runtime.now,
            on_ready=self.write,
            on_deadline=lambda _: None,
            report=lambda message, error: self.reports.append(f"{message}: {error!r}"),
        )

    def server(self) -> Server:
        server = Server("crowd", "1", log_filter=lambda _, message: message)

        def seen(ctx: Context, nonce: int) -> str:
            client: Any = ctx.peer.capabilities
            ctx.warning(nonce)
            found = [nonce, ctx.peer.principal, ctx.peer.info.name, ctx.peer.log_level, client.experimental["n"]["n"]]
            return json.dumps(found)

        @server.tool
        def at_once(ctx: Context, nonce: int) -> str:
            return seen(ctx, nonce)

        @server.tool
        async def later(ctx: Context, nonce: int) -> str:
            await ctx.sleep(nonce % 7)
            return seen(ctx, nonce)

        @server.tool
        async def broken(ctx: Context, nonce: int) -> str:
            await ctx.sleep(nonce % 3)
            raise OSError(nonce)

        return server

    def write(self, name: Any) -> None:
        while items := self.host.responses_to_send(name):
            for item in items:
                self.responses[name].take(item)

    def call(self, nonce: int) -> None:
        tool = self.random.choice(("at_once", "later", "broken"))
        principal, level = self.random.choice(PRINCIPALS), self.random.choice(LEVELS)
        meta = {
            VERSION: "2026-07-28",
            CLIENT: {"name": f"client {nonce}", "version": "1"},
            CAPABILITIES: {"experimental": {"n": {"n": str(nonce)}}},
            LEVEL: level,
        }
        params = {"name": tool, "arguments": {"nonce": nonce}, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        fields = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        head = RequestHead(nonce, "POST", "/mcp", [(k.encode(), v.encode()) for k, v in fields.items()], principal)
        self.responses[nonce] = Exchange()
        self.asked[nonce] = {"tool": tool, "principal": principal, "level": level}
        self.host.receive(head, Body(nonce, body), End(nonce))
        if tool != "at_once" and self.random.random() < 0.1:
            self.lost.add(nonce)
            self.host.receive(Reset(nonce))

    def run(self, count: int) -> None:
        for nonce in range(count):
            self.call(nonce)
            if self.random.random() < 0.05:
                self.runtime.advance_to(self.runtime.now + 1)
        self.runtime.advance_to(self.runtime.now + 60)
        for nonce, response in self.responses.items():
            self.check(nonce, response)
        assert self.host.machine._ledger.total == 0
        assert self.host.machine.calls is not None
        assert self.host.machine.calls.connection.serving == 0

    def check(self, nonce: int, response: Exchange) -> None:
        asked = self.asked[nonce]
        if nonce in self.lost:
            assert response.status == 0
            return
        assert (response.status, response.is_over) == (200, True)
        is_json = response.headers["content-type"] == "application/json"
        *said, last = [response.json] if is_json else response.new_messages()
        assert last["id"] == 1
        if asked["tool"] == "broken":
            assert last["result"]["isError"]
            assert str(nonce) in last["result"]["content"][0]["text"]
            return
        found = json.loads(last["result"]["content"][0]["text"])
        assert found == [nonce, asked["principal"], f"client {nonce}", asked["level"], str(nonce)]
        wanted = [] if asked["level"] == "error" else [nonce]
        assert [message["params"]["data"] for message in said] == wanted


@pytest.mark.req("RPC-05", "ENV-04")
@pytest.mark.parametrize("seed", range(3))
def test_calls_with_equal_ids_get_their_own_answers(seed: int) -> None:
    Crowd(seed).run(1000)


# The same test finds each way in which an engine for all could mix them up.


def test_swapped_carriers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    send = StatelessEngine._respond

    def swapped(self: StatelessEngine, request: Any, what: Any, text: bytes) -> None:
        others = [each for each in self._incoming if each.via is not request.via]
        if len(others) == 5:
            request.via, others[0].via = others[0].via, request.via
        send(self, request, what, text)

    monkeypatch.setattr(StatelessEngine, "_respond", swapped)
    with pytest.raises(AssertionError):
        Crowd(0).run(300)


def test_shared_context_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make: Any = vars(stateless)["RequestContext"]

    def shared(*arguments: Any) -> Any:
        made.append(make(*arguments))
        return made[0] if len(made) == 7 else made[-1]

    monkeypatch.setattr(stateless, "RequestContext", shared)
    with pytest.raises(AssertionError):
        Crowd(0).run(300)


def test_fault_that_ends_the_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fatal(self: HttpHost, calls: Any, event: Any) -> None:
        session, _ = self._stateless or self._open_stateless(calls)
        session._handle(event)
        if event.id == 9:
            calls.end(CLOSING)

    monkeypatch.setattr(HttpHost, "_handle_stateless", fatal)
    with pytest.raises(AssertionError):
        Crowd(0).run(300)


def test_fault_within_one_call_ends_that_call(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(0)
    crowd.call(0)
    crowd.runtime.advance_to(10)
    serving = crowd.host._stateless
    assert serving is not None
    serve = type(serving[0])._serve

    def faulty(self: Any, event: Any) -> None:
        if event.id == 5:
            raise RuntimeError("a fault of the library")
        serve(self, event)

    monkeypatch.setattr(type(serving[0]), "_serve", faulty)
    for nonce in range(1, 20):
        crowd.call(nonce)
    crowd.runtime.advance_to(30)
    failed = [nonce for nonce, each in crowd.responses.items() if each.status and b'"error"' in each.data]
    assert failed == [4]
    assert crowd.responses[4].json["error"]["code"] == -32603
    for nonce, response in crowd.responses.items():
        if nonce != 4:
            crowd.check(nonce, response)
    assert any("a fault of the library" in each for each in crowd.reports)
