"""One read may bring thousands of messages: a driver parses a bounded number of them before other tasks get a turn."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from eachloop import EachLoop, Here
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived, StreamEnded
from rawsite import RawRequest, ServeSite, Site, Wire, result_of
from stateless import HELLO, meta

from mcpio import Limits, Options, RequestError, Server
from mcpio._drivers.actor import EVENTS_PER_TURN
from mcpio._drivers.event_loop import RECEIVE_SIZE
from mcpio.app import session
from mcpio.framing import jsonrpc
from mcpio.framing.json import dumps

GARBAGE = b"x\n" * 20_000
MOST = 4 * EVENTS_PER_TURN
"""The reader and the marked session may take a turn, and Trio may choose them twice before the watching task."""


class Watch:
    """Counts the texts that are parsed between two turns of another task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parsed = self.most = 0
        parse = jsonrpc.parse

        def counting(*arguments: Any) -> jsonrpc.Message:
            self.parsed += 1
            return parse(*arguments)

        monkeypatch.setattr(jsonrpc, "parse", counting)

    async def run(self, here: Here) -> None:
        before = self.parsed
        while True:
            await here.checkpoint()
            self.most = max(self.most, self.parsed - before)
            before = self.parsed


@pytest.mark.long
@pytest.mark.req("SEC-10")
def test_lines_of_one_read_take_turns_with_other_tasks(
    each_virtual_loop: EachLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(monkeypatch)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}

    async def main(here: Here) -> None:
        near, far = await here.joined()

        async def answer() -> None:
            receive, send, close = _calls(here, far)
            await send(json.dumps({"jsonrpc": "2.0", "id": (await receive())["id"], "result": hello}).encode() + b"\n")
            await receive()
            await send(GARBAGE)
            await send(json.dumps({"jsonrpc": "2.0", "id": (await receive())["id"], "result": {}}).encode() + b"\n")
            await close()

        async with here.tasks() as tasks:
            watching = tasks.spawn(watch.run(here))
            tasks.spawn(answer())
            async with here.open_client(near, era="handshake") as client:
                await client.ping()
            watching.cancel()

    each_virtual_loop.run(main)
    assert watch.parsed > 20_000
    assert watch.most <= MOST, watch.most


def _calls(here: Here, end: tuple[Any, ...]) -> Any:
    """Return functions that receive one message, send bytes, and close this end."""
    lines: list[bytes] = []

    async def receive() -> Any:
        while not lines:
            data = await (end[0].receive_some() if here.is_trio else end[0].read(65536))
            lines.extend(data.splitlines())
        return json.loads(lines.pop(0))

    async def send(data: bytes) -> None:
        end[1].write(data)
        await end[1].drain()

    async def close() -> None:
        end[1].close()
        await end[1].wait_closed()

    return (receive, end[0].send_all, end[0].aclose) if here.is_trio else (receive, send, close)


@pytest.mark.req("SEC-10")
def test_reads_that_follow_each_other_take_turns_with_other_tasks(
    each_loop: EachLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, count = Watch(monkeypatch), 30
    ping = dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"x": ""}}})
    message = ping.replace(b'""', b'"%b"' % (b"x" * (RECEIVE_SIZE - len(ping) - 1))) + b"\n"

    async def main(here: Here) -> None:
        async with here.listening("tcp", Server("s", "1")) as (listening, _), here.tasks() as tasks:
            with socket.create_connection(("127.0.0.1", listening.port)) as peer:
                peer.setblocking(False)
                waiting, answers = message * count, 0
                watching = tasks.spawn(watch.run(here))
                while answers < count:
                    with suppress(BlockingIOError):
                        waiting = waiting[peer.send(waiting) if waiting else 0 :]
                    with suppress(BlockingIOError):
                        answers += peer.recv(65536).count(b"\n")
                    await here.checkpoint()
                watching.cancel()

    each_loop.run(main)
    assert watch.parsed == count
    assert watch.most <= 2, watch.most


@pytest.mark.long
@pytest.mark.parametrize("event", [b"data:x\n\n", b'data:{"jsonrpc":"2.0","id":1,"method":"ping"}\n\n'])
def test_events_of_one_read_take_turns_with_other_tasks(
    serve_site: ServeSite, monkeypatch: pytest.MonkeyPatch, event: bytes
) -> None:
    watch = Watch(monkeypatch)

    async def flood(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method != "tools/call":
            await site.answer(request, wire)
            return
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        await wire.send(event * (60_000 // len(event)))
        await wire.send(b"data: %b\n\n" % json.dumps(result_of(request, {"content": []})).encode())
        await wire.close()

    async def play(site: Site) -> None:
        async with site.tasks() as tasks, site.open_http("http://example.com/mcp") as client:
            watching = tasks.spawn(watch.run(site))
            await client.call_tool("x")
            watching.cancel()

    serve_site(play, flood)
    assert watch.parsed > 60_000 // len(event)
    assert watch.most <= MOST, watch.most


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_message_with_too_many_values_fails_its_call_alone(each_loop: EachLoop, era: str) -> None:
    server = Server("s", "1", options=Options(limits=Limits(message_values=200)))
    server.tool(_length)

    async def main(here: Here) -> None:
        async with here.served(server) as near, here.open_client(near, era=era) as client:
            with pytest.raises(RequestError, match="a message has more than 200 values") as refused:
                await client.call_tool("_length", {"numbers": [0] * 300})
            assert refused.value.code == -32600
            called = await client.call_tool("_length", {"numbers": [0] * 30})
            assert called.structured_content == {"result": 30}

    each_loop.run(main)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_answer_leaves_before_a_later_handler_of_the_same_read_may_block(
    each_loop: EachLoop, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PROBATION", 2)
    server, peer = Server("s", "1"), socket.socket(socket.AF_UNIX)
    answers = 0
    found: list[int] = []

    def look() -> int:
        """Return how many answers have come."""
        nonlocal answers
        with suppress(BlockingIOError):
            answers += peer.recv(65536).count(b"\n")
        return answers

    @server.tool
    def work(slow: bool) -> None:
        found.append(look())
        monkeypatch.setattr(session, "SLOW", -1000.0 if slow else 1000.0)

    def message(method: str, **params: Any) -> bytes:
        return dumps({"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}) + b"\n"

    async def main(here: Here) -> None:
        async def send(*slow: bool) -> list[int]:
            """Call the tool so many times by one write; return how many answers each run of it found."""
            found.clear()
            before = look()
            calls = (message("tools/call", name="work", arguments={"slow": each}, **envelope) for each in slow)
            peer.sendall(b"".join(calls))
            await here_are(before + len(slow))
            return [count - before for count in found]

        async def here_are(count: int) -> None:
            while look() < count:
                await here.checkpoint()

        async with here.listening("unix", server, path=tmp_path / "s"):
            peer.connect(str(tmp_path / "s"))
            peer.setblocking(False)
            if era == "handshake":
                peer.sendall(message("initialize", **HELLO))
                await here_are(1)
            assert await send(False, False, False, False, False) == [0, 1, 2, 2, 2]
            assert await send(True, False, False, False, False) == [0, 1, 2, 3, 3]
            assert await send(False, False) == [0, 0]

    ids = count()
    envelope = {"_meta": meta()} if era == "stateless" else {}
    each_loop.run(main)
    peer.close()


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_answer_over_http2_leaves_before_a_later_handler_of_the_same_read_may_block(
    each_loop: EachLoop, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PROBATION", 2)
    server, peer = Server("s", "1"), Http2Peer()
    found: list[int] = []

    @server.tool
    def work(slow: bool) -> None:
        found.append(peer.look())
        monkeypatch.setattr(session, "SLOW", -1000.0 if slow else 1000.0)

    async def main(here: Here) -> None:
        async def send(*slow: bool) -> list[int]:
            """Call the tool so many times by one write; return how many answers each run of it found."""
            found.clear()
            before = peer.look()
            for each in slow:
                peer.post({**fields, "mcp-name": "work"}, "tools/call", name="work", arguments={"slow": each}, **more)
            await answered(before + len(slow))
            return [count - before for count in found]

        async def answered(count: int) -> None:
            peer.flush()
            while peer.look() < count:
                await here.checkpoint()

        fields, more = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}, {"_meta": meta()}
        async with here.listening("http", server, unix=tmp_path / "s", http2=True):
            peer.connect(tmp_path / "s")
            if era == "handshake":
                peer.post({}, "initialize", **HELLO)
                await answered(1)
                fields, more = {"mcp-session-id": peer.session, "mcp-protocol-version": "2025-11-25"}, {}
            assert await send(False, False, False, False, False) == [0, 1, 2, 2, 2]
            assert await send(True, False, False, False, False) == [0, 1, 2, 3, 3]
            assert await send(False, False) == [0, 0]

    each_loop.run(main)
    peer.close()


class Http2Peer:
    """A client on h2 that reads when it looks, and writes when it is flushed."""

    def __init__(self) -> None:
        self.session = ""
        self._answers = 0
        self._ids = count()
        self._http = H2Connection(H2Configuration(client_side=True))
        self._socket = socket.socket(socket.AF_UNIX)

    def connect(self, path: Path) -> None:
        """Connect; the first flush begins the connection."""
        self._socket.connect(str(path))
        self._socket.setblocking(False)
        self._http.initiate_connection()

    def post(self, fields: dict[str, str], method: str, **params: Any) -> None:
        """Queue a request."""
        pseudo = {":method": "POST", ":scheme": "http", ":path": "/mcp", ":authority": "localhost"}
        kinds = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        number = self._http.get_next_available_stream_id()
        self._http.send_headers(number, list({**pseudo, **kinds, **fields}.items()))
        body = dumps({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params})
        self._http.send_data(number, body, end_stream=True)

    def flush(self) -> None:
        """Send what is queued by one write."""
        self._socket.sendall(self._http.data_to_send())

    def look(self) -> int:
        """Return how many answers have come."""
        with suppress(BlockingIOError):
            for event in self._http.receive_data(self._socket.recv(65536)):
                if isinstance(event, ResponseReceived):
                    self.session = dict(event.headers).get(b"mcp-session-id", b"").decode() or self.session
                self._answers += isinstance(event, StreamEnded)
        return self._answers

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _length(numbers: list[int]) -> int:
    return len(numbers)
