"""An enumeration whose members have titles."""

from __future__ import annotations

import enum
from typing import Self


class Seat(enum.Enum):
    """Where to sit in an aeroplane."""

    WINDOW = "window", "By the window"
    AISLE = "aisle", "By the aisle"

    title: str

    def __new__(cls, value: str, title: str) -> Self:
        member = object.__new__(cls)
        member._value_ = value
        member.title = title
        return member
