"""Code shared by the drivers of all event loops: log, taps, lifespans, and errors without exception groups."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from inspect import isawaitable
from math import inf
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from mcpio._checks import called, required
from mcpio._printable import printable, shortened
from mcpio.app.runtime import OPENERS

if TYPE_CHECKING:
    from mcpio._drivers.event_loop import EventLoop
    from mcpio.app.server import Server
    from mcpio.auth.resource_server import ResourceServer
    from mcpio.engine.connection import Connection
    from mcpio.http.model import Denied
    from mcpio.observe.tap import Tap

__all__ = [
    "LOOKUP_TIMEOUT",
    "ClientContext",
    "LookupTimeout",
    "ServedOnImport",
    "TapSource",
    "attach_tap",
    "check_authorization",
    "checked_auth",
    "checked_server",
    "contain",
    "denied_in_time",
    "denying",
    "first_failure",
    "in_lifespan",
    "in_time",
    "lifespan_of",
    "only_importing",
    "report",
    "unwrapped",
]

P = ParamSpec("P")
T = TypeVar("T")

LOOKUP_TIMEOUT: Final = 30.0
"""Seconds in which the principal of a client must be found, by default."""

MOST_LOGGED: Final = 10_000
"""Characters of a message in the log, and of the text of an exception."""
MOST_TRACEBACK: Final = 100_000
"""Characters of an exception in the log, with its tracebacks."""

TapSource: TypeAlias = "Tap | Callable[[], Tap]"
"""A tap, or a function that returns one for each session."""


class ClientContext:
    """Async context manager that yields a client."""

    if not TYPE_CHECKING:  # to a type checker, every misspelt name would be there

        def __getattr__(self, name: str) -> Any:
            """Explain, to a caller who used a context manager without entering it, where the client is."""
            raise AttributeError(f"{name!r} belongs to the client that the block yields: async with ... as client")


def _open_skills(folder: Any, prefix: tuple[str, ...]) -> Any:
    from mcpio._drivers.skill_folders import open_folder  # few servers have skills

    return open_folder(folder, prefix)


def _open_view(path: Any) -> Callable[[], str]:
    from pathlib import Path

    file = Path(path).absolute()  # wherever the program goes later
    file.read_text("utf-8")

    def read() -> str:
        return file.read_text("utf-8")

    return read


OPENERS["skills"] = _open_skills
OPENERS["view"] = _open_view


def queued_for_a_processor() -> float:
    """Return the seconds in which the current thread was ready to run and had no processor.

    0 where the system does not tell. Linux does, also of threads that a cgroup's quota holds back.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(100).split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def report(message: str, error: BaseException | None) -> None:
    """Log a warning, or an error with its traceback, under the name ``mcpio``.

    For failures that no caller waits for. The message and the exception may quote a peer: unprintable characters are
    escaped, and no line but the first begins at the margin, where a forged entry would.
    """
    logger = logging.getLogger("mcpio")
    if error is None:
        logger.warning("%s", _in_one_entry(message))
        return
    from mcpio.app.reporting import loop_hint  # imported late: it loads the engine

    hint = loop_hint(error)
    if hint is not None and hint not in message:  # the session may have added it
        message = f"{message}: {hint}"
    if logger.isEnabledFor(logging.ERROR):
        info = (type(error), error, error.__traceback__)
        caller = logger.findCaller()[:2]
        record = logger.makeRecord("mcpio", logging.ERROR, *caller, "%s", (_in_one_entry(message),), info)
        # Formatters print this instead of formatting ``exc_info``.
        parts = (shortened(part.rstrip("\n"), MOST_LOGGED) for part in format_exception(*info))
        record.exc_text = _in_one_entry("    " + "\n".join(parts), MOST_TRACEBACK)
        logger.handle(record)


def _in_one_entry(text: str, most: int = MOST_LOGGED) -> str:
    # Cut first: an exception may quote a peer's message, and a character that is escaped takes a microsecond.
    return printable(shortened(text, most)).replace("\n", "\n    ")


class LookupTimeout(Exception):
    """The function that finds principals did not return in time."""


async def in_time(lookup: Awaitable[T], loop: EventLoop, limit: float | None = LOOKUP_TIMEOUT) -> T:
    """Return the principal that a look-up finds. Raises LookupTimeout after ``limit`` seconds; ``None`` sets no limit.

    Until it is found, what a client has sent is held, and its place is taken.
    """
    with loop.scope(inf if limit is None else limit):
        return await lookup
    raise LookupTimeout(f"the principal of a client was not found within {limit} seconds")


def denied_in_time(timeout: LookupTimeout, report: Callable[[str, None], None]) -> Denied:
    """Report that a principal was not found in time; return the answer to the request, which may be repeated."""
    from mcpio.http.model import Denied  # imported late: only those who find principals need it

    report(str(timeout), None)
    return Denied(
        503, "Service unavailable: it took too long to find out whose request it is", ((b"retry-after", b"5"),)
    )


def denying(
    find: Callable[P, Any], report: Callable[[str, BaseException | None], None], loop: EventLoop, limit: float | None
) -> Callable[P, Any]:
    """Return a function that finds principals, within ``limit`` seconds.

    A failure of ``find`` is reported, and denied with status 500; with 503, if it does not end in time.
    """
    from mcpio.http.model import Denied  # imported late: only those who find principals need it

    def denied(error: Exception) -> Denied:
        report("the principal of a request could not be found", error)
        return Denied(500, "Internal error")

    async def end(lookup: Awaitable[Any]) -> Any:
        try:
            return await in_time(lookup, loop, limit)
        except LookupTimeout as timeout:
            return denied_in_time(timeout, report)
        except Exception as error:
            return denied(error)

    def begin(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            lookup = find(*args, **kwargs)
        except Exception as error:
            return denied(error)
        return end(lookup) if isawaitable(lookup) else lookup

    return begin


def attach_tap(connection: Connection, tap: TapSource | None, now: float) -> None:
    """Attach a tap to a connection. Raises TypeError if it is not a Tap, and what ``Tap.opened`` raises."""
    if tap is None:
        return
    from mcpio.observe.tap import Tap, add_tap

    candidate: Any = tap
    made = candidate() if callable(candidate) and not isinstance(candidate, Tap) else candidate
    if not isinstance(made, Tap):
        raise TypeError(f"a tap must be an mcpio.observe.Tap, or a function that returns one, not {made!r:.100}")
    add_tap(connection, made, now=now, report=report)


def checked_server(server: Server) -> Server:
    """Return ``server``. Raises TypeError if it is not a Server."""
    from mcpio.app.server import Server  # loaded already, if there is one

    return required("server", server, Server)


def check_authorization(server: Server, *, is_authorized: bool) -> Server:
    """Return ``server``. Raises TypeError if it is not a Server, ValueError if it needs authorization and has none."""
    if checked_server(server).scope_rules is None or is_authorized:
        return server
    raise ValueError("the server has scopes=, but nothing grants them: give auth=, or a mcpio.auth.Grant as principal=")


def checked_auth(auth: ResourceServer | None, principal: object, parameters: str) -> ResourceServer | None:
    """Return ``auth``. Raises TypeError if it is not a ResourceServer, ValueError if ``principal`` is given too.

    Raises TypeError if ``principal`` is not a function of ``parameters``.
    """
    if principal is not None:
        called("principal", principal, parameters)
    if auth is None:
        return None
    from mcpio.auth.resource_server import ResourceServer

    if principal is not None:
        raise ValueError("give either auth= or principal=: both say who sends a request")
    return required("auth", auth, ResourceServer)


class ServedOnImport(RuntimeError):
    """Raised when a module that is imported for its server serves that server itself."""

    def __init__(self) -> None:
        super().__init__("a server is served while its module is imported: put this under if __name__ == '__main__'")


_importing: Final = ContextVar("_importing", default=False)


@contextlib.contextmanager
def only_importing() -> Iterator[None]:
    """Context manager in which serving raises ServedOnImport, since it would never return to the import."""
    token = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(token)


def lifespan_of(server: Server) -> Any:
    """Return the context manager to enter while a server is served.

    Raises TypeError if ``server`` is not a Server, ServedOnImport inside ``only_importing``, and ValueError if a tool
    has a view that does not exist.
    """
    lifespan = checked_server(server).lifespan
    if _importing.get():
        raise ServedOnImport
    server.check_views()
    return contextlib.nullcontext() if lifespan is None else in_lifespan(lifespan(server))


@contextlib.asynccontextmanager
async def in_lifespan(lifespan: contextlib.AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """Enter and leave a server's lifespan in a function of its own, which drivers can mark as one of users."""
    async with lifespan as state:
        yield state


@contextlib.contextmanager
def unwrapped(cancelled: type[BaseException]) -> Iterator[None]:
    """Context manager that raises one exception in place of an exception group (P10).

    For blocks around a nursery or task group whose tasks do not raise. The only exception that matters then is a
    cancellation, of the class ``cancelled``, or the one with which a handler ends the program.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        failure = first_failure(group, cancelled)
        context = failure.__context__
        try:
            raise failure
        finally:
            # Not the group, whose traceback would show everything twice.
            failure.__context__ = context
            del failure, context  # They refer to this frame, and the frame to them.


def contain(
    error: BaseException,
    message: str,
    report: Callable[[str, BaseException], None],
    *cancellation: type[BaseException],
) -> None:
    """Report an exception that was just caught, or raise it, or the part of a group, that must propagate.

    That is SystemExit, KeyboardInterrupt, and the loop's ``cancellation`` where the code that raised it waited.
    """
    from mcpio.app.runtime import parted  # a failure is rare, and clients of one call load little

    passing, fault = parted(error, *cancellation)
    if fault is not None:
        report(message, fault)
    if passing is not None:
        raise passing


def first_failure(group: BaseExceptionGroup[BaseException], cancelled: type[BaseException]) -> BaseException:
    """Return the first exception of a group that is not a cancellation, or else a cancellation."""
    _, failures = group.split(cancelled)
    failure: BaseException = group if failures is None else failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
