"""``serve_http`` over HTTP/2 with hostile clients: floods, bombs, slowness, garbage."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio
import trio.testing
from examples import examples
from h2.settings import SettingCodes
from http2frames import (
    ACK,
    CALM,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_SIZE_ERROR,
    GET,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    connected,
    frame,
    head,
    is_well,
    rapid_resets,
)
from http2wire import POST, PSEUDO, Http2Client, Shop, http2_site, message, session
from hypothesis import given, settings
from hypothesis import strategies as st
from runners import run_by
from triowire import RawHttp, in_virtual_time

from mcpio._drivers.http2 import PREFACE, TABLE_BYTES, _Encoder, _Http2
from mcpio.trio import HttpTimeouts

# Floods


# The first request of the client is open meanwhile.
FLOODS: dict[str, Callable[[int], bytes]] = {
    "requests that are reset at once": rapid_resets,
    "pings": lambda _: frame(PING, 0, b"12345678"),
    "answers to pings": lambda _: frame(PING, 0, b"12345678", ACK),
    "settings": lambda _: frame(SETTINGS),
    "unknown settings": lambda n: frame(SETTINGS, 0, (0x100 + n).to_bytes(2, "big") + b"\0\0\0\x01"),
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
@run_by(in_virtual_time)
async def test_frame_flood_ends_the_connection(kind: str) -> None:
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


def setting(key: int, value: int) -> bytes:
    """Return one setting of a SETTINGS frame."""
    return key.to_bytes(2, "big") + value.to_bytes(4, "big")


@pytest.mark.req("SEC-10")
@run_by(in_virtual_time)
async def test_each_setting_of_a_frame_counts_as_a_frame() -> None:
    async with http2_site(Shop().server) as (site, nursery):
        client = await connected(site, nursery)
        few = b"".join(setting(key, 1) for key in range(0x100, 0x100 + 900))
        await client.say(frame(SETTINGS, 0, few))
        await client.settle()
        assert not client.farewells
        await client.say(frame(SETTINGS, 0, few))
        await client.settle()
        assert client.farewells == [CALM]
        await is_well(site, nursery)


def test_unknown_settings_are_not_kept() -> None:
    connection = _Http2(65536)
    connection.receive_data(frame(SETTINGS, 0, setting(SettingCodes.INITIAL_WINDOW_SIZE, 1000)))
    settings = set(connection.remote_settings)
    for first in range(0x100, 0x10000, 2720):
        keys = range(first, min(first + 2720, 0x10000))
        connection.receive_data(frame(SETTINGS, 0, b"".join(setting(key, 1) for key in keys)))
    assert set(connection.remote_settings) == settings
    assert connection.remote_settings.initial_window_size == 1000


# Compressed header fields


@run_by(in_virtual_time)
async def test_client_does_not_enlarge_the_table_of_response_fields() -> None:
    async with http2_site(Shop().server) as (site, nursery):
        client = Http2Client(site.listener.connect())
        await client.begin(nursery, {SettingCodes.HEADER_TABLE_SIZE: 2**31 - 1})
        client.http.decoder.max_allowed_table_size = 2**31 - 1
        await client.settle()
        headers = await session(client)
        for number in range(50):
            asked = await client.ask("POST", "/mcp", headers, message("echo", text=str(number)))
            await client.settle()
            assert asked.status == 200
        assert client.http.decoder.header_table_size == TABLE_BYTES


@pytest.mark.parametrize(
    ("sizes", "announced"),
    [
        ([2**31 - 1], b""),
        ([0], b"\x20"),
        ([0, 0], b"\x20"),
        ([100], b"\x3f\x45"),
        ([100, 2**31 - 1], b"\x3f\x45\x3f\xe1\x1f"),
        ([100, 0, 50, 20], b"\x20\x34"),
        ([1, 4096] * 1000, b"\x21\x3f\xe1\x1f"),
        ([1, 0, 1, 0], b"\x20"),
    ],
)
def test_next_head_announces_the_least_and_the_last_size_of_the_table(sizes: list[int], announced: bytes) -> None:
    encoder = _Encoder()
    for size in sizes:
        encoder.header_table_size = size
    assert encoder.encode([]) == announced
    assert encoder.encode([]) == b""


WITHOUT_SLASH = head([*PSEUDO[:2], (":path", "mcp"), (":authority", "localhost")])

MADE_TO_RESET: dict[str, Callable[[int], bytes]] = {
    "an end after the end": lambda n: request(n) + frame(DATA, n, b"", END_STREAM),
    "a body after the end": lambda n: request(n) + frame(DATA, n, b"x" * 300),
    "a head after the end": lambda n: request(n) * 2,
    "ends of what was reset": lambda _: frame(DATA, 1, b"", END_STREAM),
    "heads of what was reset": lambda _: request(1),
    "a path without a slash": lambda n: frame(HEADERS, n, WITHOUT_SLASH, END_HEADERS | END_STREAM),
}


def request(stream: int) -> bytes:
    """Return a whole request."""
    return frame(HEADERS, stream, GET, END_HEADERS | END_STREAM)


@pytest.mark.parametrize("kind", MADE_TO_RESET)
@pytest.mark.req("SEC-10")
@run_by(in_virtual_time)
async def test_provoked_resets_count_as_a_flood(kind: str) -> None:
    """What goes on after its end is to be reset by the server: that is no way round the bound on resets."""
    async with http2_site(Shop().server) as (site, nursery):
        client = site.connect()
        await client.say(PREFACE + frame(SETTINGS) + rapid_resets(-1))
        heard, said = bytearray(), 0
        while said < 5000 and not is_sent_away(heard):
            await client.say(b"".join(map(MADE_TO_RESET[kind], range(2 * said + 3, 2 * said + 203, 2))))
            said += 100
            heard += await heard_by(client)
        assert 1000 <= said <= 1100
        await is_well(site, nursery)


@pytest.mark.parametrize("kind", ["pings", "settings", "requests that are reset at once"])
def test_occasional_control_frames_are_accepted(kind: str) -> None:
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


async def heard_by(client: RawHttp) -> bytes:
    """Return what came so far."""
    heard = b""
    with trio.move_on_after(0.001):
        while data := await client.stream.receive_some(65536):
            heard += data
    return heard


def is_sent_away(heard: bytearray) -> bool:
    """Whether frames end with one that says that there was too much."""
    return bytes(heard[-17:-8]) == frame(GOAWAY, 0, b"12345678")[:9] and heard[-1] == CALM


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
def test_protocol_fault_is_named_and_ends_the_connection(kind: str) -> None:
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


@run_by(in_virtual_time)
async def test_requests_before_a_fault_are_served() -> None:
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


@run_by(in_virtual_time)
async def test_too_many_concurrent_requests_end_the_connection() -> None:
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


# Slowness


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("said", [b"", frame(HEADERS, 1), frame(HEADERS, 1, GET)[:20], frame(PING, 0, b"12345678")])
@run_by(in_virtual_time)
async def test_head_timeout_counts_from_the_connection(said: bytes) -> None:
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


@pytest.mark.parametrize("said", [b"", b"PRI"])
@run_by(in_virtual_time)
async def test_head_timeout_applies_before_the_version_is_known(said: bytes) -> None:
    async with http2_site(Shop().server) as (site, _):
        began = trio.current_time()
        client = site.connect()
        await client.say(said)
        assert await client.rest() == b""
        assert trio.current_time() == pytest.approx(began + 10)


@run_by(in_virtual_time)
async def test_head_timeout_applies_beside_open_requests() -> None:
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


@pytest.mark.req("HTTP-14", "SEC-10")
@run_by(in_virtual_time)
async def test_body_timeout_grows_with_the_bytes_received() -> None:
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


@pytest.mark.parametrize(("size", "is_served"), [(30, False), (60, True)])
@run_by(in_virtual_time)
async def test_body_timeout_is_extended_while_other_bodies_come_at_the_rate(size: int, is_served: bool) -> None:
    async with http2_site(Shop().server, timeouts=HttpTimeouts(body=5, rate=10)) as (site, nursery):
        client = await connected(site, nursery)
        headers = await session(client)
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        waits = await client.ask("POST", "/mcp", headers, ends=False)
        for _ in range(4):
            await trio.sleep(4)
            await client.ask("POST", "/mcp", headers, ping + b" " * (size - len(ping)))
        await client.pour(waits, ping, ends=True)
        await client.settle()
        assert (waits.status == 200) is is_served


@run_by(in_virtual_time)
async def test_idle_timeout_is_not_extended_by_control_frames() -> None:
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


@run_by(in_virtual_time)
async def test_timeouts_of_none_wait_forever() -> None:
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


@settings(max_examples=examples(100))
@given(said=st.lists(st.one_of(frames, st.binary(max_size=20)), max_size=12))
def test_random_bytes_never_raise(said: list[bytes]) -> None:
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
