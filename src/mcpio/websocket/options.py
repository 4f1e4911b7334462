"""The options of a WebSocket, for both roles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

from mcpio.engine.limits import seconds
from mcpio.profiles import Profile

__all__ = ["WebSocketOptions"]

ERLMCP_SUBPROTOCOL: Final = "mcp.v1"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ValueError(f"subprotocols are a tuple of names, not the text {names!r:.60}")  # noqa: TRY004  options are values
    return tuple(names)


def _sayable(_: object, __: object, names: tuple[Any, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise ValueError(f"{name!r:.60} is no name of a subprotocol")
    if len(set(names)) < len(names):
        raise ValueError("a subprotocol is named twice")


def _more_than_none(_: object, field: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{field.name} is a number of seconds above 0, or None")


@attrs.frozen(kw_only=True)
class WebSocketOptions:
    """Options for either role. Times are in seconds. Raises ValueError for invalid values.

    The limit on the size of a message is ``Limits.message_bytes``, as on every transport (XPORT-04).
    """

    subprotocols: tuple[str, ...] = attrs.field(default=("mcp",), converter=_names, validator=_sayable)
    """The subprotocols that are spoken, the best first. A client offers them and takes no other answer; a server
    refuses whoever offers none of them. With ``Profile.ERLMCP`` among the profiles of the server or client,
    ``mcp.v1`` is spoken too. Empty: none is offered, and none is asked for."""
    ping_interval: float | None = attrs.field(default=30.0, converter=seconds, validator=_more_than_none)
    """After so much silence a ping is sent; ``None`` for never."""
    pong_timeout: float = attrs.field(default=20.0, validator=_more_than_none)
    """After so much more silence the other side is gone. Whatever arrives is a sign of life."""
    close_timeout: float = attrs.field(default=1.0, validator=_more_than_none)
    """How long to wait for the other side to close too. The drivers of ``mcpio.trio`` never wait for more than 1 s."""
    first_message_timeout: float | None = attrs.field(default=30.0, converter=seconds, validator=_more_than_none)
    """For servers: how long a client has to say something before it is cut off; ``None`` for ever."""
    compression: bool = False
    """Whether to compress messages, by permessage-deflate, where the other side does too. Each message is compressed by
    itself: a quiet connection needs no memory for it, and no message tells about the length of another. Leave it off
    where secrets are sent beside what a stranger has chosen, for the length of both together tells about them."""

    def subprotocols_for(self, profiles: Iterable[Profile]) -> tuple[str, ...]:
        """Return the subprotocols to speak with these profiles."""
        names = self.subprotocols
        if not names or Profile.ERLMCP not in profiles or ERLMCP_SUBPROTOCOL in names:
            return names
        return (*names, ERLMCP_SUBPROTOCOL)
