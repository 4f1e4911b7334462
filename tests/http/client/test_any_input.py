"""P2 and P4 for the HTTP client machine: whatever a server answers, nothing raises and each request has one outcome."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from examples import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from webtalk import Asked, WebTalk, hello

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import LocalProtocolError, NoBackChannel
from mcpio.events import CloseReason, ConnectionClosed, Negotiated, RequestFailed, ResponseReceived
from mcpio.http.client import HttpClientOptions, SessionLost
from mcpio.types import CallToolRequest, ClientCapabilities, CustomNotification, ListRootsResult, RootsCapability

STATUS = st.sampled_from([200, 200, 200, 202, 204, 301, 307, 308, 400, 401, 403, 404, 405, 429, 500, 503])
MEDIA_TYPE = st.sampled_from([None, "application/json", "text/event-stream", "text/event-stream", "text/html", "\xff"])
HEADERS: Any = st.fixed_dictionaries(
    {},
    optional={
        "mcp-session-id": st.sampled_from(["s", "t", "", "\xe9"]),
        "location": st.sampled_from(["/mcp", "/x", "http://evil.example/", "", "::"]),
        "content-encoding": st.sampled_from(["gzip", "identity"]),
    },
)
LINES = st.sampled_from(
    [
        "id: 1",
        "id: 2",
        "id",
        "id: \x01",
        "retry: 10",
        "retry: x",
        "event: message",
        "event: endpoint",
        "event: x",
        ":",
        "",
    ]
)


class AnyServer(RuleBasedStateMachine):
    """A client with a server that answers anything, at any time."""

    @initialize(
        listen=st.booleans(), fall_back=st.booleans(), reinitialize=st.booleans(), max_requests=st.integers(1, 3)
    )
    def begin(self, **options: Any) -> None:
        http = HttpClientOptions(reconnect_tries=2, **options)
        limits = Limits(message_bytes=2000, queued_bytes=5000)
        self.talk = WebTalk(
            http=http, options=Options(limits=limits), capabilities=ClientCapabilities(roots=RootsCapability())
        )
        self.ids: list[int] = [1]
        self.renewed = 0
        self.talk.begin()

    # The program

    @rule(count=st.integers(1, 3), timeout=st.sampled_from([None, 5.0]))
    def ask(self, count: int, timeout: float | None) -> None:
        for _ in range(count):
            try:
                self.ids.append(self.talk.ask(CallToolRequest("x"), timeout=timeout))
            except (LocalProtocolError, NoBackChannel):
                return

    @rule(size=st.sampled_from([0, 900]))
    def tell(self, size: int) -> None:
        try:
            self.talk.connection.send_notification(CustomNotification("a/b", {"x": "y" * size}))
        except (LocalProtocolError, NoBackChannel):
            return
        self.talk.step()

    @rule()
    def answer_what_is_asked(self) -> None:
        for id in self.talk.connection.pending.incoming:
            self.talk.connection.send_result(id, ListRootsResult(()))
        self.talk.step()

    @rule()
    def cancel(self) -> None:
        for id in self.talk.connection.pending.outgoing[-1:]:
            try:
                self.talk.connection.cancel_request(id)
            except LocalProtocolError:
                return
        self.talk.step()

    @precondition(lambda self: len(self.talk.found(SessionLost)) > self.renewed)
    @rule()
    def renew(self) -> None:
        self.renewed = len(self.talk.found(SessionLost))
        if self.talk.connection.phase is Phase.NEW:
            self.ids.append(self.talk.connection.send_initialize(now=self.talk.now))
            self.talk.step()

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 5.0, 40.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.talk.advance(seconds)

    # The server

    def some(self, data: st.DataObject) -> Asked:
        return data.draw(st.sampled_from(self.talk.requests[-6:]))

    @rule(data=st.data(), status=STATUS, media_type=MEDIA_TYPE, headers=HEADERS)
    def give_a_head(self, data: st.DataObject, status: int, media_type: str | None, headers: dict[str, str]) -> None:
        fields = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        if media_type is not None:
            fields.append((b"content-type", media_type.encode("latin-1")))
        self.talk.raw_head(self.some(data), status, fields)
        self.talk.step()

    @rule(data=st.data(), lines=st.lists(LINES, max_size=3), answers=st.booleans(), cut=st.integers(0, 400))
    def give_an_event(self, data: st.DataObject, lines: list[str], answers: bool, cut: int) -> None:
        asked = self.some(data)
        said = [*lines, f"data: {json.dumps(self.message(asked, answers))}", "", ""]
        self.talk.body(asked, "\n".join(said).encode()[-cut:])
        self.talk.step()

    @rule(data=st.data(), answers=st.booleans(), array=st.booleans())
    def give_json(self, data: st.DataObject, answers: bool, array: bool) -> None:
        asked = self.some(data)
        message = self.message(asked, answers)
        self.talk.answer_json(asked, [message] if array else message)

    @rule(data=st.data(), noise=st.binary(max_size=30), times=st.sampled_from([1, 100]))
    def give_noise(self, data: st.DataObject, noise: bytes, times: int) -> None:
        self.talk.body(self.some(data), noise * times)
        self.talk.step()

    @rule(data=st.data(), breaks=st.booleans())
    def give_an_end(self, data: st.DataObject, breaks: bool) -> None:
        asked = self.some(data)
        if breaks:
            self.talk.reset(asked, OSError("broken"))
        else:
            self.talk.end(asked)

    @rule(data=st.data())
    def accept(self, data: st.DataObject) -> None:
        self.talk.answer(self.some(data), 202)

    @rule(data=st.data())
    def ask_the_client(self, data: st.DataObject) -> None:
        request = {"jsonrpc": "2.0", "id": len(self.talk.events), "method": "roots/list"}
        self.talk.event(self.some(data), request)

    def message(self, asked: Asked, answers: bool) -> Any:
        if not asked.body or not isinstance(asked.json, dict) or "id" not in asked.json:
            ids = self.talk.connection.pending.outgoing
            return {"jsonrpc": "2.0", "id": ids[0] if ids else 99, "result": {"content": []}}
        if not answers:
            return {"jsonrpc": "2.0", "id": asked.json["id"], "error": {"code": -1, "message": "no"}}
        result = hello() if asked.json.get("method") == "initialize" else {"content": []}
        return {"jsonrpc": "2.0", "id": asked.json["id"], "result": result}

    # What holds

    def outcomes(self) -> Counter[int]:
        kinds = (Negotiated, ResponseReceived, RequestFailed)
        return Counter(int(event.id or 0) for event in self.talk.events if isinstance(event, kinds))

    @invariant()
    def nothing_has_two_outcomes(self) -> None:
        if hasattr(self, "talk"):
            assert all(count == 1 for count in self.outcomes().values())
            assert len(self.talk.found(ConnectionClosed)) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "talk"):
            return
        self.talk.connection.close(self.talk.now)
        self.talk.step()
        self.talk.advance(100.0)
        assert self.talk.machine.closed
        assert self.talk.machine.next_deadline() is None
        assert self.outcomes() == Counter(self.ids)
        (end,) = self.talk.found(ConnectionClosed)
        assert isinstance(end.reason, CloseReason)


TestAnyServer = AnyServer.TestCase
TestAnyServer.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
