"""WebSocket in the ASGI application: handshakes, messages and both ends, on both event loops in virtual time."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import MutableMapping
from typing import Any

import pytest
from asgiwire import EventLoop

from mcpio import Context, Server
from mcpio.asgi import AsgiApp, app
from mcpio.auth import ApiKeys, ResourceServer, api_key_digest
from mcpio.engine import Limits, Options
from mcpio.http.model import Denied, HostPolicy, HttpOptions
from mcpio.websocket import WebSocketOptions

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}


class Browser:
    """The client's and the ASGI server's side of one WebSocket."""

    def __init__(self, application: AsgiApp, loop: EventLoop, **scope: Any) -> None:
        headers = [(b"host", b"tools.example"), *scope.pop("headers", [])]
        self.scope = {
            "type": "websocket",
            "path": "/mcp",
            "root_path": "",
            "headers": headers,
            "query_string": b"",
            "server": ("203.0.113.1", 80),
            "subprotocols": ["mcp"],
            **scope,
        }
        self.said: list[dict[str, Any]] = []
        self.raised: BaseException | None = None
        self.refuses: OSError | None = None
        self._loop = loop
        self._waiting: deque[dict[str, Any]] = deque([{"type": "websocket.connect"}])
        self._arrived = loop.event()

        async def call() -> None:
            try:
                await application(self.scope, self._receive, self._send)
            except Exception as error:
                self.raised = error
            self.said.append({"type": "returned"})

        loop.start(call)

    async def _receive(self) -> dict[str, Any]:
        while not self._waiting:
            self._arrived = self._loop.event()
            await self._arrived.wait()
        return self._waiting.popleft()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.said.append(dict(message))

    async def ask(self, *events: dict[str, Any]) -> list[dict[str, Any]]:
        """Let events happen, and return what the application said then."""
        before = len(self.said)
        self._waiting.extend(events)
        self._arrived.set()
        await self._loop.settle()
        return self.said[before:]

    async def exchange(self, *messages: Any) -> list[Any]:
        """Send messages of MCP, and return those that come back."""
        said = await self.ask(*({"type": "websocket.receive", "text": json.dumps(each)} for each in messages))
        return [json.loads(each["text"]) for each in said if each["type"] == "websocket.send"]


def call(name: str, arguments: dict[str, Any], id: int = 2, **params: Any) -> dict[str, Any]:
    params |= {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def tools(**options: Any) -> Server:
    server = Server("tools", "1", **options)

    @server.tool
    def who(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    @server.tool
    async def wait(seconds: float, ctx: Context) -> str:
        await ctx.sleep(seconds)
        return "waited"

    return server


def served(server: Server | None = None, **options: Any) -> AsgiApp:
    options.setdefault("options", HttpOptions(policy=HostPolicy(["tools.example"], ["https://tools.example"])))
    return app(server or tools(), websocket=WebSocketOptions(), **options)


ACCEPTED = {"type": "websocket.accept", "subprotocol": "mcp"}
RETURNED = {"type": "returned"}


def closed(code: int, reason: str = "") -> dict[str, Any]:
    return {"type": "websocket.close", "code": code, "reason": reason}


def test_session_of_either_era(loop: EventLoop) -> None:
    async def main() -> None:
        application = served(principal=lambda scope: scope["user"])
        old, new = (Browser(application, loop, user="ada") for _ in range(2))
        assert await old.ask() == [ACCEPTED]
        (welcome,) = await old.exchange(HELLO)
        assert welcome["result"]["protocolVersion"] == "2025-11-25"
        (answer,) = await old.exchange(READY, call("who", {}))
        assert answer["result"]["content"][0]["text"] == "'ada'"
        (answer,) = await new.exchange(call("who", {}, _meta=STATELESS))
        assert answer["result"]["content"][0]["text"] == "'ada'"
        assert await old.ask({"type": "websocket.disconnect", "code": 1000}) == [RETURNED]
        assert await new.ask({"type": "websocket.disconnect", "code": 1001, "reason": None}) == [RETURNED]

    loop.run(main)


def test_option_of_a_wrong_type_is_rejected() -> None:
    wrong: Any = True
    with pytest.raises(TypeError, match=r"^websocket must be WebSocketOptions, not True$"):
        app(tools(), websocket=wrong)


REJECTED = [
    ({"path": "/elsewhere"}, 404),
    ({"headers": [(b"origin", b"https://evil.example")]}, 403),
    ({"headers": [(b"host", b"evil.example")]}, 403),
    ({"subprotocols": ["graphql"]}, 400),
    ({"subprotocols": None}, 400),
    ({"user": Denied()}, 401),
]


@pytest.mark.parametrize(("scope", "status"), REJECTED, ids=[str(scope) for scope, _ in REJECTED])
@pytest.mark.parametrize("can_respond", [True, False])
def test_rejected_handshake(scope: dict[str, Any], status: int, can_respond: bool, loop: EventLoop) -> None:
    async def main() -> None:
        application = served(principal=lambda scope: scope.get("user"))
        extensions: Any = {"websocket.http.response": {}} if can_respond else None
        said = await Browser(application, loop, extensions=extensions, **scope).ask()
        if can_respond:
            head, body, end = said
            assert (head["type"], head["status"]) == ("websocket.http.response.start", status)
            assert json.loads(body["body"])["error"]["message"]
            assert (b"content-length", str(len(body["body"])).encode()) in head["headers"]
            assert end == RETURNED
        else:
            assert said == [{"type": "websocket.close", "code": 1008}, RETURNED]

    loop.run(main)


def test_handshake_whose_look_up_does_not_end_is_rejected(loop: EventLoop) -> None:
    async def find(scope: Any) -> None:
        await loop.event().wait()

    async def main() -> None:
        browser = Browser(served(principal=find), loop, extensions={"websocket.http.response": {}})
        assert await browser.ask() == []
        await loop.sleep(31)
        await loop.settle()
        head, _, end = browser.said
        assert (head["status"], end) == (503, RETURNED)
        assert (b"retry-after", b"5") in head["headers"]

    loop.run(main)


def test_resource_server_admits_by_tokens_and_challenges(loop: EventLoop) -> None:
    async def main() -> None:
        keys = ApiKeys({api_key_digest("mcp_key"): "ada"})
        application = served(auth=ResourceServer(resource="https://tools.example/mcp", verify=keys))
        bearer = (b"authorization", b"Bearer mcp_key")
        admitted = Browser(application, loop, headers=[bearer])
        assert await admitted.ask() == [ACCEPTED]
        refused = Browser(application, loop, extensions={"websocket.http.response": {}})
        head, *_ = await refused.ask()
        assert head["status"] == 401
        assert any(name == b"www-authenticate" for name, _ in head["headers"])

    loop.run(main)


@pytest.mark.parametrize(
    ("event", "code", "reason"),
    [
        ({"type": "websocket.receive", "bytes": b"{}"}, 1003, "a binary message came"),
        ({"type": "websocket.receive", "text": "[" * 200}, 1009, "a message over the limit"),
    ],
)
def test_messages_that_end_the_session(event: dict[str, Any], code: int, reason: str, loop: EventLoop) -> None:
    async def main() -> None:
        server = tools(options=Options(limits=Limits(message_bytes=100)))
        browser = Browser(served(server), loop)
        await browser.ask()
        *_, close, returned = await browser.ask(event)
        assert (close, returned) == (closed(code, reason), RETURNED)

    loop.run(main)


def test_client_that_says_nothing_is_closed(loop: EventLoop) -> None:
    async def main() -> None:
        silent, speaking = (Browser(served(), loop) for _ in range(2))
        await speaking.exchange(HELLO)
        await loop.sleep(29)
        assert silent.said == [ACCEPTED]
        await loop.sleep(2)
        assert silent.said[1:] == [closed(1008, "no message came within 30 s"), RETURNED]
        await loop.sleep(60)
        assert RETURNED not in speaking.said

    loop.run(main)


def test_client_that_leaves_gets_no_answers_and_its_handlers_end(loop: EventLoop) -> None:
    async def main() -> None:
        browser = Browser(served(), loop)
        await browser.exchange(HELLO, READY, call("wait", {"seconds": 1000}))
        began = loop.now()
        (returned,) = await browser.ask({"type": "websocket.disconnect", "code": 1006})
        assert (returned, loop.now() - began < 1) == (RETURNED, True)
        assert browser.raised is None

    loop.run(main)


def test_client_that_is_gone_while_the_server_sends_ends_the_session(loop: EventLoop) -> None:
    async def main() -> None:
        browser = Browser(served(), loop)
        await browser.ask()
        browser.refuses = ConnectionResetError("gone")
        assert await browser.exchange(HELLO) == []
        assert await browser.ask({"type": "websocket.disconnect", "code": 1006}) == [RETURNED]
        assert browser.raised is None

    loop.run(main)


def test_close_answers_running_requests_and_says_goodbye(loop: EventLoop) -> None:
    async def main() -> None:
        application = served()
        browser = Browser(application, loop)
        await browser.exchange(HELLO, READY, call("wait", {"seconds": 1}))
        application.close(5.0)
        await loop.sleep(0.5)
        late = Browser(application, loop, extensions={"websocket.http.response": {}})
        head, *_ = await late.ask()
        assert head["status"] == 503
        await loop.sleep(1)
        answer, close, returned = browser.said[-3:]
        assert json.loads(answer["text"])["result"]["content"][0]["text"] == "waited"
        assert (close, returned) == (closed(1001), RETURNED)

    loop.run(main)


def test_close_that_the_asgi_server_refuses_is_quiet(loop: EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        application = served()
        browser = Browser(application, loop)
        await browser.exchange(HELLO, READY)
        browser.refuses = OSError("the WebSocket is closed")
        application.close(5.0)
        await loop.sleep(0.5)
        assert (browser.said[-1], browser.raised) == (RETURNED, None)

    loop.run(main)
    assert caplog.records == []


def test_lifespan_ends_the_sessions(loop: EventLoop) -> None:
    async def main() -> None:
        application = served()
        async with application.lifespan():
            browser = Browser(application, loop)
            await browser.exchange(HELLO, READY, call("wait", {"seconds": 1000}))
        await loop.settle()
        assert browser.said[-2:] == [closed(1001), RETURNED]

    loop.run(main)


def test_session_that_cannot_be_started_is_closed_and_reported(
    loop: EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_tap() -> Any:
        raise ZeroDivisionError

    async def main() -> None:
        browser = Browser(served(tap=broken_tap), loop)
        assert await browser.ask() == [ACCEPTED, {"type": "websocket.close", "code": 1011}, RETURNED]
        assert "a session could not be started" in caplog.text

    loop.run(main)
