"""``mcpio demo``: a client and a server talk over two pipes, and every message is shown.

The client is this process and the server its child. Beside each message stand the phases of the two engines after
they acted on it: the client's is read directly, the server reports its own on standard error.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import trio

from mcpio.cli.demo.client import Speaker
from mcpio.cli.demo.view import REPORT, View
from mcpio.cli.exit_status import Exit, Failure, failure_of
from mcpio.errors import McpError
from mcpio.trio import open_process_stream, run_until_signalled
from mcpio.types.features import (
    CallToolRequest,
    GetPromptRequest,
    ListPromptsRequest,
    ListResourcesRequest,
    ListToolsRequest,
    PingRequest,
    ReadResourceRequest,
)

SERVER = (sys.executable, "-m", "mcpio.cli.demo.server")

DEADLINE = 30.0
"""Seconds for the whole conversation, which takes two."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    return run_until_signalled(partial(hold, View.for_output()), timeout=None)


async def hold(view: View) -> int:
    """Start the server and hold the conversation."""
    began = trio.current_time()
    try:
        with trio.fail_after(DEADLINE):
            # Our own program may inherit the environment, which may say where to find mcpio.
            async with open_process_stream(SERVER, inherit_env=True, stderr=partial(_server_wrote, view)) as process:
                view.title(process.pid)
                await converse(Speaker(process.stream, view), view)
                status = await process.wait()
    except McpError as error:
        raise failure_of(error) from error
    except trio.TooSlowError as error:
        raise Failure(Exit.TIMEOUT, f"the conversation has not ended after {DEADLINE:g} s") from error
    view.end(f"the server exited with status {status}", trio.current_time() - began)
    if status != 0 or not view.complete:
        raise Failure(Exit.SERVER_DIED, f"the server exited with status {status}, or did not report all its phases")
    return Exit.DONE


async def converse(client: Speaker, view: View) -> None:
    """Send each request of the demo and check the answers."""
    view.step("The handshake settles the revision and what each side can do.")
    await client.initialize()
    view.step("What does the server offer?")
    await client.ask(ListToolsRequest())
    await client.ask(ListResourcesRequest())
    await client.ask(ListPromptsRequest())
    view.step("A tool call, with progress and a log message on the way.")
    result = await client.ask(CallToolRequest("count", {"to": 3}), progress=True)
    if result.structured_content != {"result": 3}:
        raise Failure(Exit.PROTOCOL, f"count(3) gave {result.structured_content!r}")
    view.step("A resource.")
    await client.ask(ReadResourceRequest("demo://greeting"))
    view.step("A prompt, filled in.")
    await client.ask(GetPromptRequest("explain", {"topic": "pipes"}))
    view.step("A call that would take an hour, cancelled after two reports of progress. The conversation goes on.")
    await client.ask_and_cancel(CallToolRequest("count", {"to": 18_000}), after=2)
    await client.ask(PingRequest())
    view.step("The newest revision needs no handshake: each request says who asks, in which revision.")
    await client.discover()
    await client.ask(CallToolRequest("count", {"to": 3}))
    view.step("The end: the client closes its pipe, and so does the server.")
    await client.close()


def _server_wrote(view: View, line: str) -> None:
    """Handle a line of the server's standard error: a report of its phase, or text for the user."""
    word, _, report = line.partition(" ")
    direction, _, phase = report.partition(" ")
    if word == REPORT and direction in {"in", "out"}:
        view.reported(direction, phase)
    else:
        print(f"server: {line}", file=sys.stderr)
