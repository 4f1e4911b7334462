"""What a server lists, page by page: nothing where it declared nothing or knows no such list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from mcpio.app.client import Client
from mcpio.app.pagination import PageGuard
from mcpio.errors import ErrorCode, RequestError
from mcpio.types.lifecycle import ServerCapabilities
from mcpio.types.prompts import ListPromptsResult
from mcpio.types.resources import ListResourcesResult, ListResourceTemplatesResult
from mcpio.types.tools import ListToolsResult

__all__ = ["declared", "prompt_pages", "resource_pages", "template_pages", "tool_pages"]


def declared(client: Client) -> ServerCapabilities:
    """Return what the server said that it offers."""
    capabilities = client.server.capabilities
    return capabilities if isinstance(capabilities, ServerCapabilities) else ServerCapabilities()


async def tool_pages(client: Client) -> list[ListToolsResult]:
    """Return all pages of the tools."""
    return await _all("tools/list", client.list_tools) if declared(client).tools else []


async def resource_pages(client: Client) -> list[ListResourcesResult]:
    """Return all pages of the resources."""
    return await _all("resources/list", client.list_resources) if declared(client).resources else []


async def template_pages(client: Client) -> list[ListResourceTemplatesResult]:
    """Return all pages of the resource templates."""
    return await _all("resources/templates/list", client.list_resource_templates) if declared(client).resources else []


async def prompt_pages(client: Client) -> list[ListPromptsResult]:
    """Return all pages of the prompts."""
    return await _all("prompts/list", client.list_prompts) if declared(client).prompts else []


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_Page)


async def _all(method: str, fetch: Callable[[str | None], Awaitable[P]]) -> list[P]:
    found: list[P] = []
    guard, cursor = PageGuard(method), None
    while True:
        try:
            page = await fetch(cursor)
        except RequestError as error:
            if error.code == ErrorCode.METHOD_NOT_FOUND:
                return found
            raise
        found.append(page)
        cursor = guard.follow(page.next_cursor)
        if cursor is None:
            return found
