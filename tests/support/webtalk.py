"""An HTTP client machine and the server that a test plays for it, in virtual time and without bytes."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import attrs

from mcpio.auth import Authorizer
from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.errors import McpError
from mcpio.events import OutgoingId, RequestFailed, RequestReceived, ResponseReceived
from mcpio.http.client import HttpClient, HttpClientOptions, Location, ParamHeaders
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead
from mcpio.types.features import CallToolRequest, ClientCapabilities, Implementation, RootsCapability

CALL = CallToolRequest("x")
RESULT: dict[str, Any] = {"content": []}
NOTE = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
CAPABLE = ClientCapabilities(roots=RootsCapability(list_changed=True))

E = TypeVar("E")


@attrs.frozen
class Asked:
    """One request of the client's."""

    number: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def result(self) -> dict[str, Any]:
        """The message that answers it with ``RESULT``."""
        return {"jsonrpc": "2.0", "id": self.json["id"], "result": RESULT}


class WebTalk:
    """A client, and everything that it asked and reported so far."""

    def __init__(
        self,
        *,
        http: HttpClientOptions | None = None,
        options: Options | None = None,
        capabilities: ClientCapabilities | None = None,
        url: str = "http://localhost:8000/mcp",
        connection: ClientConnection | None = None,
        session_id: str | None = None,
        authorizer: Authorizer | None = None,
        param_headers: ParamHeaders = lambda _: (),
    ) -> None:
        self.connection = connection or ClientConnection(Implementation("c", "1"), capabilities, options=options)
        self.machine = HttpClient(
            self.connection,
            Location.parse(url),
            options=http,
            session_id=session_id,
            authorizer=authorizer,
            param_headers=param_headers,
        )
        self.now = 0.0
        self.events: list[Any] = []
        self.requests: list[Asked] = []
        self.cut: list[int] = []

    # What the client does

    def step(self) -> list[Asked]:
        """Let everything happen that happens by itself; return what was asked by that."""
        before = len(self.requests)
        while self._drain() | self._pull() | self._drain():
            pass
        return self.requests[before:]

    def _drain(self) -> bool:
        found = False
        while (event := self.machine.next_event()) is not None:
            self.events.append(event)
            found = True
        return found

    def _pull(self) -> bool:
        items = self.machine.requests_to_send(self.now)
        heads: dict[int, RequestHead] = {}
        bodies: dict[int, bytes] = {}
        for item in items:
            assert isinstance(item.exchange, int)
            if isinstance(item, RequestHead):
                heads[item.exchange] = item
            elif isinstance(item, Body):
                bodies[item.exchange] = item.data
            elif isinstance(item, Reset):
                self.cut.append(item.exchange)
            else:
                head = heads[item.exchange]
                headers = {name.decode(): value.decode() for name, value in head.headers}
                self.requests.append(
                    Asked(item.exchange, head.method, head.target, headers, bodies.get(item.exchange, b""))
                )
        return bool(items)

    def ask(self, request: Any, **options: Any) -> OutgoingId:
        """Send a request of the protocol's."""
        id = self.connection.send_request(request, now=self.now, **options)
        self.step()
        return id

    def advance(self, seconds: float) -> list[Asked]:
        """Let time pass."""
        before = len(self.requests)
        until = self.now + seconds
        while (due := self.machine.next_deadline()) is not None and due <= until:
            self.now = max(due, self.now)
            self.machine.handle_timeout(self.now)
            self.step()
        self.now = until
        self.machine.handle_timeout(self.now)
        self.step()
        return self.requests[before:]

    # What the server does

    def head(self, asked: Asked, status: int, media_type: str | None = None, **headers: str) -> None:
        """Begin a response."""
        fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        if media_type is not None:
            fields.append((b"content-type", media_type.encode()))
        self.raw_head(asked, status, fields)

    def raw_head(self, asked: Asked, status: int, fields: list[tuple[bytes, bytes]]) -> None:
        """Begin a response with just these fields."""
        self.machine.receive(ResponseHead(asked.number, status, fields), self.now)

    def body(self, asked: Asked, data: bytes) -> None:
        """Go on with a response."""
        self.machine.receive(Body(asked.number, data), self.now)

    def end(self, asked: Asked) -> list[Asked]:
        """End a response."""
        self.machine.receive(End(asked.number), self.now)
        return self.step()

    def reset(self, asked: Asked, cause: BaseException | None = None) -> list[Asked]:
        """Break an exchange."""
        self.machine.receive(Reset(asked.number, cause), self.now)
        return self.step()

    def answer(
        self, asked: Asked, status: int, media_type: str | None = None, data: bytes = b"", **headers: str
    ) -> list[Asked]:
        """Give a whole response; return what was asked because of it."""
        self.head(asked, status, media_type, **headers)
        if data:
            self.body(asked, data)
        return self.end(asked)

    def answer_json(self, asked: Asked, message: Any, status: int = 200, **headers: str) -> list[Asked]:
        """Answer with JSON."""
        return self.answer(asked, status, "application/json", json.dumps(message).encode(), **headers)

    def result(self, asked: Asked, result: Any, **headers: str) -> list[Asked]:
        """Answer with a result."""
        message = {"jsonrpc": "2.0", "id": asked.json["id"], "result": result}
        return self.answer_json(asked, message, 200, **headers)

    def stream(self, asked: Asked, **headers: str) -> None:
        """Begin a response that is a stream of events."""
        self.head(asked, 200, "text/event-stream", **headers)

    def event(self, asked: Asked, message: Any = None, *lines: str) -> list[Asked]:
        """Send an event, with a message if it is not ``None``."""
        said = [*lines] if message is None else [*lines, f"data: {json.dumps(message)}"]
        self.body(asked, ("\n".join(said) + "\n\n").encode())
        return self.step()

    # The handshake

    def begin(self) -> Asked:
        """Ask to shake hands."""
        self.connection.send_initialize(now=self.now, cookie="hello")
        (hello,) = self.step()
        return hello

    def open(
        self, *, revision: str = "2025-11-25", listen: bool = False, session: str | None = None, hi: Asked | None = None
    ) -> Asked | None:
        """Shake hands. Returns the listening, if the server lets the client listen."""
        headers = {} if session is None else {"mcp-session-id": session}
        (initialized,) = self.result(hi or self.begin(), hello(revision), **headers)
        asked = self.answer(initialized, 202)
        if not asked:
            return None
        (listening,) = asked
        if listen:
            self.stream(listening)
            self.step()
            return listening
        self.answer(listening, 405)
        return None

    # What came of it

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen."""
        return self.machine.closed

    def found(self, kind: type[E]) -> list[E]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def error(self, id: int) -> McpError:
        """Return what a request failed with, once."""
        (failed,) = [event for event in self.found(RequestFailed) if event.id == id]
        assert not [event for event in self.found(ResponseReceived) if event.id == id]
        return failed.error

    def has_result(self, id: int) -> bool:
        """Whether a request has its result, and nothing else."""
        assert not [event for event in self.found(RequestFailed) if event.id == id]
        return len([event for event in self.found(ResponseReceived) if event.id == id]) == 1

    def received(self) -> list[RequestReceived]:
        """Return the server's requests."""
        return self.found(RequestReceived)


def hello(revision: str = "2025-11-25") -> dict[str, Any]:
    """Return what a server says of itself."""
    info = {"name": "s", "version": "1"}
    return {"protocolVersion": revision, "capabilities": {"tools": {}, "resources": {}}, "serverInfo": info}
