"""What a handler's failure means to its peer, which learns only what the author said, and what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, ErrorCode, NoBackChannel, Refusal, RequestError

__all__ = ["alone", "internal_error", "is_only_the_end", "named", "said_by_author"]


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
