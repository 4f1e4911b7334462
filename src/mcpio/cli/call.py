"""``mcpio call``: call a tool and print its result."""

from __future__ import annotations

import argparse

from mcpio.app.client import Client
from mcpio.cli import connect, saving
from mcpio.cli.arguments import prepare, read_words
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.lists import find_tool
from mcpio.cli.output import Console, as_json, result_texts
from mcpio.errors import ErrorCode, RequestError

__all__ = ["add_arguments", "call", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    saving.add_option(parser)
    connect.add_words(parser, "TOOL", "[KEY=VALUE | KEY:=JSON ...]")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    options.name = connect.next_word(options, "tool")
    options.given = read_words(options.words)
    return connect.run(call, options)


async def call(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Call the tool ``options.name`` with the arguments ``options.given``."""
    tool = await find_tool(client, options.name)
    prepared = prepare(tool.input_schema, options.given, of=tool.name)
    for note in prepared.notes:
        console.note(note)
    try:
        result = await client.call_tool(tool.name, prepared.arguments, on_progress=console.progress)
    except RequestError as error:
        if error.code == ErrorCode.INVALID_PARAMS:
            raise Failure(Exit.BAD_ARGUMENTS, f"{tool.name!r} refuses the arguments: {error.message}") from error
        raise
    show = saving.shower(options, tool.name)
    if options.json:
        console.result(as_json(client, result))
    elif result.is_error:
        console.failure("\n".join(["the tool reports an error:", *result_texts(result, show)]))
    else:
        for text in result_texts(result, show):
            console.result(text)
    return Exit.TOOL_FAILED if result.is_error else Exit.DONE
