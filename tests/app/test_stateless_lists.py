"""Lists of a server without sessions, its resources that are missing, and members that the revision dropped."""

from __future__ import annotations

from typing import Any

import pytest
from statelessly import StatelessClient

from mcpio.app.server import Server
from mcpio.codec import codec
from mcpio.errors import RequestError
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.testing import ManualRuntime
from mcpio.types import ClientCapabilities, RootsCapability
from mcpio.types.tasks import ClientTasksCapability

LISTS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}


def notes() -> Server:
    server = Server("notes")
    for name in ("zebra", "ant", "mole"):
        server.tool(lambda: "done", name=name)
        server.prompt(lambda: "hi", name=name)
        server.resource(f"notes://{name}", name=name)(lambda: "text")
    return server


def asked(server: Server, method: str, params: dict[str, Any] | None = None, **who: Any) -> dict[str, Any]:
    runtime = ManualRuntime()
    return runtime.complete(StatelessClient(server, runtime, **who).request(method, params or {}))


@pytest.mark.req("ENV-14", "ENV-15")
@pytest.mark.parametrize("method", LISTS)
def test_lists_are_the_same_for_every_connection_and_after_any_request(method: str) -> None:
    server = notes()
    first = asked(server, method)
    assert [item["name"] for item in first[LISTS[method]]] == ["zebra", "ant", "mole"]
    asked(server, "tools/call", {"name": "ant"})
    with pytest.raises(RequestError):
        asked(server, "tools/call", {"name": "no such"})
    assert asked(server, method, capabilities=ClientCapabilities(), principal="somebody else") == first


@pytest.mark.req("ENV-16", "VER-08")
@pytest.mark.parametrize("method", LISTS)
def test_lists_that_are_declared_are_answered_and_no_others(method: str) -> None:
    server = notes()
    assert LISTS[method] in asked(server, "server/discover")["capabilities"]
    assert len(asked(server, method)[LISTS[method]]) == 3
    for name in ("zebra", "ant", "mole"):
        server.tools.remove(name)
        server.prompts.remove(name)
        server.resources.static.remove(f"notes://{name}")
    assert LISTS[method] not in asked(server, "server/discover")["capabilities"]
    with pytest.raises(RequestError, match="Method not found"):
        asked(server, method)


@pytest.mark.req("ENV-16")
def test_declared_list_may_be_empty() -> None:
    server = Server("notes")
    server.resource("notes://{name}", name="note")(lambda name: name)
    assert asked(server, "resources/list")["resources"] == []


@pytest.mark.req("XERR-04")
def test_missing_resource_is_an_invalid_parameter() -> None:
    with pytest.raises(RequestError) as caught:
        asked(notes(), "resources/read", {"uri": "notes://nobody"})
    assert caught.value.code == -32602
    assert caught.value.data == {"uri": "notes://nobody"}


@pytest.mark.req("GONE-02")
def test_members_that_the_revision_dropped_are_not_sent() -> None:
    declared = ClientCapabilities(roots=RootsCapability(True), tasks=ClientTasksCapability())
    assert codec(REV_2025_11_25).encode(declared) == {"roots": {"listChanged": True}, "tasks": {}}
    assert codec(REV_2026_07_28).encode(declared) == {"roots": {}}
