"""Tools, prompts, resources and templates that are switched off and on again while a client is connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from linked import Link

from mcpio.app.server import Server
from mcpio.errors import RequestError
from mcpio.types import PromptListChangedNotification, ResourceListChangedNotification, ToolListChangedNotification


def echo(text: str = "") -> str:
    return text


@pytest.mark.req("TOOL-09", "TOOL-16", "RES-05", "RES-08", "PROM-05", "PROM-07")
def test_what_is_switched_off_is_neither_listed_nor_served_until_it_is_switched_on_again() -> None:
    made, heard = Server("s"), []
    made.tool(echo)
    made.prompt(echo)
    made.resource("a:b", name="b")(echo)
    made.resource("t:{text}")(echo)
    link = Link(made, on_notification=lambda told: heard.append(type(told)))
    client = link.client
    cases: list[tuple[Any, str, Any, Callable[[], Any], Callable[[], Any], int]] = [
        (made.tools, "echo", ToolListChangedNotification, client.tools, lambda: client.call_tool("echo"), -32602),
        (
            made.prompts,
            "echo",
            PromptListChangedNotification,
            client.prompts,
            lambda: client.get_prompt("echo", {"text": ""}),
            -32602,
        ),
        (
            made.resources.static,
            "a:b",
            ResourceListChangedNotification,
            client.resources,
            lambda: client.subscribe_resource("a:b"),
            -32002,
        ),
        (
            made.resources.templates,
            "t:{text}",
            ResourceListChangedNotification,
            client.resource_templates,
            lambda: client.read_resource("t:x"),
            -32002,
        ),
    ]

    async def count(items: Any) -> int:
        return len([item async for item in items])

    for registry, key, kind, listed, use, code in cases:
        heard.clear()
        registry.disable(key)
        registry.disable(key)
        assert link.do(count(listed())) == 0
        with pytest.raises(RequestError) as refused:
            link.do(use())
        assert refused.value.code == code
        registry.enable(key)
        assert link.do(count(listed())) == 1
        link.do(use())
        assert heard == [kind, kind]
