"""A session of ours and a peer that a test plays message by message, in virtual time, without an event loop."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any, Generic, TypeVar

from waits import Wait

from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.engine.connection import Connection
from mcpio.engine.server import ServerConnection
from mcpio.testing import ManualRuntime

T = TypeVar("T")
S = TypeVar("S", bound=Session)

INFO = {"name": "peer", "version": "1"}


class Played(Generic[S]):
    """A session, and what its peer gets and says."""

    def __init__(self, connection: Connection) -> None:
        self.runtime = ManualRuntime()
        self.connection = connection
        self.reports: list[str] = []
        self.session: S

    # The driver

    def now(self) -> float:
        return self.runtime.now

    def wake(self) -> None:
        pass  # whoever asks for what was sent looks by itself

    def close(self, grace: float) -> None:
        self.connection.close(self.now(), grace=grace)
        self.session._process()

    async def wait_closed(self) -> None:
        raise NotImplementedError

    def report(self, message: str, error: BaseException | None) -> None:
        self.reports.append(message if error is None else f"{message}: {error}")

    # The peer

    def say(self, *messages: dict[str, Any]) -> None:
        """Send messages to the session, and let happen what follows."""
        for message in messages:
            text = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
            self.connection.receive_data(text, self.now())
        self.session._process()
        self.runtime.run()

    def answer(self, request: dict[str, Any], **result: Any) -> None:
        self.say({"id": request["id"], "result": result})

    def refuse(self, request: dict[str, Any], code: int, message: str = "no") -> None:
        self.say({"id": request["id"], "error": {"code": code, "message": message}})

    def got(self) -> list[dict[str, Any]]:
        """Return what the session sent since the last time."""
        self.runtime.run()
        chunks = self.connection.data_to_send(10**9)
        return [json.loads(chunk) for chunk in chunks if chunk is not None]

    def asked(self, method: str) -> dict[str, Any]:
        """Return the one message that the session sent since the last time: a request of that method."""
        (message,) = self.got()
        assert message["method"] == method, message
        return message

    # Time, and calls

    def advance(self, seconds: float) -> None:
        """Let time pass, for tasks and for the deadlines of the connection."""
        until = self.runtime.now + seconds
        while (due := self._next()) is not None and due <= until:
            self._move(due)
        self._move(until)

    def start(self, coroutine: Awaitable[T]) -> Wait[T]:
        return Wait(self.runtime, coroutine)

    def _next(self) -> float | None:
        due = [time for each in (self.connection, self.runtime) if (time := each.next_deadline()) is not None]
        return min(due, default=None)

    def _move(self, when: float) -> None:
        self.runtime.advance_to(when)
        self.connection.handle_timeout(when)
        self.session._process()
        self.runtime.run()


def played_client(capabilities: dict[str, Any], /, revision: str = "2025-11-25", **options: Any) -> Played[Client]:
    """Return a client that has shaken hands with a server of these capabilities."""
    given: ClientOptions = {"era": "handshake"} | options  # type: ignore[assignment]  # the test's own business
    connection = client_connection(**given)
    played: Played[Client] = Played(connection)
    played.session = Client(connection, played, **given)
    hands = played.start(played.session.initialize())
    played.answer(played.asked("initialize"), protocolVersion=revision, capabilities=capabilities, serverInfo=INFO)
    assert hands.state == "returned"
    played.got()
    return played


def played_server(server: Server, capabilities: dict[str, Any]) -> Played[Any]:
    """Return a server's session that has shaken hands with a client of these capabilities."""
    connection: ServerConnection = server.connection()
    played: Played[Any] = Played(connection)
    played.session = server.session(connection, played, None)
    hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": INFO}
    played.say({"id": 0, "method": "initialize", "params": hello}, {"method": "notifications/initialized"})
    played.got()
    return played
