"""``mcpio read``: print a resource."""

from __future__ import annotations

import argparse
import base64
import sys

from mcpio.app.client import Client
from mcpio.cli import connect, saving
from mcpio.cli.arguments import encodable
from mcpio.cli.exit_status import Exit, Failure, did_you_mean
from mcpio.cli.lists import declared, resource_pages
from mcpio.cli.output import Console, as_json, contents_text, is_terminal
from mcpio.errors import ErrorCode, RequestError
from mcpio.types.content import BlobResourceContents, TextResourceContents

__all__ = ["add_arguments", "read", "run"]

NOT_FOUND = (ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.INVALID_PARAMS)
"""Error codes for an unknown resource; newer servers use the second (RES-05)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    saving.add_option(parser)
    connect.add_words(parser, "URI")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    options.uri = encodable(connect.next_word(options, "URI"))
    connect.no_more_words(options)
    return connect.run(read, options)


async def read(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print the resource ``options.uri``; on a terminal, binary contents are described instead."""
    if declared(client).resources is None:
        raise Failure(Exit.NOT_FOUND, f"no resource {options.uri!r}: the server has no resources.")
    try:
        result = await client.read_resource(options.uri)
    except RequestError as error:
        if error.code not in NOT_FOUND:
            raise
        hint = did_you_mean(options.uri, await _uris(client))
        raise Failure(Exit.NOT_FOUND, f"no resource {options.uri!r}: {error.message}.{hint}") from error
    if options.json:
        console.result(as_json(client, result))
    elif options.save is not None:
        saver = saving.Saver(options.save, options.uri)
        for contents in result.contents:
            console.result(saver.contents(contents))
    else:
        for contents in result.contents:
            _print(contents, console)
    return Exit.DONE


async def _uris(client: Client) -> list[str]:
    """Return the URIs of the resources, for a hint; an empty list if there are too many."""
    try:
        return [resource.uri for page in await resource_pages(client) for resource in page.resources]
    except Failure:
        return []


def _print(contents: TextResourceContents | BlobResourceContents, console: Console) -> None:
    if is_terminal(sys.stdout):
        console.result(contents_text(contents))
        return
    if isinstance(contents, TextResourceContents):
        console.exact(contents.text)
        return
    try:
        console.data(base64.b64decode(contents.blob, validate=True))
    except ValueError as error:
        raise Failure(Exit.PROTOCOL, f"the binary contents of {contents.uri} are not base64: {error}") from error
