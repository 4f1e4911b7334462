"""One end of a WebSocket: messages both ways, what breaks the rules, time, and the end."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from counting import processor_seconds
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.frame_protocol import Opcode

from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError, RemoteProtocolError, RequestTimeout, WebSocketClosed
from mcpio.websocket import (
    FragmentReceived,
    MessageReceived,
    PingReceived,
    PongReceived,
    WebSocket,
    WebSocketEnded,
    WebSocketEvent,
    WebSocketOptions,
)
from mcpio.websocket.frames import close_payload, frame

MASK = b"\1\2\3\4"
roles = pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)


def made(role: Role = Role.SERVER, max_bytes: int = 1000, window_bits: int | None = None, **options: Any) -> WebSocket:
    return WebSocket(
        role,
        WebSocketOptions(**options),
        max_bytes=max_bytes,
        now=0.0,
        entropy=lambda size: MASK[:size],
        window_bits=window_bits,
    )


def said(role: Role, opcode: Opcode, payload: bytes = b"", *, more: bool = False) -> bytes:
    """Return a frame for an end of that role."""
    data = frame(opcode, payload, MASK if role is Role.SERVER else None)
    return bytes([data[0] & 0x7F]) + data[1:] if more else data


def heard(socket: WebSocket, *data: bytes | None, now: float = 0.0) -> list[WebSocketEvent]:
    for each in data:
        socket.receive_data(each, now)
    return list(iter(socket.next_event, None))


def frames(role: Role, data: bytes) -> list[tuple[Opcode, bytes]]:
    """Return what an end of that role said."""
    from wsproto.frame_protocol import FrameDecoder

    decoder = FrameDecoder(role is Role.SERVER)
    decoder.receive_bytes(data)
    return [(piece.opcode, bytes(piece.payload)) for piece in iter(decoder.process_buffer, None)]  # type: ignore[arg-type]  # nothing decodes it


def ended(events: list[WebSocketEvent]) -> WebSocketEnded:
    end = events[-1]
    assert isinstance(end, WebSocketEnded)
    return end


# Messages


@roles
@pytest.mark.parametrize("window_bits", [None, 9, 15])
def test_messages_of_any_size_arrive_whole(role: Role, window_bits: int | None) -> None:
    far = Role.CLIENT if role is Role.SERVER else Role.SERVER
    near, other = made(role, 10**6, window_bits), made(far, 10**6, window_bits)
    texts = ["", "{}", "é𝄞" * 1000, "x" * 70_000]
    for text in texts:
        near.send_message(text.encode())
    assert near.wants_write
    assert heard(other, near.data_to_send(0.0)) == [MessageReceived(text) for text in texts]
    assert (near.wants_write, near.data_to_send(0.0)) == (False, b"")


def test_a_message_in_fragments_with_pings_in_between() -> None:
    socket = made()
    data = [
        said(Role.SERVER, Opcode.TEXT, "né".encode()[:2], more=True),
        said(Role.SERVER, Opcode.PING, b"there?"),
        said(Role.SERVER, Opcode.CONTINUATION, b"", more=True),
        said(Role.SERVER, Opcode.CONTINUATION, "né".encode()[2:]),
        said(Role.SERVER, Opcode.PONG, b"unasked"),
    ]
    assert heard(socket, b"".join(data)) == [
        FragmentReceived(2),
        PingReceived(b"there?"),
        FragmentReceived(2),
        MessageReceived("né"),
        PongReceived(b"unasked"),
    ]
    assert frames(Role.SERVER, socket.data_to_send(0.0)) == [(Opcode.PONG, b"there?")]
    assert heard(socket, said(Role.SERVER, Opcode.TEXT, b"next")) == [MessageReceived("next")]


def test_a_frame_that_comes_in_pieces_is_one_message() -> None:
    socket = made()
    data = said(Role.SERVER, Opcode.TEXT, b"abcdef")
    assert heard(socket, data[:3], b"", data[3:9]) == [FragmentReceived(3)]
    assert heard(socket, data[9:]) == [MessageReceived("abcdef")]


def test_input_is_parsed_only_when_events_are_pulled() -> None:
    socket = made()
    assert not socket.has_more
    socket.receive_data(said(Role.SERVER, Opcode.TEXT, b"a") + said(Role.SERVER, Opcode.TEXT, b"b"), 0.0)
    assert (socket.has_more, socket.next_event(), socket.has_more) == (True, MessageReceived("a"), True)
    assert (socket.next_event(), socket.next_event(), socket.has_more) == (MessageReceived("b"), None, False)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just(Opcode.TEXT), st.text(max_size=300).map(str.encode)),
        st.tuples(st.just(Opcode.PING), st.binary(max_size=125)),
        st.tuples(st.just(Opcode.PONG), st.binary(max_size=125)),
        st.tuples(st.just(Opcode.BINARY), st.binary(max_size=3)),
        st.tuples(st.just(Opcode.CONTINUATION), st.binary(max_size=3)),
        st.tuples(st.just(Opcode.CLOSE), st.sampled_from([b"", b"x", close_payload(1000, "bye"), b"\0\0"])),
        st.tuples(st.just(None), st.binary(max_size=8)),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=examples(150))
@given(role=st.sampled_from(list(Role)), acts=ACTS, cuts=st.lists(st.integers(0, 400), max_size=6), data=st.data())
def test_any_cut_gives_the_same_events_and_the_same_output(role: Role, acts: Any, cuts: list[int], data: Any) -> None:
    stream = b"".join(payload if opcode is None else said(role, opcode, payload) for opcode, payload in acts)

    def played(ends: Iterable[int]) -> tuple[list[WebSocketEvent], bytes]:
        socket, events = made(role, 500), []
        for start, end in itertools.pairwise([0, *ends, len(stream)]):
            events += heard(socket, stream[start:end])
        events += heard(socket, None)
        told: list[WebSocketEvent] = [event for event in events if not isinstance(event, FragmentReceived)]
        return told, socket.data_to_send(0.0)

    events, output = played([])
    again, same = played(sorted(cut for cut in cuts if cut < len(stream)))
    assert [repr(event) for event in again] == [repr(event) for event in events]
    assert same == output
    assert sum(isinstance(event, WebSocketEnded) for event in events) == 1
    assert isinstance(events[-1], WebSocketEnded)


# What breaks the rules


@pytest.mark.req("XPORT-04")
@roles
@pytest.mark.parametrize(
    ("opcode", "payload", "more", "code", "reason"),
    [
        (Opcode.BINARY, b"x", False, 1003, "binary messages are not accepted"),
        (Opcode.TEXT, b"\xff", False, 1007, "a text is no UTF-8"),
        (Opcode.TEXT, b"ok\xff", True, 1007, "a text is no UTF-8"),
        (Opcode.TEXT, b"\xc3", False, 1007, "a text is no UTF-8"),
        (Opcode.TEXT, b"x" * 1001, False, 1009, "a message is longer than 1000 bytes"),
        (
            Opcode.CONTINUATION,
            b"x",
            False,
            1002,
            "a message that begins within another, or goes on without a beginning",
        ),
        (Opcode.PING, b"x", True, 1002, "Invalid attempt to fragment control frame"),
        (Opcode.CLOSE, b"x", False, 1002, "a close frame without a valid code"),
        (Opcode.CLOSE, b"\x03\xe8\xff", False, 1007, "the reason of a close frame is no UTF-8"),
    ],
)
def test_violation_of_the_rules_ends_with_its_code(
    role: Role, opcode: Opcode, payload: bytes, more: bool, code: int, reason: str
) -> None:
    socket = made(role)
    events = heard(socket, said(role, Opcode.TEXT, b"before") + said(role, opcode, payload, more=more) + b"rubbish")
    end = ended(events)
    assert (events[0], len(events)) == (MessageReceived("before"), 2)
    assert (end.code, end.reason) == (code, reason)
    assert isinstance(end.error, RemoteProtocolError)
    assert str(end.error) == reason
    assert (socket.is_deaf, socket.is_open) == (True, True)
    socket.send_message(b"answer")
    assert frames(role, socket.data_to_send(0.0)) == [
        (Opcode.TEXT, b"answer"),
        (Opcode.CLOSE, code.to_bytes(2, "big") + reason.encode()),
    ]
    assert heard(socket, said(role, Opcode.TEXT, b"after")) == []
    assert (socket.is_open, socket.over, socket.has_more) == (False, False, False)
    with pytest.raises(LocalProtocolError):
        socket.send_message(b"too late")
    socket.receive_data(None, 0.0)
    assert (socket.over, socket.next_event(), socket.next_deadline()) == (True, None, None)


def test_message_within_a_fragmented_message_is_a_violation() -> None:
    data = said(Role.SERVER, Opcode.TEXT, b"a", more=True) + said(Role.SERVER, Opcode.TEXT, b"b")
    assert ended(heard(made(), data)).code == 1002


@pytest.mark.req("XPORT-04", "SEC-10")
def test_size_limit_covers_fragments_and_announced_lengths() -> None:
    socket = made(max_bytes=10)
    assert heard(socket, said(Role.SERVER, Opcode.TEXT, b"x" * 10)) == [MessageReceived("x" * 10)]
    assert heard(socket, said(Role.SERVER, Opcode.TEXT, b"x" * 6, more=True)) == [FragmentReceived(6)]
    # Nothing of the second frame but its head, which says that it is too long.
    assert ended(heard(socket, said(Role.SERVER, Opcode.CONTINUATION, b"x" * 5)[:6])).code == 1009
    assert ended(heard(made(max_bytes=10), said(Role.SERVER, Opcode.TEXT, "é".encode() * 6))).code == 1009


@roles
def test_compressed_bomb_ends_within_the_limit_of_memory(role: Role) -> None:
    far = made(Role.CLIENT if role is Role.SERVER else Role.SERVER, 0, 15)
    far.send_message(bytes(2**24))
    tracemalloc.start()
    end = ended(heard(made(role, 2**16, 15), far.data_to_send(0.0)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (end.code, end.reason) == (1009, "a message is longer than 65536 bytes")
    assert peak < 2**20


@pytest.mark.parametrize("payload", [b"\xff\xff", b"\x07"])
def test_corrupt_compressed_data_closes_with_an_error(payload: bytes) -> None:
    end = ended(heard(made(window_bits=15), frame(Opcode.TEXT, payload, MASK, is_compressed=True)))
    assert (end.code, end.reason) == (1007, "a message is not compressed text")


def test_compression_that_was_not_agreed_on() -> None:
    assert ended(heard(made(), frame(Opcode.TEXT, b"x", MASK, is_compressed=True))).code == 1002


def test_frames_with_and_without_a_mask() -> None:
    assert ended(heard(made(Role.SERVER), frame(Opcode.TEXT, b"x", None))).code == 1002
    assert ended(heard(made(Role.CLIENT), frame(Opcode.TEXT, b"x", MASK))).code == 1002


# Floods


def test_pings_wait_for_their_pongs_in_bounded_number() -> None:
    socket = made()
    events = heard(socket, b"".join(said(Role.SERVER, Opcode.PING, b"%d" % n) for n in range(1000)))
    assert len(events) == 1000
    pongs = frames(Role.SERVER, socket.data_to_send(0.0))
    assert pongs == [(Opcode.PONG, b"%d" % n) for n in range(984, 1000)]
    assert heard(socket, said(Role.SERVER, Opcode.PING, b"x")) == [PingReceived(b"x")]
    assert frames(Role.SERVER, socket.data_to_send(0.0)) == [(Opcode.PONG, b"x")]


@pytest.mark.long
def test_empty_fragments_keep_nothing() -> None:
    socket = made()
    heard(socket, said(Role.SERVER, Opcode.TEXT, b"", more=True))
    empty = said(Role.SERVER, Opcode.CONTINUATION, b"", more=True) * 1000
    tracemalloc.start()
    for _ in range(20):
        assert len(heard(socket, empty)) == 1000
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 200_000
    assert heard(socket, said(Role.SERVER, Opcode.CONTINUATION, b"x")) == [MessageReceived("x")]


@pytest.mark.long
def test_memory_of_small_fragments_is_counted() -> None:
    def work(count: int) -> None:
        socket = made(max_bytes=10**6)
        data = said(Role.SERVER, Opcode.CONTINUATION, b"x", more=True) * 500
        heard(socket, said(Role.SERVER, Opcode.TEXT, b"", more=True))
        for _ in range(count):
            heard(socket, data)

    few, many = (processor_seconds([partial(work, count)] * 3) for count in (4, 32))
    assert many < 8 * few * 5


# Time


def test_a_ping_after_a_silence_and_the_end_without_a_pong() -> None:
    socket = made(Role.CLIENT, ping_interval=30, pong_timeout=20)
    assert socket.next_deadline() == 30
    socket.handle_timeout(29.0)
    assert not socket.wants_write
    socket.handle_timeout(30.0)
    assert frames(Role.CLIENT, socket.data_to_send(30.0)) == [(Opcode.PING, b"")]
    assert socket.next_deadline() == 50
    socket.handle_timeout(49.9)
    assert heard(socket) == []
    socket.handle_timeout(50.0)
    end = ended(heard(socket))
    assert (end.code, end.reason) == (1011, "no sign of life after a ping")
    assert isinstance(end.error, RequestTimeout)
    assert not socket.over
    assert frames(Role.CLIENT, socket.data_to_send(50.0))[0][1][:2] == (1011).to_bytes(2, "big")
    # Whoever is not there need not be waited for.
    assert (socket.over, socket.next_deadline()) == (True, None)


@pytest.mark.parametrize("sign", [said(Role.CLIENT, Opcode.PONG), b"\x81"])
def test_any_byte_is_a_sign_of_life(sign: bytes) -> None:
    socket = made(Role.CLIENT, ping_interval=30, pong_timeout=20)
    socket.handle_timeout(30.0)
    heard(socket, sign, now=40.0)
    assert (socket.next_deadline(), socket.wants_write) == (70, False)


def test_extend_restarts_the_time_of_silence() -> None:
    socket = made(Role.CLIENT)
    socket.handle_timeout(30.0)
    socket.extend(100.0)
    assert socket.next_deadline() == 130


def test_ping_interval_none_sends_no_pings() -> None:
    assert made(Role.CLIENT, ping_interval=None).next_deadline() is None


def test_client_without_a_first_message_is_closed() -> None:
    socket = made(ping_interval=None, first_message_timeout=5)
    assert socket.next_deadline() == 5
    heard(socket, said(Role.SERVER, Opcode.PING) + said(Role.SERVER, Opcode.TEXT, b"{", more=True), now=4.0)
    assert socket.next_deadline() == 5
    socket.handle_timeout(5.0)
    end = ended(heard(socket))
    assert (end.code, end.reason) == (1008, "no message came within 5 s")
    assert isinstance(end.error, RemoteProtocolError)


@pytest.mark.parametrize("more", [True, False])
def test_first_message_clears_its_deadline(more: bool) -> None:
    socket = made(ping_interval=None, first_message_timeout=5)
    heard(socket, said(Role.SERVER, Opcode.TEXT, b"", more=more))
    heard(socket, *([said(Role.SERVER, Opcode.CONTINUATION)] if more else []))
    assert socket.next_deadline() is None


# The end


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize(("code", "in_order"), [(1000, True), (1001, True), (1005, True), (1008, False), (4000, False)])
@roles
def test_close_frame_of_the_peer_is_answered(role: Role, code: int, in_order: bool) -> None:
    socket = made(role)
    heard(socket, said(role, Opcode.PING, b"last"))
    events = heard(socket, said(role, Opcode.CLOSE, close_payload(code, "why")) + said(role, Opcode.TEXT, b"late"))
    end = ended(events)
    assert (len(events), end.code, end.reason) == (1, code, "" if code == 1005 else "why")
    if in_order:
        assert end.error is None
    else:
        assert isinstance(end.error, WebSocketClosed)
        assert (end.error.code, end.error.text) == (code, "why")
    assert not socket.is_open
    said_last = frames(role, socket.data_to_send(0.0))
    assert said_last == [(Opcode.PONG, b"last"), (Opcode.CLOSE, close_payload(code, ""))]
    # The server closes the connection first.
    assert socket.over is (role is Role.SERVER)
    assert socket.next_deadline() == (None if role is Role.SERVER else 1)
    assert heard(socket, b"anything", None) == []
    assert socket.over


@roles
def test_close_sends_earlier_messages_and_ignores_input(role: Role) -> None:
    socket = made(role)
    socket.send_message(b"last")
    socket.close(1000, "done", 5.0)
    socket.close(1008, "again", 5.0)
    assert (socket.is_open, socket.next_deadline()) == (False, 6)
    assert heard(socket) == [WebSocketEnded(1000, "done", None)]
    assert frames(role, socket.data_to_send(5.0)) == [
        (Opcode.TEXT, b"last"),
        (Opcode.CLOSE, close_payload(1000, "done")),
    ]
    # What still comes counts no more.
    crossing = [
        said(role, Opcode.TEXT, b"x"),
        said(role, Opcode.TEXT, b"x" * 2000),
        said(role, Opcode.BINARY, b"x"),
        said(role, Opcode.PING, b"x"),
    ]
    assert heard(socket, *crossing, now=5.5) == []
    assert (socket.over, socket.wants_write) == (False, False)
    assert heard(socket, said(role, Opcode.CLOSE, close_payload(1000, ""))) == []
    assert socket.over is (role is Role.SERVER)


@roles
def test_peer_that_does_not_close_is_waited_for_until_close_timeout(role: Role) -> None:
    socket = made(role)
    socket.close(1001, "", 5.0)
    heard(socket)
    socket.data_to_send(5.0)
    socket.handle_timeout(6.0)
    assert (socket.over, heard(socket)) == (True, [])


@roles
def test_violation_after_close_ends_input(role: Role) -> None:
    socket = made(role)
    socket.close(1000, "", 0.0)
    assert len(heard(socket, b"\xff\xff\xff", now=0.5)) == 1
    assert (socket.is_deaf, socket.next_deadline()) == (True, 1)


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 2000, 5000])
def test_invalid_close_codes_raise(code: int) -> None:
    socket = made()
    with pytest.raises(LocalProtocolError):
        socket.close(code, "", 0.0)
    assert (socket.is_open, heard(socket)) == (True, [])


@roles
def test_end_of_connection_without_a_close_frame_is_1006(role: Role) -> None:
    socket = made(role)
    heard(socket, said(role, Opcode.PING))
    end = ended(heard(socket, None))
    assert (end.code, end.reason) == (1006, "")
    assert isinstance(end.error, WebSocketClosed)
    assert (socket.over, socket.is_open, socket.next_deadline()) == (True, False, None)
    assert heard(socket, None, b"x") == []
    socket.handle_timeout(100.0)
    assert socket.data_to_send(100.0) == b""


def test_lost_connection_drops_all_output() -> None:
    socket = made()
    socket.send_message(b"x")
    heard(socket, b"\xff\xff")
    socket.connection_lost(1.0)
    assert (socket.over, socket.data_to_send(1.0)) == (True, b"")
