"""A server's lists, page by page, and the tool or prompt of a name in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from mcpio.app.client import Client
from mcpio.app.pagination import PageGuard
from mcpio.cli.exit_status import Exit, Failure, did_you_mean
from mcpio.cli.output import codec_of
from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import json
from mcpio.types.features import (
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    ServerCapabilities,
    Tool,
)

__all__ = [
    "MAX_BYTES",
    "MAX_ITEMS",
    "declared",
    "find_prompt",
    "find_tool",
    "prompt_pages",
    "resource_pages",
    "template_pages",
    "tool_pages",
]

MAX_ITEMS: Final = 100_000
"""How many items of one list a command collects."""

MAX_BYTES: Final = 32 << 20
"""How many bytes of JSON a command collects of one list."""


def declared(client: Client) -> ServerCapabilities:
    """Return the capabilities that the server declared."""
    capabilities = client.server.capabilities
    return capabilities if isinstance(capabilities, ServerCapabilities) else ServerCapabilities()


# Each list is empty if the server does not declare the feature, or does not know the method.


async def tool_pages(client: Client, wanted: str | None = None) -> list[ListToolsResult]:
    """Return the pages of the tools, all of them or up to the tool ``wanted``."""
    if declared(client).tools is None:
        return []

    def is_last(page: ListToolsResult) -> bool:
        return any(tool.name == wanted for tool in page.tools)

    return await _pages(client, "tools/list", client.list_tools, is_last)


async def resource_pages(client: Client) -> list[ListResourcesResult]:
    """Return all pages of the resources."""
    return await _pages(client, "resources/list", client.list_resources) if declared(client).resources else []


async def template_pages(client: Client) -> list[ListResourceTemplatesResult]:
    """Return all pages of the resource templates."""
    if declared(client).resources is None:
        return []
    return await _pages(client, "resources/templates/list", client.list_resource_templates)


async def prompt_pages(client: Client, wanted: str | None = None) -> list[ListPromptsResult]:
    """Return the pages of the prompts, all of them or up to the prompt ``wanted``."""
    if declared(client).prompts is None:
        return []

    def is_last(page: ListPromptsResult) -> bool:
        return any(prompt.name == wanted for prompt in page.prompts)

    return await _pages(client, "prompts/list", client.list_prompts, is_last)


async def find_tool(client: Client, name: str) -> Tool:
    """Return the tool with that name. Raises Failure if it is missing, or its description is malformed."""
    pages = await tool_pages(client, name)
    tools = [tool for page in pages for tool in page.tools]
    malformed = {_name_of(item.raw): item.reason for page in pages for item in page.malformed}
    if name in malformed and all(tool.name != name for tool in tools):
        raise Failure(Exit.PROTOCOL, f"the server's description of {name} is malformed: {malformed[name]}")
    return _find("tool", name, tools)


async def find_prompt(client: Client, name: str) -> Prompt:
    """Return the prompt with that name. Raises Failure if it is missing."""
    return _find("prompt", name, (prompt for page in await prompt_pages(client, name) for prompt in page.prompts))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _find(what: str, name: str, items: Iterable[N]) -> N:
    known = {item.name: item for item in items}
    if name in known:
        return known[name]
    others = f"the server has {_shown(list(known))}." if known else f"the server has no {what}s."
    raise Failure(Exit.NOT_FOUND, f"no {what} {name!r}: {others}{did_you_mean(name, known)}")


def _shown(names: list[str], limit: int = 20) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _name_of(raw: Any) -> str | None:
    name = raw.get("name") if isinstance(raw, dict) else None
    return name if isinstance(name, str) else None


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_Page)


async def _pages(
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
