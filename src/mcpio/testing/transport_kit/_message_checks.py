"""Checks of messages: they arrive unchanged and once, and the transport buffers a bounded amount."""

from __future__ import annotations

from typing import Any, Final

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import McpError
from mcpio.testing.transport_kit._check import Check, CheckRun, check, echoed, report, reported, served
from mcpio.testing.transport_kit._harness import missing
from mcpio.testing.transport_kit._server import ECHO, NOTE, counted, kit_server
from mcpio.types.custom import CustomNotification, CustomRequest

__all__ = ["MESSAGES"]

AWKWARD: Final = (
    "",
    " \t leading and trailing \t ",
    "one\ntwo\r\nthree\rfour\vfive\fsix\x1cseven\x85eight\u2028nine\u2029ten",
    "nul \x00, escape \x1b, delete \x7f, interrupt \x03, end of file \x04 and \x1a, pause \x11 and \x13",
    "quotes \" ' ` and back\\slashes \\n \\u0000 \\\\",
    '{"jsonrpc":"2.0","id":1,"result":{}}\n{"jsonrpc":"2.0","id":2,"result":{}}',
    "\ufeffé e\u0301 Ω 漢字 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0010ffff \ufffd",
    "data: event\n\nid: 7\nretry: 0",
)
MANY: Final = 400
AT_ONCE: Final = 20
LARGE: Final = 1024 * 1024 + 1
PIECES: Final = 48
QUEUED_LOGS: Final = 4


@check()
async def opens(run: CheckRun) -> None:
    """Connect a client and a server: the handshake succeeds (P16)."""
    async with run.join() as conversation:
        run.equal(conversation.client.server.info.name, "kit", "the server's name to reach the client")
        await run.check_works(conversation, "right after the handshake")


@check()
async def awkward_texts(run: CheckRun) -> None:
    """Send texts with everything that framing may stumble over: they arrive unchanged (P1)."""
    async with run.join() as conversation:
        for text in AWKWARD:
            expected = f"a text to come back as it was sent: {text!r:.60}"
            async with run.expecting(expected):
                run.equal(await echoed(conversation, text), text, expected)


@check()
async def large_messages(run: CheckRun) -> None:
    """Send messages of a mebibyte in both directions at once: they arrive whole (P1)."""
    text = counted(LARGE)
    expected = f"messages of {LARGE} bytes to arrive whole, both ways at once"
    async with run.join() as conversation, run.expecting(expected):
        for come_back in await run.together(*(echoed(conversation, text) for _ in range(2))):
            run.equal(come_back, text, expected)


@check()
async def many_small_messages(run: CheckRun) -> None:
    """Make hundreds of calls, many at once: each arrives once and gets exactly its own answer (P4, P7)."""
    async with run.join() as conversation:
        left = list(range(MANY))

        async def ask() -> None:
            while left:
                text = f"number {left.pop()}"
                run.equal(await echoed(conversation, text), text, "each call to get its own answer")

        async with run.expecting(f"{MANY} calls, {AT_ONCE} at once, each to get an answer"):
            await run.together(*(ask() for _ in range(AT_ONCE)))
            calls = (await report(conversation))["calls"]
        wanted = sorted(f"number {number}" for number in range(MANY))
        run.equal(sorted(calls), wanted, "each call to arrive at the server once")
    run.hold(not run.reports, "each message to arrive once, and none beside", "mcpio found fault with them")


@check()
async def answers_out_of_order(run: CheckRun) -> None:
    """Answer calls in reverse order: each gets its own answer (P7)."""
    async with run.join() as conversation:
        expected = f"{AT_ONCE} calls, answered in the opposite order, each to get its own answer"
        async with run.expecting(expected):
            calls = [served(conversation, "meet", number=number, of=AT_ONCE) for number in range(AT_ONCE)]
            run.equal(await run.together(*calls), [*range(AT_ONCE)], expected)


@check("speaks_back", "ordered")
async def notifications_in_order(run: CheckRun) -> None:
    """Send log messages and progress from a handler: they arrive in order, once, and before its answer (P14)."""
    count, heard = 100, []
    async with run.join(on_log=lambda message: heard.append(message.data)) as conversation:
        expected = f"the {count} log messages of a tool, in order, once, and before its answer"
        async with run.expecting(expected):
            progress: list[float] = []
            await conversation.client.call_tool(
                "talk", {"count": count}, on_progress=lambda done, total, message: progress.append(done)
            )
        run.equal(heard, [*range(count)], expected)
        run.equal(progress, [count], "the tool's progress, before its answer")


@check()
async def notifications_to_the_server(run: CheckRun) -> None:
    """Send notifications to the server: each arrives once, and in order if the transport is ordered (P14)."""
    count = 50
    expected = f"{count} notifications to reach the server, each once" + (", in order" * run.harness.ordered)
    async with run.join() as conversation:
        for number in range(count):
            conversation.client.notify(CustomNotification(NOTE, {"number": number}))
        async with run.expecting(expected):
            notes = (await report(conversation))["notes"]
            while not run.harness.ordered and len(notes) < count:
                await run.loop.sleep(0.001)
                notes = (await report(conversation))["notes"]
        run.equal(notes if run.harness.ordered else sorted(notes), [*range(count)], expected)


@check("speaks_back")
async def requests_of_the_server(run: CheckRun) -> None:
    """Send concurrent requests from handlers to the client: each gets its own answer (P4, P7)."""
    async with run.join() as conversation:
        questions = [[f"question {n} of {m}" for n in range(5)] for m in range(5)]
        expected = "the server's questions, asked while it serves calls, each to get its own answer"
        async with run.expecting(expected):
            calls = [served(conversation, "ask", questions=each) for each in questions]
            run.equal(await run.together(*calls), questions, expected)


@check()
async def cancellation(run: CheckRun) -> None:
    """Cancel a call: it is cancelled at the server, and the connection continues (P4)."""
    async with run.join() as conversation:
        expected = "a call to reach the server and run there"
        async with run.loop.limited() as limit, run.expecting(expected), run.loop.group() as group:
            group.start_soon(served, conversation, "wait")
            await reported(conversation, "waiting", 1)
            limit.move(run.loop.now())
        async with run.expecting("the server to cancel a call that its caller gave up"):
            await reported(conversation, "ended", 1)
        await run.check_works(conversation, "after another was cancelled")


@check()
async def unknown_members(run: CheckRun) -> None:
    """Send unknown members, methods and metadata: they survive the round trip (P8)."""
    strange = {
        "x-unknown": {"deep": [1, -0.5, 1e300, None, True, {"": {"ключ": "\u0000"}}]},
        "x-large": 2**63 + 1,
        "x-empty": [{}, [], ""],
    }
    async with run.join() as conversation:
        expected = "unknown members to arrive unchanged"
        async with run.expecting(expected):
            run.equal(await conversation.client.request(CustomRequest(ECHO, strange)), strange, expected)
            meta = {"example.org/unknown": strange}
            result = await conversation.client.call_tool("meta", meta=meta)
            run.equal(dict(result.structured_content or {}), meta, expected)


@check()
async def conversations_apart(run: CheckRun) -> None:
    """Hold two conversations at once: they do not affect each other (P7)."""
    async with run.join() as first, run.join() as second:
        expected = "two connections at once, each with its own answers"
        texts = [f"{who} {number}" for number in range(10) for who in ("first", "second")]
        async with run.expecting(expected):
            calls = [echoed(first if text.startswith("first") else second, text) for text in texts]
            run.equal(await run.together(*calls), texts, expected)


@check("in_process", breaks=True)
async def a_message_over_the_servers_limit(run: CheckRun) -> None:
    """Send a message too long for the server: the call fails at once, without effect on other clients (P6)."""
    limit = 65536
    server = kit_server(run.seen, Limits(message_bytes=limit))
    async with run.join(server) as other:
        async with run.join(server) as conversation:
            expected = f"a call of {4 * limit} bytes, to a server that takes {limit}, to fail"
            async with run.expecting(expected):
                (outcome,) = await run.together(echoed(conversation, counted(4 * limit)))
            run.hold(isinstance(outcome, McpError), expected, f"it returned {outcome!r:.100}")
            conversation.client.close()
        await run.check_works(other, "when another client has said too much")


@check(breaks=True)
async def a_message_over_the_clients_limit(run: CheckRun) -> None:
    """Send an answer too long for the client: the call fails at once (P6)."""
    limit = 65536
    async with run.join(options=Options(limits=Limits(message_bytes=limit))) as conversation:
        expected = f"an answer of {4 * limit} bytes, to a client that takes {limit}, to fail the call"
        async with run.expecting(expected):
            (outcome,) = await run.together(served(conversation, "large", size=4 * limit))
        run.hold(isinstance(outcome, McpError), expected, f"it returned {outcome!r:.100}")


@check("stalls", "ordered")
async def a_stalled_server(run: CheckRun) -> None:
    """Stop the server from reading: messages wait in mcpio, which limits them, not in the transport (P6, P14)."""
    room = run.harness.room
    size = 3 * room // PIECES
    async with run.join() as conversation:
        assert conversation.stall is not None, missing("stall")
        assert conversation.resume is not None, missing("resume")
        health = conversation.client.health
        conversation.stall()
        before = health().sent_bytes
        async with run.loop.group() as group:
            answers: list[Any] = []
            for _ in range(PIECES):
                group.start_soon(_collect, run, answers, served(conversation, "measure", text="x" * size))
            async with run.expecting("the transport to come to rest while the server does not read"):
                taken = await run.settled(lambda: health().sent_bytes) - before
            conversation.resume()
            expected = "calls to be answered when the server reads again"
            await run.until(lambda: len(answers) == PIECES, expected)
        run.equal(answers, [size] * PIECES, expected)
        _check_room(run, taken, room + 2 * size + 65536, "client")


@check("stalls", "in_process", "speaks_back")
async def a_stalled_client(run: CheckRun) -> None:
    """Stop a client from reading: it loses log messages by policy, without effect on other clients (P6, P14)."""
    room = run.harness.room
    size, heard = 3 * room // PIECES, []
    server = kit_server(run.seen, Limits(queued_logs=QUEUED_LOGS, logs_per_second=10**6))
    async with (
        run.join(server, on_log=lambda message: heard.append(message.data[0])) as conversation,
        run.join(server) as other,
        run.loop.group() as group,
    ):
        assert conversation.stall is not None, missing("stall")
        assert conversation.resume is not None, missing("resume")
        answers: list[Any] = []
        group.start_soon(_collect, run, answers, served(conversation, "flood", count=PIECES, size=size))
        await run.until(lambda: server.sessions[0].health().serving, "a call to reach the server and run there")
        conversation.stall()
        await run.until(lambda: run.seen.flooded, "the server to go on while a client does not read")
        await run.check_works(other, "while another client does not read")
        conversation.resume()
        await run.until(lambda: answers, "the call to be answered when the client reads again")
        run.equal(answers, [PIECES], "the call to be answered when the client reads again")
        run.equal(heard, sorted(set(heard)), "notifications to stay in order, each once")
        taken = (len(heard) - QUEUED_LOGS) * size
        _check_room(run, taken, room + 2 * size + 65536, "server")


def _check_room(run: CheckRun, taken: int, limit: int, sender: str) -> None:
    expected = f"to wait when the other end does not read: at most {limit} bytes of the {sender}'s are taken"
    run.hold(taken <= limit, expected, f"the transport took {taken} bytes (Harness.room is {run.harness.room})")


async def _collect(run: CheckRun, answers: list[Any], call: Any) -> None:
    answers += await run.together(call)


MESSAGES: Final[tuple[Check, ...]] = (
    opens,
    awkward_texts,
    large_messages,
    many_small_messages,
    answers_out_of_order,
    notifications_in_order,
    notifications_to_the_server,
    requests_of_the_server,
    cancellation,
    unknown_members,
    conversations_apart,
    a_message_over_the_servers_limit,
    a_message_over_the_clients_limit,
    a_stalled_server,
    a_stalled_client,
)
