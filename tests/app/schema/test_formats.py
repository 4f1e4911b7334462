from __future__ import annotations

import pytest

from mcpio.app.schema.constraints import check_format
from mcpio.app.schema.values import Fault


@pytest.mark.req("ELIC-05")
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("email", "ada@example.com", "ada at example.com"),
        ("email", "ü@localhost", "a@b@c"),
        ("uri", "https://example.com/?a=b#c", "example.com"),
        ("uri", "urn:isbn:0451450523", "urn: with spaces"),
        ("date", "2025-06-18", "18.6.2025"),
        ("date", "2024-02-29", "2025-02-29"),
        ("date-time", "2025-06-18T09:30:00Z", "2025-06-18T09:30:00"),
        ("unknown", "anything", None),
    ],
)
def test_text_in_each_format(name: str, good: str, bad: str | None) -> None:
    check_format(name, good)
    if bad is not None:
        with pytest.raises(Fault):
            check_format(name, bad)
