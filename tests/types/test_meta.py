from __future__ import annotations

from typing import Any

import pytest

from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
)
from mcpio.types import base as meta
from mcpio.types.base import fault_in_key, fault_in_meta, is_reserved


@pytest.mark.req("META-06")
def test_protocol_keys_have_its_prefix_except_the_progress_token() -> None:
    keys = [getattr(meta, name) for name in vars(meta) if name.startswith("META_")]
    assert len(set(keys)) == len(keys)
    assert [key for key in keys if not key.startswith("io.modelcontextprotocol/")] == ["progressToken"]
    assert meta.META_RELATED_TASK == "io.modelcontextprotocol/related-task"
    assert meta.META_MODEL_IMMEDIATE_RESPONSE == "io.modelcontextprotocol/model-immediate-response"


@pytest.mark.req("META-02", "META-06")
@pytest.mark.parametrize(
    "key",
    [
        "com.example/x",
        "a/x",
        "a1.b-2.c/x",
        "a--b/x",
        "Z9/",
        "io.modelcontextprotocol/related-task",
        "io.modelcontextprotocol/model-immediate-response",
        "progressToken",
    ],
)
def test_prefix_of_dotted_labels_is_well_formed(key: str) -> None:
    assert fault_in_key(key) is None


@pytest.mark.req("META-02")
@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("1a.b/x", "1a"),
        ("a-.b/x", "a-"),
        ("-a/x", "-a"),
        ("/x", ""),
        ("a..b/x", ""),
        (".a/x", ""),
        ("a./x", ""),
        ("a_b/x", "a_b"),
        ("a b/x", "a b"),
        ("ä.b/x", "ä"),
        ("a/b/x", "a/b"),
        ("a\n/x", "a\n"),
    ],
)
def test_malformed_prefix_is_reported_by_its_label(key: str, label: str) -> None:
    assert fault_in_key(key) == f"{label!r} is not a label of a prefix"


@pytest.mark.req("META-03")
@pytest.mark.parametrize("name", ["", "x", "9", "a-b_c.d", "a..b", "traceparent"])
def test_name_is_empty_or_begins_and_ends_alphanumerically(name: str) -> None:
    assert fault_in_key(name) is None
    assert fault_in_key(f"com.example/{name}") is None


@pytest.mark.req("META-03")
@pytest.mark.parametrize("name", ["-a", "a-", "_a", "a.", ".", "a b", "a:b", "ä", "a\n", "٣"])
def test_malformed_name_is_reported(name: str) -> None:
    assert fault_in_key(name) == fault_in_key(f"com.example/{name}") == f"{name!r} is not a name"


def test_key_must_be_a_string() -> None:
    key: Any = 5
    assert fault_in_key(key) == "it is not a string"


@pytest.mark.req("META-07")
def test_first_malformed_key_is_reported() -> None:
    assert fault_in_meta({}) is None
    assert fault_in_meta({"a": 1, "com.example/b": 2}) is None
    assert fault_in_meta({"a": 1, "b c": 2, "-": 3}) == "'b c' is not a key for _meta: 'b c' is not a name"


RESERVED_SINCE_2025_11_25 = [
    "io.modelcontextprotocol/x",
    "dev.mcp/",
    "org.modelcontextprotocol.api/x",
    "com.mcp.tools/x",
]
RESERVED_IN_2025_06_18 = ["modelcontextprotocol.io/x", "mcp.dev/", "api.modelcontextprotocol.org/x", "tools.mcp.com/x"]
FREE = ["com.example.mcp/x", "mcp/x", "x", "mcp", "com.example/mcp", "com.mcpx/x", "a.b.mcp.c.d/x"]


@pytest.mark.req("META-04")
@pytest.mark.parametrize("key", RESERVED_SINCE_2025_11_25)
def test_the_second_label_reserves_a_prefix(key: str) -> None:
    assert is_reserved(key, REV_2025_11_25)
    assert is_reserved(key, REV_2026_07_28)
    assert is_reserved(key)


@pytest.mark.req("META-05")
@pytest.mark.parametrize("key", RESERVED_IN_2025_06_18)
def test_the_last_label_but_one_reserved_a_prefix_in_one_revision(key: str) -> None:
    assert is_reserved(key, REV_2025_06_18)
    assert is_reserved(key)


@pytest.mark.req("META-04", "META-05")
def test_rules_of_two_revisions_differ() -> None:
    def both(key: str) -> tuple[bool, bool]:
        return is_reserved(key, REV_2025_06_18), is_reserved(key, REV_2025_11_25)

    assert both("io.modelcontextprotocol/x") == (False, True)
    assert both("modelcontextprotocol.io/x") == (True, False)
    assert both("tools.mcp.com/x") == both("com.mcp.tools/x") == (True, True)
    assert both("org.modelcontextprotocol.api.v2/x") == (False, True)
    assert both("v2.api.modelcontextprotocol.org/x") == (True, False)


@pytest.mark.parametrize("key", FREE)
def test_other_keys_are_free_to_use(key: str) -> None:
    assert not is_reserved(key)
    assert not any(is_reserved(key, revision) for revision in HANDSHAKE_REVISIONS)


@pytest.mark.parametrize("key", [*RESERVED_SINCE_2025_11_25, *RESERVED_IN_2025_06_18])
def test_the_first_revisions_reserve_nothing(key: str) -> None:
    assert not is_reserved(key, REV_2024_11_05)
    assert not is_reserved(key, REV_2025_03_26)
