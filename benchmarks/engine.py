"""The engine alone: a server's ``tools/call`` from bytes to bytes, against the standard library's ``json`` alone.

    python benchmarks/engine.py

``json`` reads the same requests with ``json.loads`` and writes the same answers with ``json.dumps``, and does nothing
else. The engine frames, reads and checks each request, keeps its tables and limits, makes typed objects of it, and
turns a typed result into the bytes of the answer. Times are of the processor.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from harness import OURS, Figures, Rounds, arguments

from mcpio import Implementation, RequestReceived, ServerCapabilities, ServerConnection
from mcpio.types import CallToolResult, TextContent, ToolsCapability

JSON = "json alone"
TARGET = 0.45
READS = {"one at a time": 1, "64 a read": 64}
CALL = {"name": "echo", "arguments": {"text": "hello"}, "_meta": {"progressToken": "token-12345"}}
UNKNOWN = {"vendor/trace": {"id": "4bf92f3577b34da6", "sampled": True}}
CALLS = {"call": CALL, "call with unknown members": {**CALL, **UNKNOWN}}


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__, rounds=25, seconds=0.1).parse_args()
    rounds = Rounds()
    for _ in range(options.rounds):
        ours: Figures = {}
        peer: Figures = {}
        for call, params in CALLS.items():
            for read, size in READS.items():
                key = f"{call}, {read}/s"
                ours[key], peer[key] = rates(params, size, options.seconds)
        rounds.add(OURS, ours)
        rounds.add(JSON, peer)
    for call in CALLS:
        rounds.show(f"{call}, messages a second", {read: f"{call}, {read}/s" for read in READS})
    for call in CALLS:
        for read in READS:
            rounds.compare(f"{call}, {read}", JSON, f"{call}, {read}/s", TARGET)
    return rounds.verdict(options)


def rates(params: dict[str, Any], size: int, seconds: float) -> tuple[float, float]:
    """Return how many messages a second the engine and ``json`` get through, ``size`` of them at a time."""
    server = Server()
    reads = [requests(first, size, params) for first in range(1, 4096, size)]
    answers = [[json.loads(line) for line in server.answers(read).splitlines()] for read in reads]
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def json_alone(number: int) -> None:
        for line, answer in zip(reads[number].splitlines(), answers[number], strict=True):
            json.loads(line)
            encode(answer).encode()

    return (
        rate(lambda number: server.answers(reads[number]), len(reads), seconds) * size,
        rate(json_alone, len(reads), seconds) * size,
    )


def rate(work: Callable[[int], object], count: int, seconds: float) -> float:
    """Return how often a second ``work`` can be done, given the numbers below ``count`` in turn."""
    began = time.process_time()
    done = 0
    while (elapsed := time.process_time() - began) < seconds:
        for number in range(count):
            work(number)
        done += count
    return done / elapsed


def requests(first: int, size: int, params: dict[str, Any]) -> bytes:
    """Return the lines of so many requests, numbered from ``first``."""
    messages = [{"jsonrpc": "2.0", "id": first + n, "method": "tools/call", "params": params} for n in range(size)]
    return b"".join(json.dumps(message, separators=(",", ":")).encode() + b"\n" for message in messages)


class Server:
    """A server by hand, past its handshake."""

    def __init__(self) -> None:
        self._connection = ServerConnection(
            Implementation("server", "1"), ServerCapabilities(tools=ToolsCapability(list_changed=True))
        )
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
        opened = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self.answers(json.dumps(opening).encode() + b"\n" + json.dumps(opened).encode() + b"\n")

    def answers(self, data: bytes) -> bytes:
        """Take in what was read, serve it, and return what is to be written."""
        connection = self._connection
        connection.receive_data(data, time.monotonic())
        while (event := connection.next_event()) is not None:
            if isinstance(event, RequestReceived):
                text = event.request.arguments["text"]
                connection.send_result(event.id, CallToolResult((TextContent(text),)))
        out = b"".join([chunk for chunk in connection.data_to_send() if chunk is not None])
        connection.next_deadline()
        return out


if __name__ == "__main__":
    sys.exit(main())
