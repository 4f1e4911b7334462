"""The echo server made by hand, with no protocol library: what is left for a server to reach.

    python benchmarks/peers/bare.py             a Trio loop
    python benchmarks/peers/bare.py --blocking  no loop: faster than any client
    python benchmarks/peers/bare.py --tasks     a Trio loop that starts a task for each request
    python benchmarks/peers/bare.py --tcp PORT  a Trio loop for each connection; likewise --unix PATH
    python benchmarks/peers/bare.py --websocket PORT  the same with wsproto, a message for each text
    python benchmarks/peers/bare.py --http PORT [--sse]  the same with h11, at every path; every client has one session
    python benchmarks/peers/bare.py --http PORT --parser httptools  the same with httptools

All messages of one read are answered by one write.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from orjson import dumps, loads

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NAMES = ["echo"] + [f"tool_{number:03}" for number in range(1, int(os.environ.get("BENCH_TOOLS", "1")))]
TOOLS = [{"name": name, "description": "Echo the text back to the caller.", "inputSchema": SCHEMA} for name in NAMES]
INFO = {"name": "bare", "version": "1"}
SIZE = 1 << 18


def main() -> None:
    """Serve the parent process."""
    if sys.argv[1:] == ["--blocking"]:
        serve_blocking()
    elif sys.argv[1:] == ["--tasks"]:
        import trio

        trio.run(serve_in_tasks)
    elif sys.argv[1:]:
        import trio

        kind, where = (word for word in sys.argv[1:] if word not in ("--sse", "--parser", "httptools"))
        trio.run(serve_on_socket, kind, where)
    else:
        import trio

        trio.run(serve)


async def serve() -> None:
    """Serve in a Trio loop."""
    import trio

    answers = Answers()
    stdin, stdout = trio.lowlevel.FdStream(os.dup(0)), trio.lowlevel.FdStream(os.dup(1))
    while data := await stdin.receive_some(SIZE):
        if out := answers.to(bytes(data)):
            await stdout.send_all(out)


async def serve_in_tasks() -> None:
    """Serve in a Trio loop that starts a task for each request; one writer sends the answers that are ready."""
    import trio

    answers = Answers()
    ready: list[bytes] = []
    wake = trio.lowlevel.ParkingLot()
    stdin, stdout = trio.lowlevel.FdStream(os.dup(0)), trio.lowlevel.FdStream(os.dup(1))

    async def handle(line: bytes) -> None:
        ready.append(_answer(loads(line)))
        wake.unpark()

    async def write() -> None:
        while True:
            while not ready:
                await wake.park()
            out = b"".join(ready)
            ready.clear()
            await stdout.send_all(out)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        while data := await stdin.receive_some(SIZE):
            for line in answers.lines(bytes(data)):
                nursery.start_soon(handle, line)
        nursery.cancel_scope.cancel()


async def serve_on_socket(kind: str, where: str) -> None:
    """Serve all who connect."""
    import trio

    async def answer(stream: trio.SocketStream) -> None:
        answers = Answers()
        while data := await stream.receive_some(SIZE):
            if out := answers.to(bytes(data)):
                await stream.send_all(out)

    if kind != "--unix":
        answer_http = answer_parsed_requests if "httptools" in sys.argv else answer_requests
        handlers = {"--tcp": answer, "--websocket": answer_frames, "--http": answer_http}
        await trio.serve_tcp(handlers[kind], int(where), host="127.0.0.1")
    else:
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(where)
        listening.listen()
        await trio.serve_listeners(answer, [trio.SocketListener(listening)])


async def answer_frames(stream: Any) -> None:
    """Serve one client over WebSocket."""
    from wsproto import ConnectionType, WSConnection

    peer = WSConnection(ConnectionType.SERVER)
    parts: list[str] = []
    while data := await stream.receive_some(SIZE):
        peer.receive_data(data)
        if out := b"".join([_reply(peer, event, parts) for event in peer.events()]):
            await stream.send_all(out)


def _reply(peer: Any, event: Any, parts: list[str]) -> bytes:
    from wsproto.events import AcceptConnection, CloseConnection, Request, TextMessage

    reply: Any = None
    if isinstance(event, TextMessage):
        parts.append(event.data)
        if event.message_finished:
            answer = _answer(loads("".join(parts)))
            parts.clear()
            reply = TextMessage(answer[:-1].decode()) if answer else None
    elif isinstance(event, Request):
        reply = AcceptConnection(subprotocol=event.subprotocols[0])
    elif isinstance(event, CloseConnection):
        reply = event.response()
    return b"" if reply is None else bytes(peer.send(reply))


async def answer_requests(stream: Any) -> None:
    """Serve one client over HTTP/1.1; it may disconnect at any time."""
    import h11
    import trio

    peer = h11.Connection(h11.SERVER)
    body = b""
    method = b""
    with contextlib.suppress(trio.BrokenResourceError):
        while True:
            event = peer.next_event()
            if event is h11.NEED_DATA:
                peer.receive_data(await stream.receive_some(SIZE))
            elif isinstance(event, h11.Request):
                method, body = event.method, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                await stream.send_all(_response(peer, method, body))
                peer.start_next_cycle()
            else:
                return


async def answer_parsed_requests(stream: Any) -> None:
    """Serve one client over HTTP/1.1 by httptools; it may disconnect at any time."""
    import httptools
    import trio

    request = _Request()
    parser = httptools.HttpRequestParser(request)
    head = b"HTTP/1.1 200 OK\r\nmcp-session-id: 1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    with contextlib.suppress(trio.BrokenResourceError):
        while data := await stream.receive_some(SIZE):
            parser.feed_data(data)
            if request.is_whole:
                answer = _answer(loads(request.body)) if parser.get_method() == b"POST" else b""
                await stream.send_all(head % (len(answer), answer))
                request.is_whole, request.body = False, b""


class _Request:
    """The body of one request."""

    def __init__(self) -> None:
        self.body = b""
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Have the parser make the header fields, which every server needs."""

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_whole = True


def _response(peer: Any, method: bytes, body: bytes) -> bytes:
    import h11

    answer = _answer(loads(body)) if method == b"POST" else b""
    headers = [(b"mcp-session-id", b"1")]
    status = 200 if answer else 202 if method == b"POST" else 405
    if answer and "--sse" in sys.argv:
        headers += [(b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")]
        answer = b"event: message\ndata: %b\n" % answer
    else:
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    events = [h11.Response(status_code=status, headers=headers), h11.Data(answer), h11.EndOfMessage()]
    return b"".join([peer.send(event) for event in events])


def serve_blocking() -> None:
    """Serve in a loop that waits in the system's own calls."""
    answers = Answers()
    while data := os.read(0, SIZE):
        out = answers.to(data)
        while out:
            out = out[os.write(1, out) :]


class Answers:
    """Turns what was read into what is to be written."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def to(self, data: bytes) -> bytes:
        """Return the answers to the lines that end in ``data``."""
        return b"".join([_answer(loads(line)) for line in self.lines(data)])

    def lines(self, data: bytes) -> list[bytes]:
        """Return the lines that end in ``data``."""
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._unfinished.append(data)
            return []
        whole = b"".join([*self._unfinished, head])
        self._unfinished = [rest] if rest else []
        return whole.split(b"\n")


def _answer(message: dict[str, Any]) -> bytes:
    method = message["method"]
    result: dict[str, Any]
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
    elif method == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif "id" in message:
        result = {}
    else:
        return b""
    answer: bytes = dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
    return answer + b"\n"


if __name__ == "__main__":
    main()
