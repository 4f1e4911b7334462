"""Every transport of ``mcpio.asyncio`` passes the kit for transports, on asyncio's own event loop and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from asynciokitted import (
    ChildHarness,
    HttpHarness,
    MemoryHarness,
    ReconnectingHarness,
    SocketHarness,
    UnixHarness,
    WebSocketHarness,
    channel_pair,
    socket_pair,
)

from mcpio.testing.transport_kit import CHECKS, Check, Harness, PairHarness, TransportFault, run_check

HARNESSES: dict[str, Callable[[Any], Harness]] = {
    "memory": MemoryHarness,
    "stdio": ChildHarness,
    "tcp": SocketHarness,
    "tcp that connects again": ReconnectingHarness,
    "unix": UnixHarness,
    "http with events": lambda loop: HttpHarness(loop, "sse"),
    "http with json": lambda loop: HttpHarness(loop, "json"),
    "websocket": WebSocketHarness,
    "streams": lambda loop: PairHarness(socket_pair, loop=loop, half_closes=True),
    "channel": lambda loop: PairHarness(channel_pair, loop=loop, room=65536),
}

LOOPS = ("asyncio", pytest.param("uvloop", marks=pytest.mark.needs("uvloop")))

CASES = [
    pytest.param(name, each, id=f"{name}-{each}")
    for name, make in HARNESSES.items()
    for each in CHECKS
    if each.applies_to(make("asyncio"))
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("name", "check"), CASES)
def test_transport_passes(name: str, check: Check, loop: Any) -> None:
    run_check(check, HARNESSES[name](loop))


BY_NAME = {check.name: check for check in CHECKS}


def broken(make: Callable[[Any], Any] = lambda end: end, *, room: int = 4, **abilities: Any) -> PairHarness:
    """Return a harness for queues that ``make`` spoils."""

    def ends() -> Any:
        near, far = channel_pair(room)
        return make(near), make(far)

    return PairHarness(ends, loop="asyncio", room=65536, patience=1, **abilities)


def deaf(end: Any) -> Any:
    async def send(text: str) -> None:
        pass

    return end[0], send, end[2]


def truncating(end: Any) -> Any:
    async def send(text: str) -> None:
        await end[1](text if len(text) < 100_000 else text.replace("9", "", 1))

    return end[0], send, end[2]


def duplicating(end: Any) -> Any:
    async def send(text: str) -> None:
        for _ in range(2 if '"number 7' in text and "method" in text else 1):
            await end[1](text)

    return end[0], send, end[2]


def stubborn(end: Any) -> Any:
    async def receive() -> Any:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                return await end[0]()

    return receive, end[1], end[2]


def raising(end: Any) -> Any:
    async def receive() -> Any:
        text = await end[0]()
        if text is None:
            raise KeyError("no such queue")
        return text

    return receive, end[1], end[2]


def broken_at_the_end(end: Any) -> Any:
    async def receive() -> Any:
        text = await end[0]()
        if text is None:
            raise ConnectionResetError("the other end is closed")
        return text

    return receive, end[1], end[2]


def lossy(end: Any) -> Any:
    async def send(text: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await end[1](text)

    return end[0], send, end[2]


def leaving_a_task(end: Any) -> Any:
    end[0].__self__.left = asyncio.create_task(asyncio.sleep(60))
    return end


def complaining(end: Any) -> Any:
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    return end


async def keep(_: object, __: object) -> None:
    """Break nothing."""


BROKEN: list[tuple[str, Callable[[], PairHarness], str, str]] = [
    ("opens", lambda: broken(deaf), "a connection, with a handshake", "nothing, for 1 s"),
    (
        "opens",
        lambda: broken(complaining),
        "nothing that mcpio has to report",
        "asyncio reported: Exception in callback",
    ),
    ("large_messages", lambda: broken(truncating), "to arrive whole", "1048575 characters in place of 1048577"),
    (
        "many_small_messages",
        lambda: broken(duplicating),
        "each call to arrive at the server once",
        "too many, the first",
    ),
    ("a_stalled_server", lambda: broken(room=40), "bytes of the client's are taken", "the transport took"),
    ("a_stalled_server", lambda: broken(lossy), "a send of the client to wait", "took all that was sent"),
    ("a_stalled_client", lambda: broken(lossy), "a send of the server to wait", "took all that was sent"),
    (
        "a_busy_server",
        lambda: broken(room=10**6, stalls=False),
        "bytes of the client's are taken",
        "the transport took",
    ),
    (
        "closing_is_no_loss",
        lambda: broken(broken_at_the_end),
        "the server to learn that the other end has closed",
        "CloseReason.LOST",
    ),
    ("a_cancelled_block", lambda: broken(stubborn), "when it is cancelled", "the transport ignores a cancellation"),
    ("loss_when_idle", lambda: broken(lose=keep), "the client to end, for the connection was lost", "nothing, for 1 s"),
    ("loss_when_idle", lambda: broken(raising), "OSError when a connection does not work", "KeyError('no such queue')"),
    ("leaving_nothing_behind", lambda: broken(leaving_a_task), "no task to be left behind", "16 still run"),
]


@pytest.mark.parametrize(
    ("name", "make", "expected", "happened"), BROKEN, ids=[f"{row[0]}-{n}" for n, row in enumerate(BROKEN)]
)
def test_broken_transport_detected(name: str, make: Callable[[], PairHarness], expected: str, happened: str) -> None:
    with pytest.raises(TransportFault) as found:
        run_check(BY_NAME[name], make())
    assert expected in found.value.expected
    assert happened in str(found.value)


def test_invalid_harness_reported() -> None:
    with pytest.raises(ValueError, match="loop must be one of trio, asyncio, uvloop, not 'twisted'"):
        PairHarness(channel_pair, loop="twisted")
    with pytest.raises(ValueError, match="virtual_time is for transports of Trio"):
        run_check(BY_NAME["opens"], PairHarness(channel_pair, loop="asyncio", virtual_time=True))
    with pytest.raises(ValueError, match="binary= is for channels of Trio"):
        run_check(BY_NAME["opens"], PairHarness(channel_pair, loop="asyncio", binary=True))
    with pytest.raises(TypeError, match="an end must be a StreamReader and a StreamWriter of asyncio, or functions"):
        run_check(BY_NAME["opens"], PairHarness(lambda: (1, 2), loop="asyncio"))  # type: ignore[arg-type, return-value]  # on purpose
    with pytest.raises(TypeError, match=r"ends must be a reader and a writer if half_closes=True, not "):
        run_check(BY_NAME["half_close"], broken(half_closes=True))
