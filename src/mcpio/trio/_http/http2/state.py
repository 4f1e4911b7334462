"""What is remembered of a connection in HTTP/2: by h2, and of each of its streams."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Final

import attrs
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from mcpio.http.model import RequestItem
from mcpio.trio._http.http2.frames import FRAME_BYTES, PREFACE

__all__ = ["Connection", "Stream"]

MAX_STREAMS: Final = 100
"""How many requests of one connection may be open at once. Clients reckon with so many until they are told."""


@attrs.define(eq=False)
class Stream:
    """One request, and how it stands with the response."""

    number: int
    exchange: Hashable
    """What the machine calls it."""
    is_bodiless: bool
    """Whether the response is to have no body."""
    expects: bool
    """Whether the client waits for leave to send the body."""
    waiting: list[RequestItem] | None = None
    """What came of it since its head, while the principal is looked for."""
    is_read: bool = False
    """Whether all of the request came."""
    received: int = 0
    """How many bytes came of its body, while it is not complete."""
    owed: int = 0
    """How much of the client's window is to be opened again."""
    until: float = inf
    """When the body has to be complete."""
    has_head: bool = False
    """Whether the head of the response is out."""
    piece: int = FRAME_BYTES
    """How much its client has yet to read in the time for a piece."""
    unsent: memoryview = attrs.field(factory=lambda: memoryview(b""))
    """What was taken from the machine and did not find room: no more than the window had when it was taken."""
    is_ending: bool = False
    """Whether that is the last of it."""
    is_stalled: bool = False
    """Whether it waits for a window."""
    sent_before: int = 0
    """How many bytes of all bodies had been sent when its time began."""


class Connection(H2Connection):
    """What h2 knows of a connection. Of streams that are over it remembers fewer: 65536 would take megabytes."""

    MAX_CLOSED_STREAMS = 1024

    def __init__(self, head_bytes: int) -> None:
        super().__init__(H2Configuration(client_side=False))
        limits = {SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS, SettingCodes.MAX_HEADER_LIST_SIZE: head_bytes}
        self.local_settings = Settings(client=False, initial_values=limits)
        # From the beginning, and not when the client has heard of it.
        self.decoder.max_header_list_size = head_bytes
        self.initiate_connection()
        self.receive_data(PREFACE)

    def may_send_on(self, number: int) -> bool:
        """Whether the window of a stream is open, whatever that of the connection is."""
        return self.streams[number].outbound_flow_control_window > 0
