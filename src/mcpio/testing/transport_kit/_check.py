"""Checks, one run of a check, and the fault with the expected and the actual behaviour."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Final, Unpack

import attrs
import trio

from mcpio.app.server import Server
from mcpio.errors import ConnectionLost, McpError, NoBackChannel
from mcpio.testing.transport_kit._harness import Conversation, Harness
from mcpio.testing.transport_kit._loops import Group, KitLoop, Limit, current_loop
from mcpio.testing.transport_kit._server import Seen, kit_server
from mcpio.types import CreateMessageRequest, CreateMessageResult

if TYPE_CHECKING:
    from mcpio.app.client import ClientOptions

__all__ = [
    "Check",
    "CheckRun",
    "TransportFault",
    "check",
    "echoed",
    "pauses",
    "report",
    "reported",
    "served",
]

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


def check(*needs: str, breaks: bool = False) -> Callable[[Callable[..., Any]], Check]:
    """Turn an async function of a ``CheckRun`` into a check."""
    return lambda function: Check(function.__name__, needs, breaks, function)


class Step:
    """A step of a check that is cut short when it takes too long."""

    def __init__(self, loop: KitLoop, limit: Limit, expected: str, deadline: float) -> None:
        self.expected = expected
        """What has to happen."""
        self._loop = loop
        self._limit = limit
        self.move(deadline)

    @property
    def has_expired(self) -> bool:
        """Whether the step was cut short. Known after its block."""
        return self._limit.has_expired

    def move(self, deadline: float) -> None:
        """Cut the step short at that time; infinity for never."""
        self._limit.move(deadline)
        self._cut_at = time.monotonic() + deadline - self._loop.now()

    def is_overdue(self, seconds: float) -> bool:
        """Whether the step goes on, ``seconds`` after it was cut short. May be called from another thread."""
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
        deadline = self.loop.now() + self.harness.patience
        async with self.loop.limited(deadline) as limit:
            step = Step(self.loop, limit, expected, deadline)
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

    def equal(self, found: Any, wanted: Any, expected: str) -> None:
        """Fail unless they are equal."""
        if found != wanted:
            raise self.fault(expected, _difference(found, wanted))

    def fault(self, expected: str, happened: str) -> TransportFault:
        """Return the fault to raise."""
        said = "".join(f"\n  mcpio reported: {report:.300}" for report in self.reports[:3])
        return TransportFault(self._check, expected, happened + said)

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
                await self.loop.sleep(pause)

    async def settled(self, count: Callable[[], int]) -> int:
        """Wait until a count stops changing, and return it."""
        before, again = -1, 0
        while again < 5:
            before, now = count(), before
            again = again + 1 if before == now else 0
            await self.loop.sleep(0.02)
        return before

    async def together(self, *calls: Awaitable[Any]) -> list[Any]:
        """Await calls concurrently; return their results, or the errors of mcpio that they raised."""
        outcomes: list[Any] = [None] * len(calls)

        async def wait(number: int, call: Awaitable[Any]) -> None:
            try:
                outcomes[number] = await call
            except McpError as error:
                outcomes[number] = error

        async with self.loop.group() as group:
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
    found = (await conversation.client.call_tool("report")).structured_content
    return dict(found or {})


async def reported(conversation: Conversation, name: str, least: int) -> None:
    """Wait until a count of the server's record reaches ``least``."""
    for pause in pauses():
        if (await report(conversation))[name] >= least:
            return
        await current_loop().sleep(pause)


def pauses() -> Iterator[float]:
    """Yield growing pauses, in seconds, for conditions that must be polled."""
    return (min(0.001 * 1.1**number, 0.1) for number in itertools.count())


def _parrot(_: object, request: CreateMessageRequest) -> CreateMessageResult:
    (message,) = request.messages
    return CreateMessageResult(role="assistant", content=message.content, model="parrot")


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, list) and isinstance(wanted, list) and found != wanted:
        return f"{_list_difference(found, wanted)}: {found!r:.200} in place of {wanted!r:.200}"
    if isinstance(found, str) and isinstance(wanted, str):
        at = next((at for at, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), None)
        place = f"the first {min(len(found), len(wanted))} are right" if at is None else f"they differ at {at}"
        if max(len(found), len(wanted)) > 80:
            return f"{len(found)} characters in place of {len(wanted)}; {place}"
    return f"{found!r:.200} in place of {wanted!r:.200}"


def _list_difference(found: list[Any], wanted: list[Any]) -> str:
    """Describe how two lists differ, briefly."""
    missing = [each for each in wanted if found.count(each) < wanted.count(each)]
    more = [each for each in found if found.count(each) > wanted.count(each)]
    if missing:
        return f"{len(missing)} of {len(wanted)} are missing, the first {missing[0]!r:.80}"
    if more:
        return f"{len(found) - len(wanted)} too many, the first {more[0]!r:.80}"
    at = next(at for at, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)
    return f"out of order, first at {at}"
