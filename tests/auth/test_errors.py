from __future__ import annotations

from mcpio.auth.urls import quoted


def test_quoted_text_of_a_peer_has_no_control_or_bidirectional_characters() -> None:
    shown = quoted("a\x1b[31m\u202eb\u200b\r\nc\td")
    assert shown.isprintable()
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\u200b" not in shown
    assert shown.startswith("'a")


def test_quoted_text_of_a_peer_is_cut_before_it_is_escaped() -> None:
    assert quoted("x" * 10_000) == repr("x" * 200)
    assert quoted("x" * 300, 60) == repr("x" * 60)
