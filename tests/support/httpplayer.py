"""Conversation scripts over HTTP: the machines of both sides, or one of them with the other played from the script."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.framing.json import loads
from mcpio.framing.sse import SseParser, encode_event
from mcpio.http.client import HttpClient, ListeningEnded, ListeningResumed, Location, MessageRefused, SessionLost
from mcpio.http.model import (
    Answers,
    Body,
    End,
    HttpOptions,
    RequestHead,
    RequestItem,
    Reset,
    ResponseHead,
    ResponseItem,
)
from mcpio.http.server import HttpServer
from mcpio.http.sessions import SessionClosed, SessionOpened
from mcpio.revisions import Revision
from mcpio.testing.script import Script, Wire
from mcpio.testing.script_player import Player, Side

__all__ = ["HttpPlayer"]

URL = Location.parse("http://localhost/mcp")
POST = (
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
)
GET = ((b"host", b"localhost"), (b"accept", b"text/event-stream"))


class HttpPlayer(Player):
    """Plays a script over HTTP, with answers of one kind."""

    def __init__(self, script: Script, revision: Revision, answers: Answers) -> None:
        super().__init__(script, revision, None, None)
        self._client: HttpClient | None = None
        self._server: HttpServer | None = None
        self._options = HttpOptions(answers=answers, session_idle=None, keep_alive=None)
        # What is played from the script: as the client, the exchanges that it opened; as the server, those to answer.
        self._names = itertools.count(1)
        self._readers: dict[Any, _Reader] = {}
        self._session: bytes | None = None
        self._open: dict[Any, bytes] = {}
        self._listening: Any = None

    def _engine(self, role: Role) -> Connection:
        connection = super()._engine(role)
        if role is Role.CLIENT:
            self._client = HttpClient(connection, URL)  # type: ignore[arg-type]  # by its role
        else:
            entropy = lambda size: next(self._names).to_bytes(size, "big")  # noqa: E731  # one line, one use
            self._server = HttpServer(lambda _: connection, entropy=entropy, options=self._options)  # type: ignore[arg-type,return-value]  # by its role
        return connection

    # Everything that the base class does with bytes

    def _feed(self, side: Side, data: bytes | None) -> None:
        if data is None:
            return
        if side.role is Role.SERVER:
            self._post(data.removesuffix(b"\n"))
        else:
            self._say(data.removesuffix(b"\n"))

    def _settle(self) -> None:
        busy = True
        while busy:
            busy = False
            for side in self._sides.values():
                busy = self._drain(side) or busy
            busy = self._carry_requests() or busy
            busy = self._carry_responses() or busy

    def _wire(self, step: Wire) -> None:
        # HTTP has no end of a channel to send: a session that is over is one that the other side was told of.
        if step.text is not None or step.message is not None:
            super()._wire(step)

    def _open_as_server(self, server: Side) -> None:
        opening, initialized = self._opening()
        self._feed(server, opening)
        self._settle()
        self._feed(server, initialized)

    def _drain(self, side: Side) -> bool:
        seen = len(side.events)
        if side.role is Role.CLIENT and self._client is not None:
            while (event := self._client.next_event()) is not None:
                if not isinstance(event, SessionLost | MessageRefused | ListeningEnded | ListeningResumed):
                    side.take(event)
        elif self._server is not None:
            for session in self._server.sessions:
                self._server.touch(session, self._now)
            while (found := self._server.next_event()) is not None:
                if not isinstance(found[1], SessionOpened | SessionClosed):
                    side.take(found[1])
        return len(side.events) > seen

    def _advance_to(self, when: float) -> None:
        machines = [machine for machine in (self._client, self._server) if machine is not None]
        while due := [at for machine in machines if (at := machine.next_deadline()) is not None and at <= when]:
            self._now = max(self._now, min(due))
            for machine in machines:
                machine.handle_timeout(self._now)
            self._settle()
        self._now = when

    # Requests

    def _carry_requests(self) -> bool:
        if self._client is None:
            return False
        items = self._client.requests_to_send(self._now)
        for item in items:
            if isinstance(item, Body):
                self._note(Role.CLIENT, item.data)
            if self._server is not None:
                self._server.receive(_with_host(item), self._now)
            else:
                self._keep(item)
        return bool(items)

    def _post(self, text: bytes) -> None:
        """As the client that the script plays: say something to the server."""
        headers = POST if self._session is None else (*POST, (b"mcp-session-id", self._session))
        self._request(next(self._names), "POST", headers, text)

    def _request(self, exchange: Any, method: str, headers: Any, body: bytes) -> None:
        assert self._server is not None
        for item in (RequestHead(exchange, method, "/mcp", headers), Body(exchange, body), End(exchange)):
            self._server.receive(item, self._now)

    # Responses

    def _carry_responses(self) -> bool:
        if self._server is None:
            return False
        busy = False
        while (exchange := self._server.next_ready()) is not None:
            for item in self._server.responses_to_send(exchange):
                busy = True
                for text in self._readers.setdefault(exchange, _Reader()).read(item):
                    self._note(Role.SERVER, text)
                if isinstance(item, ResponseHead):
                    self._session = dict(item.headers).get(b"mcp-session-id", self._session)
                if self._client is not None:
                    self._client.receive(item, self._now)
        if self._client is None and self._session is not None and self._listening is None:
            self._listening = next(self._names)
            self._request(self._listening, "GET", (*GET, (b"mcp-session-id", self._session)), b"")
            busy = True
        return busy

    def _keep(self, item: RequestItem) -> None:
        """As the server that the script plays: take note of a request."""
        assert self._client is not None
        if isinstance(item, RequestHead) and item.method == "GET":
            self._listening = item.exchange
            self._answer(ResponseHead(item.exchange, 200, ((b"content-type", b"text/event-stream"),)))
        elif isinstance(item, RequestHead):
            self._open[item.exchange] = b""
        elif isinstance(item, Body):
            self._open[item.exchange] = item.data
        elif isinstance(item, End) and item.exchange in self._open and not _is_request(self._open[item.exchange]):
            del self._open[item.exchange]
            self._answer(ResponseHead(item.exchange, 202, ()), End(item.exchange))
        elif isinstance(item, Reset):
            self._open.pop(item.exchange, None)

    def _say(self, text: bytes) -> None:
        """As the server that the script plays: answer the request that this answers, or say it to who listens."""
        assert self._client is not None
        wanted = _answered(text)
        for exchange, asked in self._open.items():
            if wanted is not None and loads(asked).get("id") == wanted:
                head = ResponseHead(exchange, 200, ((b"content-type", b"application/json"),))
                del self._open[exchange]
                self._answer(head, Body(exchange, text), End(exchange))
                return
        self._answer(Body(self._listening, encode_event(text)))

    def _answer(self, *items: ResponseItem) -> None:
        assert self._client is not None
        for item in items:
            self._client.receive(item, self._now)

    def _note(self, role: Role, text: bytes) -> None:
        self._log.append(f"{role.value}> {text.decode()}")
        if role in self._sides:
            self._sides[role].sent.append(text + b"\n")


class _Reader:
    """The messages of one response."""

    def __init__(self) -> None:
        self._parser: SseParser | None = None
        self._body: deque[bytes] = deque()

    def read(self, item: ResponseItem) -> Iterator[bytes]:
        if isinstance(item, ResponseHead):
            kind = dict(item.headers).get(b"content-type")
            self._parser = SseParser() if kind == b"text/event-stream" else None
        elif isinstance(item, Body) and self._parser is not None:
            yield from (event.data.encode() for event in self._parser.receive(item.data) if event.data)
        elif isinstance(item, Body):
            yield item.data


def _with_host(item: RequestItem) -> RequestItem:
    if not isinstance(item, RequestHead):
        return item
    return RequestHead(item.exchange, item.method, item.target, ((b"host", b"localhost"), *item.headers))


def _is_request(text: bytes) -> bool:
    message = loads(text)
    return isinstance(message, dict) and "method" in message and "id" in message


def _answered(text: bytes) -> Any:
    try:
        message = loads(text)
    except ValueError:
        return None
    return message.get("id") if isinstance(message, dict) and "method" not in message else None
