"""Errors that answer requests, where there is more to them than a code: URL elicitation, and the user's refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio.codec import Codec
from mcpio.errors import ErrorCode, InvalidMessage, RequestError, SamplingRejected, URLElicitationRequired
from mcpio.framing import jsonrpc
from mcpio.methods import declares
from mcpio.types.elicitation import URLElicitationRequiredData

if TYPE_CHECKING:
    from mcpio.events import RequestContext

__all__ = ["decoded_error", "why_no_visits"]


def decoded_error(message: jsonrpc.Error, method: str, codec: Codec) -> RequestError:
    """Return the error that answers a request, of the class that its code stands for.

    A ``URLElicitationRequired`` whose data makes no sense, or in a revision without it, is no more than its code.
    """
    if message.code == ErrorCode.USER_REJECTED and method == "sampling/createMessage":
        return SamplingRejected(message.message, message.data)
    if message.code == ErrorCode.URL_ELICITATION_REQUIRED:
        try:
            data = codec.decode(message.data, URLElicitationRequiredData)
            return URLElicitationRequired(data.elicitations, message.message, message.data)
        except (InvalidMessage, ValueError):
            pass
    return RequestError(message.code, message.message, message.data)


def why_no_visits(error: RequestError, context: RequestContext | None, codec: Codec) -> str | None:
    """Return what forbids to answer with error -32042, or ``None`` (ELIC-17)."""
    if context is None or not declares(context.capabilities, ("elicitation", "url")):
        return "error -32042 needs the capability elicitation.url, which the peer did not declare"
    try:
        data = codec.decode(error.data, URLElicitationRequiredData)
    except InvalidMessage as fault:
        return f"the data of error -32042: {fault}"
    return None if data.elicitations else "the data of error -32042: elicitations: names none"
