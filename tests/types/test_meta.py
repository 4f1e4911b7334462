from __future__ import annotations

import pytest

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25
from mcpio.types import meta


@pytest.mark.req("META-02", "META-03")
@pytest.mark.parametrize(
    "key",
    ["com.example/x", "a/b", "a-b.c9/x", "x", "", "com.example/", "1", "a-b_c.d", "progressToken", "io.x/a.b-c_d9"],
)
def test_a_valid_key(key: str) -> None:
    assert meta.is_valid_meta_key(key)


@pytest.mark.req("META-02", "META-03")
@pytest.mark.parametrize(
    "key",
    ["1a.b/x", "a-.b/x", "/x", "a..b/x", ".a/x", "-x", "x-", "a/b/c", "é", "a b", "com.example/_x", "a/x.", "x\n"],
)
def test_an_invalid_key(key: str) -> None:
    assert not meta.is_valid_meta_key(key)


def test_a_long_key_takes_no_time() -> None:
    assert not meta.is_valid_meta_key("a" * 100_000 + "!")
    assert not meta.is_valid_meta_key("a." * 50_000 + "!")


@pytest.mark.req("META-04")
@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("io.modelcontextprotocol/x", True),
        ("dev.mcp/x", True),
        ("org.modelcontextprotocol.api/x", True),
        ("com.mcp.tools/", True),
        ("com.example.mcp/x", False),
        ("mcp/x", False),
        ("mcp", False),
        ("x", False),
        ("io.modelcontextprotocol", False),
    ],
)
def test_what_is_reserved(key: str, reserved: bool) -> None:
    assert meta.is_reserved_meta_key(key, REV_2025_11_25) is reserved


@pytest.mark.req("META-05")
@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("modelcontextprotocol.io/x", True),
        ("mcp.dev/x", True),
        ("api.modelcontextprotocol.org/x", True),
        ("tools.mcp.com/x", True),
        ("io.modelcontextprotocol/x", False),
        ("mcp/x", False),
        ("x", False),
    ],
)
def test_what_was_reserved_before(key: str, reserved: bool) -> None:
    assert meta.is_reserved_meta_key(key, REV_2025_06_18) is reserved


@pytest.mark.req("META-06")
def test_the_protocols_own_keys_are_valid_and_its_own() -> None:
    keys = [getattr(meta, name) for name in meta.__all__ if name.startswith("META_")]
    assert all(meta.is_valid_meta_key(key) for key in keys)
    assert {key for key in keys if not meta.is_reserved_meta_key(key, REV_2025_11_25)} == {"progressToken"}
