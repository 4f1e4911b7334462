"""What a check stands on: the kit's server, what that has seen, and words for what was expected and what happened."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Final, Unpack

import attrs
import trio

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import ConnectionLost, McpError, NoBackChannel
from mcpio.testing.transport_kit._harness import Conversation, Harness
from mcpio.trio._nurseries import ungrouped
from mcpio.types import CreateMessageRequest, CreateMessageResult, SamplingMessage, TextContent
from mcpio.types.custom import CustomRequest

if TYPE_CHECKING:
    from mcpio.app.client import ClientOptions

__all__ = [
    "ECHO",
    "NOTE",
    "Check",
    "Seen",
    "Stage",
    "TransportFault",
    "check",
    "counted",
    "echoed",
    "kit_server",
    "pauses",
    "report",
    "reported",
    "served",
]

ECHO: Final = "kit/echo"
"""The kit server's method outside the protocol: it answers with what it was given."""
NOTE: Final = "notifications/kit"
"""The notification that the kit server counts."""
_FAILURES: Final = (McpError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""What a call may raise when the transport is not what it should be."""


class TransportFault(AssertionError):
    """A transport does not do what MCP needs of it."""

    check: Check
    """What was asked."""
    expected: str
    """What was asked of the transport."""
    happened: str
    """What it did."""

    def __init__(self, check: Check, expected: str, happened: str) -> None:
        promises = ", ".join(check.promises)
        super().__init__(f"{check.name} ({promises})\n  expected: {expected}\n  happened: {happened}")
        self.check, self.expected, self.happened = check, expected, happened


@attrs.frozen
class Check:
    """One thing that is asked of a transport."""

    name: str
    needs: tuple[str, ...]
    """The attributes of the harness without which it is left out; ``"not reconnects"`` where that must be false."""
    breaks: bool
    """Whether something is broken on purpose, so that mcpio may say so in the log."""
    function: Callable[[Stage], Coroutine[Any, Any, None]] = attrs.field(repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def description(self) -> str:
        """What it does, what follows from that, and in brackets the promises of mcpio that cannot be kept otherwise."""
        return (self.function.__doc__ or "").strip()

    @property
    def promises(self) -> tuple[str, ...]:
        """The promises, such as ``"P4"``; the list of them is in the documentation."""
        return tuple(re.findall(r"\bP\d+", self.description))

    def applies_to(self, harness: Harness) -> bool:
        """Whether the harness says that the transport can do it."""
        for need in self.needs:
            wanted = not need.startswith("not ")
            if bool(getattr(harness, need.removeprefix("not "))) is not wanted:
                return False
        return True


def check(*needs: str, breaks: bool = False) -> Callable[[Callable[..., Any]], Check]:
    """Make a check of an async function of a ``Stage``."""
    return lambda function: Check(function.__name__, needs, breaks, function)


@attrs.define
class Seen:
    """What the kit's server has seen."""

    calls: list[str] = attrs.field(factory=list)
    """The texts that ``echo`` was called with."""
    notes: list[int] = attrs.field(factory=list)
    """The numbers of the notifications."""
    waiting: int = 0
    """How many calls of ``wait`` began."""
    ended: int = 0
    """How many of them are over."""
    flooded: bool = False
    """Whether a call of ``flood`` has said all it had to say."""
    released: trio.Event = attrs.field(factory=trio.Event)
    """Set when ``wait`` is to return."""

    def release(self) -> None:
        """Have every call of ``wait`` return."""
        self.released.set()
        self.released = trio.Event()


class Stage:
    """One run of one check over one harness."""

    def __init__(self, check: Check, harness: Harness, reports: list[str], nursery: trio.Nursery) -> None:
        self.harness = harness
        self.reports = reports
        """What mcpio wrote to its log."""
        self.seen: Seen = Seen()
        self.server: Server = kit_server(self.seen)
        self._check = check
        self._nursery = nursery

    @contextlib.asynccontextmanager
    async def join(self, server: Server | None = None, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        """Hold a conversation for a block. Afterwards the server must know that it is over."""
        options.setdefault("sampling", _parrot)
        serving = server or self.server
        patience, entered, failure = self.harness.patience, False, None
        before = set(serving.sessions)
        with trio.CancelScope(deadline=trio.current_time() + patience) as limit:
            try:
                async with self.harness.join(serving, **options) as conversation:
                    entered, limit.deadline = True, inf
                    sessions = set(serving.sessions) - before
                    self._nursery.start_soon(self._release_after, conversation)
                    try:
                        yield conversation
                    except BaseException as error:
                        failure = error
                        raise
                    finally:
                        limit.deadline = trio.current_time() + 2 * patience
            except _FAILURES as error:
                expected = "both ends to close" if entered else "a connection, with a handshake"
                raise failure or self.fault(expected, f"{type(error).__name__}: {error}") from error
        if failure is not None:
            raise failure
        if limit.cancelled_caught:
            expected = "both ends to end when the client is closed" if entered else "a connection, with a handshake"
            raise self.fault(expected, f"nothing, for {patience:g} s")
        if self.harness.in_process:
            expected = "the server's session to end when the client has closed"
            await self.until(lambda: sessions.isdisjoint(serving.sessions), expected)

    @contextlib.contextmanager
    def expecting(self, expected: str) -> Iterator[None]:
        """Allow only the harness's patience, and no error."""
        patience = self.harness.patience
        try:
            with trio.fail_after(patience), ungrouped():
                yield
        except trio.TooSlowError:
            raise self.fault(expected, f"nothing, for {patience:g} s") from None
        except _FAILURES as error:
            raise self.fault(expected, f"{type(error).__name__}: {error}") from error

    def hold(self, condition: bool, expected: str, happened: str) -> None:
        """Fail unless it is so."""
        if not condition:
            raise self.fault(expected, happened)

    def equal(self, found: Any, wanted: Any, expected: str) -> None:
        """Fail unless they are equal."""
        if found != wanted:
            raise self.fault(expected, _difference(found, wanted))

    def fault(self, expected: str, happened: str) -> TransportFault:
        """Return what to raise."""
        said = "".join(f"\n  mcpio reported: {report:.300}" for report in self.reports[:3])
        return TransportFault(self._check, expected, happened + said)

    async def _release_after(self, conversation: Conversation) -> None:
        """Have the server's handlers end when their client has: an end of input does not cut them short."""
        await conversation.client.driver.wait_closed()
        self.seen.release()

    async def until(self, condition: Callable[[], object], expected: str) -> None:
        """Wait until it is so."""
        with self.expecting(expected):
            for pause in pauses():
                if condition():
                    return
                await trio.sleep(pause)

    async def settled(self, count: Callable[[], int]) -> int:
        """Wait until a count stands still, and return it."""
        before, again = -1, 0
        while again < 5:
            before, now = count(), before
            again = again + 1 if before == now else 0
            await trio.sleep(0.02)
        return before

    async def together(self, *calls: Awaitable[Any]) -> list[Any]:
        """Wait for all of them at once; return what they returned, or the errors of mcpio that they raised."""
        outcomes: list[Any] = [None] * len(calls)

        async def wait(number: int, call: Awaitable[Any]) -> None:
            try:
                outcomes[number] = await call
            except McpError as error:
                outcomes[number] = error

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for number, call in enumerate(calls):
                    nursery.start_soon(wait, number, call)
        return outcomes

    async def check_works(self, conversation: Conversation, when: str) -> None:
        """Fail unless a call comes back."""
        with self.expecting(f"a call to be answered {when}"):
            self.equal(await echoed(conversation, when), when, f"a call to be answered {when}")

    def all_lost(self, outcomes: list[Any], what: str) -> None:
        """Fail unless every call has failed because the connection did."""
        wrong = [each for each in outcomes if not isinstance(each, ConnectionLost | NoBackChannel)]
        expected = f"{what}: each call fails with ConnectionLost, or with NoBackChannel where it was not sent"
        self.hold(not wrong, expected, f"{len(wrong)} of {len(outcomes)} did not: {wrong[:1]!r:.200}")


async def echoed(conversation: Conversation, text: str) -> str:
    """Have the server say a text."""
    return (await conversation.client.call_tool("echo", {"text": text})).text


async def served(conversation: Conversation, name: str, **arguments: Any) -> Any:
    """Call a tool; return what it returned."""
    result = await conversation.client.call_tool(name, arguments)
    if result.is_error:
        return f"the tool failed: {result.text}"
    return (result.structured_content or {}).get("result")


async def report(conversation: Conversation) -> dict[str, Any]:
    """Return what the server has seen: attributes of ``Seen``."""
    found = (await conversation.client.call_tool("report")).structured_content
    return dict(found or {})


async def reported(conversation: Conversation, name: str, least: int) -> None:
    """Wait until the server has seen so many."""
    for pause in pauses():
        if (await report(conversation))[name] >= least:
            return
        await trio.sleep(pause)


def pauses() -> Iterator[float]:
    """Give the seconds between one look and the next at what nobody tells of: few at first."""
    return (min(0.001 * 1.1**number, 0.1) for number in itertools.count())


def counted(size: int) -> str:
    """Return a text of so many characters in which no two places look alike, so that whatever is missing shows."""
    words = " ".join(map(str, range(size // 4 + 8)))
    return words[:size]


def kit_server(seen: Seen | None = None, limits: Limits | None = None) -> Server:
    """Return the server that the kit talks to: to be served by another process, where ``in_process`` is false."""
    seen = seen or Seen()
    server = Server("kit", "1", options=Options(limits=limits or Limits()))
    _add_quick_tools(server, seen)
    _add_slow_tools(server, seen)
    server.handlers[ECHO] = _answer_with_params
    server.notification_handlers[NOTE] = lambda _, note: seen.notes.append(note.params["number"])
    return server


def _add_quick_tools(server: Server, seen: Seen) -> None:
    @server.tool
    def echo(text: str) -> str:
        seen.calls.append(text)
        return text

    @server.tool
    def large(size: int) -> str:
        return counted(size)

    @server.tool
    def measure(text: str) -> int:
        return len(text)

    @server.tool
    def meta(ctx: Context) -> dict[str, Any]:
        return dict(ctx.meta)

    @server.tool(name="report")
    def tell() -> dict[str, Any]:
        return {"calls": seen.calls, "notes": seen.notes, "waiting": seen.waiting, "ended": seen.ended}

    @server.tool
    def talk(ctx: Context, count: int) -> int:
        for number in range(count):
            ctx.info(number)
        ctx.progress(count)
        return count


def _add_slow_tools(server: Server, seen: Seen) -> None:
    arrived: dict[int, trio.Event] = {}

    @server.tool
    async def meet(number: int, of: int) -> int:
        arrived[number] = trio.Event()
        if len(arrived) == of:
            arrived[max(arrived)].set()
        await arrived[number].wait()
        del arrived[number]
        if arrived:
            arrived[max(arrived)].set()
        return number

    @server.tool
    async def wait() -> None:
        seen.waiting += 1
        try:
            await seen.released.wait()
        finally:
            seen.ended += 1

    @server.tool
    async def flood(ctx: Context, count: int, size: int) -> int:
        for number in range(count):
            ctx.info([number, "x" * size])
            await trio.sleep(0.001)
        seen.flooded = True
        return count

    @server.tool
    async def ask(ctx: Context, questions: list[str]) -> list[str]:
        answers: dict[str, str] = {}

        async def put(question: str) -> None:
            asked = CreateMessageRequest((SamplingMessage("user", TextContent(question)),), max_tokens=10)
            answers[question] = str((await ctx.sample(asked)).content.text)  # type: ignore[union-attr]  # the parrot's

        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(put, question)
        return [answers[question] for question in questions]


def _parrot(_: object, request: CreateMessageRequest) -> CreateMessageResult:
    (message,) = request.messages
    return CreateMessageResult(role="assistant", content=message.content, model="parrot")


def _answer_with_params(_: object, request: CustomRequest) -> Any:
    return dict(request.params)


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
    """Say what is wrong with a list, of which little may be shown."""
    missing = [each for each in wanted if found.count(each) < wanted.count(each)]
    more = [each for each in found if found.count(each) > wanted.count(each)]
    if missing:
        return f"{len(missing)} of {len(wanted)} are missing, the first {missing[0]!r:.80}"
    if more:
        return f"{len(found) - len(wanted)} too many, the first {more[0]!r:.80}"
    at = next(at for at, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)
    return f"out of order, first at {at}"
