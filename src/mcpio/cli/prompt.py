"""``mcpio prompt``: fill in a prompt and print it."""

from __future__ import annotations

import argparse

from mcpio.app.client import Client
from mcpio.cli import connect, saving
from mcpio.cli.arguments import prepare, read_words
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.lists import find_prompt
from mcpio.cli.output import Console, as_json
from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import json
from mcpio.types.features import Prompt

__all__ = ["add_arguments", "fill_in", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    saving.add_option(parser)
    connect.add_words(parser, "PROMPT", "[KEY=TEXT ...]")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    options.name = connect.next_word(options, "prompt")
    options.given = read_words(options.words)
    return connect.run(fill_in, options)


async def fill_in(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print the prompt ``options.name``, filled in with the arguments ``options.given``."""
    prompt = await find_prompt(client, options.name)
    prepared = prepare(_schema(prompt), options.given, of=prompt.name)
    for name, value in prepared.arguments.items():
        if not isinstance(value, str):  # given as JSON
            fault = f"{name}: expected string, got {json.dumps(value).decode()}"
            remedy = f"write {name}=TEXT instead of {name}:=JSON"
            raise Failure(Exit.BAD_ARGUMENTS, f"bad arguments for {prompt.name!r}:\n  {fault}; {remedy}")
    try:
        result = await client.get_prompt(prompt.name, prepared.arguments)
    except RequestError as error:
        if error.code == ErrorCode.INVALID_PARAMS:
            raise Failure(Exit.BAD_ARGUMENTS, f"{prompt.name!r} refuses the arguments: {error.message}") from error
        raise
    if options.json:
        console.result(as_json(client, result))
    else:
        show = saving.shower(options, prompt.name)
        for message in result.messages:
            console.result(f"{message.role}: {show(message.content)}")
    return Exit.DONE


def _schema(prompt: Prompt) -> dict[str, object]:
    """Return the arguments of a prompt as a JSON Schema; they are all strings (PROM-03)."""
    return {
        "properties": {argument.name: {"type": "string"} for argument in prompt.arguments},
        "required": [argument.name for argument in prompt.arguments if argument.required],
        "additionalProperties": False,
    }
