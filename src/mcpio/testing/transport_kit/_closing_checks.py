"""Checks of the end of a connection: graceful, abrupt, from any task or thread, and without leaks."""

from __future__ import annotations

import json
from typing import Any, Final

from mcpio.app.client import Client
from mcpio.errors import ConnectionLost, NoBackChannel
from mcpio.testing.transport_kit._check import Check, CheckRun, check, echoed, report, reported, served
from mcpio.testing.transport_kit._harness import BareStream, Conversation, missing
from mcpio.testing.transport_kit._loops import current_loop
from mcpio.testing.transport_kit._server import counted

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
async def half_close(run: CheckRun) -> None:
    """Close a client's output: it still gets every answer, and then the end of the server's output (P4)."""
    asked = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in DIALLED)
    heard = b""
    expected = "every answer, and then the end, after the client has ended what it sends"
    async with run.expecting(expected), run.harness.dial(run.server) as stream:
        heard = await _half_closed(stream, asked)
    messages = [json.loads(line) for line in heard.splitlines()]
    run.equal(sorted(message["id"] for message in messages if "id" in message), [0, 1, 2, 3], expected)
    await run.until(lambda: not run.server.sessions, "the server's session to end after a half-close")


@check()
async def closing_with_calls_under_way(run: CheckRun) -> None:
    """Leave a client's block: the calls of other tasks end, each once, and so does the connection (P9)."""
    outcomes: list[Any] = []
    async with run.loop.group() as group:
        async with run.join() as conversation:
            group.start_soon(_wait, run, conversation, outcomes)
            await _until_waiting(run, conversation)
        await run.until(lambda: outcomes, "calls to end with the client")
    run.all_lost(outcomes, "calls under way when the client is closed")
    await _check_ended(run)


@check()
async def closing_from_anywhere(run: CheckRun) -> None:
    """Close a client from another task and from a thread, more than once, with calls in flight (P9)."""
    await _closed_by_a_task(run, times=1)
    await _closed_by_a_task(run, times=2)
    if not run.harness.virtual_time:
        async with run.join() as conversation:
            await run.loop.in_thread(conversation.client.close)
            await _check_over(run, conversation, "it was closed by a thread")


@check("in_process", "not reconnects")
async def closing_by_the_server(run: CheckRun) -> None:
    """Close a session at the server: its client ends too, and its calls with it (P9)."""
    async with run.join() as conversation, run.loop.group() as group:
        outcomes: list[Any] = []
        group.start_soon(_wait, run, conversation, outcomes)
        await _until_waiting(run, conversation)
        for session in run.server.sessions:
            session.close(0)
        await _check_over(run, conversation, "the server closed the session")
        await run.until(lambda: outcomes, "calls to end when the server closes the session")
        run.all_lost(outcomes, "calls under way when the server closes the session")


@check(breaks=True)
async def a_cancelled_block(run: CheckRun) -> None:
    """Cancel a client's block with calls in flight: it ends soon, and the server notices (P9)."""
    begun = ended = run.loop.now()
    async with run.loop.limited() as limit, run.join() as conversation, run.loop.group() as group:
        for _ in range(WAITING):
            group.start_soon(served, conversation, "wait")
        await _until_waiting(run, conversation)
        begun = run.loop.now()
        limit.move(begun)
    ended = run.loop.now()
    expected = "a cancelled block to be left soon"
    run.hold(ended - begun < run.harness.patience, expected, f"it took {ended - begun:.1f} s")
    if run.harness.in_process:
        await run.until(lambda: not run.server.sessions, "the server's session to end with the cancelled block")
    await _check_ended(run)


@check("loses", "not reconnects", breaks=True)
async def loss_when_idle(run: CheckRun) -> None:
    """Break an idle connection: both ends notice (P4, P10)."""
    async with run.join() as conversation:
        await run.check_works(conversation, "before the connection is lost")
        await _lose(run, conversation)
        await _check_over(run, conversation, "the connection was lost")
        if run.harness.in_process:
            await run.until(lambda: not run.server.sessions, "the server to notice that the connection was lost")


@check("loses", "not reconnects", breaks=True)
async def loss_with_requests_under_way(run: CheckRun) -> None:
    """Break a connection with requests of both sides in flight: they end, each once (P4, P10)."""
    async with run.join(sampling=_never) as conversation, run.loop.group() as group:
        outcomes: list[Any] = []
        group.start_soon(_wait, run, conversation, outcomes)
        if run.harness.speaks_back:
            group.start_soon(run.together, served(conversation, "ask", questions=["?"]))
        await _until_waiting(run, conversation)
        await _lose(run, conversation)
        await _check_over(run, conversation, "the connection was lost")
        await run.until(lambda: outcomes, "calls to end when the connection is lost")
        run.all_lost(outcomes, "calls under way when the connection is lost")
        await _check_ended(run)


@check("loses", "stalls", "ordered", "not reconnects", breaks=True)
async def loss_while_sending(run: CheckRun) -> None:
    """Break a connection while an end waits to send: it notices (P4, P10)."""
    size = run.harness.room // SEVERAL
    async with run.join() as conversation, run.loop.group() as group:
        assert conversation.stall is not None, missing("stall")
        conversation.stall()
        outcomes: list[Any] = []
        for _ in range(2 * SEVERAL):
            call = served(conversation, "measure", text="x" * size)
            group.start_soon(_collect, run, outcomes, call)
        await run.settled(lambda: conversation.client.health().sent_bytes)
        await _lose(run, conversation)
        await _check_over(run, conversation, "the connection was lost while it waited to send")
        await run.until(lambda: len(outcomes) == 2 * SEVERAL, "calls to end when the connection is lost")
        _check_each(run, outcomes, [size] * 2 * SEVERAL)


@check("loses", "not reconnects", breaks=True)
async def loss_at_any_point(run: CheckRun) -> None:
    """Break a connection at any point in the traffic: each call is answered correctly or fails, never both (P4, P10).

    With a server in another process, which starts slowly, fewer points are tried.
    """
    for turns in range(0, 60, 5 if run.harness.in_process else 40):
        await _lose_after(run, turns)


@check("loses", "not reconnects", breaks=True)
async def connecting_anew_after_a_loss(run: CheckRun) -> None:
    """Connect again after a loss: it works, and receives nothing of the lost connection (P16)."""
    heard: list[Any] = []
    async with run.join() as conversation, run.loop.group() as group:
        for number in range(SEVERAL):
            group.start_soon(run.together, echoed(conversation, f"old {number}"))
        await run.loop.sleep(0)
        await _lose(run, conversation)
        await _check_over(run, conversation, "the connection was lost")
    del run.reports[:]
    async with run.join(on_notification=heard.append) as conversation:
        await run.check_works(conversation, "over the next connection, after one was lost")
        texts = [f"new {number}" for number in range(SEVERAL)]
        expected = "the next connection to get nothing of the one that was lost"
        async with run.expecting(expected):
            run.equal(await run.together(*(echoed(conversation, text) for text in texts)), texts, expected)
        run.hold(
            not run.reports and not heard, expected, f"something was received without a request: {heard[:1]!r:.200}"
        )


@check("loses", "reconnects", breaks=True)
async def reconnecting(run: CheckRun) -> None:
    """Break the connection of a client that reconnects: it continues after each loss (P4)."""
    async with run.join() as conversation:
        for number in range(3):
            await _lose_with_a_call(run, conversation)
            await run.check_works(conversation, f"after loss number {number + 1}, by the same client")


@check()
async def leaving_nothing_behind(run: CheckRun) -> None:
    """Connect many times, and end in every way: no session, task, thread or descriptor remains (P9)."""
    rounds = SEVERAL if run.harness.in_process else 2
    for number in range(rounds):
        async with run.join() as conversation:
            if number % 2:
                await run.check_works(conversation, "on a new connection, after others have ended")
            if number % 4 == 3:
                conversation.client.close(0)


async def _half_closed(stream: BareStream, data: bytes) -> bytes:
    """Send something, end the output, and return what comes until the end."""
    if isinstance(stream, tuple):
        reader, writer = stream
        writer.write(data)
        writer.write_eof()
        heard = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        return heard
    async with stream:
        await stream.send_all(data)
        await stream.send_eof()
        return b"".join([piece async for piece in stream])


async def _wait(run: CheckRun, conversation: Conversation, outcomes: list[Any]) -> None:
    """Make calls that are never answered."""
    outcomes += await run.together(*(served(conversation, "wait") for _ in range(WAITING)))


async def _until_waiting(run: CheckRun, conversation: Conversation) -> None:
    async with run.expecting("calls to reach the server and run there"):
        ended = (await report(conversation))["ended"]
        await reported(conversation, "waiting", ended + WAITING)


async def _closed_by_a_task(run: CheckRun, times: int) -> None:
    why = "another task closed it" + " more than once" * (times > 1)
    async with run.join() as conversation, run.loop.group() as group:
        outcomes: list[Any] = []
        group.start_soon(_wait, run, conversation, outcomes)
        await _until_waiting(run, conversation)
        for _ in range(times):
            group.start_soon(_close, conversation.client)
        await _check_over(run, conversation, why)
        await run.until(lambda: outcomes, f"calls to end when {why}")
        run.all_lost(outcomes, f"calls under way when {why}")


async def _close(client: Client) -> None:
    client.close()


async def _lose_after(run: CheckRun, turns: int) -> None:
    """Break a connection after a number of turns of the event loop."""
    async with run.join() as conversation, run.loop.group() as group:
        texts = [counted(LARGE) if number % 3 == 0 else f"{number}" for number in range(SEVERAL)]
        outcomes: list[Any] = []
        for text in texts:
            group.start_soon(_collect, run, outcomes, echoed(conversation, text))
        for _ in range(turns):
            await run.loop.sleep(0)
        await _lose(run, conversation)
        await _check_over(run, conversation, "the connection was lost")
        await run.until(lambda: len(outcomes) == SEVERAL, "each call to end when the connection is lost")
        _check_each(run, outcomes, texts)


async def _lose_with_a_call(run: CheckRun, conversation: Conversation) -> None:
    """Break a connection during a call."""
    async with run.loop.group() as group:
        outcomes: list[Any] = []
        group.start_soon(_collect, run, outcomes, served(conversation, "flood", count=20, size=10))
        await run.loop.sleep(0.005)
        await _lose(run, conversation)
        await run.until(lambda: outcomes, "a call under way at a loss to end")
        _check_each(run, outcomes, [20])


async def _collect(run: CheckRun, outcomes: list[Any], call: Any) -> None:
    outcomes += await run.together(call)


async def _lose(run: CheckRun, conversation: Conversation) -> None:
    assert conversation.lose is not None, missing("lose")
    async with run.expecting("the harness to break the connection"):
        await conversation.lose()


async def _check_over(run: CheckRun, conversation: Conversation, why: str) -> None:
    client = conversation.client
    async with run.expecting(f"the client to end, for {why}"):
        await client.driver.wait_closed()
    run.hold(client.ended is not None, f"the client to end, for {why}", "it did not say how it ended")
    run.all_lost(await run.together(client.ping()), f"a call when {why}")


async def _check_ended(run: CheckRun) -> None:
    if run.harness.in_process:
        seen = run.seen
        expected = "what the server runs for a client that is gone to end"
        await run.until(lambda: seen.ended == seen.waiting, expected)


def _check_each(run: CheckRun, outcomes: list[Any], wanted: list[Any]) -> None:
    """Fail unless each outcome is an expected one or a loss."""
    wrong = [each for each in outcomes if each not in wanted and not isinstance(each, ConnectionLost | NoBackChannel)]
    expected = "each call to be answered rightly, or to fail with ConnectionLost"
    run.hold(not wrong, expected, f"{len(wrong)} of {len(outcomes)} were not: {wrong[:1]!r:.200}")


async def _never(_: object, __: object) -> Any:
    await current_loop().event().wait()


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
