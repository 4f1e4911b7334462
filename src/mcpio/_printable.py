"""Make a peer's text safe to show on a terminal."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["printable", "shortened"]


def printable(text: str) -> str:
    r"""Return text with control, bidirectional and invisible characters as escapes, such as ``\x1b`` and ``\u202e``.

    Tabs and newlines stay, and so do the two variation selectors that emoji end in.
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shortened(text: str, most: int) -> str:
    """Return a text, or only the beginning and the length of one that has more than ``most`` characters."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


# Control characters move the cursor and worse. The others reorder text or hide it: line separators, annotation
# characters, and what Unicode calls Default_Ignorable_Code_Point.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
