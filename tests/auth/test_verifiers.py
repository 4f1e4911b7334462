from __future__ import annotations

import pytest

from mcpio.auth import ApiKeys, FlowContext, Grant, Secret, api_key_digest, new_api_key, run

DIGEST = api_key_digest("mcp_key")


@pytest.mark.req("AUTH-57")
def test_a_key_is_known_by_its_digest() -> None:
    keys = ApiKeys({DIGEST: "ada"}, scopes={"ada": frozenset({"a"})})
    assert keys.verify(Secret("mcp_key"), None, 0.0) == Grant(None, "ada")
    found = keys.verify(Secret("mcp_key"), None, 0.0)
    assert found is not None
    assert found.scopes == {"a"}
    for other in ("mcp_kez", "", "\ud800", DIGEST):
        assert keys.verify(Secret(other), None, 0.0) is None
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
