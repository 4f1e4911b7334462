"""The options of a WebSocket, for both roles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

from mcpio._checks import is_amount
from mcpio.engine.limits import seconds
from mcpio.profiles import Profile

__all__ = ["WebSocketOptions"]

ERLMCP_SUBPROTOCOL: Final = "mcp.v1"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ValueError(f"subprotocols are a tuple of names, not the text {names!r:.60}")  # noqa: TRY004  options are values
    return tuple(names)


def _distinct_tokens(_: object, __: object, names: tuple[Any, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise ValueError(f"{name!r:.60} is not a valid subprotocol name: letters, digits and !#$%&'*+-.^_`|~")
    if len(set(names)) < len(names):
        raise ValueError("a subprotocol is named twice")


def _positive(_: object, field: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{field.name} is a number of seconds above 0, or None")


def _positive_and_finite(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    # Without an end, a peer that is gone would keep its connection.
    if not is_amount(value) or value == 0:
        raise ValueError(f"{field.name} is a finite number of seconds above 0, not {value!r:.60}")


@attrs.frozen(kw_only=True)
class WebSocketOptions:
    """Options for either role. Times are in seconds. Raises ValueError for invalid values.

    The limit on the size of a message is ``Limits.message_bytes``, as on every transport (XPORT-04).
    """

    subprotocols: tuple[str, ...] = attrs.field(default=("mcp",), converter=_names, validator=_distinct_tokens)
    """Subprotocols in order of preference. A client offers them and accepts no other; a server refuses clients that
    offer none of them. With ``Profile.ERLMCP`` among the profiles of the server or client, ``mcp.v1`` is added. Empty:
    a client offers none, and a server requires none."""
    ping_interval: float | None = attrs.field(default=30.0, converter=seconds, validator=_positive)
    """Seconds of silence before a ping is sent; ``None`` for never."""
    pong_timeout: float = attrs.field(default=20.0, validator=_positive_and_finite)
    """Seconds after a ping until a silent peer is disconnected. Any input counts as a reply."""
    close_timeout: float = attrs.field(default=1.0, validator=_positive_and_finite)
    """Seconds to wait for the peer's close frame. The drivers wait for 1 s at most."""
    first_message_timeout: float | None = attrs.field(default=30.0, converter=seconds, validator=_positive)
    """For servers: seconds in which a client must send its first message, or be disconnected; ``None`` for no limit."""
    compression: bool = False
    """Whether to negotiate permessage-deflate. Each message is compressed separately, so an idle connection needs no
    memory for it, and the length of one message reveals nothing about another. Leave it off if a message can contain
    both a secret and text that an attacker chose: its compressed length would reveal how similar they are."""

    def subprotocols_for(self, profiles: Iterable[Profile]) -> tuple[str, ...]:
        """Return the subprotocols to speak with these profiles."""
        names = self.subprotocols
        if not names or Profile.ERLMCP not in profiles or ERLMCP_SUBPROTOCOL in names:
            return names
        return (*names, ERLMCP_SUBPROTOCOL)
