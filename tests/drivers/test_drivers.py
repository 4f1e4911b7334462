from __future__ import annotations

import logging

import pytest
from work import steps_of

from mcpio._drivers import report


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_unsafe_characters_in_log_lines_become_escapes(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    report("the tool \x1b[2J\u202e is odd", error)
    assert caplog.messages == ["the tool \\x1b[2J\\u202e is odd"]


HOSTILE = "bad \x1b[2J\n2026-01-01 CRITICAL forged \u202e\rover"


@pytest.mark.parametrize("kind", ["plain", "cause", "group", "note"])
def test_exceptions_that_quote_a_peer_neither_forge_entries_nor_control_the_terminal(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    error: Exception = ValueError(HOSTILE)
    if kind == "group":
        error = ExceptionGroup(HOSTILE, [error])
    elif kind == "note":
        error.add_note(HOSTILE)
    elif kind == "cause":
        error.__cause__ = KeyError(HOSTILE)
    try:
        fail_with(error)
    except Exception as raised:
        report(f"it failed: {raised}", raised)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.pathname.endswith("__init__.py")
    first, *others = logging.Formatter("%(levelname)s %(message)s").format(record).split("\n")
    assert first.startswith("ERROR it failed: bad \\x1b[2J")
    assert all(line.startswith("    ") for line in others)
    assert not set("\x1b\u202e\r") & set("".join(others))
    assert "Traceback" in "".join(others)
    assert logging.Formatter().format(record).count("forged") >= 2


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_exception_that_quotes_a_long_message_is_logged_in_part(size: int, caplog: pytest.LogCaptureFixture) -> None:
    error = ExceptionGroup("\x1b" * size, [KeyError("\x85" * size) for _ in range(15)])
    error.add_note("\x1b" * size)
    assert steps_of(lambda: report("\x1b" * size, error)) < 3_000_000
    (record,) = caplog.records
    assert len(record.getMessage()) < 50_000
    assert record.exc_text is not None
    assert len(record.exc_text) < 500_000
    assert f"... ({size:,} characters)" in record.getMessage()
    assert all(line.startswith("    ") for line in record.exc_text.split("\n"))


def fail_with(error: Exception) -> None:
    raise error


def test_report_below_the_level_of_the_log_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("mcpio"), "level", logging.CRITICAL)
    logging.getLogger("mcpio").manager._clear_cache()  # type: ignore[attr-defined]  # levels are cached
    try:
        report("silent", Unprintable())
    finally:
        monkeypatch.undo()
        logging.getLogger("mcpio").manager._clear_cache()  # type: ignore[attr-defined]  # as above


class Unprintable(Exception):
    def __str__(self) -> str:
        raise AssertionError("nobody reads it")
