"""``mcpio list``: list the tools, resources and prompts of a server."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mcpio.app.client import Client
from mcpio.cli import connect
from mcpio.cli.arguments import signature, signature_part
from mcpio.cli.exit_status import Exit
from mcpio.cli.lists import prompt_pages, resource_pages, template_pages, tool_pages
from mcpio.cli.output import Console, codec_of, width
from mcpio.framing import json
from mcpio.types.features import Prompt, Resource, ResourceTemplate, Tool

__all__ = ["add_arguments", "run", "show"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    connect.add_words(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    connect.no_more_words(options)
    return connect.run(show, options)


async def show(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print every list of the server."""
    pages: dict[str, Sequence[Any]] = {
        "tools": await tool_pages(client),
        "resources": await resource_pages(client),
        "resourceTemplates": await template_pages(client),
        "prompts": await prompt_pages(client),
    }
    if options.json:
        console.result(_as_json(client, pages))
    else:
        for line in _as_text(client, pages):
            console.result(line)
    for name, found in pages.items():
        for page in found:
            for item in page.malformed:
                console.note(f"note: one of the {name}, number {item.index}, is malformed: {item.reason}")
    return Exit.DONE


def _as_json(client: Client, pages: Mapping[str, Sequence[Any]]) -> str:
    """Return the lists as the server sent them, malformed items included."""
    peer, codec = client.server, codec_of(client)
    found: dict[str, Any] = {"server": codec.encode(peer.info), "protocolVersion": codec.revision.name}
    if peer.instructions is not None:
        found["instructions"] = peer.instructions
    for name, each in pages.items():
        found[name] = [item for page in each for item in codec.encode(page)[name]]
    return json.dumps(found).decode()


def _as_text(client: Client, pages: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    peer, revision = client.server, client.connection.revision
    named = f"{peer.info.display_name} {peer.info.version}".rstrip()  # some servers have an empty version
    yield f"{named}, speaking {revision}"
    tools = [tool for page in pages["tools"] for tool in page.tools]
    resources = [resource for page in pages["resources"] for resource in page.resources]
    templates = [template for page in pages["resourceTemplates"] for template in page.resource_templates]
    prompts = [prompt for page in pages["prompts"] for prompt in page.prompts]
    yield from _section("Tools", map(_tool, tools))
    yield from _section("Resources", map(_resource, resources))
    yield from _section("Resource templates", map(_template, templates))
    yield from _section("Prompts", map(_prompt, prompts))
    if not (tools or resources or templates or prompts):
        yield "It offers nothing."


def _section(title: str, entries: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    """Yield the lines of one list: for each entry a head line, then its description."""
    lines = []
    for head, description in entries:
        lines.append(f"  {head}")
        lines += _described(description)
    if lines:
        yield from ("", title, *lines)


def _described(description: str | None) -> list[str]:
    """Return the first paragraph of a description, wrapped."""
    paragraph = (description or "").strip().partition("\n\n")[0]
    return textwrap.wrap(
        " ".join(paragraph.split()), max(width(), 30), initial_indent=" " * 6, subsequent_indent=" " * 6
    )


def _tool(tool: Tool) -> tuple[str, str | None]:
    return f"{tool.name} {signature(tool.input_schema)}".rstrip(), tool.description or tool.title


def _resource(resource: Resource) -> tuple[str, str | None]:
    kind = f"  ({resource.mime_type})" if resource.mime_type else ""
    return f"{resource.uri}{kind}", resource.description or resource.title or resource.name


def _template(template: ResourceTemplate) -> tuple[str, str | None]:
    kind = f"  ({template.mime_type})" if template.mime_type else ""
    return f"{template.uri_template}{kind}", template.description or template.title or template.name


def _prompt(prompt: Prompt) -> tuple[str, str | None]:
    parts = [signature_part(each.name, "text", each.required) for each in prompt.arguments]
    return " ".join([prompt.name, *parts]), prompt.description or prompt.title
