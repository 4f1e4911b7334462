"""P4 over HTTP: two real machines, whose stream is cut at every byte.

After the first event id nothing is lost and nothing comes twice; before it the request ends once, as lost.
"""

from __future__ import annotations

from typing import Any

import pytest

from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import ConnectionLost
from mcpio.events import NotificationReceived, RequestFailed, RequestReceived, ResponseReceived
from mcpio.http.client import HttpClient, Location
from mcpio.http.model import Body, End, HttpOptions, RequestHead, Reset
from mcpio.http.server import HttpServer
from mcpio.http.sessions import HttpSession
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, Revision
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    Implementation,
    LoggingMessageNotification,
    PingRequest,
    ServerCapabilities,
    TextContent,
    ToolsCapability,
)

INFO = Implementation("test", "1")
STEPS = 3
NEVER = 10**9


class Joined:
    """A client and a server whose response streams break after a number of bytes, summed over all attempts."""

    def __init__(self, revision: Revision, options: HttpOptions, cut: int, again: int = NEVER) -> None:
        self.now = 0.0
        connection = ClientConnection(INFO, options=Options(revisions=(revision,)))
        self.client = HttpClient(connection, Location.parse("http://localhost/mcp"))
        self.server = HttpServer(
            lambda _: ServerConnection(INFO, ServerCapabilities(tools=ToolsCapability(), logging={})),
            entropy=bytes,
            options=options,
        )
        self.cuts = [cut, again, NEVER]
        self.data = b""
        self.heard: list[Any] = []
        self.answers: list[Any] = []
        """The outcomes of the server's requests."""
        self.tasks: list[tuple[HttpSession, RequestReceived, int]] = []
        self._streams: set[Any] = set()
        self._open: set[Any] = set()
        self._ready: dict[Any, None] = {}
        connection.send_initialize(now=0.0)
        self.run()
        assert self.server.sessions
        self.heard.clear()

    def call(self) -> None:
        """Call a tool and run in virtual time until its outcome."""
        self.client.connection.send_request(CallToolRequest("x"), now=self.now, timeout=1000.0)
        self.run()
        while self.tasks:
            tasks, self.tasks = self.tasks, []
            for session, event, step in tasks:
                self._work(session, event, step)
            self.run()
        while not self.outcomes and self.pass_deadline():
            pass

    def pass_deadline(self) -> bool:
        """Run at the next deadline; return whether there is one."""
        due = self._next_deadline()
        if due is not None:
            self.now = due
            self.client.handle_timeout(due)
            self.server.handle_timeout(due)
            self.run()
        return due is not None

    @property
    def outcomes(self) -> list[Any]:
        return [event for event in self.heard if isinstance(event, ResponseReceived | RequestFailed)]

    @property
    def steps(self) -> list[Any]:
        return [event.notification.data for event in self.heard if isinstance(event, NotificationReceived)]

    def run(self) -> None:
        """Carry bytes both ways until neither side has any."""
        while True:
            while (event := self.client.next_event()) is not None:
                self.heard.append(event)
            items = self.client.requests_to_send(self.now)
            for item in items:
                self._take_request(item)
            while (found := self.server.next_event()) is not None:
                if isinstance(found[0], HttpSession) and isinstance(found[1], RequestReceived):
                    self.tasks.append((found[0], found[1], 1))
                elif isinstance(found[1], ResponseReceived | RequestFailed):
                    self.answers.append(found[1])
            while (name := self.server.next_ready()) is not None:
                self._ready[name] = None
            if not items and not self._ready:
                return
            for name in tuple(self._ready):
                del self._ready[name]
                for response in self.server.responses_to_send(name):
                    self._give(response)

    def _work(self, session: HttpSession, event: RequestReceived, step: int) -> None:
        connection = session.connection
        if step <= STEPS:
            # Progress is left out: while a stream is broken it coalesces to the newest.
            connection.send_notification(LoggingMessageNotification("info", step), related_to=event.id)
            self.tasks.append((session, event, step + 1))
        else:
            connection.send_result(event.id, CallToolResult((TextContent("done"),)))
        self.server.touch(session, self.now)

    def _take_request(self, item: Any) -> None:
        if isinstance(item, RequestHead):
            self._open.add(item.exchange)
            if any(name == b"last-event-id" and not value.startswith(b"0-") for name, value in item.headers):
                self._streams.add(item.exchange)
        elif isinstance(item, Body) and b"tools/call" in item.data:
            self._streams.add(item.exchange)
        self.server.receive(item, self.now)

    def _give(self, item: Any) -> None:
        """Deliver a piece of a response until its stream breaks."""
        name = item.exchange
        if name not in self._open:
            return
        if isinstance(item, Body) and name in self._streams:
            left = self.cuts[0] - len(self.data)
            self.data += item.data[:left]
            self.client.receive(Body(name, item.data[:left]), self.now)
            if left < len(item.data):
                del self.cuts[0]
                self._break(name)
            return
        if isinstance(item, End):
            self._open.discard(name)
        self.client.receive(item, self.now)

    def _break(self, name: Any) -> None:
        self._open.discard(name)
        self.client.receive(Reset(name, OSError("cut")), self.now)
        self.server.receive(Reset(name, OSError("cut")), self.now)

    def _next_deadline(self) -> float | None:
        due = [each for each in (self.client.next_deadline(), self.server.next_deadline()) if each is not None]
        return min(due, default=None)


def uncut(revision: Revision, options: HttpOptions) -> bytes:
    """Return the bytes of the unbroken stream."""
    joined = Joined(revision, options, NEVER)
    joined.call()
    assert joined.steps == [1, 2, 3]
    return joined.data


@pytest.mark.req("HTTP-24", "HTTP-25", "RESUME-03", "RESUME-04", "RESUME-06")
@pytest.mark.parametrize("revision", [REV_2025_11_25, REV_2025_06_18])
@pytest.mark.parametrize("options", [HttpOptions(), HttpOptions(answers="sse")], ids=["auto", "sse"])
def test_stream_cut_at_any_byte_is_resumed_or_lost_once(revision: Revision, options: HttpOptions) -> None:
    stream = uncut(revision, options)
    first = stream.index(b"\n\n") + 2
    for cut in range(len(stream)):
        joined = Joined(revision, options, cut)
        joined.call()
        (outcome,) = joined.outcomes
        if cut >= first:
            assert (type(outcome), joined.steps) == (ResponseReceived, [1, 2, 3]), cut
        else:
            assert isinstance(outcome, RequestFailed), cut
            assert isinstance(outcome.error, ConnectionLost), cut
            assert joined.steps == [], cut


@pytest.mark.req("RESUME-03", "RESUME-04")
def test_stream_cut_twice_is_resumed_twice() -> None:
    stream = uncut(REV_2025_11_25, HttpOptions())
    first = stream.index(b"\n\n") + 2
    for cut in range(first, len(stream), 13):
        for again in range(cut, len(stream) + 40, 17):
            joined = Joined(REV_2025_11_25, HttpOptions(), cut, again)
            joined.call()
            assert (len(joined.outcomes), type(joined.outcomes[0])) == (1, ResponseReceived), (cut, again)
            assert joined.steps == [1, 2, 3], (cut, again)


class Asking(Joined):
    """Their server asks the client during the call, and the client's answer breaks off some times."""

    def __init__(self, breaks: int, arrives: bool) -> None:
        self.breaks = breaks
        self.arrives = arrives
        self.answering: set[Any] = set()
        super().__init__(REV_2025_11_25, HttpOptions(), NEVER)

    def _work(self, session: HttpSession, event: RequestReceived, step: int) -> None:
        if step == 1:
            session.connection.send_request(PingRequest(), now=self.now, timeout=1000.0, related_to=event.id)
        super()._work(session, event, step)

    def _take_request(self, item: Any) -> None:
        if isinstance(item, Body) and b'"result"' in item.data:
            self.answering.add(item.exchange)
        if item.exchange not in self.answering or not self.breaks:
            super()._take_request(item)
            return
        if self.arrives:
            self.server.receive(item, self.now)
        if isinstance(item, End):
            self.breaks -= 1
            self._break(item.exchange)


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("breaks", [0, 1, 2])
def test_answer_whose_request_breaks_off_ends_the_question_once(breaks: int, arrives: bool) -> None:
    asking = Asking(breaks, arrives)
    asking.call()
    while not asking.answers and asking.pass_deadline():
        pass
    while asking.breaks and asking.pass_deadline():
        pass
    assert [type(outcome) for outcome in asking.answers] == [ResponseReceived]
    assert [type(outcome) for outcome in asking.outcomes] == [ResponseReceived]
    assert (asking.breaks, asking.now < 100.0) == (0, True)
