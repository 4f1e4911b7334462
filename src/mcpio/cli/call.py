"""``mcpio call``: call a tool and print what it returns."""

from __future__ import annotations

import argparse
from typing import Any

from mcpio.app.client import Client
from mcpio.cli import conversation
from mcpio.cli.arguments import prepared, read_words
from mcpio.cli.console import Console
from mcpio.cli.failures import Exit, Failure, did_you_mean
from mcpio.cli.pages import tool_pages
from mcpio.cli.render import as_json, result_texts, shown_list
from mcpio.errors import ErrorCode, RequestError
from mcpio.types.tools import Tool

__all__ = ["add_arguments", "call", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    conversation.add_options(parser)
    conversation.add_words(parser, "TOOL", "[KEY=VALUE | KEY:=JSON ...]")


def run(options: argparse.Namespace) -> int:
    """Be the command."""
    conversation.choose_server(options)
    options.name = conversation.next_word(options, "tool")
    options.given = read_words(options.words)
    return conversation.run(call, options)


async def call(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Call the tool ``options.name`` with what ``options.given`` says."""
    tool = await _find(client, options.name)
    arguments = prepared(tool.input_schema, options.given, of=tool.name)
    for note in arguments.notes:
        console.note(note)
    try:
        result = await client.call_tool(tool.name, arguments.arguments, on_progress=console.progress)
    except RequestError as error:
        if error.code == ErrorCode.INVALID_PARAMS:
            raise Failure(Exit.BAD_ARGUMENTS, f"{tool.name} refuses the arguments: {error.message}") from error
        raise
    if options.json:
        console.result(as_json(client, result))
    elif result.is_error:
        console.failure("\n".join(["the tool reports an error:", *result_texts(result)]))
    else:
        for text in result_texts(result):
            console.result(text)
    return Exit.TOOL_FAILED if result.is_error else Exit.DONE


async def _find(client: Client, name: str) -> Tool:
    pages = await tool_pages(client, name)
    known = {tool.name: tool for page in pages for tool in page.tools}
    if name in known:
        return known[name]
    malformed = {_name_of(item.raw): item.reason for page in pages for item in page.malformed}
    if name in malformed:
        raise Failure(Exit.PROTOCOL, f"the server's description of {name} makes no sense: {malformed[name]}")
    others = f"the server has {shown_list(known)}." if known else "the server has no tools."
    raise Failure(Exit.NOT_FOUND, f"no tool {name!r}: {others}{did_you_mean(name, known)}")


def _name_of(raw: Any) -> str | None:
    name = raw.get("name") if isinstance(raw, dict) else None
    return name if isinstance(name, str) else None
