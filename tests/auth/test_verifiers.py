from __future__ import annotations

from typing import Any

import pytest

from mcpio.auth import (
    ApiKeys,
    FlowContext,
    Grant,
    Guard,
    InvalidToken,
    ResourceServer,
    Secret,
    api_key_digest,
    new_api_key,
    run,
)

DIGEST = api_key_digest("mcp_key")


@pytest.mark.req("AUTH-57")
def test_a_key_is_known_by_its_digest() -> None:
    keys = ApiKeys({DIGEST: "ada"}, scopes={"ada": frozenset({"a"})})
    assert keys.verify(Secret("mcp_key"), None, 0.0) == Grant(None, "ada")
    found = keys.verify(Secret("mcp_key"), None, 0.0)
    assert isinstance(found, Grant)
    assert found.scopes == {"a"}
    for other in ("mcp_kez", "", "\ud800", DIGEST):
        assert isinstance(keys.verify(Secret(other), None, 0.0), InvalidToken)
    assert DIGEST not in repr(keys)


@pytest.mark.req("AUTH-57")
@pytest.mark.parametrize("digest", ["", "mcp_key", DIGEST.upper(), DIGEST + "0"])
def test_malformed_digest_raises(digest: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        ApiKeys({digest: "ada"})


def test_a_new_key_has_256_bits_and_no_key_needs_a_fetch() -> None:
    key = new_api_key(lambda size: b"\x01" * size)
    assert len(key.reveal()) == 4 + 43
    assert api_key_digest(key) == api_key_digest(key.reveal())
    context = FlowContext(server_url="https://a.example", entropy=bytes, now=0.0)
    assert run(ApiKeys({}).load_keys(context, Secret("token")), lambda effect: None) is None


def test_header_of_keys_is_found_in_whatever_case_it_is_given() -> None:
    machine = Guard(ResourceServer(verify=ApiKeys({DIGEST: "ada"}, header="X-API-Key")))
    for name in ("x-api-key", "X-Api-Key"):
        assert machine.admit("1", [(name, "mcp_key")], "/mcp", 0.0) == Grant(None, "ada")


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"principals": 5}, TypeError, "principals must be"),
        ({"principals": {5: "ada"}}, TypeError, "principals must be"),
        ({"principals": {}, "header": "x key"}, ValueError, "header must be the name of a header field, not 'x key'"),
        ({"principals": {}, "header": None}, TypeError, "header must be"),
        ({"principals": {}, "scopes": {"ada": "admin"}}, TypeError, "scopes must be"),
        ({"principals": {}, "scopes": ["admin"]}, TypeError, "scopes must be"),
    ],
)
def test_option_of_keys_without_a_meaning_raises(options: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        ApiKeys(**options)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"verify": None}, TypeError, "verify must be"),
        ({"verify": [ApiKeys({}), 5]}, TypeError, "verify must be"),
        ({"verify": []}, ValueError, "verify must be one verifier or more"),
        ({"verify": ApiKeys({}), "hierarchy": {"admin": "read"}}, TypeError, "hierarchy must be"),
        ({"verify": ApiKeys({}), "hierarchy": 5}, TypeError, "hierarchy must be"),
    ],
)
def test_option_of_a_server_without_a_meaning_raises(
    options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        ResourceServer(**options)
