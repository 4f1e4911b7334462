from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2024_11_05, REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.types import (
    Annotations,
    BlobResourceContents,
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    ReadResourceRequest,
    ReadResourceResult,
    Resource,
    ResourceListChangedNotification,
    ResourceTemplate,
    ResourceUpdatedNotification,
    SubscribeRequest,
    TextResourceContents,
    UnsubscribeRequest,
)


@pytest.mark.parametrize("revision", REVISIONS)
def test_resource_and_template_lists_round_trip(revision: Revision) -> None:
    conversion = codec(revision)
    raw: dict[str, Any] = {
        "resources": [{"uri": "file:///A/%7e", "name": "a", "size": 3, "annotations": {"priority": 1}}],
        "nextCursor": "b",
    }
    page = conversion.decode(raw, ListResourcesResult)
    assert page.resources == (Resource("file:///A/%7e", "a", size=3, annotations=Annotations(priority=1)),)
    assert raw.items() <= conversion.encode(page).items()
    raw = {"resourceTemplates": [{"uriTemplate": "file:///{path}", "name": "a", "mimeType": "x/y"}]}
    templates = conversion.decode(raw, ListResourceTemplatesResult)
    assert templates.resource_templates == (ResourceTemplate("file:///{path}", "a", mime_type="x/y"),)
    assert raw.items() <= conversion.encode(templates).items()
    assert conversion.encode(ListResourcesRequest("x")) == {"cursor": "x"}
    assert conversion.encode(ListResourceTemplatesRequest()) == {}


def test_malformed_resource_is_set_aside() -> None:
    raw = {"resources": [{"uri": "a:b", "name": 5}, {"uri": "a:b", "name": "a", "size": 3.0}]}
    page = codec(REV_2025_11_25).decode(raw, ListResourcesResult)
    assert page.resources == (Resource("a:b", "a", size=3),)
    assert [bad.reason for bad in page.malformed] == ["name: expected a string, got a number"]
    assert codec(REV_2025_11_25).encode(page) == raw
    templates = codec(REV_2025_11_25).decode(
        {"resourceTemplates": [{"uriTemplate": "a:b"}]}, ListResourceTemplatesResult
    )
    assert [bad.reason for bad in templates.malformed] == ["name: missing"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_read_resource_round_trips(revision: Revision) -> None:
    conversion = codec(revision)
    assert conversion.encode(conversion.decode({"uri": "a:b"}, ReadResourceRequest)) == {"uri": "a:b"}
    raw = {"contents": [{"uri": "a:b", "text": ""}, {"uri": "a:c", "blob": "", "mimeType": "x/y"}]}
    result = conversion.decode(raw, ReadResourceResult)
    assert result.contents == (TextResourceContents("a:b", ""), BlobResourceContents("a:c", "", "x/y"))
    assert raw.items() <= conversion.encode(result).items()


def test_contents_with_neither_text_nor_blob_are_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"^contents\[1\]: has none of the known shapes$"):
        codec(REV_2025_11_25).decode({"contents": [{"uri": "a:b", "text": ""}, {"uri": "a:b"}]}, ReadResourceResult)


def test_retry_members_exist_only_in_the_stateless_revision() -> None:
    request = ReadResourceRequest("a:b", request_state="x")
    assert codec(REV_2026_07_28).encode(request) == {"uri": "a:b", "requestState": "x"}
    with pytest.raises(InvalidMessage, match=r"^requestState: does not exist in 2025-11-25$"):
        codec(REV_2025_11_25).encode(request)


def test_subscriptions_and_updates_round_trip() -> None:
    conversion = codec(REV_2024_11_05)
    for cls in (SubscribeRequest, UnsubscribeRequest, ResourceUpdatedNotification):
        assert conversion.encode(conversion.decode({"uri": "a:b"}, cls)) == {"uri": "a:b"}
    assert conversion.encode(ResourceListChangedNotification()) == {}
    with pytest.raises(InvalidMessage, match=r"^SubscribeRequest does not exist in 2026-07-28$"):
        codec(REV_2026_07_28).encode(SubscribeRequest("a:b"))


def test_display_name_prefers_the_title() -> None:
    assert Resource("a:b", "a").display_name == "a"
    assert Resource("a:b", "a", "A").display_name == "A"
    assert ResourceTemplate("a:{b}", "a").display_name == "a"
    assert ResourceTemplate("a:{b}", "a", "A").display_name == "A"


def test_text_of_a_resource_joins_its_text_contents() -> None:
    parts = (TextResourceContents("a:b", "one"), BlobResourceContents("a:c", ""), TextResourceContents("a:d", "two"))
    assert ReadResourceResult(parts).text == "one\ntwo"
    assert ReadResourceResult(()).text == ""
