"""``serve_http`` in HTTP/2 and clients that mean harm: floods, bombs, closed windows, slowness, garbage."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from h2.settings import SettingCodes
from hpack import Encoder
from http2wire import POST, PSEUDO, Http2Client, Shop, http2_site, message, session, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from triowire import MemorySite, in_virtual_time

from mcpio.http.options import HttpOptions
from mcpio.trio import HttpTimeouts

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
PROTOCOL_ERROR, FRAME_SIZE_ERROR, CANCEL, CALM = 1, 6, 8, 11


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def head(fields: list[tuple[str, str]]) -> bytes:
    return bytes(Encoder().encode(fields))


GET = head([*PSEUDO, (":authority", "localhost")])


async def connected(site: MemorySite, nursery: trio.Nursery, **how: Any) -> Http2Client:
    client = await Http2Client(site.listener.connect(), **how).begin(nursery)
    await client.settle()
    return client


async def is_well(site: MemorySite, nursery: trio.Nursery) -> None:
    """Another client is served."""
    client = await connected(site, nursery)
    headers = await session(client)
    asked = await client.ask("POST", "/mcp", headers, message("echo", text="x"))
    await client.settle()
    assert text_of(asked) == "x"


# Floods


def rapid_resets(number: int) -> bytes:
    stream = 2 * number + 3
    return frame(HEADERS, stream, GET, END_HEADERS | END_STREAM) + frame(RST_STREAM, stream, b"\0\0\0\x08")


# The first request of the client is open meanwhile.
FLOODS: dict[str, Callable[[int], bytes]] = {
    "requests that are reset at once": rapid_resets,
    "pings": lambda _: frame(PING, 0, b"12345678"),
    "answers to pings": lambda _: frame(PING, 0, b"12345678", ACK),
    "settings": lambda _: frame(SETTINGS),
    "settings that change all windows": lambda n: frame(SETTINGS, 0, b"\0\x04" + (65535 + n % 2).to_bytes(4, "big")),
    "windows": lambda _: frame(WINDOW_UPDATE, 0, b"\0\0\0\x01"),
    "priorities": lambda _: frame(PRIORITY, 3, b"\0\0\0\0\x10"),
    "resets of nothing": lambda _: frame(RST_STREAM, 1, b"\0\0\0\x08"),
    "what nobody knows": lambda _: frame(0x77, 0, b"x" * 100),
    "empty pieces": lambda _: frame(DATA, 1),
    "short pieces": lambda _: frame(DATA, 1, b" "),
    "padding": lambda _: frame(DATA, 1, b"\x10" + b"\0" * 16, 8),
}


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_ends_the_connection(kind: str) -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await connected(site, nursery)
            await client.ask("POST", "/mcp", POST, ends=False)
            said = 0
            while not client.farewells and said < 5000:
                await client.say(b"".join(FLOODS[kind](said + number) for number in range(100)))
                said += 100
                await client.settle()
            assert client.farewells == [CALM]
            assert 1000 <= said <= 1100
            await trio.sleep(1.1)
            assert client.is_closed
            await is_well(site, nursery)

    in_virtual_time(main)


@pytest.mark.parametrize("kind", ["pings", "settings", "requests that are reset at once"])
def test_what_comes_now_and_then_is_no_flood(kind: str) -> None:
    async def main() -> None:
        timeouts = HttpTimeouts(head=None, body=None, idle=None)
        async with http2_site(Shop().server, timeouts=timeouts) as (site, nursery):
            client = await connected(site, nursery)
            await client.ask("POST", "/mcp", POST, ends=False)
            for number in range(5000):
                await client.say(FLOODS[kind](number))
                await trio.sleep(0.05)
            assert client.farewells == []

    in_virtual_time(main)


def test_a_client_that_opens_two_windows_for_each_event_is_served() -> None:
    async def main() -> None:
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

    in_virtual_time(main)


@pytest.mark.req("SEC-10")
def test_a_window_that_is_opened_byte_by_byte_ends_the_connection() -> None:
    async def main() -> None:
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

    in_virtual_time(main)


# Heads


HEADS: dict[str, tuple[list[bytes], int]] = {
    "a head in many empty pieces": ([frame(HEADERS, 1)] + [frame(CONTINUATION, 1)] * 200, PROTOCOL_ERROR),
    "a head in many long pieces": ([frame(HEADERS, 1)] + [frame(CONTINUATION, 1, b"\0" * 16000)] * 20, CALM),
    "another frame within a head": ([frame(HEADERS, 1), frame(PING, 0, b"12345678")], PROTOCOL_ERROR),
    "a piece of no head": ([frame(CONTINUATION, 1)], PROTOCOL_ERROR),
    "a few bytes that become many": (
        [frame(HEADERS, 1, head([*PSEUDO, ("x", "y" * 4000)]) + b"\xbe" * 200, END_HEADERS)],
        CALM,
    ),
    "what is no HPACK": ([frame(HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff", END_HEADERS)], PROTOCOL_ERROR),
    "a frame that is announced too long": ([b"\xff\xff\xff" + frame(DATA, 1)[3:]], FRAME_SIZE_ERROR),
    "a stream of the server's": ([frame(HEADERS, 2, GET, END_HEADERS)], PROTOCOL_ERROR),
    "a body before the head": ([frame(DATA, 1, b"x")], PROTOCOL_ERROR),
    "a promise": ([frame(PUSH, 1, b"\0\0\0\x02" + GET, END_HEADERS)], PROTOCOL_ERROR),
    "settings of a wrong size": ([frame(SETTINGS, 0, b"x")], FRAME_SIZE_ERROR),
    "a ping of a wrong size": ([frame(PING, 0, b"x")], FRAME_SIZE_ERROR),
    "a window that is opened by nothing": ([frame(WINDOW_UPDATE, 0, b"\0\0\0\0")], PROTOCOL_ERROR),
    "a window without bounds": ([frame(WINDOW_UPDATE, 0, b"\x7f\xff\xff\xff")] * 2, 3),
    "more padding than there is": ([frame(HEADERS, 1, b"\xff" + GET, END_HEADERS | 8)], PROTOCOL_ERROR),
}

FIELDS: dict[str, list[tuple[str, str]]] = {
    "no path": [PSEUDO[0], PSEUDO[1], (":authority", "a")],
    "no host": [*PSEUDO],
    "two hosts": [*PSEUDO, ("host", "a"), ("host", "a")],
    "hosts that differ": [*PSEUDO, (":authority", "a"), ("host", "b")],
    "a name in capitals": [*PSEUDO, (":authority", "a"), ("Accept", "b")],
    "a field of a connection": [*PSEUDO, (":authority", "a"), ("connection", "close")],
    "another encoding": [*PSEUDO, (":authority", "a"), ("transfer-encoding", "chunked")],
    "another protocol": [*PSEUDO, (":authority", "a"), ("upgrade", "websocket")],
    "what should come first": [*PSEUDO, ("accept", "b"), (":authority", "a")],
    "what only responses have": [*PSEUDO, (":authority", "a"), (":status", "200")],
    "a protocol where there is no tunnel": [*PSEUDO, (":authority", "a"), (":protocol", "websocket")],
    "the end of a line": [*PSEUDO, (":authority", "a"), ("x", "a\r\nb: c")],
    "a NUL": [*PSEUDO, (":authority", "a\0")],
    "a length that is none": [*PSEUDO, (":authority", "a"), ("content-length", "-1")],
    "lengths that differ": [*PSEUDO, (":authority", "a"), ("content-length", "1"), ("content-length", "2")],
}
HEADS |= {name: ([frame(HEADERS, 1, head(fields), END_HEADERS)], PROTOCOL_ERROR) for name, fields in FIELDS.items()}


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("kind", HEADS)
def test_what_is_no_http_is_said_to_be_none_and_the_connection_ends(kind: str) -> None:
    frames, code = HEADS[kind]

    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await connected(site, nursery)
            await client.say(b"".join(frames))
            await client.settle()
            assert client.farewells == [code]
            await trio.sleep(1.1)
            assert client.is_closed
            await is_well(site, nursery)

    in_virtual_time(main)


def test_what_came_before_a_fault_is_served() -> None:
    async def main() -> None:
        shop = Shop()
        async with http2_site(shop.server) as (site, nursery):
            client = await connected(site, nursery)
            headers = await session(client)
            call = message("wait", name="x")
            fields = [(":method", "POST"), *PSEUDO[1:], (":authority", "localhost"), *headers.items()]
            block = bytes(client.http.encoder.encode(fields))
            await client.say(
                frame(HEADERS, 99, block, END_HEADERS) + frame(DATA, 99, call, END_STREAM) + frame(PING, 0, b"x")
            )
            await client.settle()
            assert client.farewells == [FRAME_SIZE_ERROR]
            shop.go_on.set()
            await client.settle()
            assert shop.ended == ["x"]

    in_virtual_time(main)


def test_more_requests_at_once_than_there_may_be_end_the_connection() -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await connected(site, nursery)
            asked = [await client.ask("POST", "/mcp", POST, ends=False) for _ in range(100)]
            await client.settle()
            assert client.farewells == []
            await client.reset(asked[0])
            asked.append(await client.ask("POST", "/mcp", POST, ends=False))
            await client.settle()
            assert client.farewells == []
            await client.say(frame(HEADERS, asked[-1].number + 2, GET, END_HEADERS))
            await client.settle()
            assert client.farewells == [PROTOCOL_ERROR]

    in_virtual_time(main)


# Slowness


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("said", [b"", frame(HEADERS, 1), frame(HEADERS, 1, GET)[:20], frame(PING, 0, b"12345678")])
def test_a_head_has_its_time_from_the_beginning(said: bytes) -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            began = trio.current_time()
            client = await connected(site, nursery)
            await trio.sleep(5)
            await client.say(said)
            await trio.sleep(4.9)
            assert not client.is_closed
            await trio.sleep(0.2)
            assert (client.is_closed, client.farewells) == (True, [0])
            assert trio.current_time() == pytest.approx(began + 10.1)

    in_virtual_time(main)


def test_a_head_has_its_time_while_others_are_answered() -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await connected(site, nursery)
            headers = await session(client)
            await client.ask("POST", "/mcp", headers, message("wait"))
            await trio.sleep(100)
            await client.say(frame(HEADERS, 99))
            await trio.sleep(9.9)
            assert not client.is_closed
            await trio.sleep(0.2)
            assert client.is_closed

    in_virtual_time(main)


@pytest.mark.req("HTTP-14", "SEC-10")
def test_all_of_a_body_has_its_time_which_grows_with_what_came() -> None:
    async def main() -> None:
        async with http2_site(Shop().server, timeouts=HttpTimeouts(body=5, rate=10)) as (site, nursery):
            client = await connected(site, nursery)
            headers = await session(client)
            ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
            said = []
            for pause in (0.2, 1.0):
                asked = await client.ask("POST", "/mcp", headers, ends=False)
                for place in range(len(ping)):
                    await client.pour(asked, ping[place : place + 1], ends=place == len(ping) - 1)
                    await trio.sleep(pause)
                said.append((asked.status, asked.code, asked.is_over, asked.data[:8]))
            assert said == [(200, None, True, b'{"jsonrp'), (408, 0, True, b"the body")]
            assert not client.is_closed

    in_virtual_time(main)


def test_between_requests_a_connection_is_kept_for_a_while_whatever_is_said() -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await connected(site, nursery)
            await session(client)
            for _ in range(7):
                await trio.sleep(10)
                await client.say(frame(PING, 0, b"12345678"))
            await client.settle()
            assert (client.pongs, client.is_closed) == (7, False)
            await trio.sleep(5.1)
            assert (client.farewells, client.is_closed) == ([0], True)

    in_virtual_time(main)


def test_without_limits_nothing_is_too_slow() -> None:
    async def main() -> None:
        timeouts = HttpTimeouts(head=None, body=None, idle=None, write=None)
        async with http2_site(Shop().server, timeouts=timeouts) as (site, nursery):
            client = await Http2Client(site.listener.connect(), opens_windows=False).begin(
                nursery, {SettingCodes.INITIAL_WINDOW_SIZE: 10}
            )
            await trio.sleep(1000)
            asked = await client.ask("POST", "/elsewhere", POST, ends=False)
            other = await client.ask("POST", "/mcp", POST, ends=False)
            await trio.sleep(1000)
            assert (asked.status, len(asked.data), other.status) == (404, 10, 0)
            client.http.increment_flow_control_window(1000, asked.number)
            await client.flush()
            await client.settle()
            assert asked.is_over
            await trio.sleep(1000)
            assert not client.is_closed

    in_virtual_time(main)


# Windows


@pytest.mark.req("SEC-10")
def test_a_closed_window_stalls_its_own_stream_only_and_not_for_ever() -> None:
    async def main() -> None:
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
            await trio.sleep(3)
            assert (flood.is_broken, flood.code, client.is_closed) == (True, CANCEL, False)
            assert trio.current_time() == pytest.approx(began + 32)

    in_virtual_time(main)


def test_a_stream_that_may_go_on_goes_on() -> None:
    async def main() -> None:
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

    in_virtual_time(main)


def test_a_window_beyond_all_bounds_costs_its_stream() -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await connected(site, nursery)
            headers = await session(client)
            asked = await client.ask("POST", "/mcp", headers, message("wait"))
            await client.say(frame(WINDOW_UPDATE, asked.number, b"\x7f\xff\xff\xff"))
            await client.settle()
            assert (asked.is_broken, asked.code, client.is_closed) == (True, 3, False)

    in_virtual_time(main)


@pytest.mark.req("SEC-10")
def test_a_client_that_reads_nothing_at_all_is_cut_off() -> None:
    async def main() -> None:
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

    in_virtual_time(main)


@pytest.mark.req("SEC-10")
def test_a_client_that_reads_nothing_is_not_read_beyond_a_bound() -> None:
    async def main() -> None:
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

    in_virtual_time(main)


@pytest.mark.req("SEC-10")
def test_bodies_that_do_not_end_are_together_hardly_more_than_two() -> None:
    async def main() -> None:
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

    in_virtual_time(main)


# Whatever else


frames = st.builds(
    frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 1, 2, 3, 5, 2**31 - 1]),
    st.one_of(st.binary(max_size=40), st.just(GET), st.just(GET[:5]), st.just(b"\0\0\0\x01"), st.just(b"\0" * 8)),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 255]),
)


class Reports(logging.Handler):
    """Whatever is reported is a fault of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@settings(max_examples=100)
@given(said=st.lists(st.one_of(frames, st.binary(max_size=20)), max_size=12))
def test_nothing_that_a_client_says_raises(said: list[bytes]) -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await connected(site, nursery)
            for data in said:
                await client.say(data)
                await client.settle()
            await trio.sleep(120)
            assert client.is_closed
            await is_well(site, nursery)

    reports = Reports()
    logger = logging.getLogger("mcpio")
    logger.addHandler(reports)
    try:
        in_virtual_time(main)
    finally:
        logger.removeHandler(reports)
    assert reports.records == []
