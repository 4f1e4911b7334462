"""How messages travel over streams and channels of every kind: whole, in order, and with an end."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from peers import run
from runners import run_by

from mcpio._drivers.event_loop import StreamAdapter
from mcpio.engine.client import ClientConnection
from mcpio.engine.table import Phase
from mcpio.events import NotificationReceived
from mcpio.testing import pair
from mcpio.trio._drivers import ChannelAdapter, adapter_for
from mcpio.types.base import CustomNotification


def talking(*sizes: int) -> ClientConnection:
    """Give a client that has shaken hands and has notifications of these sizes to send."""
    link = pair()
    link.handshake()
    for number, size in enumerate(sizes):
        link.client.send_notification(CustomNotification("x/note", {"n": number, "text": "x" * size}))
    return link.client


class Trickle(trio.abc.Stream):
    """A stream that takes ``at_once`` bytes without waiting, and the rest step by step."""

    def __init__(self, at_once: int = 0) -> None:
        self.taken = b""
        self.ended = False
        self.at_once = at_once
        self.has_room = trio.Event()

    def send_nowait(self, data: bytes) -> int:
        if self.at_once < 0:
            raise trio.BrokenResourceError
        self.taken += data[: self.at_once]
        return min(self.at_once, len(data))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        for start in range(0, len(data), 100_000):
            await self.has_room.wait()
            self.taken += data[start : start + 100_000]

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return b""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class HalfCloseable(Trickle, trio.abc.HalfCloseableStream):
    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        self.ended = True


class Messages(trio.abc.Channel[Any]):
    """A channel that has something to receive, and keeps what was sent."""

    def __init__(self, *incoming: object) -> None:
        self.incoming = list(incoming)
        self.sent: list[object] = []

    async def receive(self) -> object:
        await trio.lowlevel.checkpoint()
        if not self.incoming:
            raise trio.EndOfChannel
        return self.incoming.pop(0)

    async def send(self, value: object) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(value)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


# Streams


@pytest.mark.req("STDIO-02")
@pytest.mark.parametrize("at_once", [0, 1, 7, 60, 100, 10_000])
def test_slow_stream_gets_whole_lines_in_order(at_once: int) -> None:
    sizes = (0, 10, 200)
    expected = b"".join(chunk for chunk in talking(*sizes).data_to_send() if chunk is not None)
    stream = Trickle(at_once)

    async def main() -> None:
        stream.has_room.set()
        connection, wire = talking(*sizes), adapter_for(stream)
        wire.send_now(connection)
        while connection.wants_write or wire.unsent:
            wire.send_now(connection)
            await wire.send(connection)

    run(main)
    assert stream.taken == expected
    assert expected.count(b"\n") == 3


def test_no_write_starts_while_another_is_in_progress() -> None:
    stream = Trickle()

    async def main() -> None:
        connection, wire = talking(300_000), adapter_for(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, connection)
            await trio.testing.wait_all_tasks_blocked()
            connection.send_notification(CustomNotification("x/late", {}))
            stream.at_once = 1000
            wire.send_now(connection)
            stream.has_room.set()
        assert b"late" not in stream.taken
        wire.send_now(connection)
        assert stream.taken.count(b"\n") == 2

    run(main)


@run_by(run)
async def test_broken_stream_raises_for_the_writer() -> None:
    connection, wire = talking(1), adapter_for(Trickle(-1))
    wire.send_now(connection)
    assert wire.unsent


@pytest.mark.parametrize("kind", [Trickle, HalfCloseable])
def test_the_end_comes_after_the_last_message(kind: type[Trickle]) -> None:
    stream = kind()

    async def main() -> None:
        connection, wire = talking(5), adapter_for(stream)
        connection.close(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, connection)
            await trio.testing.wait_all_tasks_blocked()
            assert (wire.ending, wire.unsent, stream.ended) == (True, True, False)
            stream.has_room.set()
        assert stream.taken.endswith(b"\n")
        assert stream.ended is (kind is HalfCloseable)
        assert connection.phase is Phase.CLOSED
        assert (wire.ending, wire.unsent) == (False, False)

    run(main)


def test_input_of_one_read_is_fed_whole() -> None:
    data = 300 * b'{"jsonrpc":"2.0","method":"x/small"}\n' + b'{"jsonrpc":"2.0",'
    seen: list[str] = []

    async def main() -> None:
        connection, stream = talking(), trio.testing.MemoryReceiveStream()
        adapter = adapter_for(trio.StapledStream(trio.testing.MemorySendStream(), stream))

        async def receive() -> None:
            await adapter.receive(connection)
            events = [event for event in connection.events() if isinstance(event, NotificationReceived)]
            seen.extend(event.notification.method for event in events)

        stream.put_data(data)
        await receive()
        assert seen == 300 * ["x/small"]
        stream.put_data(b'"method":"x/last"}')
        stream.put_eof()
        await receive()
        await receive()
        assert seen[300:] == ["x/last"]

    run(main)


# Channels


@pytest.mark.parametrize("binary", [False, True])
def test_binary_decides_the_type_of_messages_before_the_first_input(binary: bool) -> None:
    channel = Messages()

    async def main() -> None:
        await ChannelAdapter(channel, binary=binary).send(talking(1, 2))

    run(main)
    assert [type(message) for message in channel.sent] == [bytes if binary else str] * 2


@pytest.mark.parametrize("kind", [str, bytes, bytearray, memoryview])
def test_channel_output_has_the_type_of_the_last_input(kind: type) -> None:
    text = '{"jsonrpc":"2.0","method":"x/é"}'
    channel = Messages(text if kind is str else kind(text.encode()))

    async def main() -> None:
        connection, wire = talking(1), ChannelAdapter(channel, binary=kind is str)
        await wire.receive(connection)
        (event,) = connection.events()
        assert isinstance(event, NotificationReceived)
        assert event.notification.method == "x/é"
        await wire.send(connection)

    run(main)
    assert [type(message) for message in channel.sent] == [str if kind is str else bytes]


@run_by(run)
async def test_the_end_of_a_channel_is_the_end() -> None:
    connection = talking()
    await ChannelAdapter(Messages(), binary=False).receive(connection)
    assert list(connection.events()) == []
    assert connection.phase is Phase.CLOSING


@pytest.mark.parametrize("message", [{"jsonrpc": "2.0"}, None, 5])
@run_by(run)
async def test_a_channel_of_something_else_is_refused(message: object) -> None:
    with pytest.raises(TypeError, match=r"a channel's messages must be str or bytes, not (dict|NoneType|int)"):
        await ChannelAdapter(Messages(message), binary=False).receive(talking())


# Which is which


@run_by(trio.run)
async def test_a_transport_is_a_stream_or_a_channel() -> None:
    assert isinstance(adapter_for(Trickle()), StreamAdapter)
    assert isinstance(adapter_for(Messages()), ChannelAdapter)
    wrong: Any = object()
    advice = r"a transport must be a trio\.abc\.Stream or a trio\.abc\.Channel, not object"
    with pytest.raises(TypeError, match=advice):
        adapter_for(wrong)
