# ruff: noqa: SLF001 - the library uses sessions from inside
"""How faults of handlers reach the client and the log."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from mcpio._printable import shortened
from mcpio.app.runtime import failure_of
from mcpio.app.schema.values import to_json
from mcpio.engine.connection import Connection
from mcpio.engine.gates import UNKNOWN_CLIENT
from mcpio.engine.table import Phase
from mcpio.errors import (
    CapabilityMissing,
    ConnectionLost,
    ErrorCode,
    InvalidMessage,
    NoBackChannel,
    Refusal,
    RequestError,
    escape_surrogates,
)
from mcpio.events import NoiseReceived
from mcpio.framing.json import dumps
from mcpio.methods import declares
from mcpio.revisions import Era
from mcpio.types._fields import EMPTY
from mcpio.types.features import CallToolResult, LoggingLevel, LoggingMessageNotification

if TYPE_CHECKING:
    from mcpio.app.runtime import Driver
    from mcpio.app.server_session import ServerSession
    from mcpio.events import IncomingId, ProtocolViolated, RequestContext
    from mcpio.observe.tap import Redactor


# ------------------------------------------------------------------------------------------------------------ reporting
# Reports to the operator: throttled, so that a peer that repeats a fault cannot flood the log.

SLOW_STEP: Final = "call what blocks by await ctx.run_in_thread(function), or pause in long work by await ctx.sleep(0)"
"""The advice where an async function, or middleware, held the event loop."""
_BURST: Final = 10
_PER_SECOND: Final = 0.1
"""After the first report of a kind: ten lines at once, then one every ten seconds."""
MOST_TEXT: Final = 10_000
"""Characters of an exception's text that a client gets."""
_MOST_SHOWN: Final = 3
"""How many exceptions of a group are described."""
_MOST_KINDS: Final = 1000
"""How many kinds of reports are remembered; all further ones count as one kind.

No kind is dropped for a newer one, because a peer may cause new kinds at will.
"""

STUBBORN: Final = "does not end when it is cancelled, and keeps what serves it from ending"
"""The log message for a handler or task that continues after its cancellation."""


class Operator(Protocol):
    """The receiver of reports, with a clock."""

    def now(self) -> float:
        """Return the time, in seconds."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator, with its exception."""


class FaultReports:
    """Reports failures to an operator.

    The first failure of a kind is reported with its exception. Later ones are single lines, throttled, with a count of
    those left out. A kind is a message, a type of exception, and the line that raised it.
    """

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[Hashable, Throttle] = {}

    def report(
        self, operator: Operator, message: str, error: BaseException | None, kind: Hashable | None = None
    ) -> None:
        """Report a failure. ``kind`` replaces the message as a key if the message quotes the peer."""
        key: Hashable = (message if kind is None else kind, type(error), _origin(error))
        throttle = self._kinds.get(key)
        if throttle is None and len(self._kinds) >= _MOST_KINDS:
            key = None
            throttle = self._kinds.get(key)
        if throttle is None:
            self._kinds[key] = Throttle(_PER_SECOND, _BURST)
            hint = None if error is None else loop_hint(error)
            operator.report(message if hint is None else f"{message}: {hint}", error)
        elif throttle.admits(operator.now()):
            count, throttle.held_back = throttle.held_back, 0
            again = message if error is None else f"{message} again: {_describe(error):.300}"
            operator.report(f"{again} ({count} times more before)" if count else again, None)


class Advice:
    """Gives each piece of advice to the operator once, as long as it remembers it: clients choose what is in them."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def give(self, advice: str, report: Callable[[str, None], object]) -> None:
        """Report advice that was not given yet. Beyond a number of pieces, nothing is reported."""
        if advice not in self._reported and len(self._reported) < _MOST_ADVICE:
            self._reported.add(advice)
            report(advice, None)


_MOST_ADVICE: Final = 64


def _origin(error: BaseException | None) -> tuple[CodeType, int] | None:
    """Return the code and line where an exception was raised."""
    traceback = None if error is None else error.__traceback__
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code, traceback.tb_lineno


class Throttle:
    """Token bucket: admits ``burst`` at once and ``rate`` a second after that, and counts the rest."""

    __slots__ = ("_at", "_burst", "_left", "_rate", "held_back")

    held_back: int
    """How many were not admitted. Reset it to 0 after reporting it."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at: float | None = None
        self.held_back = 0

    def admits(self, now: float) -> bool:
        """Whether one more is admitted at a time in seconds."""
        if self._at is not None and now > self._at:
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return True
        self.held_back += 1
        return False

    def seconds_to_full(self, now: float) -> float:
        """Seconds from ``now`` until it admits a whole burst, as a new one does."""
        return (self._burst - self._left) / self._rate - (0 if self._at is None else now - self._at)

    @property
    def seconds_to_next(self) -> float:
        """Seconds after the last call of ``admits`` until one more would be admitted."""
        return max(0.0, (1 - self._left) / self._rate)


def unwrap_group(error: BaseException) -> BaseException:
    """Return the only exception in a group, as nurseries and task groups raise them; any other unchanged (P10)."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def describe_error(error: BaseException) -> str:
    """Return the type and text of an exception; of a group, those of its members, each once."""
    texts = list(
        dict.fromkeys(
            f"{type(each).__name__}: {shortened(text_of(each), MOST_TEXT)}".removesuffix(": ")
            for each in _members(error)
        )
    )
    shown = "; ".join(texts[:_MOST_SHOWN])
    return f"{shown}; and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else shown


def text_of(error: BaseException) -> str:
    """Return the text of an exception, as JSON can express it; none if its ``__str__`` fails."""
    try:
        return escape_surrogates(str(error))
    except Exception:
        return ""


def failed(text: str) -> CallToolResult:
    """Return the result of a tool that failed, with a text for the model (TOOL-10)."""
    from mcpio.types.content import TextContent

    return CallToolResult((TextContent(text),), is_error=True)


def _members(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group and of the groups in it; any other exception alone."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _members(each)


def intended_answer(error: BaseException, context: RequestContext | None = None) -> RequestError | None:
    """Return the error that answers a request whose handler raised, or ``None`` for an unexpected exception.

    Surrogates in its text are escaped.
    """
    answer = _intended(error, context)
    if answer is not None and isinstance(answer.message, str):
        answer.message = escape_surrogates(answer.message)
    return answer


def _intended(error: BaseException, context: RequestContext | None) -> RequestError | None:
    if isinstance(error, RequestError):
        in_session = context is not None and context.era is Era.HANDSHAKE
        peer = context.capabilities if context is not None else None
        if error.code != ErrorCode.URL_ELICITATION_REQUIRED or not in_session or peer is UNKNOWN_CLIENT:
            return error
        if not declares(peer, ("elicitation", "url")):
            # The code is not for such a client (ELIC-17); what it could do with it is named.
            text = f"{error.message} (this needs the capability elicitation.url, which the client did not declare)"
            return RequestError(ErrorCode.INTERNAL_ERROR, text, error.data)
        return error
    if isinstance(error, CapabilityMissing):
        if context is None or context.era is Era.STATELESS:
            return None if context is None else error.as_error()
        # The code does not exist in a session, whose client cannot declare anything any more.
        return RequestError(ErrorCode.INTERNAL_ERROR, str(error), {"requiredCapabilities": error.required})
    return error.as_error() if isinstance(error, Refusal) else None


def is_connection_end(error: BaseException, connection: Connection) -> bool:
    """Whether an error merely says that the connection ends, which is reported elsewhere."""
    is_ending = connection.phase in (Phase.CLOSING, Phase.CLOSED)
    return is_ending and isinstance(error, ConnectionLost | NoBackChannel)


def loop_hint(error: BaseException) -> str | None:
    """Return advice for an error that means "wrong event loop", or another common mistake; ``None`` for any other."""
    if not isinstance(error, RuntimeError | AttributeError | TypeError):
        return None
    text = text_of(error)
    if isinstance(error, TypeError):
        advice = next((advice for phrase, advice in _MISUSES.items() if phrase in text), None)
        if advice is not None:
            return advice
    loop = next((loop for phrase, loop in _OTHER_LOOPS.items() if phrase in text), None)
    if loop is None:
        return None
    return (
        f"there is no {loop} loop here, but another one, or a thread: ctx.sleep() waits on every loop, time.sleep() "
        f"in a thread, where ctx.run_in_loop(function) calls what belongs to the loop, and mcpio serve "
        f"--loop {loop.lower()} runs handlers on {loop}"
    )


_NOT_AWAITED: Final = "ctx.info(), ctx.progress() and other calls that only send return at once: leave await out"
_ELICIT: Final = "write await ctx.elicit(message, Type), with no message= and response_type="
_MISUSES: Final = {
    "NoneType can't be used in 'await'": _NOT_AWAITED,
    "'NoneType' object can't be awaited": _NOT_AWAITED,  # from Python 3.14 on
    "request must be a request, or a message with the class of its form": _ELICIT,
    "elicit() missing 1 required positional argument: 'request'": _ELICIT,
}
"""Phrases in the messages of TypeErrors, and what to write."""

_OTHER_LOOPS: Final = {
    "must be called from async context": "Trio",  # most functions, such as trio.sleep
    "'RunContext' object has no attribute": "Trio",  # a nursery
    "Task got bad yield: <class 'trio.": "Trio",  # trio.sleep(0)
    "Task got bad yield: WaitTaskRescheduled": "Trio",  # what waits by trio.lowlevel
    "no running event loop": "asyncio",  # most functions, such as asyncio.sleep
    "There is no current event loop": "asyncio",  # asyncio.gather, asyncio.Future
    "'NoneType' object has no attribute 'create_future'": "asyncio",  # locks, events and queues
    "unrecognized yield message": "asyncio",  # asyncio.sleep(0), a future
}
"""Phrases in the messages of such errors, and the event loop that they require."""


def internal_error() -> RequestError:
    """Return the answer that tells the peer only that the request failed (RPC-19)."""
    return RequestError(ErrorCode.INTERNAL_ERROR, "Internal error")


def describe_request(message: Mapping[str, Any]) -> str:
    """Describe a request for the operator: its method, and the name or URI in it."""
    params = message.get("params")
    method = str(message["method"])
    for member in ("name", "uri"):
        value = params.get(member) if isinstance(params, Mapping) else None
        if isinstance(value, str):
            return f"{method} {value!r:.100}"
    return method


class PeerFaults:
    """Reports the faults of one peer, throttled."""

    __slots__ = ("_driver", "_throttle")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._throttle = Throttle(_PER_SECOND, _BURST)

    def note(self, event: ProtocolViolated | NoiseReceived) -> None:
        """Report a fault that the engine found."""
        if isinstance(event, NoiseReceived):
            self.report(f"a line that is not a message, {event.size} bytes: {event.text!r}")
        else:
            self.report(f"the peer broke a rule: {event.error}; it sent {reprlib.repr(event.raw)}")

    def report(self, text: str) -> None:
        """Report a fault of the peer, unless there were too many lately."""
        if self._throttle.admits(self._driver.now()):
            self._driver.report(text + self._left_out(), None)

    def end(self) -> None:
        """Report how many were left out since the last report."""
        if self._throttle.held_back:
            self._driver.report(f"the peer is gone{self._left_out()}", None)

    def _left_out(self) -> str:
        count, self._throttle.held_back = self._throttle.held_back, 0
        return f" ({count} more of its faults were not reported)" if count else ""


# ----------------------------------------------------------------------------------------------------------------- logs
# Outgoing log messages: redacted, and limited in number.


def redact_secrets(session: Any, message: LoggingMessageNotification) -> LoggingMessageNotification:
    """Return a log message without secrets, as ``Redactor()`` finds them.

    Members with names such as ``password`` or ``api_key`` are redacted at any depth, and values that look like tokens.
    This is the default filter of a server; your filter may call it. Secrets without a telling name or a
    well-known form are not found.
    """
    data = _redactor().message(message.data)
    return message if data is message.data else attrs.evolve(message, data=data)


class LogOutlet:
    """Sends the log messages of one session."""

    __slots__ = ("_session", "_throttle")

    def __init__(self, session: ServerSession, rate: float) -> None:
        self._session = session
        self._throttle = Throttle(rate, rate)

    @property
    def dropped(self) -> int:
        """The number of messages dropped beyond the rate."""
        return self._throttle.held_back

    def send(
        self,
        log_filter: Callable[[Any, LoggingMessageNotification], LoggingMessageNotification | None] | None,
        level: LoggingLevel,
        data: Any,
        logger: str | None,
        related_to: IncomingId | None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a message, unless it exceeds the rate or the filter drops it."""
        session = self._session
        if not self._throttle.admits(session.driver.now()):
            return
        chosen = log_filter or redact_secrets
        try:
            message = chosen(session, LoggingMessageNotification(level, _sayable(data), logger, meta=meta or EMPTY))
        except BaseException as error:
            session._report("the log filter failed, and the message was kept in", failure_of(error))
            return
        if message is None:
            return
        # A handler that is being cancelled may still log; the request is over, but the client may want the message.
        is_over = related_to is not None and not session.connection.is_pending(related_to)
        session.tell(message, related_to=None if is_over else related_to)


def _sayable(data: Any) -> Any:
    """Return a value as plain JSON, or else its ``repr``: logging must not fail."""
    try:
        plain = to_json(data)
        dumps(plain)  # only this finds surrogates, as in names of files, and integers that are too long
    except (InvalidMessage, ValueError):
        return _describe(data)
    return plain


def _describe(data: Any) -> str:
    try:
        return escape_surrogates(repr(data))
    except Exception:  # a faulty __repr__, or a value that is nested too deeply
        return object.__repr__(data)


@cache
def _redactor() -> Redactor:
    from mcpio.observe.tap import Redactor  # only servers that log need it

    return Redactor()
