"""Both roles hear frames as RFC 6455 has them, and say what it wants said: the cases of the Autobahn test suite."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import trio
from frame_cases import CASES, LARGE_CASES, Case, ping_of
from rawends import END_OF, ROLES, played
from rawframes import CLOSE, CONTINUATION, PING, PONG, TEXT, Far, Frame, close

PROBE = b"still there?"
HELLO = Frame(TEXT, ping_of("hello"))


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.number)
def test_frame_case_ends_as_listed(case: Case, role: str) -> None:
    played(lambda: _play(case, role))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("case", LARGE_CASES, ids=lambda case: case.number)
def test_large_frame_case_ends_as_listed(case: Case, role: str) -> None:
    played(lambda: _play(case, role))


# What the suite does not have


@pytest.mark.parametrize("role", ROLES)
def test_masks_are_the_clients_alone(role: str) -> None:
    played(lambda: _closes(role, 1002, lambda far: HELLO.wire(masked=not far.masks)))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "length",
    [b"\x7e\x00\x33", b"\x7f" + bytes(7) + b"\x33", b"\x7f\x80" + bytes(6) + b"\x33"],
    ids=["16 bits", "64 bits", "64 bits, the first of them set"],
)
def test_lengths_use_the_fewest_bytes(role: str, length: bytes) -> None:
    played(lambda: _closes(role, 1002, lambda far: HELLO.wire(masked=far.masks, length=length)))


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("size", [16 * 1024 * 1024 + 1, 1 << 40])
def test_a_message_that_is_announced_as_too_long_is_not_waited_for(role: str, size: int) -> None:
    length = b"\x7f" + size.to_bytes(8, "big")
    played(lambda: _closes(role, 1009, lambda far: Frame(TEXT).wire(masked=far.masks, length=length)))


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize("role", ROLES)
def test_fragments_count_together(role: str) -> None:
    mib = bytes(1024 * 1024).replace(b"\0", b" ")
    frames = [Frame(TEXT, mib, fin=False), *[Frame(CONTINUATION, mib, fin=False)] * 16]
    played(lambda: _closes(role, 1009, lambda far: b"".join(frame.wire(masked=far.masks) for frame in frames)))


async def _closes(role: str, code: int, said: Callable[[Far], bytes]) -> None:
    """Say something, and hear that it was wrong."""
    async with END_OF[role]() as far, trio.open_nursery() as nursery:
        nursery.start_soon(far.send_bytes, said(far))
        assert (await far.frame()).code == code
        nursery.cancel_scope.cancel()


async def _play(case: Case, role: str) -> None:
    async with END_OF[role]() as far:
        heard = _Heard()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_say, far, case)
            if case.closes:
                await heard.until_closed(far)
            else:
                await heard.until(far, len(case.answers))
        if not case.closes:
            await far.send(close())
            await heard.until_closed(far)
        assert heard.pongs == [*case.pongs, *([] if case.closes else [PROBE])]
        assert heard.answers == list(case.answers) or (case.may_miss and not heard.answers)
        assert heard.code in (case.closes or (1000,))
        await finish(far, role, heard)


async def _say(far: Far, case: Case) -> None:
    await far.send(*case.frames, pace=case.pace)
    if not case.closes:
        await far.send(Frame(PING, PROBE))


class _Heard:
    """What came, each kind in its order."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.pongs: list[bytes] = []
        self.code: int | None = None

    async def until(self, far: Far, answers: int) -> None:
        """Listen until the probe is answered, and so many texts came back."""
        while PROBE not in self.pongs or len(self.answers) < answers:
            assert not self._take(await far.frame()), f"closed with {self.code}"

    async def until_closed(self, far: Far) -> None:
        """Listen until the other end closes."""
        while not self._take(await far.frame()):
            pass

    def _take(self, frame: Frame) -> bool:
        assert frame.fin
        assert frame.rsv == 0
        if frame.opcode == TEXT:
            self.answers.append(json.loads(frame.payload)["id"])
        elif frame.opcode == PONG:
            self.pongs.append(frame.payload)
        elif frame.opcode == CLOSE:
            self.code = frame.code
            assert self.code is None or frame.payload[2:].decode().isprintable()
        else:
            assert frame.opcode == PING
        return frame.opcode == CLOSE


async def finish(far: Far, role: str, heard: _Heard) -> None:
    """See that the server ends the stream, whoever that is."""
    if role == "server":
        await far.send(Frame(CLOSE, b"" if heard.code is None else close(heard.code).payload))
        await far.ended()
    await far.leave()
