from __future__ import annotations

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.types import CacheableResult, FinalResult, ListResult, NotificationPayload, ObjectPayload, RequestPayload


@pytest.mark.req("META-01")
@pytest.mark.parametrize("cls", [RequestPayload, NotificationPayload, FinalResult, ObjectPayload])
def test_metadata_round_trips(cls: type[RequestPayload]) -> None:
    meta = {"progressToken": 5, "io.modelcontextprotocol/related-task": "not what it should be", "x": [None]}
    conversion = codec(REV_2025_11_25)
    read = conversion.decode({"_meta": meta}, cls)
    assert read.meta == meta
    assert conversion.encode(read) == {"_meta": meta}


def test_empty_metadata_is_kept() -> None:
    conversion = codec(REV_2025_11_25)
    assert conversion.encode(conversion.decode({"_meta": {}}, RequestPayload)) == {"_meta": {}}
    assert conversion.encode(RequestPayload()) == {}


def test_metadata_must_be_an_object() -> None:
    with pytest.raises(InvalidMessage, match=r"^_meta: expected an object, got an array$"):
        codec(REV_2025_11_25).decode({"_meta": []}, RequestPayload)


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_before_the_stateless_revision_results_have_no_type(revision: Revision) -> None:
    assert codec(revision).encode(CacheableResult()) == {}
    read = codec(revision).decode({"resultType": "complete", "ttlMs": "soon"}, CacheableResult)
    assert read == CacheableResult(extra={"resultType": "complete", "ttlMs": "soon"})


def test_results_always_have_a_type_in_the_stateless_revision() -> None:
    conversion = codec(REV_2026_07_28)
    assert conversion.encode(FinalResult()) == {"resultType": "complete"}
    assert conversion.encode(ListResult()) == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    said = ListResult(result_type="task", ttl_ms=5000, cache_scope="public")
    assert conversion.encode(said) == {"resultType": "task", "ttlMs": 5000, "cacheScope": "public"}


def test_result_without_type_and_ttl_is_complete_and_stale() -> None:
    assert codec(REV_2026_07_28).decode({}, CacheableResult) == CacheableResult()
    assert CacheableResult().ttl_ms == 0
