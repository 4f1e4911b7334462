"""Every transport of mcpio passes the kit for transports."""

from __future__ import annotations

import trio.testing
from kitted import (
    ChildHarness,
    HttpHarness,
    MemoryHarness,
    ReconnectingHarness,
    SocketHarness,
    TlsHarness,
    UnixHarness,
    WebSocketHarness,
    pipe_pair,
    socket_pair,
)

from mcpio.testing.transport_kit import PairHarness, TransportTests


class TestMemory(TransportTests):
    harness = MemoryHarness()


class TestStdio(TransportTests):
    harness = ChildHarness()


class TestPipes(TransportTests):
    harness = PairHarness(pipe_pair, half_closes=True)


class TestTcp(TransportTests):
    harness = SocketHarness()


class TestTcpThatConnectsAgain(TransportTests):
    harness = ReconnectingHarness()


class TestTls(TransportTests):
    harness = TlsHarness()


class TestUnix(TransportTests):
    harness = UnixHarness()


class TestHttpStreaming(TransportTests):
    harness = HttpHarness("sse")


class TestHttpJson(TransportTests):
    harness = HttpHarness("json")


class TestHttpAuto(TransportTests):
    harness = HttpHarness("auto")


class TestWebSocket(TransportTests):
    harness = WebSocketHarness()


class TestStream(TransportTests):
    harness = PairHarness(trio.testing.lockstep_stream_pair, half_closes=True, virtual_time=True, room=65536)


class TestSocketStream(TransportTests):
    harness = PairHarness(socket_pair, half_closes=True)
