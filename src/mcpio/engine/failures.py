"""Errors that answer requests, where there is more to them than a code: URL elicitation, and the user's refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcpio.codec import Codec
from mcpio.engine.gates import UNKNOWN_CLIENT
from mcpio.errors import (
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    RequestError,
    SamplingRejected,
    URLElicitationRequired,
)
from mcpio.framing import jsonrpc
from mcpio.methods import declares

if TYPE_CHECKING:
    from mcpio.events import RequestContext

__all__ = ["check_error", "decoded_error"]


def decoded_error(message: jsonrpc.Error, method: str, codec: Codec) -> RequestError:
    """Return the error that answers a request, of the class that its code stands for.

    A ``URLElicitationRequired`` whose data makes no sense, or in a revision without it, is no more than its code.
    """
    if message.code == ErrorCode.USER_REJECTED and method == "sampling/createMessage":
        return SamplingRejected(message.message, message.data)
    if message.code == ErrorCode.URL_ELICITATION_REQUIRED:
        try:
            return URLElicitationRequired(_visits(message.data, codec), message.message, message.data)
        except (InvalidMessage, ValueError):
            pass
    return RequestError(message.code, message.message, message.data)


def check_error(error: RequestError, context: RequestContext | None, codec: Codec) -> None:
    """Raise ``LocalProtocolError`` for an error that must not answer a request.

    -32042 needs a peer that declared ``elicitation.url``, or whose capabilities are unknown, and data that names
    addresses (ELIC-17).
    """
    if getattr(error, "code", None) != ErrorCode.URL_ELICITATION_REQUIRED:
        return
    declared = None if context is None else context.capabilities
    if declared is not UNKNOWN_CLIENT and not declares(declared, ("elicitation", "url")):
        raise LocalProtocolError("error -32042 needs the capability elicitation.url, which the peer did not declare")
    try:
        named = _visits(error.data, codec)
    except InvalidMessage as fault:
        raise LocalProtocolError(f"the data of error -32042: {fault}") from None
    if not named:
        raise LocalProtocolError("the data of error -32042: elicitations: names none")


def _visits(data: Any, codec: Codec) -> tuple[Any, ...]:
    # The types of a feature are loaded by those who use it.
    from mcpio.types.elicitation import URLElicitationRequiredData

    return codec.decode(data, URLElicitationRequiredData).elicitations
