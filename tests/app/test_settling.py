from __future__ import annotations

from mcpio.app.settling import settle
from mcpio.testing import ManualRuntime


def test_a_value_is_converted_at_once() -> None:
    assert settle(5, str) == "5"


def test_what_must_be_awaited_is_converted_afterwards() -> None:
    async def later() -> int:
        return 5

    assert ManualRuntime().complete(settle(later(), str)) == "5"
