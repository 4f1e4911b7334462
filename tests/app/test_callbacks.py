from __future__ import annotations

from typing import Any

import pytest

from mcpio.app.runtime import check_nothing_waits, checked_callback
from mcpio.testing import ManualRuntime


async def later() -> None: ...


def test_a_callback_is_a_plain_function_or_none() -> None:
    assert checked_callback("on_x", None) is None
    assert checked_callback("on_x", print) is print


@pytest.mark.parametrize("callback", [later, 5, "print"])
def test_async_callback_is_refused(callback: Any) -> None:
    with pytest.raises(TypeError, match="on_x is a plain function, called without waiting, not "):
        checked_callback("on_x", callback)


def test_callback_returning_an_awaitable_raises() -> None:
    check_nothing_waits(None)
    check_nothing_waits(5)
    for waits in (later(), ManualRuntime().one_shot()):
        with pytest.raises(TypeError, match="which is never awaited: make it a plain function"):
            check_nothing_waits(waits)
