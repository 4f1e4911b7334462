"""``mcpio relay``: stand between a host and its server, and show, record or disturb what passes."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final

import trio

from mcpio.app.servers_config import ServerEntry
from mcpio.cli import connect, targets
from mcpio.cli.exit_status import Exit, Failure, failure_of
from mcpio.cli.output import Console, add_record_option, opened
from mcpio.cli.relaying.chaos import FAULTS, PROGRAMS_ONLY, URLS_ONLY, Chaos, parse_chaos
from mcpio.cli.relaying.pipes import relay_pipes
from mcpio.cli.relaying.traffic import Traffic, small_ladder
from mcpio.errors import ConnectFailed
from mcpio.inspecting.ladder import Ladder
from mcpio.observe.relayed import RelayRecorder
from mcpio.observe.tap import Redactor
from mcpio.trio import run_until_signalled
from mcpio.trio._stdio import open_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_words(parser)
    parser.add_argument("--log", metavar="FILE", help="write the lines to a file (default: standard error)")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show what passes")
    parser.add_argument(
        "--page", action="store_true", help="show what passes, and what is waiting, on a local web page"
    )
    add_record_option(parser)
    parser.add_argument(
        "--port",
        type=targets.parse_port,
        metavar="PORT",
        help="for a URL: where to listen on 127.0.0.1 (default: a free port)",
    )
    parser.add_argument(
        "--chaos",
        type=parse_chaos,
        default=Chaos(),
        metavar="seed=N,FAULT=VALUE,...",
        help=f"inject faults, the same for the same seed: {', '.join(FAULTS)}, as in seed=7,cut=1%%,slow=50ms@10%%",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    if options.after is None:
        target = targets.resolve(connect.next_word(options, "server"))
        connect.no_more_words(options)
    else:
        target = targets.Target(shlex.join(options.after), ServerEntry(command=tuple(options.after)))
    entry = target.entry
    if entry.url is None and not entry.command:
        raise Failure(Exit.USAGE, "no server: give its command in quotes, or its words after --")
    _check_options(options, entry)
    if entry.url is not None:
        return run_until_signalled(partial(_relay_url, options, entry.url), timeout=None)
    status: int = trio.run(partial(_relay_pipes, options, target))
    if status < 0:
        # End as the server did.
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _check_options(options: argparse.Namespace, entry: ServerEntry) -> None:
    """Raise Failure for an option that does not go with the server, or with another one."""
    if options.quiet and options.log is not None:
        raise Failure(Exit.USAGE, "--quiet cannot be combined with --log: it shows nothing")
    if entry.url is None and options.port is not None:
        raise Failure(Exit.USAGE, "--port is for servers at a URL; a program is relayed on standard input and output")
    if entry.headers:
        raise Failure(
            Exit.USAGE,
            "the server's entry must not have headers: write them into the host's entry, and relay the URL",
        )
    wrong = PROGRAMS_ONLY if entry.url is not None else URLS_ONLY
    for fault in options.chaos.faults:
        if fault.kind in wrong:
            kind = "servers that are started" if entry.url is not None else "servers at a URL"
            raise Failure(Exit.USAGE, f"--chaos {fault.text} is for {kind}")


async def _relay_pipes(options: argparse.Namespace, target: targets.Target) -> int:
    entry, failure = target.entry, None
    async with _open_traffic(options, target.text) as traffic:
        try:
            return await relay_pipes(entry.command, traffic, options.chaos, env=dict(entry.env), cwd=entry.cwd)
        except ConnectFailed as error:
            failure = failure_of(error)  # raised below: the log's nursery would wrap it
    raise failure


async def _relay_url(options: argparse.Namespace, url: str) -> int:
    if not url.startswith(("http://", "https://", "http+unix://", "https+unix://")):
        raise Failure(Exit.USAGE, f"the server must be a program or an HTTP URL, not {url}")
    from mcpio.cli.relaying.endpoint import HttpRelay
    from mcpio.http.client import Location

    try:
        location = Location.parse(url)
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error
    failure = None
    async with _open_traffic(options, url) as traffic, trio.open_nursery() as nursery:
        try:
            port: int = await nursery.start(HttpRelay(location, traffic, options.chaos).serve, options.port or 0)
        except OSError as error:
            failure = Failure(Exit.NOT_LOADED, f"cannot listen at port {options.port}: {error.strerror or error}")
        else:
            Console().note(f"http://127.0.0.1:{port}{location.target} is {url}")
            await trio.sleep_forever()
    raise failure


@asynccontextmanager
async def _open_traffic(options: argparse.Namespace, target: str) -> AsyncIterator[Traffic]:
    """Yield what shows and records, as the options say."""
    with ExitStack() as stack:
        writers: list[Callable[[str], object]] = []
        if options.record is not None:
            writers.append(stack.enter_context(opened(options.record)).write)
        async with open_log(options.log) as show, trio.open_nursery() as nursery:
            ladder = None if options.quiet else small_ladder()
            if options.page:
                from mcpio.cli.inspect import Recording
                from mcpio.inspecting.backend import Viewer
                from mcpio.inspecting.pages import serve_page

                ladder, recording = Ladder(time.monotonic), Recording()
                writers.append(recording.write)
                about = {"target": target, "mode": "relay"}
                viewer = Viewer(ladder, about, recording=lambda: "".join(recording.lines()))
                Console().note(f"mcpio relay: {await nursery.start(serve_page, viewer.server, 0)}")

            traffic = Traffic(None if options.quiet else show, ladder)
            # One recording each: a full disk ends that of the file, and the page can still save its own.
            for write in writers:
                traffic.record(partial(RelayRecorder, write, target, time.monotonic(), redactor=Redactor()))
            yield traffic
            nursery.cancel_scope.cancel()


# -------------------------------------------------------------------------------------------------------------- the log


MOST_LINES: Final = 2000
"""The lines that wait for a slow reader of the log; further ones are left out, and counted."""

LAST_LINES: Final = 1.0
"""Seconds that the reader of the log has for the last lines."""


@asynccontextmanager
async def open_log(path: str | None) -> AsyncIterator[Callable[[str], None]]:
    """Async context manager that yields what writes a line to a file, or to standard error without a path.

    A host may capture standard error and not read it, so a full pipe delays nothing. Raises Failure if the file cannot
    be written.
    """
    send, receive = trio.open_memory_channel[str](MOST_LINES)
    left_out = 0

    def show(line: str) -> None:
        nonlocal left_out
        try:
            if left_out:
                send.send_nowait(f"--- {left_out} lines left out: the log is read too slowly")
                left_out = 0
            send.send_nowait(line)
        except trio.WouldBlock:
            left_out += 1
        except trio.BrokenResourceError:
            pass  # the log failed

    async def write(fd: int) -> None:
        with contextlib.suppress(trio.BrokenResourceError), receive:
            writer = open_output(fd)
            async for line in receive:
                lines = [line]
                with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
                    while True:
                        lines.append(receive.receive_nowait())
                await writer.send_all("".join(f"{each}\n" for each in lines).encode(errors="backslashreplace"))
        finished.set()

    finished = trio.Event()
    with contextlib.ExitStack() as stack:
        try:
            fd = os.dup(2) if path is None else stack.enter_context(opened(path, "a")).fileno()
        except OSError:
            fd = os.open(os.devnull, os.O_WRONLY)  # there is no standard error
        if path is None:
            stack.callback(os.close, fd)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, fd)
            try:
                yield show
            finally:
                send.close()
                with trio.move_on_after(LAST_LINES, shield=True):
                    await finished.wait()
                nursery.cancel_scope.cancel()
