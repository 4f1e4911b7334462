"""Checks of how a connection ends: in order, abruptly, from anywhere, and with nothing left behind."""

from __future__ import annotations

import json
from typing import Any, Final

import trio

from mcpio.app.client import Client
from mcpio.errors import ConnectionLost, NoBackChannel
from mcpio.testing.transport_kit._check import Check, Stage, check, counted, echoed, report, reported, served
from mcpio.testing.transport_kit._harness import Conversation

__all__ = ["ENDS"]

WAITING: Final = 3
SEVERAL: Final = 8
LARGE: Final = 200_000
DIALLED: Final[tuple[dict[str, Any], ...]] = (
    {
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "kit", "version": "1"}},
    },
    {"method": "notifications/initialized"},
    {"id": 1, "method": "tools/call", "params": {"name": "large", "arguments": {"size": LARGE}}},
    {"id": 2, "method": "tools/call", "params": {"name": "flood", "arguments": {"count": 5, "size": 10}}},
    {"id": 3, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "last"}}},
)


@check("half_closes", "in_process")
async def half_close(stage: Stage) -> None:
    """End what a client sends: it still gets every answer, and then the end of what the server sends (P4)."""
    asked = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in DIALLED)
    heard = bytearray()
    expected = "every answer, and then the end, after the client has ended what it sends"
    with stage.expecting(expected):
        async with stage.harness.dial(stage.server) as stream:
            await stream.send_all(asked)
            await stream.send_eof()
            async for data in stream:
                heard += data
    messages = [json.loads(line) for line in heard.splitlines()]
    stage.equal(sorted(message["id"] for message in messages if "id" in message), [0, 1, 2, 3], expected)
    await stage.until(lambda: not stage.server.sessions, "the server's session to end after a half-close")


@check()
async def closing_with_calls_under_way(stage: Stage) -> None:
    """Leave a client's block: the calls of other tasks end, each once, and the connection too (P9)."""
    outcomes: list[Any] = []
    async with trio.open_nursery() as nursery:
        async with stage.join() as conversation:
            nursery.start_soon(_wait, stage, conversation, outcomes)
            await _until_waiting(stage, conversation)
        await stage.until(lambda: outcomes, "calls to end with the client")
    stage.all_lost(outcomes, "calls under way when the client is closed")
    await _check_ended(stage)


@check()
async def closing_from_anywhere(stage: Stage) -> None:
    """Close a client from another task and from a thread, more than once, while it has calls under way (P9)."""
    await _closed_by_a_task(stage, times=1)
    await _closed_by_a_task(stage, times=2)
    if not stage.harness.virtual_time:
        async with stage.join() as conversation:
            await trio.to_thread.run_sync(conversation.client.close)
            await _check_over(stage, conversation, "it was closed by a thread")


@check("in_process", "not reconnects")
async def closing_by_the_server(stage: Stage) -> None:
    """Close a session at the server: its client ends too, and its calls with it (P9)."""
    async with stage.join() as conversation, trio.open_nursery() as nursery:
        outcomes: list[Any] = []
        nursery.start_soon(_wait, stage, conversation, outcomes)
        await _until_waiting(stage, conversation)
        for session in stage.server.sessions:
            session.close(0)
        await _check_over(stage, conversation, "the server closed the session")
        await stage.until(lambda: outcomes, "calls to end when the server closes the session")
        stage.all_lost(outcomes, "calls under way when the server closes the session")


@check(breaks=True)
async def a_cancelled_block(stage: Stage) -> None:
    """Cancel a client's block with calls under way: it is left soon, and the server learns of it (P9)."""
    begun = ended = trio.current_time()
    with trio.CancelScope() as scope:
        async with stage.join() as conversation, trio.open_nursery() as nursery:
            for _ in range(WAITING):
                nursery.start_soon(served, conversation, "wait")
            await _until_waiting(stage, conversation)
            begun = trio.current_time()
            scope.cancel()
    ended = trio.current_time()
    expected = "a cancelled block to be left soon"
    stage.hold(ended - begun < stage.harness.patience, expected, f"it took {ended - begun:.1f} s")
    if stage.harness.in_process:
        await stage.until(lambda: not stage.server.sessions, "the server's session to end with the cancelled block")
    await _check_ended(stage)


@check("loses", "not reconnects", breaks=True)
async def loss_when_idle(stage: Stage) -> None:
    """Break a connection on which nobody has anything to say: both ends notice (P4, P10)."""
    async with stage.join() as conversation:
        await stage.check_works(conversation, "before the connection is lost")
        await _lose(stage, conversation)
        await _check_over(stage, conversation, "the connection was lost")
        if stage.harness.in_process:
            await stage.until(lambda: not stage.server.sessions, "the server to notice that the connection was lost")


@check("loses", "not reconnects", breaks=True)
async def loss_with_requests_under_way(stage: Stage) -> None:
    """Break a connection while requests of both sides wait for answers: they end, each once (P4, P10)."""
    async with stage.join(sampling=_never) as conversation, trio.open_nursery() as nursery:
        outcomes: list[Any] = []
        nursery.start_soon(_wait, stage, conversation, outcomes)
        if stage.harness.speaks_back:
            nursery.start_soon(stage.together, served(conversation, "ask", questions=["?"]))
        await _until_waiting(stage, conversation)
        await _lose(stage, conversation)
        await _check_over(stage, conversation, "the connection was lost")
        await stage.until(lambda: outcomes, "calls to end when the connection is lost")
        stage.all_lost(outcomes, "calls under way when the connection is lost")
        await _check_ended(stage)


@check("loses", "stalls", "ordered", "not reconnects", breaks=True)
async def loss_while_sending(stage: Stage) -> None:
    """Break a connection while an end waits until it can send: it notices (P4, P10)."""
    size = stage.harness.room // SEVERAL
    async with stage.join() as conversation, trio.open_nursery() as nursery:
        assert conversation.stall is not None
        conversation.stall()
        outcomes: list[Any] = []
        for _ in range(2 * SEVERAL):
            call = served(conversation, "measure", text="x" * size)
            nursery.start_soon(_collect, stage, outcomes, call)
        await stage.settled(lambda: conversation.client.health().sent_bytes)
        await _lose(stage, conversation)
        await _check_over(stage, conversation, "the connection was lost while it waited to send")
        await stage.until(lambda: len(outcomes) == 2 * SEVERAL, "calls to end when the connection is lost")
        _check_each(stage, outcomes, [size] * 2 * SEVERAL)


@check("loses", "not reconnects", breaks=True)
async def loss_at_any_point(stage: Stage) -> None:
    """Break a connection anywhere in the traffic: each call is answered rightly or fails, never both (P4, P10).

    In other processes it is tried at fewer points, for they take long to start.
    """
    for turns in range(0, 60, 5 if stage.harness.in_process else 40):
        await _lose_after(stage, turns)


@check("loses", "not reconnects", breaks=True)
async def connecting_anew_after_a_loss(stage: Stage) -> None:
    """Connect again after a loss: it works, and gets nothing of what was lost (P16)."""
    heard: list[Any] = []
    async with stage.join() as conversation, trio.open_nursery() as nursery:
        for number in range(SEVERAL):
            nursery.start_soon(stage.together, echoed(conversation, f"old {number}"))
        await trio.lowlevel.checkpoint()
        await _lose(stage, conversation)
        await _check_over(stage, conversation, "the connection was lost")
    del stage.reports[:]
    async with stage.join(on_notification=heard.append) as conversation:
        await stage.check_works(conversation, "over the next connection, after one was lost")
        texts = [f"new {number}" for number in range(SEVERAL)]
        expected = "the next connection to get nothing of the one that was lost"
        with stage.expecting(expected):
            stage.equal(await stage.together(*(echoed(conversation, text) for text in texts)), texts, expected)
        stage.hold(
            not stage.reports and not heard, expected, f"something came that nobody asked for: {heard[:1]!r:.200}"
        )


@check("loses", "reconnects", breaks=True)
async def reconnecting(stage: Stage) -> None:
    """Break the connection of a client that connects again by itself: it goes on after each loss (P4)."""
    async with stage.join() as conversation:
        for number in range(3):
            await _lose_with_a_call(stage, conversation)
            await stage.check_works(conversation, f"after loss number {number + 1}, by the same client")


@check()
async def leaving_nothing_behind(stage: Stage) -> None:
    """Connect many times, and end in every way: no session, task, thread or descriptor is left (P9)."""
    rounds = SEVERAL if stage.harness.in_process else 2
    for number in range(rounds):
        async with stage.join() as conversation:
            if number % 2:
                await stage.check_works(conversation, "on a new connection, after others have ended")
            if number % 4 == 3:
                conversation.client.close(0)


async def _wait(stage: Stage, conversation: Conversation, outcomes: list[Any]) -> None:
    """Make calls that are never answered."""
    outcomes += await stage.together(*(served(conversation, "wait") for _ in range(WAITING)))


async def _until_waiting(stage: Stage, conversation: Conversation) -> None:
    with stage.expecting("calls to reach the server and run there"):
        ended = (await report(conversation))["ended"]
        await reported(conversation, "waiting", ended + WAITING)


async def _closed_by_a_task(stage: Stage, times: int) -> None:
    why = "another task closed it" + " more than once" * (times > 1)
    async with stage.join() as conversation, trio.open_nursery() as nursery:
        outcomes: list[Any] = []
        nursery.start_soon(_wait, stage, conversation, outcomes)
        await _until_waiting(stage, conversation)
        for _ in range(times):
            nursery.start_soon(_close, conversation.client)
        await _check_over(stage, conversation, why)
        await stage.until(lambda: outcomes, f"calls to end when {why}")
        stage.all_lost(outcomes, f"calls under way when {why}")


async def _close(client: Client) -> None:
    client.close()


async def _lose_after(stage: Stage, turns: int) -> None:
    """Break a connection when its traffic has gone on for so many turns of the loop."""
    async with stage.join() as conversation, trio.open_nursery() as nursery:
        texts = [counted(LARGE) if number % 3 == 0 else f"{number}" for number in range(SEVERAL)]
        outcomes: list[Any] = []
        for text in texts:
            nursery.start_soon(_collect, stage, outcomes, echoed(conversation, text))
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        await _lose(stage, conversation)
        await _check_over(stage, conversation, "the connection was lost")
        await stage.until(lambda: len(outcomes) == SEVERAL, "each call to end when the connection is lost")
        _check_each(stage, outcomes, texts)


async def _lose_with_a_call(stage: Stage, conversation: Conversation) -> None:
    """Break a connection while a call is under way."""
    async with trio.open_nursery() as nursery:
        outcomes: list[Any] = []
        nursery.start_soon(_collect, stage, outcomes, served(conversation, "flood", count=20, size=10))
        await trio.sleep(0.005)
        await _lose(stage, conversation)
        await stage.until(lambda: outcomes, "a call under way at a loss to end")
        _check_each(stage, outcomes, [20])


async def _collect(stage: Stage, outcomes: list[Any], call: Any) -> None:
    outcomes += await stage.together(call)


async def _lose(stage: Stage, conversation: Conversation) -> None:
    assert conversation.lose is not None
    with stage.expecting("the harness to break the connection"):
        await conversation.lose()


async def _check_over(stage: Stage, conversation: Conversation, why: str) -> None:
    client = conversation.client
    with stage.expecting(f"the client to end, for {why}"):
        await client.driver.wait_closed()
    stage.hold(client.ended is not None, f"the client to end, for {why}", "it did not say how it ended")
    stage.all_lost(await stage.together(client.ping()), f"a call when {why}")


async def _check_ended(stage: Stage) -> None:
    if stage.harness.in_process:
        seen = stage.seen
        expected = "what the server runs for a client that is gone to end"
        await stage.until(lambda: seen.ended == seen.waiting, expected)


def _check_each(stage: Stage, outcomes: list[Any], wanted: list[Any]) -> None:
    """Fail unless each outcome is one of those that were wanted, or a loss."""
    wrong = [each for each in outcomes if each not in wanted and not isinstance(each, ConnectionLost | NoBackChannel)]
    expected = "each call to be answered rightly, or to fail with ConnectionLost"
    stage.hold(not wrong, expected, f"{len(wrong)} of {len(outcomes)} were not: {wrong[:1]!r:.200}")


async def _never(_: object, __: object) -> Any:
    await trio.sleep_forever()


ENDS: Final[tuple[Check, ...]] = (
    half_close,
    closing_with_calls_under_way,
    closing_from_anywhere,
    closing_by_the_server,
    a_cancelled_block,
    loss_when_idle,
    loss_with_requests_under_way,
    loss_while_sending,
    loss_at_any_point,
    connecting_anew_after_a_loss,
    reconnecting,
    leaving_nothing_behind,
)
