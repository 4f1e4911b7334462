"""Tools, prompts, resources and templates that are switched off and on again while a client is connected."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest
from linked import Link

from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.errors import RequestError
from mcpio.types import PromptListChangedNotification, ResourceListChangedNotification, ToolListChangedNotification


def echo(text: str = "") -> str:
    return text


TOOLS, PROMPTS, RESOURCES = ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification


@pytest.mark.req("TOOL-09", "TOOL-16", "RES-05", "RES-08", "PROM-05", "PROM-07")
@pytest.mark.parametrize(
    ("registry", "key", "kind", "listed", "use", "code"),
    [
        ("tools", "echo", TOOLS, Client.tools, lambda client: client.call_tool("echo"), -32602),
        ("prompts", "echo", PROMPTS, Client.prompts, lambda client: client.get_prompt("echo"), -32602),
        ("resources.static", "a:b", RESOURCES, Client.resources, lambda client: client.read_resource("a:b"), -32002),
        (
            "resources.templates",
            "t:{text}",
            RESOURCES,
            Client.resource_templates,
            lambda client: client.subscribe_resource("t:x"),
            -32002,
        ),
    ],
)
def test_disabled_entry_is_neither_listed_nor_served_until_enabled(
    registry: str, key: str, kind: type, listed: Any, use: Callable[[Client], Any], code: int
) -> None:
    server, heard = Server("s"), []
    server.tool(echo)
    server.prompt(echo)
    server.resource("a:b")(echo)
    server.resource("t:{text}")(echo)
    link = Link(server, on_notification=lambda told: heard.append(type(told)), era="handshake")
    offered: Any = attrgetter(registry)(server)

    async def count() -> int:
        return len([item async for item in listed(link.client)])

    offered.disable(key)
    offered.disable(key)
    assert link.do(count()) == 0
    with pytest.raises(RequestError) as refused:
        link.do(use(link.client))
    assert refused.value.code == code
    offered.enable(key)
    assert link.do(count()) == 1
    link.do(use(link.client))
    assert heard == [kind, kind]
