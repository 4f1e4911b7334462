"""The kit for transports: each check finds the transport that it is there to find, and says what was wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import unittest
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Unpack

import pytest
import trio
import trio.testing
from wrongtransports import (
    LEFT,
    ROOM,
    STOP,
    Ascii,
    Binary,
    Broken,
    Buffering,
    Deaf,
    Dropping,
    Duplicating,
    Forgetful,
    Lagging,
    Lines,
    Lossy,
    Mixed,
    NoCancelling,
    NoNotes,
    OneAtATime,
    Polling,
    Queue,
    Raising,
    Reordering,
    ShortOf,
    Silent,
    Spilling,
    Stripping,
    Stubborn,
    Threaded,
    Truncating,
    Unmoved,
    Unsampled,
    abrupt_pair,
    crossing,
    harness,
    haunted,
    keep,
    leaving_a_task,
    pairs,
)

from mcpio import Server
from mcpio.app import ClientOptions
from mcpio.testing import transport_kit
from mcpio.testing.transport_kit import (
    CHECKS,
    Check,
    Ends,
    Harness,
    PairHarness,
    TransportFault,
    TransportTests,
    check_transport,
    run_check,
)

BY_NAME = {check.name: check for check in CHECKS}

TWICE = "both ends to end when the client is closed"
LOST = "the client to end, for the connection was lost"
AT_ONCE = "happened: nothing, for 10 s"
LEFT_OPEN = "nothing to be left behind when everything is closed"

BROKEN: list[tuple[str, Callable[[], Harness], str, str]] = [
    ("opens", lambda: harness(Deaf), "a connection, with a handshake", AT_ONCE),
    ("opens", lambda: harness(Mixed, binary=True), "a connection, with a handshake", "a bytes-like object is required"),
    ("awkward_texts", lambda: harness(Ascii), "a text to come back as it was sent", "in place of"),
    ("awkward_texts", lambda: harness(Lines), "a text to come back as it was sent", "the peer broke a rule"),
    (
        "large_messages",
        lambda: harness(Truncating),
        "to arrive whole",
        "characters in place of 1048577; they differ at",
    ),
    ("many_small_messages", lambda: harness(Dropping), "400 calls, 20 at once, each to get an answer", AT_ONCE),
    (
        "many_small_messages",
        lambda: harness(Duplicating),
        "each call to arrive at the server once",
        "happened: 8 too many, the first 'number ",
    ),
    ("answers_out_of_order", lambda: harness(OneAtATime), "answered in the opposite order", AT_ONCE),
    ("notifications_in_order", lambda: harness(Reordering), "the 100 log messages of a tool, in order", "out of order"),
    (
        "notifications_to_the_server",
        lambda: harness(NoNotes),
        "50 notifications to reach the server",
        "50 of 50 are missing",
    ),
    ("requests_of_the_server", lambda: harness(Unsampled), "the server's questions", AT_ONCE),
    ("cancellation", lambda: harness(NoCancelling), "to cancel a call that its caller gave up", AT_ONCE),
    ("unknown_members", lambda: harness(Stripping), "to arrive unchanged", "x_unknown"),
    ("conversations_apart", lambda: PairHarness(crossing(), virtual_time=True), "connection", "happened"),
    ("a_message_over_the_servers_limit", lambda: harness(ShortOf), "a call of 262144 bytes", AT_ONCE),
    ("a_message_over_the_clients_limit", lambda: harness(ShortOf), "an answer of 262144 bytes", AT_ONCE),
    ("a_stalled_server", lambda: harness(Buffering, 40), "bytes of the client's are taken", "the transport took"),
    ("a_stalled_server", lambda: harness(Buffering, inf), "a send of the client to wait", "took all that was sent"),
    ("a_stalled_server", lambda: harness(Lossy), "a send of the client to wait", "took all that was sent"),
    ("a_stalled_client", lambda: harness(Buffering, 40), "bytes of the server's are taken", "the transport took"),
    ("a_stalled_client", lambda: harness(Lossy), "a send of the server to wait", "took all that was sent"),
    (
        "a_busy_server",
        lambda: harness(Buffering, inf, stalls=False),
        "bytes of the client's are taken",
        "the transport took",
    ),
    (
        "half_close",
        lambda: PairHarness(abrupt_pair, half_closes=True, virtual_time=True),
        "every answer, and then the end",
        "ClosedResourceError",
    ),
    ("closing_with_calls_under_way", lambda: harness(Silent), TWICE, AT_ONCE),
    ("closing_from_anywhere", lambda: harness(Silent), TWICE, AT_ONCE),
    ("closing_by_the_server", lambda: harness(Silent), "the server closed the session", AT_ONCE),
    ("closing_is_no_loss", lambda: harness(Lagging), "has sent before it closes to arrive", "1 of 50 are missing"),
    (
        "closing_is_no_loss",
        lambda: harness(Broken),
        "the server to learn that the other end has closed",
        "CloseReason.LOST",
    ),
    ("a_cancelled_block", lambda: harness(Stubborn), "when it is cancelled", "the transport ignores cancellation"),
    ("a_cancelled_block", lambda: harness(Unmoved), "when it is cancelled", "the transport ignores cancellation"),
    ("loss_when_idle", lambda: harness(lose=keep), LOST, AT_ONCE),
    ("loss_when_idle", lambda: harness(Raising), "BrokenResourceError", "KeyError('no such queue')"),
    ("loss_with_requests_under_way", lambda: harness(lose=keep), LOST, AT_ONCE),
    ("loss_while_sending", lambda: harness(lose=keep), LOST, AT_ONCE),
    ("loss_at_any_point", lambda: harness(lose=keep), LOST, AT_ONCE),
    ("connecting_anew_after_a_loss", haunted, "to get nothing of the one that was lost", "old"),
    (
        "reconnecting",
        lambda: Forgetful(pairs(Queue), virtual_time=True),
        "a call to be answered after loss number 1",
        "NoBackChannel",
    ),
    ("leaving_nothing_behind", lambda: harness(Threaded), LEFT_OPEN, "threads still run: left over"),
    ("leaving_nothing_behind", lambda: harness(Spilling), LEFT_OPEN, "descriptors are still open"),
    (
        "leaving_nothing_behind",
        lambda: PairHarness(leaving_a_task, virtual_time=True),
        "no task to be left behind",
        "8 still run",
    ),
]


@pytest.fixture(autouse=True)
def tidy() -> Any:
    yield
    STOP.set()
    while LEFT:
        os.close(LEFT.pop())
    for thread in threading.enumerate():
        if thread.name.startswith("left over"):
            thread.join()
    STOP.clear()


@pytest.mark.parametrize(
    ("name", "broken", "expected", "happened"), BROKEN, ids=[f"{row[0]}-{n}" for n, row in enumerate(BROKEN)]
)
def test_broken_transport_detected(name: str, broken: Callable[[], Harness], expected: str, happened: str) -> None:
    with pytest.raises(TransportFault) as found:
        run_check(BY_NAME[name], broken())
    said = str(found.value)
    assert said.startswith(f"{name} (P")
    assert expected in found.value.expected
    assert happened in said


def test_every_check_detects_a_fault() -> None:
    assert {row[0] for row in BROKEN} == set(BY_NAME)


def test_check_has_description_and_promises() -> None:
    assert [check.name for check in CHECKS if not check.promises] == []
    assert BY_NAME["loss_when_idle"].promises == ("P4", "P10")
    assert str(BY_NAME["opens"]) == "opens"
    assert len(BY_NAME) == len(CHECKS)


@pytest.mark.parametrize("kind", [Queue, Polling])
def test_check_transport_returns_skipped_checks(kind: type[Queue]) -> None:
    assert check_transport(harness(kind)) == ("half_close", "reconnecting")
    with pytest.raises(TransportFault, match="opens"):
        check_transport(harness(Deaf))


def test_test_class_has_a_test_for_each_applicable_check() -> None:
    class Tests(TransportTests, unittest.TestCase):
        harness = PairHarness(pairs(NoCancelling), virtual_time=True, room=ROOM)

    assert "test_half_close" not in vars(Tests)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
    assert result.testsRun == len(CHECKS) - 2
    [(_, failure)] = result.failures
    assert "TransportFault: cancellation (P4)" in failure
    assert result.errors == []


def test_make_ends_accepts_async_functions_and_context_managers() -> None:
    async def connect() -> Ends:
        await trio.lowlevel.checkpoint()
        return pairs(Queue)()

    left: list[bool] = []

    @asynccontextmanager
    async def connected() -> AsyncIterator[Ends]:
        yield pairs(Queue)()
        left.append(True)

    for make in (connect, connected):
        run_check(BY_NAME["opens"], PairHarness(make, virtual_time=True))
    assert left == [True]


def test_binary_channel_accepted() -> None:
    assert check_transport(harness(Binary, binary=True)) == ("half_close", "reconnecting")


def test_invalid_harness_reported() -> None:
    with pytest.raises(TypeError, match="a PairHarness has no 'reconnects'"):
        PairHarness(pairs(Queue), reconnects=True)
    with pytest.raises(TypeError, match=r"an end must be a trio.abc.Stream or a trio.abc.Channel, not int"):
        run_check(BY_NAME["opens"], PairHarness(lambda: (1, 2)))  # type: ignore[arg-type, return-value]  # on purpose
    with pytest.raises(TypeError, match=r"ends must be of trio.abc.HalfCloseableStream if half_closes=True, not Queue"):
        run_check(BY_NAME["half_close"], harness(half_closes=True))

    class Half(Harness):
        half_closes = True

        def join(self, server: Server, **options: Unpack[ClientOptions]) -> Any:
            """Never called: what is asked for is ``dial``."""

    with pytest.raises(NotImplementedError, match=r"Half.half_closes is true, but dial\(\) is missing"):
        run_check(BY_NAME["half_close"], Half())
    assert repr(Half()) == "Half"
    assert repr(harness()) == "PairHarness(pairs.<locals>.make)"


def test_kit_runs_without_pytest() -> None:
    program = """
import sys
sys.modules["pytest"] = None
from mcpio.testing.transport_kit import CHECKS, PairHarness, TransportTests, check_transport
import trio.testing
check_transport(PairHarness(trio.testing.lockstep_stream_pair, virtual_time=True, room=65536))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr == ""


def test_all_is_sorted() -> None:
    assert transport_kit.__all__ == sorted(transport_kit.__all__, key=lambda name: (not name.isupper(), name))
    assert isinstance(CHECKS[0], Check)
