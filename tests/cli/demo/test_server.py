"""The demo's server is a real one, and reports every message with its phase."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from mcpio.cli.demo.server import ReportingStream, server
from mcpio.trio import memory_client, open_transport, serve


def test_server_offers_every_feature() -> None:
    async def main() -> None:
        async with memory_client(server) as client:
            reports: list[tuple[float, float | None]] = []
            result = await client.call_tool("count", {"to": 3}, on_progress=lambda *said: reports.append(said[:2]))
            assert result.structured_content == {"result": 3}
            assert reports == [(1, 3), (2, 3), (3, 3)]
            read = await client.read_resource("demo://greeting")
            assert read.contents[0].mime_type == "text/plain"
            prompt = await client.get_prompt("explain", {"topic": "tides"})
            assert "tides" in str(prompt.messages)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_each_line_reported_with_the_phase_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            reporting = ReportingStream(far)
            session = await nursery.start(serve, server, reporting)
            reporting.connection = session.connection
            async with open_transport(near, era="handshake") as client:
                await client.ping()
                await reporting.wait_send_all_might_not_block()

    trio.run(main)
    assert capsys.readouterr().err.splitlines() == [
        "phase in initializing",
        "phase out initializing",
        "phase in operating",
        "phase in operating",
        "phase out operating",
        "phase in closed",
        "phase out closed",
    ]


def test_phase_before_the_session_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        near, _ = trio.testing.memory_stream_pair()
        stream = ReportingStream(near)
        await stream.send_all(b"a\nb\n")
        await stream.aclose()

    trio.run(main)
    assert capsys.readouterr().err == "phase out new\nphase out new\n"
