"""What a handler's failure means to its peer, which learns only what the author said, and what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, ErrorCode, NoBackChannel, Refusal, RequestError

__all__ = ["alone", "internal_error", "is_only_the_end", "loop_hint", "named", "said_by_author"]


def alone(error: Exception) -> Exception:
    """Return the one exception inside a group, as nurseries and task groups raise them; any other as it is (P10)."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def said_by_author(error: Exception) -> RequestError | None:
    """Return the answer that an exception stands for, ``None`` where its author meant no answer by it."""
    if isinstance(error, RequestError):
        return error
    return error.as_error() if isinstance(error, Refusal) else None


def is_only_the_end(error: BaseException, connection: Connection) -> bool:
    """Whether an error says no more than that the connection ends, and the request with it: no news to anybody."""
    is_ending = connection.phase in (Phase.CLOSING, Phase.CLOSED)
    return is_ending and isinstance(error, ConnectionLost | NoBackChannel)


def loop_hint(error: BaseException) -> str | None:
    """Return what to do about an error that says that a function needs another event loop, ``None`` for any other."""
    text = str(error)
    for sign, loop in _OTHER_LOOPS.items():
        if sign in text and isinstance(error, RuntimeError | TypeError):
            here = f"there is no {loop} loop here, but another one, or a thread"
            return f"{here}: ctx.sleep() waits on every loop, time.sleep() in a thread"
    return None


_OTHER_LOOPS: Final = {
    "must be called from async context": "Trio",  # trio.sleep, outside of Trio
    "no running event loop": "asyncio",  # asyncio.sleep, outside of asyncio
    "unrecognized yield message": "asyncio",  # Trio, of what asyncio waits for
}
"""What is in the texts of such errors, and the loop that is missing."""


def internal_error() -> RequestError:
    """Return the answer that tells a peer nothing but that it failed (RPC-19)."""
    return RequestError(ErrorCode.INTERNAL_ERROR, "Internal error")


def named(message: Mapping[str, Any]) -> str:
    """Return a request in words for its operator: its method, and the name or URI that it asks for."""
    params = message.get("params")
    method = str(message["method"])
    for member in ("name", "uri"):
        value = params.get(member) if isinstance(params, Mapping) else None
        if isinstance(value, str):
            return f"{method} {value!r:.100}"
    return method
