"""How long clients may keep results, as a server's author says it."""

from __future__ import annotations

from typing import Any

import pytest
from loops import by_hand
from statelessly import StatelessClient

from mcpio.app.contracts import CacheHint
from mcpio.app.runtime import Runtime
from mcpio.app.server import Server
from mcpio.types import ReadResourceResult, TextResourceContents

NOTHING = (0, "private")


def hints(server: Server, method: str, **params: Any) -> tuple[int, str]:
    """Return the hints of a result."""
    found: list[dict[str, Any]] = []

    async def main(runtime: Runtime) -> None:
        found.append(await StatelessClient(server, runtime).request(method, params))

    by_hand(main)
    return found[0]["ttlMs"], found[0]["cacheScope"]


def notes(**options: Any) -> Server:
    server = Server("notes", **options)
    server.tool(lambda: None, name="tool")
    server.prompt(lambda: "hi", name="prompt")
    server.resource("notes:plain", name="plain")(lambda: "text")
    server.resource("notes:kept", name="kept", cache=CacheHint(60, "public"))(lambda: "text")
    server.resource("notes://{name}", name="note", cache=CacheHint(1.5))(lambda name: name)

    @server.resource("notes:own")
    def own() -> ReadResourceResult:
        return ReadResourceResult((TextResourceContents("notes:own", "text"),), ttl_ms=7)

    return server


LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


@pytest.mark.req("CACHE-01")
@pytest.mark.parametrize("method", LISTS)
def test_lists_have_the_hint_of_the_server(method: str) -> None:
    assert hints(notes(), method) == NOTHING
    assert hints(notes(cache=CacheHint(60, "public")), method) == (60_000, "public")


@pytest.mark.req("CACHE-10")
def test_lists_that_depend_on_scopes_are_private() -> None:
    server = notes(cache=CacheHint(60, "public"))
    assert hints(server, "tools/list") == (60_000, "public")
    server.require("prompts/list", scopes=["none"])
    assert hints(server, "tools/list") == (60_000, "private")


@pytest.mark.req("CACHE-01")
def test_contents_have_the_hint_of_their_resource() -> None:
    server = notes(cache=CacheHint(60, "public"))
    assert hints(server, "resources/read", uri="notes:plain") == NOTHING
    assert hints(server, "resources/read", uri="notes:kept") == (60_000, "public")
    assert hints(server, "resources/read", uri="notes://a") == (1_500, "private")
    assert hints(server, "resources/read", uri="notes:own") == (7, "private")


@pytest.mark.parametrize("wrong", [{"ttl": -1}, {"ttl": "60"}, {"scope": "everybody"}])
def test_wrong_hint_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        CacheHint(**wrong)


def test_something_else_than_a_hint_is_refused() -> None:
    with pytest.raises(TypeError, match="cache must be CacheHint"):
        Server("s", cache=60)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(TypeError, match="cache must be CacheHint"):
        Server("s").resource("a:b", name="b", cache=60)(lambda: "text")  # type: ignore[arg-type]  # the same
