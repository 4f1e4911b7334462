"""An HTTP machine for servers in virtual time, with requests as a test makes them; the test acts for the handlers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from httpwire import Exchange

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.events import RequestReceived
from mcpio.http.calls import Calls
from mcpio.http.durable import DurableHooks, DurableSessions
from mcpio.http.model import Body, End, HttpOptions, RequestHead, Reset, ResponseHead
from mcpio.http.server import HttpEvent, HttpServer
from mcpio.http.sessions import HttpSession, SessionEffect, SessionLoad
from mcpio.types import CallToolResult, TextContent
from mcpio.types.features import Implementation, ServerCapabilities, ToolsCapability

INFO = Implementation("test", "1")
CAPABILITIES = ServerCapabilities(tools=ToolsCapability(list_changed=True), logging={})
BOTH = "application/json, text/event-stream"


class Site:
    """A machine, what it reported, and the responses that came of it."""

    def __init__(
        self,
        options: HttpOptions | None = None,
        *,
        limits: Limits | None = None,
        engine: Options | None = None,
        store: Any = None,
        first_id: int = 1,
        capabilities: ServerCapabilities = CAPABILITIES,
        entropy: Callable[[int], bytes] | None = None,
        on_room: Callable[[HttpSession], None] = lambda _: None,
    ) -> None:
        """With a ``store``, as ``mcpio.app`` has them, sessions outlive this."""
        self.now = 0.0
        self.store = store
        self.is_store_failing = self.is_store_away = False
        self.is_whole = False
        """Whether requests go to the machine in one piece."""
        self.events: list[tuple[HttpSession | Calls, HttpEvent]] = []
        self.stalled: set[int] = set()
        self._responses: dict[int, Exchange] = {}
        self._names = count(1)
        self._drawn = count(first_id)
        chosen = engine or Options(limits=limits or Limits())
        self.machine = HttpServer(
            lambda principal: ServerConnection(INFO, capabilities, principal=principal, options=chosen),
            entropy=entropy or (lambda size: next(self._drawn).to_bytes(size, "big")),
            options=options,
            limits=limits,
            on_room=on_room,
            durable=None if store is None else DurableSessions(self._keeping(chosen)),
            revisions=chosen.revisions,
        )

    # Requests

    def ask(
        self, method: str, target: str = "/mcp", body: bytes | None = b"", *, principal: Any = None, **headers: str
    ) -> Exchange:
        """Make a request; without its end where ``body`` is ``None``. Header fields by their names with ``_``."""
        name, response = next(self._names), Exchange()
        self._responses[name] = response
        fields = [(field.replace("_", "-").encode(), value.encode("latin-1")) for field, value in headers.items()]
        head = RequestHead(name, method, target, fields, principal)
        if self.is_whole and body is not None:
            found = self.machine.serve(head, body, self.now)
            self.settle()
            answer = self.machine.answer_of(found)
            if answer is not None:
                for item in (ResponseHead(name, answer.status, answer.headers), Body(name, answer.body), End(name)):
                    response.take(item)
        else:
            self.machine.receive(head, self.now)
            if body is not None:
                self.complete(response, body)
        self.settle()
        return response

    def complete(self, exchange: Exchange, body: bytes = b"") -> None:
        """Send the rest of a request."""
        name = self.name(exchange)
        if body:
            self.machine.receive(Body(name, body), self.now)
        self.machine.receive(End(name), self.now)
        self.settle()

    def name(self, exchange: Exchange) -> int:
        """Return what the machine calls an exchange."""
        return next(name for name, each in self._responses.items() if each is exchange)

    def post(self, message: Any, session: str | None = None, *, target: str = "/mcp", **headers: Any) -> Exchange:
        """POST a message: bytes as they are, anything else as JSON."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        usual: dict[str, Any] = {"content_type": "application/json", "accept": BOTH}
        if session is not None:
            usual["mcp_session_id"] = session
        return self.ask("POST", target, body, **usual | headers)

    def open(self, revision: str = "2025-11-25", *, capabilities: Any = None, **headers: Any) -> str:
        """Begin a session and return its id."""
        response = self.post(initialize(revision, capabilities), **headers)
        session = response.headers["mcp-session-id"]
        assert self.post(note("initialized"), session, **headers).status == 202
        return session

    def call(self, session: str | None, id: Any = 1, **headers: Any) -> tuple[Exchange, RequestReceived]:
        """Call a tool; return its exchange, and the event for the handler."""
        exchange = self.post(tool_call(id), session, **headers)
        return exchange, self.requests()[-1]

    def listen(self, session: str, last_event_id: str | None = None, **headers: Any) -> Exchange:
        """GET the endpoint."""
        if last_event_id is not None:
            headers["last_event_id"] = last_event_id
        return self.ask("GET", accept="text/event-stream", mcp_session_id=session, **headers)

    def reset(self, exchange: Exchange, cause: BaseException | None = None) -> None:
        """Break a request off."""
        self.machine.receive(Reset(self.name(exchange), cause), self.now)
        self.settle()

    # Handlers

    def session(self, id: str | None = None) -> HttpSession:
        """Return the session of that id, or the only one."""
        (found,) = [each for each in self.machine.sessions if id is None or each.id == id]
        return found

    def requests(self) -> list[RequestReceived]:
        """Return what handlers were asked so far."""
        return [event for _, event in self.events if isinstance(event, RequestReceived)]

    def kinds(self) -> list[str]:
        """Return what was reported so far, by class, and forget it."""
        kinds = [type(event).__name__ for _, event in self.events]
        self.events.clear()
        return kinds

    def answer(self, event: RequestReceived, text: str = "ok") -> None:
        """Have a handler answer."""
        session = next(session for session, each in self.events if each is event)
        session.connection.send_result(event.id, CallToolResult((TextContent(text),)))
        self.touch(session)

    def touch(self, session: HttpSession | Calls) -> None:
        """Tell the machine that something was done to a connection."""
        self.machine.touch(session, self.now)
        self.settle()

    # Time and output

    def settle(self) -> None:
        """Drain the events and write what there is, but to whoever stalls."""
        ready: dict[Any, None] = {}
        while self._drain(ready) or self._carry_on():
            for name in [name for name in ready if name not in self.stalled]:
                del ready[name]
                for item in self.machine.responses_to_send(name):
                    self._responses[name].take(item)

    def _drain(self, ready: dict[Any, None]) -> bool:
        """Take what happened and what is ready; tell whether there was anything."""
        before = len(self.events)
        while (event := self.machine.next_event()) is not None:
            self.events.append(event)
        names = []
        while (name := self.machine.next_ready()) is not None:
            names.append(name)
        ready.update(dict.fromkeys(names))
        return bool(names) or len(self.events) > before

    def _carry_on(self) -> bool:
        """Do what the store is to do next; tell whether something may have come of that."""
        if self.store is None or self.is_store_away:
            return False
        effect = self.machine.next_effect()
        if effect is not None:
            self.machine.store_done(effect.token, self._store(effect), self.now)
        # Looking for something to store may have let go what waited.
        return effect is not None or bool(self.machine._ready)

    def stall(self, exchange: Exchange) -> None:
        """Have a client stop reading."""
        self.stalled.add(self.name(exchange))

    def unstall(self, exchange: Exchange) -> None:
        """Let a client read again."""
        name = self.name(exchange)
        self.stalled.discard(name)
        for item in self.machine.responses_to_send(name):
            exchange.take(item)
        self.settle()

    def _keeping(self, engine: Options) -> DurableHooks:
        def restore(saved: Mapping[str, Any], principal: Any, now: float) -> ServerConnection:
            return ServerConnection.restore(saved["engine"], now, options=engine, principal=principal)

        return DurableHooks(
            save=lambda session: {"engine": session.connection.snapshot(self.now)},
            restore=restore,
            report=lambda message, error: None,
        )

    def _store(self, effect: SessionEffect) -> Any:
        if self.is_store_failing:
            return OSError("the disk is full")
        if isinstance(effect, SessionLoad):
            return self.store.session(effect.key)
        return self.store.write([effect])

    def advance(self, seconds: float) -> None:
        """Let time pass, deadline by deadline."""
        until = self.now + seconds
        while (due := self.machine.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self.machine.handle_timeout(self.now)
            self.settle()
            again = self.machine.next_deadline()
            assert again is None or again > self.now, "a deadline is due again at once"
        self.now = until


def initialize(revision: str = "2025-11-25", capabilities: Any = None) -> dict[str, Any]:
    """Return the first message of a client."""
    info = {"name": "c", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def note(method: str, **params: Any) -> dict[str, Any]:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", **({"params": params} if params else {})}


def tool_call(id: Any = 1, **meta: Any) -> dict[str, Any]:
    """Return a call of a tool."""
    params = {"name": "x", **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
