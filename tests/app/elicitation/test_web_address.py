from __future__ import annotations

import pytest

from mcpio.app.asking import lint_address
from mcpio.web_address import web_address


@pytest.mark.req("ELIC-19")
@pytest.mark.parametrize(
    ("url", "faults"),
    [
        ("https://example.com/connect?state=1", []),
        ("http://localhost/connect", []),
        ("http://example.com/", ["it is not https"]),
        ("http://127.0.0.1.example.com/", ["it is not https"]),
        ("https://ada:pw@example.com/", ["it carries credentials"]),
        (
            "https://example.com/?token=1&a=b&Password=2",
            ["it seems to give access to anyone who has it (token, Password)"],
        ),
    ],
)
def test_unsafe_addresses_are_listed(url: str, faults: list[str]) -> None:
    assert lint_address(web_address(url)) == faults
