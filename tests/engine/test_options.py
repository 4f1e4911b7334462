from __future__ import annotations

import math
from typing import Any

import pytest

from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.profiles import Profile
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
)


@pytest.mark.req("LIFE-03", "PING-03")
def test_default_options_are_the_official_protocol() -> None:
    options = Options()
    assert options.revisions == REVISIONS
    assert options.latest is REV_2025_11_25
    assert (options.limits, options.request_timeout, options.initialize_timeout) == (Limits(), Timeout(60.0), 30.0)
    assert options.custom_methods == frozenset()
    assert not options.strict_initialized


def test_emit_profile_refuses_a_dialect_that_is_never_sent() -> None:
    assert Options(emit_profile=Profile.ERLMCP).emit_profile is Profile.ERLMCP
    with pytest.raises(ValueError, match="LSP_ALIASES can be understood, but never sent"):
        Options(emit_profile=Profile.LSP_ALIASES)


def test_latest_is_the_newest_revision_in_any_order() -> None:
    assert Options(revisions=(REV_2025_06_18, REV_2024_11_05)).latest is REV_2025_06_18


@pytest.mark.parametrize("revisions", [(), ("2025-11-25",)])
def test_invalid_revision_raises(revisions: Any) -> None:
    with pytest.raises(ValueError, match="revisions must be one or more of 2024-11-05, 2025-03-26, "):
        Options(revisions=revisions)


def test_revisions_are_grouped_by_era() -> None:
    options = Options(revisions=(REV_2025_06_18, REV_2026_07_28, REV_2025_11_25))
    assert options.handshake_revisions == (REV_2025_11_25, REV_2025_06_18)
    assert options.stateless_revisions == (REV_2026_07_28,)
    assert options.latest is REV_2025_11_25
    assert Options(revisions=(REV_2026_07_28,)).latest is REV_2026_07_28
    assert Options(revisions=HANDSHAKE_REVISIONS).stateless_revisions == ()


def test_invalid_initialize_timeout_is_refused() -> None:
    assert Options(initialize_timeout=math.inf).initialize_timeout is None
    with pytest.raises(ValueError, match="initialize_timeout must be a number of seconds"):
        Options(initialize_timeout=math.nan)


@pytest.mark.req("TIME-02")
def test_a34_erlmcp_timeouts_are_a_preset() -> None:
    options = Options(accept_batches=True, request_timeout=Timeout(1), initialize_timeout=1).with_erlmcp_timeouts()
    assert (options.request_timeout, options.initialize_timeout) == (Timeout(5), 30)
    assert options.accept_batches


def test_option_of_the_wrong_type_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"^limits must be Limits, not 5$"):
        Options(limits=wrong)
    with pytest.raises(TypeError, match=r"^request_timeout must be Timeout, not 5$"):
        Options(request_timeout=wrong)
