from __future__ import annotations

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.types import (
    ClientCapabilities,
    DiscoverRequest,
    DiscoverResult,
    MissingRequiredClientCapabilityData,
    SamplingCapability,
    ServerCapabilities,
    ToolsCapability,
    UnsupportedProtocolVersionData,
)

E = codec(REV_2026_07_28)


def test_discover_result_round_trips() -> None:
    assert E.encode(DiscoverRequest(meta={"x": 1})) == {"_meta": {"x": 1}}
    raw = {
        "supportedVersions": ["2026-07-28", "2025-11-25"],
        "capabilities": {"tools": {}},
        "instructions": "be kind",
        "resultType": "complete",
        "ttlMs": 1000,
        "cacheScope": "public",
    }
    read = E.decode(raw, DiscoverResult)
    assert read == DiscoverResult(
        ("2026-07-28", "2025-11-25"),
        ServerCapabilities(ToolsCapability()),
        "be kind",
        ttl_ms=1000,
        cache_scope="public",
    )
    assert E.encode(read) == raw


def test_discovery_exists_only_in_the_stateless_revision() -> None:
    with pytest.raises(InvalidMessage, match=r"^DiscoverRequest does not exist in 2025-11-25$"):
        codec(REV_2025_11_25).encode(DiscoverRequest())


def test_error_data_round_trips() -> None:
    raw = {"supported": ["2026-07-28"], "requested": "2030-01-01"}
    assert E.decode(raw, UnsupportedProtocolVersionData) == UnsupportedProtocolVersionData(
        ("2026-07-28",), "2030-01-01"
    )
    missing = MissingRequiredClientCapabilityData(ClientCapabilities(sampling=SamplingCapability()))
    assert E.encode(missing) == {"requiredCapabilities": {"sampling": {}}}
