"""HTTP by meaning: what an adapter tells a machine, and what the machine tells the adapter.

Each item carries the exchange that it belongs to: one request and its response. The adapter chooses the name of an
exchange: a counter for HTTP/1.1, the stream for HTTP/2, anything that is unique for one call under ASGI.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import attrs

from mcpio.http.options import HostPolicy

__all__ = ["Body", "Denied", "End", "Headers", "RequestHead", "RequestItem", "Reset", "ResponseHead", "ResponseItem"]

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case, values without surrounding space."""


@attrs.frozen
class RequestHead:
    """The head of a request."""

    exchange: Hashable
    """Which exchange it begins."""
    method: str
    """In upper case, as it came."""
    target: str
    """The path, with the query where there is one: ``/mcp?x=1``."""
    headers: Headers
    """The header fields."""
    principal: Hashable = None
    """Whoever was authenticated before this came here; ``None`` for nobody in particular, or ``Denied``."""
    policy: HostPolicy | None = None
    """Which ``Host`` and ``Origin`` are served where this came in; ``None`` for what the server's options say."""


@attrs.frozen
class Denied:
    """What stands for the principal of a request that is not to be served, by whoever looked at its credentials."""

    status: int = 401
    """The status: 401 for nobody that is known, 403 for somebody who may not."""
    message: str = "Unauthorized"
    """For the JSON-RPC error in the body."""
    headers: Headers = ()
    """More header fields of the response: ``www-authenticate``, for instance."""


@attrs.frozen
class ResponseHead:
    """The head of a response. It has no body when ``End`` follows at once."""

    exchange: Hashable
    """Which exchange it answers."""
    status: int
    """The status code."""
    headers: Headers
    """The header fields. ``content-length`` is among them where the length is known."""


@attrs.frozen
class Body:
    """Some bytes of a body."""

    exchange: Hashable
    """Which exchange they belong to."""
    data: bytes
    """The bytes, as few or as many as there are."""


@attrs.frozen
class End:
    """The end of a request or a response: nothing more of it comes."""

    exchange: Hashable
    """Which exchange."""


@attrs.frozen
class Reset:
    """The exchange broke off: the peer is gone, or is to be cut off in the middle."""

    exchange: Hashable
    """Which exchange."""
    cause: BaseException | None = None
    """What broke it, where that is known."""


RequestItem: TypeAlias = RequestHead | Body | End | Reset
ResponseItem: TypeAlias = ResponseHead | Body | End | Reset
