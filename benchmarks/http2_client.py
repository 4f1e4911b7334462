"""A small MCP client over HTTP/2 for the benchmarks, on h2: one connection, a stream for each call."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import trio

from mcpio.types import CallToolResult, TextContent


class Http2Client:
    """Calls tools in one session; as many calls at once as the server allows streams, the others wait."""

    def __init__(self, stream: trio.SocketStream, authority: str, path: str) -> None:
        self._stream = stream
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", authority),
            (":path", path),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]
        self._ids = itertools.count()
        self._bodies: dict[int, bytearray] = {}
        self._ended: dict[int, trio.Event] = {}
        self._session: list[tuple[str, str]] = []
        self._sending = trio.Lock()
        self._settings_came = trio.Event()
        self._window_opened = trio.Event()
        self._free = trio.CapacityLimiter(1)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Exchange settings, then read until the server closes the connection."""
        self._http.initiate_connection()
        await self._flush()
        while data := await self._stream.receive_some(65536):
            for event in self._http.receive_data(bytes(data)):
                self._handle(event)
            await self._flush()
            if self._settings_came.is_set():
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED

    async def initialize(self) -> None:
        """Open the session."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
        await self._post({"jsonrpc": "2.0", "id": next(self._ids), "method": "initialize", "params": params})
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._free.total_tokens = max(1, min(self._http.remote_settings.max_concurrent_streams, 1024))

    async def call_tool(self, name: str, arguments: dict[str, Any], *, timeout: None = None) -> CallToolResult:
        """Call a tool and return its result; a response without one raises KeyError."""
        params = {"name": name, "arguments": arguments}
        async with self._free:
            body = await self._post({"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params})
        text = bytes(body).partition(b"data: {")
        message = json.loads(b"{" + text[2].partition(b"\n")[0] if text[1] else body)
        return CallToolResult(tuple(TextContent(block["text"]) for block in message["result"]["content"]))

    async def _post(self, message: dict[str, Any]) -> bytearray:
        body = memoryview(json.dumps(message).encode())
        stream_id = self._http.get_next_available_stream_id()
        self._bodies[stream_id] = bytearray()
        self._ended[stream_id] = ended = trio.Event()
        self._http.send_headers(stream_id, [*self._head, *self._session])
        while body:
            size = min(self._http.local_flow_control_window(stream_id), self._http.max_outbound_frame_size, len(body))
            if not size:
                await self._window_opened.wait()
                continue
            self._http.send_data(stream_id, bytes(body[:size]), end_stream=size == len(body))
            body = body[size:]
            await self._flush()
        await ended.wait()
        del self._ended[stream_id]
        return self._bodies.pop(stream_id)

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(headers=headers):
                self._session = self._session or [(k, v) for k, v in _text(headers) if k == "mcp-session-id"]
            case h2.events.DataReceived(stream_id=int() as stream_id):
                self._bodies[stream_id] += event.data or b""
                self._http.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
            case (
                h2.events.StreamEnded(stream_id=int() as stream_id)
                | h2.events.StreamReset(stream_id=int() as stream_id)
            ):
                self._ended[stream_id].set()
            case h2.events.WindowUpdated():
                self._open_window()
            case h2.events.RemoteSettingsChanged():
                self._settings_came.set()
                self._open_window()
            case _:
                pass

    def _open_window(self) -> None:
        # Every stream waits for the same event: each looks at its own window when any has opened.
        self._window_opened.set()
        self._window_opened = trio.Event()

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._http.data_to_send():
                await self._stream.send_all(data)


def _text(headers: Any) -> list[tuple[str, str]]:
    return [(k.decode() if isinstance(k, bytes) else k, v.decode() if isinstance(v, bytes) else v) for k, v in headers]


@contextlib.asynccontextmanager
async def open_http2(url: str) -> AsyncIterator[Http2Client]:
    """Open a connection and a session at a URL."""
    parts = urlsplit(url)
    stream = await trio.open_tcp_stream(parts.hostname or "", parts.port or 80)
    async with stream, trio.open_nursery() as nursery:
        client = Http2Client(stream, parts.netloc, parts.path)
        await nursery.start(client.run)
        await client.initialize()
        yield client
        nursery.cancel_scope.cancel()
