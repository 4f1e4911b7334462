"""Results of functions that may be plain or async, and callbacks that must be plain."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import GeneratorType, coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from mcpio.app.runtime import Runtime

__all__ = [
    "check_nothing_waits",
    "check_parameters",
    "checked_callback",
    "failure_of",
    "in_steps",
    "is_awaitable",
    "is_fault",
    "is_of_kind",
    "is_stopping",
    "parted",
    "settled",
    "when_ready",
    "without_partial",
]


T = TypeVar("T")


def is_awaitable(value: Any) -> bool:
    """Return whether a value is awaitable: ``inspect.isawaitable``, but faster, since every result is checked."""
    kind = value.__class__
    found = _AWAITABLE.get(kind)
    if found is None:
        found = hasattr(kind, "__await__")
        if len(_AWAITABLE) >= _MOST_CLASSES:
            # Classes made at run time must not be kept alive by this table.
            _AWAITABLE.clear()
        _AWAITABLE[kind] = found
    return found or (kind is GeneratorType and inspect.isawaitable(value))


_AWAITABLE: Final[dict[type, bool]] = {}
"""Whether the values of a class are awaitable. A lookup in the class itself costs over half a microsecond."""
_MOST_CLASSES: Final = 500


def is_of_kind(kind: Callable[[Any], bool], function: Any) -> bool:
    """Whether a function, or the ``__call__`` of an object, is of a kind that ``inspect`` tells."""
    function = without_partial(function)
    return kind(function) or (callable(function) and kind(type(function).__call__))


def without_partial(function: Any) -> Any:
    """Return the function inside of partial applications."""
    while isinstance(function, partial):
        function = function.func
    return function


def parted(
    error: BaseException, *cancellation: type[BaseException]
) -> tuple[BaseException | None, BaseException | None]:
    """Return the part of an exception that must propagate, and the part that is a failure of the code that raised it.

    What must propagate ends the program, or by ``cancellation`` the task. Everything else is a failure, also if it is
    no Exception: libraries in other languages raise such exceptions. For a plain function give no ``cancellation``:
    one that it raises is its own failure, such as asking a cancelled future for its result.
    """
    kinds: tuple[type[BaseException], ...] = (SystemExit, KeyboardInterrupt, *cancellation)
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)
    return (error, None) if isinstance(error, kinds) else (None, error)


def failure_of(error: BaseException) -> BaseException:
    """Return what a plain function raised, or raise it again if it must propagate: see ``parted``."""
    if parted(error)[0] is not None:
        raise error
    return error


def is_fault(error: BaseException, runtime: Runtime) -> bool:
    """Whether an exception of what the current coroutine awaited is a failure of that, which costs one request."""
    if isinstance(error, GeneratorExit):
        # Python closes a coroutine by raising this in each of its frames, the innermost first: one that comes from
        # deeper down was raised there.
        return error.__traceback__ is not None and error.__traceback__.tb_next is not None
    return parted(error, runtime.cancellation)[0] is None


async def is_stopping(runtime: Runtime) -> bool:
    """Whether the current task itself was cancelled, rather than only what it awaited."""
    turn = runtime.one_shot()
    turn.set(None)
    try:
        await turn.wait()
    except BaseException:
        return True
    return False


@coroutine
def in_steps(
    awaitable: Any, now: Callable[[], float], limit: float, report: Callable[[float], object]
) -> Generator[Any, Any, Any]:
    """Await a value, and report each step, from one wait to the next, that held the event loop for over ``limit``."""
    steps: Any = awaitable if awaitable.__class__ is GeneratorType else awaitable.__await__()
    if not hasattr(steps, "send"):
        return (yield from steps)
    resume, argument = steps.send, None
    while True:
        began = now()
        try:
            waits_for = resume(argument)
        except StopIteration as end:
            return end.value
        finally:
            # An exception that stayed here would be in a circle with this frame, which its traceback holds.
            argument = None
            took = now() - began
            if took > limit:
                report(took)
        try:
            argument = yield waits_for
            resume = steps.send
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            resume, argument = steps.throw, error


def when_ready(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return ``convert(value)``, or a coroutine for it where ``value`` is awaitable."""
    return _converted(value, convert) if is_awaitable(value) else convert(value)


async def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await value)


async def settled(value: T | Awaitable[T]) -> T:
    """Return the result of a function that may be async: the value, or what awaiting it gives."""
    result: Any = await value if is_awaitable(value) else value  # type: ignore[misc]  # is_awaitable narrows nothing
    found: T = result
    return found


def checked_callback(name: str, callback: Any) -> Any:
    """Return a callback, or ``None``. Raises TypeError if it is async."""
    if callback is None or (callable(callback) and not inspect.iscoroutinefunction(callback)):
        return callback
    raise TypeError(f"{name} is a plain function, called without waiting, not {callback!r:.100}")


def check_parameters(function: Any, what: str, parameters: str, count: int) -> None:
    """Raise TypeError for a function that cannot be called with that many arguments, which ``parameters`` names."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError as error:
        raise TypeError(f"{what} is called with {parameters}, which {function!r:.100} does not take: {error}") from None
    except ValueError:
        return  # it has no signature, as some functions of C


def check_nothing_waits(result: Any) -> None:
    """Raise TypeError if a callback returned an awaitable, since no caller would await it."""
    if is_awaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"it returned {result!r:.100}, which is never awaited: make it a plain function")
