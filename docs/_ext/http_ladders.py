"""Conversations over HTTP for the ladders of the docs.

The client's and the server's machine talk in virtual time, and what passes between them is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
from sequence_svg import Arrow, Note, Row, draw_sequence

from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.events import RequestReceived
from mcpio.framing.sse import ServerSentEvent, SseParser
from mcpio.http.client import HttpClient, HttpClientOptions, Location
from mcpio.http.model import Body, RequestHead, Reset, ResponseHead, ResponseItem
from mcpio.http.server import HttpServer
from mcpio.revisions import REV_2025_11_25
from mcpio.types import CallToolRequest, CallToolResult, Implementation, ServerCapabilities, ToolsCapability

__all__ = ["draw_http_ladders"]

_INFO: Final = Implementation("docs", "1.0")
_REQUEST_FIELDS: Final = {b"mcp-session-id": "Mcp-Session-Id", b"last-event-id": "Last-Event-ID"}


@attrs.define
class _Response:
    """A response under way, as far as the client has it."""

    head: ResponseHead
    events: SseParser | None
    is_shown: bool = False


class Talk:
    """A client and a server in virtual time, and the rows of their ladder."""

    def __init__(self) -> None:
        """Open a session, without a listening stream: the rows are about one call."""
        self.rows: list[Row] = []
        self._now = 0.0
        self._bytes = iter(range(256))
        self._server = self._new_server()
        connection = ClientConnection(_INFO, options=Options(revisions=(REV_2025_11_25,)))
        location = Location.parse("http://localhost:8000/mcp")
        self._client = HttpClient(connection, location, options=HttpClientOptions(listen=False))
        self._responses: dict[Any, _Response] = {}
        self._broken: set[Any] = set()
        self._session_ids: list[str] = []
        self._calls: list[tuple[Any, RequestReceived]] = []
        self.open()

    def _new_server(self) -> HttpServer:
        return HttpServer(
            lambda _: ServerConnection(_INFO, ServerCapabilities(tools=ToolsCapability())),
            entropy=lambda size: bytes([next(self._bytes)] * size),
        )

    # Events of the exchange

    def open(self) -> None:
        """Open a session, as a client's driver does for the first one and when the server no longer knows it."""
        self._client.connection.send_initialize(now=self._now)
        self.settle()

    def note(self, words: str) -> None:
        """Add a line that says what happens between two messages."""
        self.rows.append(Note(words))

    def call(self) -> None:
        """Call a tool."""
        self._client.connection.send_request(CallToolRequest("boil"), now=self._now, progress=True)
        self.settle()

    def progress(self, done: int, total: int) -> None:
        """Report the progress of the call."""
        session, event = self._calls[-1]
        session.connection.send_progress(event.id, done, total)
        self._server.touch(session, self._now)
        self.settle()

    def answer(self) -> None:
        """Answer the call."""
        session, event = self._calls.pop()
        session.connection.send_result(event.id, CallToolResult(()))
        self._server.touch(session, self._now)
        self.settle()

    def cut(self) -> None:
        """Break the connection of the response under way."""
        self.note("the connection breaks")
        (exchange,) = self._responses
        del self._responses[exchange]
        self._server.receive(Reset(exchange), self._now)
        self._client.receive(Reset(exchange), self._now)
        self.settle()

    def restart(self) -> None:
        """Replace the server by a new one, which knows none of the sessions."""
        self.note("the server restarts, without a store")
        self._server = self._new_server()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.note(f"{seconds:g} s later")
        self._now += seconds
        self._server.handle_timeout(self._now)
        self._client.handle_timeout(self._now)
        self.settle()

    def settle(self) -> None:
        """Carry items both ways until neither side has any."""
        while self._carry():
            pass

    # Bytes on the way

    def _carry(self) -> bool:
        items = self._client.requests_to_send(self._now)
        bodies = {item.exchange: item.data for item in items if isinstance(item, Body)}
        for item in items:
            if isinstance(item, RequestHead):
                self._show_request(item, bodies.get(item.exchange, b""))
            self._server.receive(item, self._now)
        while (found := self._server.next_event()) is not None:
            if isinstance(found[1], RequestReceived):
                self._calls.append((found[0], found[1]))
        responses = []
        while (exchange := self._server.next_ready()) is not None:
            responses += self._server.responses_to_send(exchange)
        for response in responses:
            self._show_response(response)
            self._client.receive(response, self._now)
        while self._client.next_event() is not None:
            pass
        return bool(items or responses)

    def _show_request(self, head: RequestHead, body: bytes) -> None:
        fields = dict(head.headers)
        lines = [f"{head.method} /mcp" + (f" · {_label(json.loads(body))}" if body else "")]
        for field, shown in _REQUEST_FIELDS.items():
            if field in fields:
                value = fields[field].decode()
                lines.append(f"{shown}: {self._session(value) if field == b'mcp-session-id' else value}")
        self.rows.append(Arrow("client", "server", tuple(lines)))

    def _session(self, id: str) -> str:
        """Return a short name for a session's id: A for the first one, B for the next."""
        if id not in self._session_ids:
            self._session_ids.append(id)
        return "ABC"[self._session_ids.index(id)] + "…"

    def _show_response(self, item: ResponseItem) -> None:
        if isinstance(item, ResponseHead):
            fields = dict(item.headers)
            is_stream = fields.get(b"content-type") == b"text/event-stream"
            self._responses[item.exchange] = _Response(item, SseParser() if is_stream else None)
            lines = [f"{item.status} · text/event-stream"] if is_stream else []
            if lines:
                self.rows.append(Arrow("server", "client", tuple(lines)))
        elif isinstance(item, Body):
            response = self._responses[item.exchange]
            if response.events is None:
                self._show_json(response, item.data)
            else:
                for event in response.events.receive(item.data):
                    self._show_event(event)
        elif item.exchange in self._responses:
            ended = self._responses.pop(item.exchange)
            if ended.events is not None:
                self.note("the stream ends")
            elif not ended.is_shown:
                self._show_json(ended, b"")

    def _show_json(self, response: _Response, data: bytes) -> None:
        response.is_shown = True
        fields = dict(response.head.headers)
        lines = [f"{response.head.status}" + (f" · JSON: {_label(json.loads(data))}" if data else "")]
        if b"mcp-session-id" in fields:
            lines.append(f"Mcp-Session-Id: {self._session(fields[b'mcp-session-id'].decode())}")
        self.rows.append(Arrow("server", "client", tuple(lines)))

    def _show_event(self, event: ServerSentEvent) -> None:
        lines = [f"event {event.id}" + (f" · {_label(json.loads(event.data))}" if event.data else " · no message yet")]
        self.rows.append(Arrow("server", "client", tuple(lines)))


def _label(message: dict[str, Any]) -> str:
    """Return what a message is, in few words."""
    if "method" in message:
        params = message.get("params", {})
        about = f": {params['name']}" if "name" in params else ""
        return f"{message['method'].removeprefix('notifications/')}{about}"
    return "result" if "result" in message else f"error {message['error']['code']}"


def _json(talk: Talk) -> None:
    talk.call()
    talk.answer()


def _events(talk: Talk) -> None:
    talk.call()
    talk.progress(1, 2)
    talk.answer()


def _broken(talk: Talk) -> None:
    talk.call()
    talk.progress(1, 2)
    talk.cut()
    talk.note("the tool goes on, its events are kept")
    talk.progress(2, 2)
    talk.answer()
    talk.wait(1.0)


def _expired(talk: Talk) -> None:
    talk.restart()
    talk.call()
    talk.note("the client opens another session")
    talk.open()
    talk.note("and makes the call again there")
    talk.call()
    talk.answer()


_LADDERS: Final[dict[str, tuple[Callable[[Talk], None], str]]] = {
    "json": (_json, "A client opens a session, and its call is answered with JSON"),
    "events": (_events, "A POST answered with a stream of events, because the tool reports progress"),
    "broken": (_broken, "A stream breaks: the client resumes it with Last-Event-ID and gets the rest"),
    "expired": (_expired, "A session expires: the client opens another one and makes the call again"),
}


def draw_http_ladders() -> Iterator[tuple[str, str]]:
    """Yield the name and the ``<svg>`` element of each ladder."""
    for name, (play, title) in _LADDERS.items():
        talk = Talk()
        if name != "json":
            talk.rows.clear()
        play(talk)
        yield name, draw_sequence(("client", "server"), talk.rows, title)
