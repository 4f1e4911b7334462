from __future__ import annotations

import math
from typing import Any

import pytest

from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2024_11_05, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28


@pytest.mark.req("LIFE-03", "PING-03")
def test_the_defaults_are_the_official_protocol_in_full_and_nothing_else() -> None:
    options = Options()
    assert options.revisions == HANDSHAKE_REVISIONS
    assert options.latest is REV_2025_11_25
    assert (options.limits, options.request_timeout, options.initialize_timeout) == (Limits(), Timeout(60.0), 30.0)
    assert options.custom_methods == frozenset()
    assert not options.strict_initialized


def test_the_latest_is_the_newest_whatever_the_order() -> None:
    assert Options(revisions=(REV_2025_06_18, REV_2024_11_05)).latest is REV_2025_06_18


@pytest.mark.parametrize("revisions", [(), (REV_2026_07_28,), (REV_2025_11_25, REV_2026_07_28)])
def test_only_a_revision_with_a_handshake_can_be_chosen(revisions: Any) -> None:
    with pytest.raises(ValueError, match="revisions must be one or more of 2024-11-05, 2025-03-26, "):
        Options(revisions=revisions)


def test_the_time_for_the_handshake_is_a_time() -> None:
    assert Options(initialize_timeout=math.inf).initialize_timeout is None
    with pytest.raises(ValueError, match="a time is a number of seconds"):
        Options(initialize_timeout=math.nan)
