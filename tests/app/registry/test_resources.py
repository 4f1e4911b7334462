from __future__ import annotations

import base64
from typing import Any

import attrs
import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.registry.resources import not_found
from mcpio.app.server import Server
from mcpio.errors import ErrorCode, RequestError
from mcpio.events import RequestContext
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.types import (
    BlobResourceContents,
    ReadResourceResult,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

both = pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])


@attrs.frozen
class Note:
    title: str


def giving(value: Any, *, later: bool = False, **options: Any) -> Link:
    server = Server("s")

    def at_once() -> Any:
        return value

    async def in_a_task() -> Any:
        return value

    server.resource("notes://today", name="today", **options)(in_a_task if later else at_once)
    return Link(server, era="handshake")


def read(link: Link, uri: str = "notes://today") -> Any:
    return link.do(link.client.read_resource(uri)).contents


def text(value: str, mime_type: str | None = None, uri: str = "notes://today") -> TextResourceContents:
    return TextResourceContents(uri, value, mime_type)


TWO = (text("a", uri="notes://a"), BlobResourceContents("notes://b", "AAAA"))


@both
@pytest.mark.req("RES-03", "RES-10")
@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("text", (text("text"),)),
        (b"\x00\xff", (BlobResourceContents("notes://today", "AP8="),)),
        (bytearray(b"\x00"), (BlobResourceContents("notes://today", "AA=="),)),
        (memoryview(b"\x00"), (BlobResourceContents("notes://today", "AA=="),)),
        ({"a": 1}, (text('{"a":1}', "application/json"),)),
        (Note("t"), (text('{"title":"t"}', "application/json"),)),
        ([1, 2], (text("[1,2]", "application/json"),)),
        (["a", "b"], (text('["a","b"]', "application/json"),)),
        ([], (text("[]", "application/json"),)),
        (False, (text("false", "application/json"),)),
        (TWO[0], TWO[:1]),
        (list(TWO), TWO),
        ([TWO[0], "more", b"\x00"], (TWO[0], text("more"), BlobResourceContents("notes://today", "AA=="))),
        (ReadResourceResult(TWO), TWO),
    ],
)
def test_contents_of_each_return_value(later: bool, value: Any, contents: Any) -> None:
    link = giving(value, later=later)
    assert read(link) == contents
    assert link.reports == []


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("text", text("text", "text/markdown")),
        (b"\x00", BlobResourceContents("notes://today", "AA==", "text/markdown")),
        ({"a": 1}, text('{"a":1}', "text/markdown")),
        (TWO[0], TWO[0]),
    ],
)
def test_contents_have_the_mime_type_of_the_resource(value: Any, contents: Any) -> None:
    assert read(giving(value, mime_type="text/markdown")) == (contents,)


def test_bytes_are_sent_as_base64() -> None:
    (contents,) = read(giving(bytes(range(256))))
    assert base64.b64decode(contents.blob) == bytes(range(256))


@both
@pytest.mark.req("RES-05")
def test_none_means_resource_not_found(later: bool) -> None:
    link = giving(None, later=later)
    with pytest.raises(RequestError, match=r"^Resource not found: notes://today \(-32002\)$") as caught:
        read(link)
    assert caught.value.data == {"uri": "notes://today"}
    assert link.reports == []


@both
@pytest.mark.req("RES-05")
@pytest.mark.parametrize("value", [object(), TextContent("a block"), "\ud800", float("nan")])
def test_unencodable_contents_are_an_internal_error(later: bool, value: Any) -> None:
    link = giving(value, later=later)
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        read(link)
    assert len(link.reports) == 1
    assert "resources/read 'notes://today'" in link.reports[0]


# Templates


def library() -> Link:
    server = Server("s")

    @server.resource("books://{title}/page/{number}")
    def page(title: str, number: int) -> str:
        return f"page {number} of {title}"

    @server.resource("books://{title}/{part}")
    async def part(title: str, part: str, ctx: Context) -> str:
        return f"{part} of {title} for {ctx.state}"

    @server.resource("books://moby/whale")
    def whale() -> str:
        return "the whale"

    @server.resource("search://{?q,limit}")
    def search(q: str = "", limit: int = 10) -> str:
        return f"{q!r} {limit}"

    @server.resource("file:///{+path}")
    def file(path: str) -> str:
        return path

    return Link(server, state="ada", era="handshake")


@pytest.mark.req("RES-04")
@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("books://moby/page/7", "page 7 of moby"),
        ("books://moby/cover", "cover of moby for ada"),
        ("books://moby/whale", "the whale"),
        ("books://moby%20dick/whale", "whale of moby dick for ada"),
        ("search://", "'' 10"),
        ("search://?q=a%20b&limit=5", "'a b' 5"),
        ("file:///etc/hosts", "etc/hosts"),
        ("file:///a/..b/c..", "a/..b/c.."),
    ],
)
def test_template_serves_matching_uris(uri: str, contents: str) -> None:
    assert read(library(), uri) == (TextResourceContents(uri, contents),)


@pytest.mark.req("RES-05", "RES-12")
@pytest.mark.parametrize(
    "uri", ["books://moby", "books://moby/whale/", "BOOKS://moby/whale", "other://a", "", "books:", "x" * 70_000]
)
def test_uri_matching_nothing_is_not_found(uri: str) -> None:
    link = library()
    with pytest.raises(RequestError, match="Resource not found") as caught:
        read(link, uri)
    assert (caught.value.code, caught.value.data) == (ErrorCode.RESOURCE_NOT_FOUND, {"uri": uri})
    assert len(caught.value.message) < 300
    assert link.reports == []


@pytest.mark.req("RES-10")
@pytest.mark.parametrize(
    "uri",
    [
        "file:///../etc/shadow",
        "file:///a/../../etc/shadow",
        "file:///a/..",
        "FILE:///a/../b",
        "file:///a/%2e%2e/b",
        "file:///a/%2E./b",
        "file:///a%2f..%2fb",
        "file:///a\\..\\b",
    ],
)
def test_file_uri_cannot_leave_its_directory(uri: str) -> None:
    with pytest.raises(RequestError, match="Resource not found"):
        read(library(), uri)


@pytest.mark.req("RES-10")
def test_template_value_of_the_wrong_type_is_invalid() -> None:
    link = library()
    with pytest.raises(RequestError) as caught:
        read(link, "books://moby/page/seven")
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert caught.value.message == (
        'Invalid URI books://moby/page/seven: arguments.number: expected an integer, got "seven"'
    )
    assert caught.value.data == {"uri": "books://moby/page/seven"}
    assert link.reports == []


def test_first_of_overlapping_templates_wins() -> None:
    server = Server("s")

    @server.resource("a://{x}")
    def first(x: str) -> str:
        return f"first {x}"

    @server.resource("a://{+x}")
    def second(x: str) -> str:
        return f"second {x}"

    link = Link(server)
    assert read(link, "a://b")[0].text == "first b"
    assert read(link, "a://b/c")[0].text == "second b/c"
    server.resources.templates.disable("a://{x}")
    assert read(link, "a://b")[0].text == "second b"


def test_count_includes_templates() -> None:
    resources = library().session.server.resources
    assert len(resources) == 5
    found = resources.find("books://moby/cover")
    assert found is not None
    entry, values = found
    assert isinstance(entry.description, ResourceTemplate)
    assert values == {"title": "moby", "part": "cover"}


@pytest.mark.req("RES-05")
@pytest.mark.parametrize(
    ("revision", "code"), [(REV_2025_11_25, ErrorCode.RESOURCE_NOT_FOUND), (REV_2026_07_28, ErrorCode.INVALID_PARAMS)]
)
def test_not_found_code_depends_on_the_revision(revision: Revision, code: int) -> None:
    class Scope:
        peer: RequestContext

    scope: Any = Scope()
    scope.peer = type("Peer", (), {"revision": revision})
    assert not_found(scope, "a:b").code == code
