"""Reading HTTP/2 frames: any split of the bytes, early rejection, and the budget of frames."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from http2frames import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, frame

from mcpio._drivers.http2 import PREFACE, ConnectionFault, Frame, FrameBudget, FrameReader, cost

SAID = [
    frame(PING, 0, b"12345678"),
    frame(HEADERS, 1, b"abc"),
    frame(CONTINUATION, 1, b"", END_HEADERS),
    frame(DATA, 1),
]


def fed(frames: FrameReader, data: bytes) -> list[bytes]:
    frames.feed(data)
    found = []
    while (each := frames.next_frame()) is not None:
        found.append(each.data)
    return found


@pytest.mark.parametrize("size", [1, 2, 9, 10, 24, 25, 1000])
def test_any_split_of_the_bytes_gives_the_same_frames(size: int) -> None:
    frames, data = FrameReader(1000), PREFACE + b"".join(SAID)
    found = [each for place in range(0, len(data), size) for each in fed(frames, data[place : place + size])]
    assert found == SAID


@pytest.mark.parametrize("said", [b"G", b"PRI * HTTP/1.1", b"\x16\x03\x01", PREFACE[:-1] + b"x"])
def test_wrong_preface_is_rejected_at_the_first_differing_byte(said: bytes) -> None:
    with pytest.raises(ConnectionFault) as caught:
        fed(FrameReader(1000), said)
    assert caught.value.code is ErrorCodes.PROTOCOL_ERROR
    assert fed(FrameReader(1000), PREFACE[: len(said) - 1]) == []


def test_oversized_frame_is_rejected_by_its_header() -> None:
    frames = FrameReader(1000)
    assert fed(frames, PREFACE + b"\x00\x40\x00" + frame(DATA, 1)[3:]) == []
    with pytest.raises(ConnectionFault, match="a frame is too long"):
        fed(FrameReader(1000), PREFACE + b"\x00\x40\x01" + frame(DATA, 1)[3:])


def test_head_is_bounded_over_its_continuation_frames() -> None:
    frames = FrameReader(1000)
    fed(frames, PREFACE + frame(HEADERS, 1, b"x" * 500))
    began = frames.is_in_head
    fed(frames, frame(CONTINUATION, 1, b"x" * 500, END_HEADERS))
    assert (began, frames.is_in_head) == (True, False)
    fed(frames, frame(HEADERS, 3, b"x" * 500))
    with pytest.raises(ConnectionFault, match="the head of a request is too long"):
        fed(frames, frame(CONTINUATION, 3, b"x" * 501))


@pytest.mark.parametrize(
    ("kind", "flags", "size", "expected"),
    [
        (DATA, 0, 255, 1),
        (DATA, 0, 256, 0),
        (DATA, END_STREAM, 0, 0),
        (HEADERS, 0, 1, 0),
        (PING, 0, 8, 1),
        (0x77, 0, 0, 1),
    ],
)
def test_frames_that_request_nothing_cost_budget(kind: int, flags: int, size: int, expected: int) -> None:
    assert cost(Frame(kind, flags, frame(kind, 1, b"x" * size, flags))) == expected


def test_budget_refills_with_time_and_with_reading() -> None:
    allowance = FrameBudget(5.0)
    assert all(allowance.spend(1, 5.0) for _ in range(1000))
    assert not allowance.spend(1, 5.0)
    assert allowance.spend(0, 5.0)
    allowance.earn()
    assert allowance.spend(1, 5.0)
    assert not allowance.spend(1, 5.0)
    assert allowance.spend(30, 6.0)
    assert not allowance.spend(1001, 1000.0)
