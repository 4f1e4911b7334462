"""The pages of a server's lists: none if the server declares or knows no such list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from mcpio.app.client import Client
from mcpio.app.pagination import PageGuard
from mcpio.cli.failures import Exit, Failure
from mcpio.cli.render import codec_of
from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import json
from mcpio.types.lifecycle import ServerCapabilities
from mcpio.types.prompts import ListPromptsResult
from mcpio.types.resources import ListResourcesResult, ListResourceTemplatesResult
from mcpio.types.tools import ListToolsResult

__all__ = ["MAX_BYTES", "MAX_ITEMS", "declared", "prompt_pages", "resource_pages", "template_pages", "tool_pages"]

MAX_ITEMS: Final = 100_000
"""How many items of one list a command collects."""

MAX_BYTES: Final = 32 << 20
"""How many bytes of JSON they may have."""


def declared(client: Client) -> ServerCapabilities:
    """Return what the server said that it offers."""
    capabilities = client.server.capabilities
    return capabilities if isinstance(capabilities, ServerCapabilities) else ServerCapabilities()


async def tool_pages(client: Client, wanted: str | None = None) -> list[ListToolsResult]:
    """Return all pages of the tools; with a name, those up to the tool of that name."""
    if declared(client).tools is None:
        return []

    def is_last(page: ListToolsResult) -> bool:
        return any(tool.name == wanted for tool in page.tools)

    return await _all(client, "tools/list", client.list_tools, is_last)


async def resource_pages(client: Client) -> list[ListResourcesResult]:
    """Return all pages of the resources."""
    return await _all(client, "resources/list", client.list_resources) if declared(client).resources else []


async def template_pages(client: Client) -> list[ListResourceTemplatesResult]:
    """Return all pages of the resource templates."""
    if declared(client).resources is None:
        return []
    return await _all(client, "resources/templates/list", client.list_resource_templates)


async def prompt_pages(client: Client, wanted: str | None = None) -> list[ListPromptsResult]:
    """Return all pages of the prompts; with a name, those up to the prompt of that name."""
    if declared(client).prompts is None:
        return []

    def is_last(page: ListPromptsResult) -> bool:
        return any(prompt.name == wanted for prompt in page.prompts)

    return await _all(client, "prompts/list", client.list_prompts, is_last)


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_Page)


async def _all(
    client: Client,
    method: str,
    fetch: Callable[[str | None], Awaitable[P]],
    is_last: Callable[[P], bool] = lambda page: False,
) -> list[P]:
    """Return the pages of a list. Raises Failure if the list is longer than a command collects."""
    found: list[P] = []
    guard, cursor = PageGuard(method), None
    codec, items, size = codec_of(client), MAX_ITEMS, MAX_BYTES
    while True:
        try:
            page = await fetch(cursor)
        except RequestError as error:
            if error.code == ErrorCode.METHOD_NOT_FOUND:
                return found
            raise
        found.append(page)
        if is_last(page):
            return found
        encoded = codec.encode(page)
        items -= sum(len(value) for value in encoded.values() if isinstance(value, list))
        size -= len(json.dumps(encoded))
        if items < 0 or size < 0:
            most = f"{MAX_ITEMS:,} items" if items < 0 else f"{MAX_BYTES >> 20} MiB"
            raise Failure(Exit.PROTOCOL, f"{method}: the list is too long: mcpio reads at most {most} of it")
        cursor = guard.follow(page.next_cursor)
        if cursor is None:
            return found
