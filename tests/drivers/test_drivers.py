from __future__ import annotations

import pytest

from mcpio._drivers import report


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_unsafe_characters_in_log_lines_become_escapes(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    report("the tool \x1b[2J\u202e is odd", error)
    assert caplog.messages == ["the tool \\x1b[2J\\u202e is odd"]
