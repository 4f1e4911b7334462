"""``mcpio prompt``: have a prompt filled in and print it."""

from __future__ import annotations

import argparse

from mcpio.app.client import Client
from mcpio.cli import conversation
from mcpio.cli.arguments import prepared, read_words
from mcpio.cli.console import Console
from mcpio.cli.failures import Exit, Failure, did_you_mean
from mcpio.cli.pages import prompt_pages
from mcpio.cli.render import as_json, block_text, shown_list
from mcpio.errors import ErrorCode, RequestError
from mcpio.types.prompts import Prompt

__all__ = ["add_arguments", "fill_in", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    conversation.add_options(parser)
    conversation.add_words(parser, "PROMPT", "[KEY=TEXT ...]")


def run(options: argparse.Namespace) -> int:
    """Be the command."""
    conversation.choose_server(options)
    options.name = conversation.next_word(options, "prompt")
    options.given = read_words(options.words)
    return conversation.run(fill_in, options)


async def fill_in(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print the prompt ``options.name``, filled in with what ``options.given`` says."""
    prompt = await _find(client, options.name)
    arguments = prepared(_schema(prompt), options.given, of=prompt.name).arguments
    try:
        result = await client.get_prompt(prompt.name, arguments)
    except RequestError as error:
        if error.code == ErrorCode.INVALID_PARAMS:
            raise Failure(Exit.BAD_ARGUMENTS, f"{prompt.name} refuses the arguments: {error.message}") from error
        raise
    if options.json:
        console.result(as_json(client, result))
    else:
        for message in result.messages:
            console.result(f"{message.role}: {block_text(message.content)}")
    return Exit.DONE


def _schema(prompt: Prompt) -> dict[str, object]:
    """Return the arguments of a prompt as a schema: they are all text (PROM-03)."""
    return {
        "properties": {argument.name: {"type": "string"} for argument in prompt.arguments},
        "required": [argument.name for argument in prompt.arguments if argument.required],
        "additionalProperties": False,
    }


async def _find(client: Client, name: str) -> Prompt:
    known = {prompt.name: prompt for page in await prompt_pages(client, name) for prompt in page.prompts}
    if name in known:
        return known[name]
    others = f"the server has {shown_list(known)}." if known else "the server has no prompts."
    raise Failure(Exit.NOT_FOUND, f"no prompt {name!r}: {others}{did_you_mean(name, known)}")
