"""What drivers have in common, whatever their event loop: what the operator is told, and errors without groups."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mcpio._checks import required
from mcpio._printable import printable

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.engine.connection import Connection
    from mcpio.observe.tap import Tap

__all__ = [
    "ClientContext",
    "ServedOnImport",
    "TapSource",
    "attach_tap",
    "checked_server",
    "first_failure",
    "lifespan_of",
    "only_importing",
    "report",
    "unwrapped",
]

TapSource: TypeAlias = "Tap | Callable[[], Tap]"
"""A tap, or a function that makes one for each session."""


class ClientContext:
    """What gives a client for the length of a block, and is none itself."""

    if not TYPE_CHECKING:  # to a type checker, every misspelt name would be there

        def __getattr__(self, name: str) -> Any:
            """Say where the client is that has the attribute, most likely."""
            raise AttributeError(f"{name!r} is for the client, which the block gives: async with ... as client")


def report(message: str, error: BaseException | None) -> None:
    """Write to the log, under the name ``mcpio``: a warning, or an error with its traceback.

    It is for what no caller waits for. The message may quote a peer.
    """
    message = printable(message)
    if error is None:
        logging.getLogger("mcpio").warning("%s", message)
    else:
        logging.getLogger("mcpio").error("%s", message, exc_info=error)


def attach_tap(connection: Connection, tap: TapSource | None, now: float) -> None:
    """Put a tap on a connection. ``TypeError`` for what is none; raises what ``Tap.opened`` does."""
    if tap is None:
        return
    from mcpio.observe.tap import Tap, add_tap

    given: Any = tap
    made = given() if callable(given) and not isinstance(given, Tap) else given
    if not isinstance(made, Tap):
        raise TypeError(f"a tap is an mcpio.observe.Tap, or a function that returns one, not {made!r:.100}")
    add_tap(connection, made, now=now, report=report)


def checked_server(server: Server) -> Server:
    """Return what is to be served. ``TypeError`` for what is no server."""
    from mcpio.app.server import Server  # loaded already, by whoever has one

    return required("server", server, Server)


class ServedOnImport(RuntimeError):
    """A module that is imported to be served by somebody else serves its server itself."""

    def __init__(self) -> None:
        super().__init__("a server is served while its module is imported: put this under if __name__ == '__main__'")


_importing: Final = ContextVar("_importing", default=False)


@contextlib.contextmanager
def only_importing() -> Iterator[None]:
    """Context manager in which serving raises ServedOnImport: it would never return to who imports the module."""
    token = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(token)


def lifespan_of(server: Server) -> Any:
    """Return the context manager to enter while a server is served.

    Raises TypeError if ``server`` is not a Server, and ServedOnImport inside ``only_importing``.
    """
    lifespan = checked_server(server).lifespan
    if _importing.get():
        raise ServedOnImport
    return contextlib.nullcontext() if lifespan is None else lifespan(server)


@contextlib.contextmanager
def unwrapped(cancelled: type[BaseException]) -> Iterator[None]:
    """Let what is in a group of exceptions leave without it: around what runs tasks, and nothing else (P10).

    It is for tasks that do not raise, so that there is but one exception to speak of: ``cancelled``, which is what the
    event loop has for a cancellation, or what a handler ended the program with.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        failure = first_failure(group, cancelled)
        context = failure.__context__
        try:
            raise failure
        finally:
            # Not the group, which would show all of it once more.
            failure.__context__ = context
            del failure, context  # They refer to this frame, and this frame to them.


def first_failure(group: BaseExceptionGroup[BaseException], cancelled: type[BaseException]) -> BaseException:
    """Return the first exception in a group that is no cancellation; a cancellation where there is nothing else."""
    _, failures = group.split(cancelled)
    found: BaseException = group if failures is None else failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
