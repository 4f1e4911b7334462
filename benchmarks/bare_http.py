"""The echo server over HTTP, made by hand, with neither a protocol library nor a loop's: faster than any client.

python benchmarks/bare_http.py --http 8000 [--sse]

It has one session, serves well-behaved clients only, and nobody listens to it.
"""

from __future__ import annotations

import argparse
import re
import selectors
import socket

from peers.bare import Answers

SIZE = 1 << 18
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\nmcp-session-id: 1\r\n"
JSON = HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
EVENT = HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
NO_LISTENING = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"
ENDED = b"HTTP/1.1 204 No Content\r\n\r\n"


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description="A server with a tool that echoes, made by hand.")
    parser.add_argument("--http", type=int, required=True, metavar="PORT", help="serve over HTTP, at every path")
    parser.add_argument("--sse", action="store_true", help="answer with events")
    options = parser.parse_args()
    selector = selectors.DefaultSelector()
    listening = socket.create_server(("127.0.0.1", options.http), backlog=128)
    selector.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                accepted, _ = listening.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(accepted, selectors.EVENT_READ, Peer(accepted, is_sse=options.sse))
            elif not key.data.serve():
                selector.unregister(key.fileobj)
                key.data.socket.close()


class Peer:
    """One connection of a client."""

    def __init__(self, connected: socket.socket, *, is_sse: bool) -> None:
        self.socket = connected
        self._is_sse = is_sse
        self._unread = b""
        self._answers = Answers()

    def serve(self) -> bool:
        """Read once, and answer; return whether the client is still there."""
        try:
            data = self.socket.recv(SIZE)
            self._unread += data
            while (out := self._next()) is not None:
                self.socket.sendall(out)
        except ConnectionError:
            return False
        return bool(data)

    def _next(self) -> bytes | None:
        """Return the response to the next request, or ``None`` as long as it is not there."""
        head, end, rest = self._unread.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        size = 0 if length is None else int(length[1])
        if not end or len(rest) < size:
            return None
        self._unread = rest[size:]
        if not head.startswith(b"POST "):
            return NO_LISTENING if head.startswith(b"GET ") else ENDED
        answer = self._answers.to(rest[:size] + b"\n") if size else b""
        if not answer:
            return ACCEPTED
        if not self._is_sse:
            return JSON % (len(answer) - 1, answer[:-1])
        event = b"event: message\ndata: %b\n" % answer
        return EVENT % (len(event), event)


if __name__ == "__main__":
    main()
