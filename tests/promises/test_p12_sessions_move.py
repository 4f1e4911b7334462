"""P12 with the application layer: a session restored after any message continues as before."""

from __future__ import annotations

import json
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from linked import Link

from mcpio.app.client import Client
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.session import SavedSession
from mcpio.engine.client import ClientConnection
from mcpio.types import CallToolRequest

steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(["add", "fail", "wait", "hush", "none such"])),
        st.tuples(st.just("subscribe"), st.sampled_from(["memo://a", "memo://b", "memo://c"])),
        st.tuples(st.just("unsubscribe"), st.sampled_from(["memo://a", "memo://b"])),
        st.tuples(st.just("level"), st.sampled_from(["debug", "warning", "emergency"])),
        st.tuples(st.just("log"), st.sampled_from(["debug", "info", "critical"])),
        st.tuples(st.just("updated"), st.sampled_from(["memo://a", "memo://b"])),
        st.tuples(st.just("changed"), st.booleans()),
        st.tuples(st.just("open"), st.none()),
        st.tuples(st.just("list"), st.none()),
        st.tuples(st.just("ping"), st.none()),
    ),
    max_size=20,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps=steps, moves=st.sets(st.integers(0, 20)))
def test_restored_server_session_continues_as_before(steps: list[Any], moves: set[int]) -> None:
    stayed, moved = _Walk(steps, set()), _Walk(steps, moves)
    assert moved.link.pair.tap == stayed.link.pair.tap
    assert moved.outcomes == stayed.outcomes
    assert moved.link.session.log_level == stayed.link.session.log_level
    assert moved.link.session.subscriptions == stayed.link.session.subscriptions


@settings(max_examples=examples(20), deadline=None)
@given(steps=steps, moves=st.sets(st.integers(0, 20)))
def test_restored_client_continues_as_before(steps: list[Any], moves: set[int]) -> None:
    quiet = [step for step in steps if step not in (("call", "wait"), ("open", None))]
    stayed, moved = _Walk(quiet, set()), _Walk(quiet, set(), client_moves=frozenset(moves))
    assert moved.link.pair.tap == stayed.link.pair.tap
    assert moved.outcomes == stayed.outcomes


class _Walk:
    """One conversation whose session is saved and restored before each step in ``moves``."""

    def __init__(self, steps: list[Any], moves: set[int], client_moves: frozenset[int] = frozenset()) -> None:
        self.server = self._serving()
        self.link = Link(self.server)
        self.gates: list[Any] = []
        self.calls: list[Any] = []
        for number, (what, choice) in enumerate(steps):
            if number in moves:
                self._move_server()
            if number in client_moves:
                self._move_client()
            self._do(what, choice)
            self.link.run()
        self.outcomes = [(call.state, repr(call.error)) for call in self.calls]

    def _serving(self) -> Server:
        server = Server("s")

        @server.tool
        def add(ctx: Context, a: int = 1) -> int:
            ctx.warning("adding")
            return a + 1

        @server.tool
        def fail() -> None:
            raise RuntimeError("no")

        @server.tool
        async def wait() -> int:
            gate = self.link.runtime.one_shot()
            self.gates.append(gate)
            await gate.wait()
            return 1

        @server.tool
        async def hush() -> int:
            return 2

        for name in ("a", "b"):
            server.resource(f"memo://{name}", name=name)(lambda: "text")
        return server

    def _do(self, what: str, choice: Any) -> None:
        client, session = self.link.client, self.link.session
        match what:
            case "call":
                self.calls.append(self.link.start(client.request(CallToolRequest(choice))))
            case "subscribe":
                self.calls.append(self.link.start(client.subscribe_resource(choice)))
            case "unsubscribe":
                self.calls.append(self.link.start(client.unsubscribe_resource(choice)))
            case "level":
                self.calls.append(self.link.start(client.set_log_level(choice)))
            case "log":
                session.log(choice, {"n": 1})
            case "updated":
                self.server.notify_resource_updated(choice)
            case "changed":
                self.server.tools.enable("fail", choice)
            case "open":
                for gate in self.gates:
                    gate.set(None)
            case "list":
                self.calls.append(self.link.start(client.list_tools()))
            case _:
                self.calls.append(self.link.start(client.ping()))

    def _move_server(self) -> None:
        link = self.link
        link.run()
        saved = SavedSession.read(json.loads(json.dumps(link.session.snapshot())))
        self.server.forget(link.session)
        link.pair.server = self.server.connection(saved=saved, now=link.pair.now)
        link.session = self.server.session(link.pair.server, _driver(link, link.pair.server))
        link.session._resume(saved)
        link.run()

    def _move_client(self) -> None:
        link = self.link
        link.run()
        saved = SavedSession.read(json.loads(json.dumps(link.client.snapshot())))
        link.pair.client = saved.connection(ClientConnection, link.pair.now, options=link.pair.client.options)
        link.client = Client(link.pair.client, _driver(link, link.pair.client))
        link.client._resume(saved)


def _driver(link: Link, connection: Any) -> Any:
    make: Any = type(link.session.driver)
    return make(link, connection)
