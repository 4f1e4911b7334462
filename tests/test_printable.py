from __future__ import annotations

import sys
import unicodedata

import pytest

from mcpio._printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x07\x9b\r", "\\x1b[2J\\x07\\x9b\\r"),
        ("invoice\u202egnp.exe", "invoice\\u202egnp.exe"),
        ("a\u2066b\u2069\u200f", "a\\u2066b\\u2069\\u200f"),
        ("pay\u200bpal\ufeff\xad\u2060", "pay\\u200bpal\\ufeff\\xad\\u2060"),
        ("\U000e0041\u3164\u2028", "\\U000e0041\\u3164\\u2028"),
        ("tab\tline\nno\xa0break é 漢 ❤\ufe0f", "tab\tline\nno\xa0break é 漢 ❤\ufe0f"),
    ],
)
def test_unsafe_characters_become_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_control_bidi_and_zero_width_character_becomes_an_escape() -> None:
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for character in map(chr, range(sys.maxunicode + 1)):
        category = unicodedata.category(character)
        unsafe = category in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(character) in bidi
        unsafe = unsafe or (category == "Cf" and character not in VISIBLE_FORMATS)
        if unsafe and character not in "\t\n":
            assert printable(character).isascii(), f"U+{ord(character):04X}"


VISIBLE_FORMATS = {
    *map(chr, [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)])
}
"""Format characters that have a glyph of their own, such as Arabic number signs."""
