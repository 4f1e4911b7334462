"""P7, in two eras: the answer to each request is of that request's era, whatever else runs on the pipe (ERA-14)."""

from __future__ import annotations

import json
from typing import Any

from examples import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from stateless import BOTH, HELLO, INFO, ME, SUBSCRIPTION, meta

from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.events import CancelReceived, IncomingId, RequestReceived
from mcpio.revisions import Era
from mcpio.types import (
    CallToolResult,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenResult,
    ToolListChangedNotification,
    ToolsCapability,
)

OFFERS = ServerCapabilities(tools=ToolsCapability(list_changed=True))
OPTIONS = Options(revisions=BOTH)
TOOLS = SubscriptionFilter(tools_list_changed=True)
LISTENING = {"notifications": {"toolsListChanged": True}}
UNSETTLED = (Phase.NEW, Phase.INITIALIZING)

Key = tuple[str, Any]
"""The exchange and the id of a request: together they name it."""


class TwoEras(RuleBasedStateMachine):
    """A server that a gateway shares among clients of both eras: handshake, calls, listens, cancels, moves."""

    @initialize()
    def start(self) -> None:
        self.server = ServerConnection(INFO, OFFERS, options=OPTIONS)
        # What runs: the key of each request by ours, and which of them are subscriptions.
        self.running: dict[IncomingId, tuple[Key, Era]] = {}
        self.listening: dict[IncomingId, bool] = {}
        self.initialized = False

    def feed(self, via: str, message: dict[str, Any]) -> list[Any]:
        self.server.receive_message(json.dumps({"jsonrpc": "2.0", **message}), 0.0, via=via)
        return list(self.server.events())

    def said(self) -> list[tuple[Any, Any]]:
        messages = []
        while (message := self.server.next_message()) is not None:
            messages.append((message.via, json.loads(message.text)))
        return messages

    def come(self, key: Key, era: Era, method: str, params: dict[str, Any]) -> IncomingId | None:
        """Feed a request; return our key of it, or ``None`` where it must be refused."""
        via, id = key
        if era is Era.STATELESS:
            params = {**params, "_meta": meta()}
        (event,) = self.feed(via, {"id": id, "method": method, "params": params})
        in_use = any(running == key for running, _ in self.running.values())
        if in_use or (era is Era.HANDSHAKE and not self.initialized):
            ((to, refusal),) = self.said()
            assert (to, refusal["id"], refusal["error"]["code"]) == (via, id, -32600)
            return None
        assert isinstance(event, RequestReceived)
        assert (event.context.era, event.context.via) == (era, via)
        self.running[event.id] = key, era
        return event.id

    keys = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([1, "1", 2]))

    @rule(key=keys, era=st.sampled_from(Era))
    def call(self, key: Key, era: Era) -> None:
        self.come(key, era, "tools/call", {"name": "x"})

    @rule(key=keys)
    def listen(self, key: Key) -> None:
        id = self.come(key, Era.STATELESS, "subscriptions/listen", LISTENING)
        if id is not None:
            self.listening[id] = False

    @rule(key=keys)
    def discover(self, key: Key) -> None:
        if any(running == key for running, _ in self.running.values()):
            return
        self.feed(key[0], {"id": key[1], "method": "server/discover", "params": {"_meta": meta()}})
        ((via, message),) = self.said()
        assert (via, message["id"]) == key
        assert message["result"]["resultType"] == "complete"

    @rule()
    def shake_hands(self) -> None:
        if self.server.phase in UNSETTLED and not self.initialized:
            self.feed("hello", {"id": "hello", "method": "initialize", "params": HELLO})
            ((via, message),) = self.said()
            assert (via, message["id"]) == ("hello", "hello")
            assert "resultType" not in message["result"]
            self.feed("hello", {"method": "notifications/initialized"})
            assert self.server.phase is Phase.OPERATING
            self.initialized = True

    @rule(which=st.integers(0, 5), fails=st.booleans())
    def answer(self, which: int, fails: bool) -> None:
        if which >= len(self.running):
            return
        id = list(self.running)[which]
        listens = self.listening.get(id)
        result = CallToolResult(()) if listens is None else SubscriptionsListenResult()
        if listens is False and not fails:
            # The acknowledgement is the first message of a subscription.
            try:
                self.server.send_result(id, result)
            except LocalProtocolError:
                return
            raise AssertionError("a subscription ended before it began")
        if fails:
            self.server.send_error(id, RequestError(5, "no"))
        else:
            self.server.send_result(id, result)
        key, era = self.running.pop(id)
        self.listening.pop(id, None)
        ((via, message), *_) = self.said()
        assert (via, message["id"]) == key
        assert type(message["id"]) is type(key[1])
        if fails:
            assert message["error"]["code"] == 5
        elif era is Era.HANDSHAKE:
            assert message["result"] == {"content": []}
        elif listens is None:
            assert message["result"] == {"content": [], "resultType": "complete", "_meta": ME}
        else:
            assert message["result"]["_meta"] == {**ME, SUBSCRIPTION: key[1]}

    @rule(which=st.integers(0, 5))
    def acknowledge(self, which: int) -> None:
        fresh = [id for id, acknowledged in self.listening.items() if not acknowledged]
        if which < len(fresh):
            self.server.acknowledge(fresh[which], TOOLS)
            self.listening[fresh[which]] = True
            self.check_subscription(fresh[which], "notifications/subscriptions/acknowledged")

    @rule(which=st.integers(0, 5))
    def notify(self, which: int) -> None:
        begun = [id for id, acknowledged in self.listening.items() if acknowledged]
        if which < len(begun):
            self.server.send_notification(ToolListChangedNotification(), related_to=begun[which])
            self.check_subscription(begun[which], "notifications/tools/list_changed")

    def check_subscription(self, id: IncomingId, method: str) -> None:
        (via, wire_id), _ = self.running[id]
        ((to, message),) = self.said()
        said = message["params"]["_meta"][SUBSCRIPTION]
        assert (to, message["method"], said, type(said)) == (via, method, wire_id, type(wire_id))

    @rule(key=keys)
    def cancel(self, key: Key) -> None:
        via, wire_id = key
        events = self.feed(via, {"method": "notifications/cancelled", "params": {"requestId": wire_id}})
        exact = [id for id, (running, _) in self.running.items() if running == key]
        namesakes = [id for id, ((_, running), _) in self.running.items() if running == wire_id]
        # One by another exchange than its request is clear only while there are no namesakes (CANC-06).
        meant = exact or (namesakes if len(namesakes) == 1 else [])
        assert [event.id for event in events if isinstance(event, CancelReceived)] == meant
        for id in meant:
            del self.running[id]
            self.listening.pop(id, None)

    @rule()
    def move(self) -> None:
        """Go on in another process (P12)."""
        state = json.loads(json.dumps(self.server.snapshot(0.0)))
        self.server = ServerConnection.restore(state, 0.0, options=OPTIONS)
        assert self.server.snapshot(0.0) == state

    @invariant()
    def nothing_else_is_said(self) -> None:
        if hasattr(self, "server"):
            assert self.said() == []
            assert set(self.server.pending.incoming) == set(self.running)
            assert (self.server.revision is not None) == self.initialized


TestTwoEras = TwoEras.TestCase
TestTwoEras.settings = settings(
    max_examples=examples(80), stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
