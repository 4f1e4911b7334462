"""What the descriptions of tools and views allow: their callers, and the policy of a browser."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.apps import EXTENSIONS, allow_of, csp_of, html_of, tools_for_model, view_uri_of, visibility_of
from mcpio.errors import InvalidMessage
from mcpio.types import BlobResourceContents, ReadResourceResult, TextResourceContents, Tool

MIME_TYPE = "text/html;profile=mcp-app"
CLOSED = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "media-src 'self' data:; connect-src 'none'; frame-src 'none'; base-uri 'self'; object-src 'none'"
)


def tool(**meta: Any) -> Tool:
    return Tool("t", {"type": "object"}, meta=meta)


@pytest.mark.req("APP-15")
@pytest.mark.parametrize("meta", [{}, {"ui": {}}, {"ui": 5}, {"ui": {"csp": 5}}, {"ui": {"csp": {"frameDomains": 5}}}])
def test_view_that_declares_nothing_reaches_nothing(meta: Any) -> None:
    assert csp_of(meta) == CLOSED


@pytest.mark.req("APP-15")
def test_policy_has_the_declared_origins() -> None:
    csp = {
        "connectDomains": ["https://a.com", "wss://b.com"],
        "resourceDomains": ["https://*.c.com"],
        "frameDomains": ["https://d.com"],
        "baseUriDomains": ["https://e.com"],
    }
    assert csp_of({"ui": {"csp": csp}}) == (
        "default-src 'none'; script-src 'self' 'unsafe-inline' https://*.c.com; "
        "style-src 'self' 'unsafe-inline' https://*.c.com; img-src 'self' data: https://*.c.com; "
        "font-src 'self' https://*.c.com; media-src 'self' data: https://*.c.com; "
        "connect-src https://a.com wss://b.com; frame-src https://d.com; base-uri https://e.com; object-src 'none'"
    )


@pytest.mark.req("APP-15")
@given(st.lists(st.one_of(st.text(), st.sampled_from(["https://a.com; script-src *", "*", "https:", "'self'"]))))
def test_what_is_no_origin_never_gets_into_the_policy(origins: list[str]) -> None:
    names = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
    assert csp_of({"ui": {"csp": {name: [*origins, 5, None] for name in names}}}) == CLOSED


@pytest.mark.req("APP-15")
def test_permission_is_given_where_it_is_declared_and_granted() -> None:
    meta: dict[str, Any] = {"ui": {"permissions": {"camera": {}, "clipboardWrite": {}}}}
    assert allow_of(meta, ("camera", "clipboardWrite", "microphone")) == "camera *; clipboard-write *"
    assert allow_of(meta, ()) == allow_of({"ui": {"permissions": ["camera"]}}, ("camera",)) == ""


@pytest.mark.req("APP-03")
def test_view_of_a_tool_is_named_in_either_form() -> None:
    assert view_uri_of(tool(ui={"resourceUri": "ui://a"})) == "ui://a"
    assert view_uri_of(tool(**{"ui/resourceUri": "ui://a"})) == "ui://a"
    assert view_uri_of(tool(**{"ui": {"resourceUri": "ui://b"}, "ui/resourceUri": "ui://a"})) == "ui://b"
    for odd in ({}, {"ui": 5}, {"ui": {"resourceUri": 5}}, {"ui": {"resourceUri": "https://a"}}):
        assert view_uri_of(tool(**odd)) is None


@pytest.mark.req("APP-13")
def test_tool_that_is_not_for_the_model_is_left_out_of_its_list() -> None:
    tools = [tool(ui={"visibility": each}) for each in (["app"], ["model"], ["app", "model"], [], "model", [5])]
    assert tools_for_model([tool(), *tools]) == (tool(), tools[1], tools[2])
    assert visibility_of(tools[0]) == {"app"}
    assert visibility_of(tool()) == {"app", "model"}
    assert visibility_of(tools[5]) == set()


@pytest.mark.req("APP-02")
def test_page_is_read_from_text_and_from_a_blob() -> None:
    text = TextResourceContents("ui://a", "<p>ü", MIME_TYPE, meta={"ui": {}})
    assert html_of(ReadResourceResult((text,))) == ("<p>ü", {"ui": {}})
    blob = BlobResourceContents("ui://a", base64.b64encode("<p>ü".encode()).decode(), MIME_TYPE)
    assert html_of(ReadResourceResult((blob,))) == ("<p>ü", {})
    latin = BlobResourceContents("ui://a", base64.b64encode(b"\xff").decode(), MIME_TYPE)
    other = TextResourceContents("ui://a", "<p>", "text/html")
    for contents in ((), (text, text), (latin,), (other,)):
        with pytest.raises(InvalidMessage, match="expected "):
            html_of(ReadResourceResult(contents))


@pytest.mark.req("APP-01")
def test_client_of_a_host_declares_the_type_of_views() -> None:
    assert EXTENSIONS == {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME_TYPE]}}
