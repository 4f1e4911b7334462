"""``mcpio list``, ``call``, ``read`` and ``prompt``: the commands that use what a server offers."""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from mcpio.app.client import Client
from mcpio.app.pagination import PageGuard
from mcpio.cli import connect
from mcpio.cli.arguments import encodable, prepare, read_words, signature, signature_part
from mcpio.cli.exit_status import Exit, Failure, did_you_mean
from mcpio.cli.output import (
    Console,
    as_json,
    block_text,
    codec_of,
    contents_text,
    is_terminal,
    result_texts,
    width,
)
from mcpio.errors import ErrorCode, RemoteProtocolError, RequestError
from mcpio.framing import json
from mcpio.types.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)
from mcpio.types.features import Prompt, Resource, ResourceTemplate, ServerCapabilities, Tool

NOT_FOUND = (ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.INVALID_PARAMS)
"""Error codes for an unknown resource; newer servers use the second (RES-05)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    use = USES[parser.get_default("command")]
    connect.add_options(parser)
    if use.name is not None:
        parser.add_argument(
            "--save", metavar="DIRECTORY", help="write images, sounds and files there, under names such as draw-1.png"
        )
    connect.add_words(parser, *use.words)


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    use = USES[options.command]
    connect.choose_server(options)
    if use.name is not None:
        options.name = encodable(connect.next_word(options, use.name))
    if len(use.words) > 1:
        options.given = read_words(options.words)
    else:
        connect.no_more_words(options)
    return connect.run(use.work, options)


# --------------------------------------------------------------------------------------------------------- the commands


async def show(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print every list of the server."""
    pages = await all_pages(client)
    if options.json:
        console.result(_as_json(client, pages))
    else:
        for line in _as_text(client, pages):
            console.result(line)
    for name, pages_of_list in pages.items():
        for page in pages_of_list:
            for item in page.malformed:
                console.note(f"note: one of the {name}, number {item.index}, is malformed: {item.reason}")
    return Exit.DONE


async def call(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Call the tool ``options.name`` with the arguments ``options.given``."""
    tool: Tool = await find(client, "tool", options.name)
    prepared = prepare(tool.input_schema, options.given, of=tool.name)
    for note in prepared.notes:
        console.note(note)
    with _refused(tool.name):
        result = await client.call_tool(tool.name, prepared.arguments, on_progress=console.progress)
    show = _shower(options)
    if options.json:
        console.result(as_json(client, result))
    elif result.is_error:
        console.failure("\n".join(["the tool reports an error:", *result_texts(result, show)]))
    else:
        for text in result_texts(result, show):
            console.result(text)
    return Exit.TOOL_FAILED if result.is_error else Exit.DONE


async def fill_in(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print the prompt ``options.name``, filled in with the arguments ``options.given``."""
    prompt: Prompt = await find(client, "prompt", options.name)
    schema = {  # a prompt's arguments are strings (PROM-03)
        "properties": {argument.name: {"type": "string"} for argument in prompt.arguments},
        "required": [argument.name for argument in prompt.arguments if argument.required],
        "additionalProperties": False,
    }
    prepared = prepare(schema, options.given, of=prompt.name)
    for name, value in prepared.arguments.items():
        if not isinstance(value, str):  # given as JSON
            fault = f"{name}: expected string, got {json.dumps(value).decode()}"
            remedy = f"write {name}=TEXT instead of {name}:=JSON"
            raise Failure(Exit.BAD_ARGUMENTS, f"bad arguments for {prompt.name!r}:\n  {fault}; {remedy}")
    with _refused(prompt.name):
        result = await client.get_prompt(prompt.name, prepared.arguments)
    if options.json:
        console.result(as_json(client, result))
    else:
        show = _shower(options)
        for message in result.messages:
            console.result(f"{message.role}: {show(message.content)}")
    return Exit.DONE


async def read(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print the resource ``options.name``; on a terminal, binary contents are described instead."""
    uri = options.name
    if declared(client).resources is None:
        raise Failure(Exit.NOT_FOUND, f"no resource {uri!r}: the server has no resources.")
    try:
        result = await client.read_resource(uri)
    except RequestError as error:
        if error.code not in NOT_FOUND:
            raise
        try:
            uris = [resource.uri for resource in _items_of("resources", await _pages(client, "resources"))]
        except RemoteProtocolError:
            uris = []  # too many
        raise Failure(Exit.NOT_FOUND, f"no resource {uri!r}: {error.message}.{did_you_mean(uri, uris)}") from error
    if options.json:
        console.result(as_json(client, result))
    elif options.save is not None:
        saver = Saver(options.save, uri)
        for contents in result.contents:
            console.result(saver.contents(contents))
    else:
        for contents in result.contents:
            _print(contents, console)
    return Exit.DONE


@contextmanager
def _refused(name: str) -> Iterator[None]:
    """Raise Failure for arguments that the server refuses."""
    try:
        yield
    except RequestError as error:
        if error.code == ErrorCode.INVALID_PARAMS:
            raise Failure(Exit.BAD_ARGUMENTS, f"{name!r} refuses the arguments: {error.message}") from error
        raise


def _print(contents: TextResourceContents | BlobResourceContents, console: Console) -> None:
    if is_terminal(sys.stdout):
        console.result(contents_text(contents))
    elif isinstance(contents, TextResourceContents):
        console.exact(contents.text)
    else:
        console.data(_decoded(contents.blob, f"the binary contents of {contents.uri} are"))


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Failure(Exit.PROTOCOL, f"{what} not base64: {error}") from error


@attrs.frozen
class Use:
    """One of the commands."""

    work: connect.ClientWork
    name: str | None = None
    """The kind of item that the word after the server names."""
    words: tuple[str, ...] = ()
    """The words after the server, as the usage shows them."""


USES: Final = {
    "list": Use(show),
    "call": Use(call, "tool", ("TOOL", "[KEY=VALUE | KEY:=JSON ...]")),
    "read": Use(read, "URI", ("URI",)),
    "prompt": Use(fill_in, "prompt", ("PROMPT", "[KEY=TEXT ...]")),
}


# ------------------------------------------------------------------------------------------------------------ the lists

LISTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "tools": ("tools", "tools/list", "list_tools"),
    "resources": ("resources", "resources/list", "list_resources"),
    "resourceTemplates": ("resources", "resources/templates/list", "list_resource_templates"),
    "prompts": ("prompts", "prompts/list", "list_prompts"),
}
"""The lists of a server: the capability that declares each, its method, and the client's call."""


def declared(client: Client) -> ServerCapabilities:
    """Return the capabilities that the server declared."""
    capabilities = client.server.capabilities
    return capabilities if isinstance(capabilities, ServerCapabilities) else ServerCapabilities()


async def all_pages(client: Client) -> dict[str, Sequence[Any]]:
    """Return the pages of every list."""
    return {name: await _pages(client, name) for name in LISTS}


async def _pages(client: Client, name: str, wanted: str | None = None) -> list[Any]:
    """Return the pages of a list, all of them or up to the item ``wanted``.

    The list is empty if the server does not declare the feature, or does not know the method. Raises
    RemoteProtocolError if it is too long.
    """
    feature, method, fetch = LISTS[name]
    pages: list[Any] = []
    if getattr(declared(client), feature) is None:
        return pages
    guard, cursor = PageGuard(method), None
    codec = codec_of(client)
    while True:
        try:
            page = await getattr(client, fetch)(cursor)
        except RequestError as error:
            if error.code == ErrorCode.METHOD_NOT_FOUND:
                return pages
            raise
        pages.append(page)
        if wanted is not None and any(item.name == wanted for item in _items_of(name, [page])):
            return pages
        encoded = codec.encode(page)
        guard.count(sum(len(value) for value in encoded.values() if isinstance(value, list)), len(json.dumps(encoded)))
        cursor = guard.follow(page.next_cursor)
        if cursor is None:
            return pages


def _items_of(name: str, pages: Iterable[Any]) -> list[Any]:
    member = "resource_templates" if name == "resourceTemplates" else name
    return [item for page in pages for item in getattr(page, member)]


async def find(client: Client, what: str, name: str) -> Any:
    """Return the tool or prompt with that name. Raises Failure if it is missing, or its description is malformed."""
    pages = await _pages(client, f"{what}s", name)
    # The first definition of a name counts, as for a client.
    items = {item.name: item for item in reversed(_items_of(f"{what}s", pages))}
    if name in items:
        return items[name]
    for item in (item for page in pages for item in page.malformed):
        if what == "tool" and isinstance(item.raw, dict) and item.raw.get("name") == name:
            raise Failure(Exit.PROTOCOL, f"the server's description of {name} is malformed: {item.reason}")
    names = list(reversed(items))
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    others = f"the server has {shown or f'no {what}s'}."
    raise Failure(Exit.NOT_FOUND, f"no {what} {name!r}: {others}{did_you_mean(name, names)}")


# --------------------------------------------------------------------------------------------------- the lists as text


def _as_json(client: Client, pages: Mapping[str, Sequence[Any]]) -> str:
    """Return the lists as the server sent them, malformed items included."""
    peer, codec = client.server, codec_of(client)
    document: dict[str, Any] = {"server": codec.encode(peer.info), "protocolVersion": codec.revision.name}
    if peer.instructions is not None:
        document["instructions"] = peer.instructions
    for name, each in pages.items():
        document[name] = [item for page in each for item in codec.encode(page)[name]]
    return json.dumps(document).decode()


def _as_text(client: Client, pages: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    peer, revision = client.server, client.connection.revision
    named = f"{peer.info.display_name} {peer.info.version}".rstrip()  # some servers have an empty version
    yield f"{named}, speaking {revision}"
    sections = [(title, [show(item) for item in _items_of(name, pages[name])]) for name, title, show in _SECTIONS]
    for title, entries in sections:
        yield from _section(title, entries)
    if not any(entries for _, entries in sections):
        yield "It offers nothing."


def _section(title: str, entries: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    """Yield the lines of one list: for each entry a head line, then its description."""
    lines = []
    for head, description in entries:
        lines.append(f"  {head}")
        lines += _description_lines(description)
    if lines:
        yield from ("", title, *lines)


def _description_lines(description: str | None) -> list[str]:
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


_SECTIONS: Final[Sequence[tuple[str, str, Callable[[Any], tuple[str, str | None]]]]] = (
    ("tools", "Tools", _tool),
    ("resources", "Resources", _resource),
    ("resourceTemplates", "Resource templates", _template),
    ("prompts", "Prompts", _prompt),
)


# ---------------------------------------------------------------------------------------------------------- ``--save``
# The names are ours, made of the word on the command line and a number: nothing that a server sends becomes a path.

ENDINGS: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/zip": ".zip",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/html": ".html",
    "text/csv": ".csv",
}
"""The endings of files by media type. Others are ``.bin``: the type is the server's, and names no ending freely."""


def _shower(options: argparse.Namespace) -> Callable[[Any], str]:
    """Return what shows a content block as text: described, or saved first with ``--save``."""
    return block_text if options.save is None else Saver(options.save, options.name).show


class Saver:
    """Writes files into a directory, which it makes if necessary. It overwrites nothing."""

    def __init__(self, directory: str, word: str) -> None:
        """``word`` is the tool, prompt or resource as the user named it."""
        self._directory = directory
        self._stem = re.sub(r"[^A-Za-z0-9_-]+", "-", word).strip("-")[:60] or "result"
        self._number = 0

    def show(self, block: Any) -> str:
        """Save the data of a content block, and return a line about it; text blocks are returned unchanged."""
        match block:
            case ImageContent() | AudioContent():
                return self.save(_decoded(block.data, f"the data of {block.type} is"), block.mime_type)
            case EmbeddedResource():
                return self.contents(block.resource)
        return block_text(block)

    def contents(self, contents: TextResourceContents | BlobResourceContents) -> str:
        """Save the contents of a resource, and return a line about it."""
        if isinstance(contents, TextResourceContents):
            return self.save(contents.text.encode("utf-8", "surrogatepass"), contents.mime_type or "text/plain")
        return self.save(_decoded(contents.blob, f"the data of {contents.uri} is"), contents.mime_type or "")

    def save(self, data: bytes, mime_type: str) -> str:
        """Write data to the next free name. Raises Failure if that fails."""
        ending = ENDINGS.get(mime_type.partition(";")[0].strip().lower(), ".bin")
        try:
            os.makedirs(self._directory, exist_ok=True)
            while True:
                self._number += 1
                path = os.path.join(self._directory, f"{self._stem}-{self._number}{ending}")
                try:
                    with open(path, "xb") as file:
                        file.write(data)
                except FileExistsError:
                    continue
                return f"[saved: {path}, {mime_type or 'of unknown type'}, {len(data)} bytes]"
        except OSError as error:
            raise Failure(
                Exit.UNWRITABLE, f"cannot save into {self._directory!r}: {error.strerror or error}"
            ) from error
