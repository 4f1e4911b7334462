"""What a server offers to some requests only: ``visible=``, for lists and for calls, in both eras."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.auth.grant import Grant
from mcpio.engine.options import Options
from mcpio.errors import InsufficientScope, RequestError
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.types import PromptReference, ResourceTemplateReference


def for_ada(ctx: Context) -> bool:
    return ctx.peer.principal == "ada"


def library(**options: Any) -> Server:
    server = Server("library", options=Options(revisions=REVISIONS), **options)

    @server.tool
    def borrow() -> str:
        return "borrowed"

    @server.tool(visible=for_ada)
    def burn() -> str:
        return "burned"

    @server.tool(visible=for_ada, task_support="optional")
    async def shelve() -> str:
        return "shelved"

    @server.prompt(visible=for_ada)
    def review(title: str) -> str:
        return f"Review {title}"

    @server.completion("title", prompt="review")
    def titles(text: str) -> list[str]:
        return ["Emma"]

    @server.resource("books://secret", visible=for_ada)
    def secret() -> str:
        return "secret"

    @server.resource("books://{title}/notes", visible=for_ada)
    def notes(title: str) -> str:
        return f"notes on {title}"

    @server.completion("title", resource="books://{title}/notes")
    def noted(text: str) -> list[str]:
        return ["Emma"]

    @server.resource("books://{+path}")
    def other(path: str) -> str:
        return f"something else: {path}"

    return server


@pytest.fixture(params=[REV_2025_11_25, REV_2026_07_28], ids=str)
def revision(request: pytest.FixtureRequest) -> Revision:
    found: Revision = request.param
    return found


def refused(link: Link, call: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        link.do(call)
    return caught.value.code, caught.value.message


def tools(link: Link) -> list[str]:
    return [tool.name for tool in link.do(link.client.list_tools()).tools]


def offered(link: Link) -> list[list[str]]:
    client = link.client
    return [
        tools(link),
        [prompt.name for prompt in link.do(client.list_prompts()).prompts],
        [resource.uri for resource in link.do(client.list_resources()).resources],
        [each.uri_template for each in link.do(client.list_resource_templates()).resource_templates],
    ]


def test_visible_entry_is_listed_and_usable(revision: Revision) -> None:
    link = Link(library(), principal="ada", revision=revision)
    assert offered(link) == [
        ["borrow", "burn", "shelve"],
        ["review"],
        ["books://secret"],
        ["books://{title}/notes", "books://{+path}"],
    ]
    client = link.client
    assert link.text("burn") == "burned"
    assert link.do(client.get_prompt("review", {"title": "Emma"})).messages[0].text == "Review Emma"
    assert link.do(client.read_resource("books://secret")).text == "secret"
    assert link.do(client.read_resource("books://Emma/notes")).text == "notes on Emma"
    for reference in (PromptReference("review"), ResourceTemplateReference("books://{title}/notes")):
        assert link.do(client.complete(reference, "title", "")).completion.values == ("Emma",)


@pytest.mark.parametrize("principal", [None, "bob"])
def test_invisible_entry_is_unknown_to_the_client(revision: Revision, principal: str | None) -> None:
    server = library()
    link = Link(server, principal=principal, revision=revision)
    assert offered(link) == [["borrow"], [], [], ["books://{+path}"]]
    client = link.client
    for name in ("burn", "shelve", "nothing"):
        assert refused(link, client.call_tool(name)) == (-32602, f"Unknown tool: {name}")
    for name in ("review", "nothing"):
        assert refused(link, client.get_prompt(name)) == (-32602, f"Unknown prompt: {name}")
        assert refused(link, client.complete(PromptReference(name), "title", ""))[1] == f"Unknown prompt: {name}"
    for uri in ("books://{title}/notes", "books://secret", "books://nothing"):
        found = refused(link, client.complete(ResourceTemplateReference(uri), "title", ""))
        assert found[1] == f"Unknown resource template: {uri}"
    # What is left serves its URIs.
    assert link.do(client.read_resource("books://Emma/notes")).text == "something else: Emma/notes"


def test_hidden_resource_is_neither_read_nor_subscribed_to() -> None:
    server = library()
    server.resources.templates.remove("books://{+path}")
    link = Link(server, revision=REV_2025_11_25)
    assert refused(link, link.client.read_resource("books://secret"))[0] == -32002
    assert refused(link, link.client.subscribe_resource("books://secret"))[0] == -32002


def test_stateless_client_does_not_listen_to_a_hidden_resource() -> None:
    server = library()
    server.resources.templates.remove("books://{+path}")
    link = Link(server, revision=REV_2026_07_28)
    found = refused(link, link.client.subscribe_resource("books://secret"))
    assert found[1] == "the server does not report changes of books://secret"
    assert server.notify_resource_updated("books://secret") == 0


def test_lists_of_one_principal_are_not_shared_with_another() -> None:
    server = library()
    both = [Link(server, principal=name, revision=REV_2026_07_28) for name in ("ada", "bob", "ada")]
    assert [len(offered(link)[0]) for link in both] == [3, 1, 3]
    assert both[0].do(both[0].client.list_tools()).cache_scope == "private"


def test_invisible_entry_with_scopes_does_not_reveal_them() -> None:
    server = Server("s")

    @server.tool(visible=for_ada, scopes="admin")
    def purge() -> str:
        return "purged"

    @server.tool(scopes="admin", hide=True)
    def tidy() -> str:
        return "tidied"

    link = Link(server, principal=Grant("https://id", "bob", "app", frozenset({"read"})), revision=REV_2025_11_25)
    assert tools(link) == []
    assert refused(link, link.client.call_tool("purge")) == (-32602, "Unknown tool: purge")
    with pytest.raises(RequestError) as caught:
        link.call("tidy")
    assert caught.value.code == InsufficientScope(frozenset({"admin"})).code
    seen = Link(server, principal="ada", revision=REV_2025_11_25)
    with pytest.raises(RequestError) as caught:
        seen.call("purge")
    assert caught.value.code == InsufficientScope(frozenset({"admin"})).code


def test_changed_visibility_notifies_clients() -> None:
    server = Server("s")
    night: list[bool] = []

    @server.tool(visible=lambda ctx: bool(night))
    def owl() -> str:
        return "hoot"

    @server.prompt(visible=lambda ctx: bool(night))
    def dream() -> str:
        return "dream"

    @server.resource("moon://", visible=lambda ctx: bool(night))
    def moon() -> str:
        return "full"

    told: list[str] = []
    link = Link(server, revision=REV_2025_11_25, on_notification=lambda each: told.append(type(each).__name__))
    assert offered(link) == [[], [], [], []]
    night.append(True)
    for each in (server.tools, server.prompts, server.resources):
        each.changed()
    link.run()
    assert told == [
        "ToolListChangedNotification",
        "PromptListChangedNotification",
        "ResourceListChangedNotification",
    ]
    assert offered(link) == [["owl"], ["dream"], ["moon://"], []]
    assert link.text("owl") == "hoot"


def test_predicate_that_fails_hides_and_is_reported() -> None:
    server = Server("s")

    async def waits(ctx: Context) -> bool:
        return True

    @server.tool(visible=lambda ctx: ctx.peer.nothing)
    def broken() -> None: ...

    @server.tool(visible=partial(lambda function, ctx: function(ctx), waits))
    def waiting() -> None: ...

    @server.tool
    def fine() -> None: ...

    link = Link(server, revision=REV_2025_11_25)
    assert tools(link) == ["fine"]
    assert refused(link, link.client.call_tool("broken")) == (-32602, "Unknown tool: broken")
    assert [report.partition("visible=")[2][-24:] for report in link.reports[:2]] == [" failed, so it is hidden"] * 2
    with pytest.raises(TypeError, match="visible must be a plain function, called without waiting"):
        server.tool(lambda: None, name="async", visible=waits)  # type: ignore[arg-type]  # the mistake
