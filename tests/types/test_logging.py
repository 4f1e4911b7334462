from __future__ import annotations

import itertools
from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.types import LOGGING_LEVELS, LoggingMessageNotification, SetLevelRequest, at_least

LEVELS = "debug info notice warning error critical alert emergency"


def test_levels_are_ordered_by_severity() -> None:
    assert " ".join(LOGGING_LEVELS) == LEVELS


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations(LOGGING_LEVELS, 2)))
def test_at_least_passes_more_severe_levels(low: Any, high: Any) -> None:
    assert at_least(high, low)
    assert at_least(low, low)
    assert not at_least(low, high)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("data", [None, "text", 5, [1], {"a": None}, False])
def test_log_data_may_be_any_value(data: Any, revision: Revision) -> None:
    raw = {"level": "info", "data": data, "logger": "db"}
    read = codec(revision).decode(raw, LoggingMessageNotification)
    assert read == LoggingMessageNotification("info", data, "db")
    assert codec(revision).encode(read) == raw


def test_log_message_without_data_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"^data: missing$"):
        codec(REV_2025_11_25).decode({"level": "info"}, LoggingMessageNotification)


def test_unknown_level_is_refused() -> None:
    assert codec(REV_2025_11_25).encode(SetLevelRequest("alert")) == {"level": "alert"}
    for level in ("Info", "trace", 3, None):
        with pytest.raises(InvalidMessage, match=r"^level: expected one of 'alert', "):
            codec(REV_2025_11_25).decode({"level": level}, SetLevelRequest)


def test_set_level_does_not_exist_in_the_stateless_revision() -> None:
    with pytest.raises(InvalidMessage, match=r"^SetLevelRequest does not exist in 2026-07-28$"):
        codec(REV_2026_07_28).encode(SetLevelRequest("alert"))
