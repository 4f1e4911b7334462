"""What either side of a WebSocket may choose."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcpio.profiles import Profile
from mcpio.websocket import WebSocketOptions


@pytest.mark.parametrize(
    "options",
    [
        {"subprotocols": "mcp"},
        {"subprotocols": ("mcp", "mcp")},
        {"subprotocols": ("m c p",)},
        {"subprotocols": ("",)},
        {"subprotocols": (7,)},
        {"ping_interval": 0},
        {"ping_interval": "1"},
        {"pong_timeout": 0},
        {"pong_timeout": None},
        {"pong_timeout": "20"},
        {"close_timeout": math.nan},
        {"close_timeout": math.inf},
        {"close_timeout": -1},
        {"first_message_timeout": 0},
    ],
)
def test_invalid_values_raise(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"subprotocol|seconds"):
        WebSocketOptions(**options)


def test_none_means_no_limit() -> None:
    options = WebSocketOptions(ping_interval=None, first_message_timeout=math.inf)
    assert (options.ping_interval, options.first_message_timeout) == (None, None)


@pytest.mark.req("XPORT-04")
def test_profiles_add_their_subprotocols() -> None:
    options = WebSocketOptions()
    assert options.subprotocols_for(()) == ("mcp",)
    assert options.subprotocols_for({Profile.ERLMCP}) == ("mcp", "mcp.v1")
    assert WebSocketOptions(subprotocols=["mcp.v1"]).subprotocols_for({Profile.ERLMCP}) == ("mcp.v1",)
    assert WebSocketOptions(subprotocols=()).subprotocols_for({Profile.ERLMCP}) == ()
