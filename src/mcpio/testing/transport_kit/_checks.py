"""The checks of the kit."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Final, Unpack

import attrs
import trio

from mcpio._drivers.event_loop import CancelScope
from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import ConnectionLost, McpError, NoBackChannel
from mcpio.events import CloseReason
from mcpio.testing.transport_kit._harness import BareStream, Conversation, Harness, missing
from mcpio.testing.transport_kit._loops import Group, KitLoop, current_loop
from mcpio.testing.transport_kit._server import ECHO, NOTE, Seen, counted, kit_server
from mcpio.types import CreateMessageRequest, CreateMessageResult
from mcpio.types.base import CustomNotification, CustomRequest

if TYPE_CHECKING:
    from mcpio.app.client import ClientOptions


# ---------------------------------------------------------------------------------------------------------------- check
# Checks, one run of a check, and the fault with the expected and the actual behaviour.

_FAILURES: Final = (McpError, OSError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Exceptions of calls over a faulty transport."""


class TransportFault(AssertionError):
    """A transport does not do what MCP needs."""

    check: Check
    """The check that failed."""
    expected: str
    """The expected behaviour of the transport."""
    happened: str
    """The actual behaviour."""

    def __init__(self, check: Check, expected: str, happened: str) -> None:
        promises = ", ".join(check.promises)
        super().__init__(f"{check.name} ({promises})\n  expected: {expected}\n  happened: {happened}")
        self.check, self.expected, self.happened = check, expected, happened


@attrs.frozen
class Check:
    """One requirement of a transport."""

    name: str
    needs: tuple[str, ...]
    """The attributes of the harness that must be true, or false with ``"not "`` in front; else the check is skipped."""
    breaks: bool
    """Whether the check breaks something on purpose, so that mcpio may log it."""
    function: Callable[[CheckRun], Coroutine[Any, Any, None]] = attrs.field(repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def description(self) -> str:
        """The steps of the check, its requirements, and in brackets the promises of mcpio that depend on it."""
        return (self.function.__doc__ or "").strip()

    @property
    def promises(self) -> tuple[str, ...]:
        """The promises, such as ``"P4"``; the documentation lists them."""
        return tuple(re.findall(r"\bP\d+", self.description))

    def applies_to(self, harness: Harness) -> bool:
        """Whether the harness declares the abilities that the check needs."""
        for need in self.needs:
            wanted = not need.startswith("not ")
            if bool(getattr(harness, need.removeprefix("not "))) is not wanted:
                return False
        return True


ALL: Final[list[Check]] = []
"""All checks, in the order in which this module defines them."""


def check(*needs: str, breaks: bool = False) -> Callable[[Callable[..., Any]], Check]:
    """Turn an async function of a ``CheckRun`` into a check."""

    def added(function: Callable[..., Any]) -> Check:
        ALL.append(Check(function.__name__, needs, breaks, function))
        return ALL[-1]

    return added


class Step:
    """A step of a check that is cut short when it takes too long."""

    def __init__(self, loop: KitLoop, scope: CancelScope, expected: str) -> None:
        self.expected = expected
        """The expected outcome of the step, for the error message."""
        self._loop = loop
        self._scope = scope
        self.move(scope.deadline)

    @property
    def has_expired(self) -> bool:
        """Whether the step was cut short. Known after its block."""
        return self._scope.cancelled_caught

    def move(self, deadline: float) -> None:
        """Cut the step short at that time; infinity for never."""
        self._scope.deadline = deadline
        self._cut_at = time.monotonic() + deadline - self._loop.now()

    def is_overdue(self, seconds: float) -> bool:
        """Whether the step still runs ``seconds`` after it was cut short. May be called from another thread."""
        return time.monotonic() > self._cut_at + seconds


class CheckRun:
    """One run of a check with a harness."""

    def __init__(self, check: Check, harness: Harness, reports: list[str], group: Group) -> None:
        self.harness = harness
        self.loop: KitLoop = current_loop()
        """The event loop that runs the check."""
        self.reports = reports
        """Warnings and errors that mcpio logged."""
        self.seen: Seen = Seen()
        self.server: Server = kit_server(self.seen)
        self.steps: list[Step] = []
        """The steps under way that may be cut short."""
        self._check = check
        self._group = group

    @contextlib.asynccontextmanager
    async def _step(self, expected: str) -> AsyncIterator[Step]:
        """Cut the block short after the harness's patience."""
        with self.loop.scope(self.harness.patience) as scope:
            step = Step(self.loop, scope, expected)
            self.steps.append(step)
            try:
                yield step
            finally:
                self.steps.remove(step)

    @contextlib.asynccontextmanager
    async def join(self, server: Server | None = None, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        """Hold a conversation for a block. The server must notice its end."""
        options.setdefault("sampling", _parrot)
        # Only in a session do messages of each kind go in both directions.
        options.setdefault("era", "handshake")
        serving = server or self.server
        patience, entered, failure = self.harness.patience, False, None
        before = set(serving.sessions)
        async with self._step("a connection, with a handshake") as limit:
            try:
                async with self.harness.join(serving, **options) as conversation:
                    entered = True
                    limit.move(inf)
                    limit.expected = "both ends to end when the client is closed"
                    sessions = set(serving.sessions) - before
                    self._group.start_soon(self._release_after, conversation)
                    try:
                        yield conversation
                    except BaseException as error:
                        failure = error
                        raise
                    finally:
                        limit.move(self.loop.now() + 2 * patience)
            except _FAILURES as error:
                expected = "both ends to close" if entered else "a connection, with a handshake"
                raise failure or self.fault(expected, f"{type(error).__name__}: {error}") from error
        if failure is not None:
            raise failure
        if limit.has_expired:
            raise self.fault(limit.expected, f"nothing, for {patience:g} s")
        if self.harness.in_process:
            expected = "the server's session to end when the client has closed"
            await self.until(lambda: sessions.isdisjoint(serving.sessions), expected)

    @contextlib.asynccontextmanager
    async def expecting(self, expected: str) -> AsyncIterator[None]:
        """Fail if the block raises, or takes longer than the harness's patience."""
        patience = self.harness.patience
        try:
            async with self._step(expected) as limit:
                yield
        except _FAILURES as error:
            raise self.fault(expected, f"{type(error).__name__}: {error}") from error
        if limit.has_expired:
            raise self.fault(expected, f"nothing, for {patience:g} s")

    def hold(self, condition: bool, expected: str, happened: str) -> None:
        """Fail unless the condition holds."""
        if not condition:
            raise self.fault(expected, happened)

    def equal(self, actual: Any, wanted: Any, expected: str) -> None:
        """Fail unless they are equal."""
        if actual != wanted:
            raise self.fault(expected, _difference(actual, wanted))

    def fault(self, expected: str, happened: str) -> TransportFault:
        """Return the fault to raise."""
        reports = "".join(f"\n  mcpio reported: {report:.300}" for report in self.reports[:3])
        return TransportFault(self._check, expected, happened + reports)

    async def _release_after(self, conversation: Conversation) -> None:
        """End the server's handlers when their client has ended; the end of input alone does not cancel them."""
        await conversation.client.driver.wait_closed()
        self.seen.release()

    async def until(self, condition: Callable[[], object], expected: str) -> None:
        """Wait until the condition holds."""
        async with self.expecting(expected):
            for pause in pauses():
                if condition():
                    return
                await self.loop.runtime.sleep(pause)

    async def settled(self, count: Callable[[], int]) -> int:
        """Wait until a count stops changing, and return it."""
        before, again = -1, 0
        while again < 5:
            before, now = count(), before
            again = again + 1 if before == now else 0
            await self.loop.runtime.sleep(0.02)
        return before

    async def together(self, *calls: Awaitable[Any]) -> list[Any]:
        """Await calls concurrently; return their results, or the errors of mcpio that they raised."""
        outcomes: list[Any] = [None] * len(calls)

        async def wait(number: int, call: Awaitable[Any]) -> None:
            try:
                outcomes[number] = await call
            except McpError as error:
                outcomes[number] = error

        async with self.loop.tasks() as group:
            for number, call in enumerate(calls):
                group.start_soon(wait, number, call)
        return outcomes

    async def check_works(self, conversation: Conversation, when: str) -> None:
        """Fail unless a call is answered."""
        async with self.expecting(f"a call to be answered {when}"):
            self.equal(await echoed(conversation, when), when, f"a call to be answered {when}")

    def all_lost(self, outcomes: list[Any], what: str) -> None:
        """Fail unless every call failed with the loss of the connection."""
        wrong = [each for each in outcomes if not isinstance(each, ConnectionLost | NoBackChannel)]
        expected = f"{what}: each call fails with ConnectionLost, or with NoBackChannel where it was not sent"
        self.hold(not wrong, expected, f"{len(wrong)} of {len(outcomes)} did not: {wrong[:1]!r:.200}")


async def echoed(conversation: Conversation, text: str) -> str:
    """Call the tool ``echo``; return its text."""
    return (await conversation.client.call_tool("echo", {"text": text})).text


async def served(conversation: Conversation, name: str, **arguments: Any) -> Any:
    """Call a tool; return its structured result."""
    result = await conversation.client.call_tool(name, arguments)
    if result.is_error:
        return f"the tool failed: {result.text}"
    return (result.structured_content or {}).get("result")


async def report(conversation: Conversation) -> dict[str, Any]:
    """Return the server's record, the attributes of ``Seen``."""
    content = (await conversation.client.call_tool("report")).structured_content
    return dict(content or {})


async def reported(conversation: Conversation, name: str, least: int) -> None:
    """Wait until a count of the server's record reaches ``least``."""
    for pause in pauses():
        if (await report(conversation))[name] >= least:
            return
        await current_loop().runtime.sleep(pause)


def pauses() -> Iterator[float]:
    """Yield growing pauses, in seconds, for conditions that must be polled."""
    return (min(0.001 * 1.1**number, 0.1) for number in itertools.count())


def _parrot(_: object, request: CreateMessageRequest) -> CreateMessageResult:
    (message,) = request.messages
    return CreateMessageResult(role="assistant", content=message.content, model="parrot")


def _difference(actual: Any, wanted: Any) -> str:
    if isinstance(actual, list) and isinstance(wanted, list) and actual != wanted:
        return f"{_list_difference(actual, wanted)}: {actual!r:.200} in place of {wanted!r:.200}"
    if isinstance(actual, str) and isinstance(wanted, str):
        at = next((at for at, (a, b) in enumerate(zip(actual, wanted, strict=False)) if a != b), None)
        position = f"the first {min(len(actual), len(wanted))} are right" if at is None else f"they differ at {at}"
        if max(len(actual), len(wanted)) > 80:
            return f"{len(actual)} characters in place of {len(wanted)}; {position}"
    return f"{actual!r:.200} in place of {wanted!r:.200}"


def _list_difference(actual: list[Any], wanted: list[Any]) -> str:
    """Describe how two lists differ, briefly."""
    missing = [each for each in wanted if actual.count(each) < wanted.count(each)]
    more = [each for each in actual if actual.count(each) > wanted.count(each)]
    if missing:
        return f"{len(missing)} of {len(wanted)} are missing, the first {missing[0]!r:.80}"
    if more:
        return f"{len(actual) - len(wanted)} too many, the first {more[0]!r:.80}"
    at = next(at for at, (one, other) in enumerate(zip(actual, wanted, strict=True)) if one != other)
    return f"out of order, first at {at}"


# ------------------------------------------------------------------------------------------------------- message checks
# Checks of messages: they arrive unchanged and once, and the transport buffers a bounded amount.

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
    count, received = 100, []
    async with run.join(on_log=lambda message: received.append(message.data)) as conversation:
        expected = f"the {count} log messages of a tool, in order, once, and before its answer"
        async with run.expecting(expected):
            progress: list[float] = []
            await conversation.client.call_tool(
                "talk", {"count": count}, on_progress=lambda done, total, message: progress.append(done)
            )
        run.equal(received, [*range(count)], expected)
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
                await run.loop.runtime.sleep(0.001)
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
        with run.loop.scope() as scope:
            async with run.expecting(expected), run.loop.tasks() as group:
                group.start_soon(served, conversation, "wait")
                await reported(conversation, "waiting", 1)
                scope.cancel()
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
        async with run.loop.tasks() as group:
            answers: list[Any] = []
            for _ in range(PIECES):
                group.start_soon(_collect, run, answers, served(conversation, "measure", text="x" * size))
            async with run.expecting("the transport to come to rest while the server does not read"):
                taken = await run.settled(lambda: health().sent_bytes) - before
            unwritten = health().held.get("unwritten", 0)
            conversation.resume()
            _check_waits(run, unwritten, "client")
            _check_room(run, taken, room + 2 * size + 65536, "client")
            expected = "calls to be answered when the server reads again"
            await run.until(lambda: len(answers) == PIECES, expected)
        run.equal(answers, [size] * PIECES, expected)


@check("stalls", "in_process", "speaks_back")
async def a_stalled_client(run: CheckRun) -> None:
    """Stop a client from reading: it loses log messages by policy, without effect on other clients (P6, P14)."""
    room = run.harness.room
    size, received = 3 * room // PIECES, []
    server = kit_server(run.seen, Limits(queued_logs=QUEUED_LOGS, logs_per_second=10**6))
    async with (
        run.join(server, on_log=lambda message: received.append(message.data[0])) as conversation,
        run.join(server) as other,
        run.loop.tasks() as group,
    ):
        assert conversation.stall is not None, missing("stall")
        assert conversation.resume is not None, missing("resume")
        answers: list[Any] = []
        group.start_soon(_collect, run, answers, served(conversation, "flood", count=PIECES, size=size))
        await run.until(lambda: server.sessions[0].health().serving, "a call to reach the server and run there")
        conversation.stall()
        await run.until(lambda: run.seen.flooded, "the server to go on while a client does not read")
        await run.check_works(other, "while another client does not read")
        unwritten = server.sessions[0].health().held.get("unwritten", 0)
        conversation.resume()
        _check_waits(run, unwritten, "server")
        await run.until(lambda: answers, "the call to be answered when the client reads again")
        run.equal(answers, [PIECES], "the call to be answered when the client reads again")
        run.equal(received, sorted(set(received)), "notifications to stay in order, each once")
        taken = (len(received) - QUEUED_LOGS) * size
        _check_room(run, taken, room + 2 * size + 65536, "server")


@check("in_process", "ordered")
async def a_busy_server(run: CheckRun) -> None:
    """Make more calls than the server may hold: it stops reading until some have ended, and answers all (P6, P14)."""
    room = run.harness.room
    count, size = 2 * PIECES, 3 * room // PIECES
    answers: list[Any] = []
    async with (
        run.join(kit_server(run.seen, Limits(peer_bytes=room, queued_bytes=room // 2))) as conversation,
        run.loop.tasks() as group,
    ):
        client = conversation.client
        before = client.health().sent_bytes
        for _ in range(count):
            group.start_soon(_collect, run, answers, client.call_tool("wait", meta={"example.org/text": "x" * size}))
        async with run.expecting("the transport to come to rest while the server is busy"):
            taken = await run.settled(lambda: client.health().sent_bytes) - before

        def all_released() -> bool:
            run.seen.release()
            return len(answers) == count

        await run.until(all_released, "calls to be answered when the server has room again")
        failed = [answer for answer in answers if isinstance(answer, McpError)]
        run.hold(not failed, "calls that wait for a busy server to be answered", f"{failed[:1]!r:.200}")
        _check_room(run, taken, 2 * room + 2 * size + 65536, "client")


def _check_room(run: CheckRun, taken: int, limit: int, sender: str) -> None:
    expected = f"to wait when the other end does not read: at most {limit} bytes of the {sender}'s are taken"
    run.hold(taken <= limit, expected, f"the transport took {taken} bytes (Harness.room is {run.harness.room})")


def _check_waits(run: CheckRun, unwritten: int, sender: str) -> None:
    """Fail unless a send waited, whose bytes mcpio counts."""
    expected = f"a send of the {sender} to wait while the other end does not read"
    run.hold(unwritten > 0, expected, "the transport took all that was sent")


async def _collect(run: CheckRun, answers: list[Any], call: Any) -> None:
    answers += await run.together(call)


# ------------------------------------------------------------------------------------------------------- closing checks
# Checks of the end of a connection: graceful, abrupt, from any task or thread, and without leaks.

WAITING: Final = 3
SEVERAL: Final = 8
UNREAD: Final = 200_000
DIALLED: Final[tuple[dict[str, Any], ...]] = (
    {
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "kit", "version": "1"}},
    },
    {"method": "notifications/initialized"},
    {"id": 1, "method": "tools/call", "params": {"name": "large", "arguments": {"size": UNREAD}}},
    {"id": 2, "method": "tools/call", "params": {"name": "flood", "arguments": {"count": 5, "size": 10}}},
    {"id": 3, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "last"}}},
)


@check("half_closes", "in_process")
async def half_close(run: CheckRun) -> None:
    """Close a client's output: it still gets every answer, and then the end of the server's output (P4)."""
    requests = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in DIALLED)
    received = b""
    expected = "every answer, and then the end, after the client has ended what it sends"
    async with run.expecting(expected), run.harness.dial(run.server) as stream:
        received = await _half_close(stream, requests)
    messages = [json.loads(line) for line in received.splitlines()]
    run.equal(sorted(message["id"] for message in messages if "id" in message), [0, 1, 2, 3], expected)
    await run.until(lambda: not run.server.sessions, "the server's session to end after a half-close")


@check()
async def closing_with_calls_under_way(run: CheckRun) -> None:
    """Leave a client's block: the calls of other tasks end, each once, and so does the connection (P9)."""
    outcomes: list[Any] = []
    async with run.loop.tasks() as group:
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
            await run.loop.runtime.to_thread(conversation.client.close)
            await _check_over(run, conversation, "it was closed by a thread")


@check("in_process", "not reconnects")
async def closing_by_the_server(run: CheckRun) -> None:
    """Close a session at the server: its client ends too, and its calls with it (P9)."""
    async with run.join() as conversation, run.loop.tasks() as group:
        outcomes: list[Any] = []
        group.start_soon(_wait, run, conversation, outcomes)
        await _until_waiting(run, conversation)
        for session in run.server.sessions:
            session.close(0)
        await _check_over(run, conversation, "the server closed the session")
        await run.until(lambda: outcomes, "calls to end when the server closes the session")
        run.all_lost(outcomes, "calls under way when the server closes the session")


@check("in_process", "ordered", "not reconnects")
async def closing_is_no_loss(run: CheckRun) -> None:
    """Close an end right after it has sent: all of it arrives, and the other end reports an end, not a loss (P9)."""
    count = 50
    async with run.join() as conversation:
        [session] = run.server.sessions
        for number in range(count):
            conversation.client.notify(CustomNotification(NOTE, {"number": number}))
    run.equal(run.seen.notes, [*range(count)], "what a client has sent before it closes to arrive")
    _check_not_lost(run, session, "server")
    async with run.join() as conversation:
        await run.check_works(conversation, "before the server closes the session")
        run.server.sessions[0].close()
        await _check_over(run, conversation, "the server closed the session")
    _check_not_lost(run, conversation.client, "client")


@check(breaks=True)
async def a_cancelled_block(run: CheckRun) -> None:
    """Cancel a client's block with calls in flight: it ends soon, and the server notices (P9)."""
    started = ended = run.loop.now()
    with run.loop.scope() as scope:
        async with run.join() as conversation, run.loop.tasks() as group:
            for _ in range(WAITING):
                group.start_soon(served, conversation, "wait")
            await _until_waiting(run, conversation)
            started = run.loop.now()
            scope.cancel()
    ended = run.loop.now()
    expected = "a cancelled block to be left soon"
    run.hold(ended - started < run.harness.patience, expected, f"it took {ended - started:.1f} s")
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
    async with run.join(sampling=_never) as conversation, run.loop.tasks() as group:
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
    async with run.join() as conversation, run.loop.tasks() as group:
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
    received: list[Any] = []
    async with run.join() as conversation, run.loop.tasks() as group:
        for number in range(SEVERAL):
            group.start_soon(run.together, echoed(conversation, f"old {number}"))
        # The calls start in this turn, so that the loss meets requests that are under way.
        await run.loop.runtime.sleep(0)
        await _lose(run, conversation)
        await _check_over(run, conversation, "the connection was lost")
    del run.reports[:]
    async with run.join(on_notification=received.append) as conversation:
        await run.check_works(conversation, "over the next connection, after one was lost")
        texts = [f"new {number}" for number in range(SEVERAL)]
        expected = "the next connection to get nothing of the one that was lost"
        async with run.expecting(expected):
            run.equal(await run.together(*(echoed(conversation, text) for text in texts)), texts, expected)
        run.hold(
            not run.reports and not received,
            expected,
            f"something was received without a request: {received[:1]!r:.200}",
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


async def _half_close(stream: BareStream, data: bytes) -> bytes:
    """Send something, end the output, and return what comes until the end."""
    if isinstance(stream, tuple):
        reader, writer = stream
        writer.write(data)
        writer.write_eof()
        received = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        return received
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
    async with run.join() as conversation, run.loop.tasks() as group:
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
    async with run.join() as conversation, run.loop.tasks() as group:
        texts = [counted(UNREAD) if number % 3 == 0 else f"{number}" for number in range(SEVERAL)]
        outcomes: list[Any] = []
        for text in texts:
            group.start_soon(_collect, run, outcomes, echoed(conversation, text))
        for _ in range(turns):
            await run.loop.runtime.sleep(0)
        await _lose(run, conversation)
        await _check_over(run, conversation, "the connection was lost")
        await run.until(lambda: len(outcomes) == SEVERAL, "each call to end when the connection is lost")
        _check_each(run, outcomes, texts)


async def _lose_with_a_call(run: CheckRun, conversation: Conversation) -> None:
    """Break a connection during a call."""
    async with run.loop.tasks() as group:
        outcomes: list[Any] = []
        group.start_soon(_collect, run, outcomes, served(conversation, "flood", count=20, size=10))
        await run.loop.runtime.sleep(0.005)
        await _lose(run, conversation)
        await run.until(lambda: outcomes, "a call under way at a loss to end")
        _check_each(run, outcomes, [20])


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


def _check_not_lost(run: CheckRun, session: Session, end: str) -> None:
    """Fail if a session whose peer has closed takes the transport for broken."""
    ended = session.ended
    expected = f"the {end} to learn that the other end has closed, not that the transport failed"
    run.hold(ended is not None and ended.reason is not CloseReason.LOST, expected, f"its session ended with {ended}")


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
