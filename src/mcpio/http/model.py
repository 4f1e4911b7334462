"""The items of HTTP that pass between an adapter and a machine: heads, pieces of bodies, ends and resets.

Each item names its exchange, which is one request and its response. The adapter chooses the name: a counter for
HTTP/1.1, the stream for HTTP/2, anything that is unique for one call under ASGI.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import attrs

from mcpio._checks import is_count, required
from mcpio.http.options import HostPolicy

__all__ = [
    "Answer",
    "Body",
    "Denied",
    "End",
    "Headers",
    "RequestHead",
    "RequestItem",
    "Reset",
    "ResponseHead",
    "ResponseItem",
    "header_fields",
    "names_of",
    "whole_request",
]

if TYPE_CHECKING:
    from attrs import frozen as item

else:

    def item(cls: type) -> type:
        """Make a class of items: frozen to type checkers, and cheap to make at run time, as each request makes some."""
        return attrs.define(cls, unsafe_hash=True)


Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case, values without surrounding space."""

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE_END: Final = re.compile(rb"[\r\n\x00]")


def header_fields(fields: Sequence[tuple[str, str]]) -> Headers:
    """Return header fields that are text as bytes, as this module has them."""
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)


def names_of(headers: Headers) -> str:
    """Return the names of header fields, for a representation: the value of any field may be a credential."""
    return f"<{', '.join(name.decode('latin-1') for name, _ in headers)}>"


@item
class RequestHead:
    """The head of a request."""

    exchange: Hashable
    """The exchange that it begins."""
    method: str
    """The method, as it came."""
    target: str
    """The path with its query: ``/mcp?x=1``."""
    headers: Headers = attrs.field(repr=names_of)
    """The header fields."""
    principal: Hashable = None
    """The authenticated caller; ``None`` without authentication, ``Denied`` for one that was refused."""
    policy: HostPolicy | None = None
    """The ``Host`` and ``Origin`` values that are served where this came in; ``None`` for those of the options."""
    may_repeat: bool = False
    """For clients: whether to send it again, on another connection, if it is unknown whether it arrived."""


def _check_status(_: Any, attribute: Any, value: Any) -> None:
    if not is_count(value, 400) or value > 599:
        raise ValueError(f"Denied takes a status from 400 to 599, not {value!r:.60}")


def _check_message(_: Any, attribute: Any, value: Any) -> None:
    required("message", value, str).encode()  # a lone surrogate has no form in JSON


def _check_fields(_: Any, attribute: Any, value: Any) -> None:
    for field in value:
        name, text = field if isinstance(field, tuple) and len(field) == 2 else (None, None)
        if not isinstance(name, bytes) or not isinstance(text, bytes):
            raise TypeError("Denied takes header fields as (name, value), both bytes")
        if _NAME.fullmatch(name) is None or _LINE_END.search(text) is not None:
            # Without the value, which may be a credential.
            raise ValueError(f"Denied: the header field {name!r:.60} has characters that are not allowed")


@attrs.frozen
class Denied:
    """The principal of a request that authentication refused.

    Raises ValueError and TypeError for what no response can have, so that the function which makes it is to blame.
    """

    status: int = attrs.field(default=401, validator=_check_status)
    """The status: 401 for an unknown caller, 403 for one without permission."""
    message: str = attrs.field(default="Unauthorized", validator=_check_message)
    """The message of the JSON-RPC error in the body."""
    headers: Headers = attrs.field(default=(), validator=_check_fields)
    """More header fields of the response: ``www-authenticate``, for instance."""


@item
class ResponseHead:
    """The head of a response. It has no body when ``End`` follows at once."""

    exchange: Hashable
    """The exchange that it answers."""
    status: int
    """The status code."""
    headers: Headers
    """The header fields, with ``content-length`` if the length is known."""


@item
class Body:
    """A piece of a body."""

    exchange: Hashable
    """The exchange."""
    data: bytes
    """The bytes, any number of them."""


@item
class End:
    """The end of a request or of a response."""

    exchange: Hashable
    """The exchange."""


@item
class Reset:
    """An exchange that broke off: the peer disconnected, or must be disconnected."""

    exchange: Hashable
    """The exchange."""
    cause: BaseException | None = None
    """The cause, if it is known."""


class Answer(NamedTuple):
    """A response in one piece."""

    status: int
    """The status code."""
    headers: Headers
    """The header fields, with ``content-length`` where the status has one."""
    body: bytes
    """The body."""


RequestItem: TypeAlias = RequestHead | Body | End | Reset
ResponseItem: TypeAlias = ResponseHead | Body | End | Reset


def whole_request(items: Sequence[RequestItem]) -> tuple[RequestHead, bytes] | None:
    """Return the head and the body of a request that came in one read, as most do; ``None`` for any other items."""
    if len(items) == 3 and items[0].__class__ is RequestHead and items[2].__class__ is End:
        head, body, _ = items
        return head, body.data  # type: ignore[return-value, union-attr]  # by the classes
    return None
