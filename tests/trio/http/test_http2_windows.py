"""``serve_http`` over HTTP/2: clients that open their windows slowly, or never, cost only themselves."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from h2.settings import SettingCodes
from http2frames import CALM, CANCEL, DATA, PING, WINDOW_UPDATE, connected, frame, is_well, rapid_resets
from http2wire import POST, Http2Client, Shop, http2_site, message, session, text_of
from runners import run_by
from triowire import in_virtual_time

from mcpio.http.model import HttpOptions
from mcpio.trio import HttpTimeouts


@run_by(in_virtual_time)
async def test_window_updates_for_each_event_are_accepted() -> None:
    async with http2_site(Shop().server, options=HttpOptions(answers="sse")) as (site, nursery):
        client = await connected(site, nursery, opens_windows=False)
        headers = await session(client)
        call = await client.ask("POST", "/mcp", headers, message("flood", progress=True, count=1500))
        seen = 0
        while not call.is_over:
            await client.settle()
            count, seen = len(call.data) - seen, len(call.data)
            if not count:
                break
            client.http.increment_flow_control_window(count)
            if not call.is_over:
                client.http.increment_flow_control_window(count, call.number)
            await client.flush()
        assert call.is_over
        assert client.farewells == []


@pytest.mark.req("SEC-10")
@run_by(in_virtual_time)
async def test_window_opened_byte_by_byte_ends_the_connection() -> None:
    async with http2_site(Shop().server, options=HttpOptions(sessions=False)) as (site, nursery):
        client = await Http2Client(site.listener.connect(), opens_windows=False).begin(
            nursery, {SettingCodes.INITIAL_WINDOW_SIZE: 0}
        )
        asked = await client.ask("POST", "/mcp", POST, message("echo", text="x" * 5000))
        while not client.farewells and not asked.is_over:
            client.http.increment_flow_control_window(1, asked.number)
            await client.flush()
            await client.settle()
        assert client.farewells == [CALM]
        assert 990 <= len(asked.data) <= 1000


@pytest.mark.req("SEC-10")
@run_by(in_virtual_time)
async def test_closed_window_stalls_only_its_stream_and_times_out() -> None:
    shop = Shop()
    async with http2_site(shop.server, options=HttpOptions(answers="sse")) as (site, nursery):
        client = await Http2Client(site.listener.connect(), opens_windows=False).begin(
            nursery, {SettingCodes.INITIAL_WINDOW_SIZE: 2000}
        )
        headers = await session(client)
        flood = await client.ask("POST", "/mcp", headers, message("flood", progress=True, count=10_000))
        began = trio.current_time()
        for number in range(20):
            asked = await client.ask("POST", "/mcp", headers, message("echo", number, text="x"))
            await client.settle()
            assert asked.new_messages()[0]["id"] == number
        assert (len(flood.data), flood.is_broken) == (2000, False)
        await trio.sleep(29)
        assert not flood.is_broken
        await trio.sleep(5)
        assert (flood.is_broken, flood.code, client.is_closed) == (True, CANCEL, False)
        assert trio.current_time() == pytest.approx(began + 34)


@pytest.mark.parametrize("rate", [20_000, 60_000])
@run_by(in_virtual_time)
async def test_slow_reader_with_many_requests_gets_all_answers(rate: int) -> None:
    """All streams share the connection's window, so that a piece of each takes longer than one piece may take."""
    timeouts = HttpTimeouts(write=3, rate=16_384)
    async with http2_site(Shop().server, options=HttpOptions(sessions=False), timeouts=timeouts) as (site, nursery):
        client = await Http2Client(site.listener.connect(), opens_windows=False).begin(
            nursery, {SettingCodes.INITIAL_WINDOW_SIZE: 1_000_000}
        )
        asked = [await client.ask("POST", "/mcp", POST, message("echo", text="x" * 99_000)) for _ in range(20)]
        began = trio.current_time()
        while not all(each.is_over or each.is_broken for each in asked):
            await trio.sleep(1)
            client.http.increment_flow_control_window(rate)
            await client.flush()
        assert [each.is_over for each in asked] == [True] * 20
        assert trio.current_time() - began > 30


@run_by(in_virtual_time)
async def test_closed_stream_window_gains_no_time_from_other_streams() -> None:
    timeouts = HttpTimeouts(write=3, rate=16_384)
    async with http2_site(Shop().server, options=HttpOptions(sessions=False), timeouts=timeouts) as (site, nursery):
        client = await Http2Client(site.listener.connect(), opens_windows=False).begin(
            nursery, {SettingCodes.INITIAL_WINDOW_SIZE: 20_000}
        )
        closed = await client.ask("POST", "/mcp", POST, message("echo", text="x" * 50_000))
        read = await client.ask("POST", "/mcp", POST, message("echo", text="x" * 400_000))
        for _ in range(8):
            client.http.increment_flow_control_window(20_000)
            client.http.increment_flow_control_window(20_000, read.number)
            await client.flush()
            await trio.sleep(1)
        assert (closed.is_broken, read.is_broken) == (True, False)
        assert len(read.data) > 100_000


@run_by(in_virtual_time)
async def test_stalled_stream_resumes_with_its_window() -> None:
    async with http2_site(Shop().server, options=HttpOptions(sessions=False)) as (site, nursery):
        client = await Http2Client(site.listener.connect(), opens_windows=False).begin(
            nursery, {SettingCodes.INITIAL_WINDOW_SIZE: 0}
        )
        asked = [await client.ask("POST", "/mcp", POST, message("echo", text=text * 50_000)) for text in "ab"]
        await client.settle()
        assert [(each.status, each.data) for each in asked] == [(200, b"")] * 2
        client.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 40_000})
        await client.flush()
        await client.settle()
        assert sum(len(each.data) for each in asked) == 65_535
        assert all(20_000 < len(each.data) <= 40_000 for each in asked)
        client.http.increment_flow_control_window(100_000)
        await client.flush()
        await client.settle()
        assert [len(each.data) for each in asked] == [40_000, 40_000]
        for each in asked:
            client.http.increment_flow_control_window(100_000, each.number)
        await client.flush()
        await client.settle()
        assert [text_of(each) for each in asked] == ["a" * 50_000, "b" * 50_000]


@run_by(in_virtual_time)
async def test_window_overflow_resets_its_stream() -> None:
    async with http2_site(Shop().server) as (site, nursery):
        client = await connected(site, nursery)
        headers = await session(client)
        asked = await client.ask("POST", "/mcp", headers, message("wait"))
        await client.say(frame(WINDOW_UPDATE, asked.number, b"\x7f\xff\xff\xff"))
        await client.settle()
        assert (asked.is_broken, asked.code, client.is_closed) == (True, 3, False)


@pytest.mark.req("SEC-10")
@run_by(in_virtual_time)
async def test_client_that_reads_nothing_is_disconnected() -> None:
    async with http2_site(Shop().server) as (site, nursery):
        stream = site.listener.connect(trio.testing.lockstep_stream_pair)
        preface = Http2Client(stream).http
        preface.initiate_connection()
        await stream.send_all(preface.data_to_send())
        for _ in range(29):
            await stream.send_all(frame(PING, 0, b"12345678"))
            await trio.sleep(1)
        await is_well(site, nursery)
        await trio.sleep(1.1)
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(frame(PING, 0, b"12345678"))


@pytest.mark.req("SEC-10")
@run_by(in_virtual_time)
async def test_input_of_a_client_that_reads_nothing_is_bounded() -> None:
    timeouts = HttpTimeouts(write=None)
    async with http2_site(Shop().server, timeouts=timeouts) as (site, nursery):
        stream = site.listener.connect(trio.testing.lockstep_stream_pair)
        preface = Http2Client(stream).http
        preface.initiate_connection()
        await stream.send_all(preface.data_to_send() + rapid_resets(0))
        # Each of these is answered by the reset of a stream that is reset.
        piece = frame(DATA, 3, b"x" * 256) * 100
        said = 0
        with trio.move_on_after(1) as scope:
            while said < 20_000:
                await stream.send_all(piece)
                said += 100
        assert scope.cancelled_caught
        assert said < 65_536 / 13 + 200
        await is_well(site, nursery)


@pytest.mark.req("SEC-10")
@run_by(in_virtual_time)
async def test_unfinished_bodies_share_one_limit() -> None:
    async with http2_site(Shop(message_bytes=200_000).server, options=HttpOptions(sessions=False)) as (
        site,
        nursery,
    ):
        client = await connected(site, nursery)
        asked = [await client.ask("POST", "/mcp", POST, ends=False) for _ in range(10)]
        sent = dict.fromkeys(range(10), 0)

        async def pour(number: int, most: int) -> None:
            sent[number] += await client.pour(asked[number], b" " * (most - sent[number]))

        for _ in range(20):
            for number in range(10):
                await pour(number, min(150_000, sent[number] + 16_384))
        assert sent[0] == 150_000
        assert sum(sent.values()) < 2 * 200_000 + 10 * 65_536
        # Those that wait lose none of their time by it; the oldest of them goes on when there is room.
        await trio.sleep(20)
        for number, each in enumerate(asked):
            await pour(number, 150_000)
            assert sent[number] == 150_000, number
            client.http.send_data(each.number, message("echo", text="x"), end_stream=True)
            await client.flush()
            await client.settle()
            assert text_of(each) == "x"
