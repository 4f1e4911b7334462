"""``mcpio relay``: stand between a host and its server, and show, record or disturb what passes."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import time
from contextlib import ExitStack, suppress
from functools import partial

import trio

from mcpio.app.servers_config import ServerEntry
from mcpio.cli import connect, targets
from mcpio.cli.exit_status import Exit, Failure, failure_of
from mcpio.cli.output import add_record_option, opened
from mcpio.cli.relaying.chaos import FAULTS, Chaos, parse_chaos
from mcpio.cli.relaying.log import open_log
from mcpio.cli.relaying.pipes import relay_pipes
from mcpio.cli.relaying.traffic import Traffic
from mcpio.errors import ConnectFailed
from mcpio.observe.relayed import RelayRecorder
from mcpio.observe.tap import Redactor

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_words(parser)
    parser.add_argument("--log", metavar="FILE", help="write the lines to a file (default: standard error)")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show what passes")
    add_record_option(parser)
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
    if entry.url is not None:
        raise Failure(Exit.USAGE, "not yet")
    if not entry.command:
        raise Failure(Exit.USAGE, "no server: give its command in quotes, or its words after --")
    status: int = trio.run(partial(_relay, options, target))
    if status < 0:
        # End as the server did.
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


async def _relay(options: argparse.Namespace, target: targets.Target) -> int:
    entry = target.entry
    failure = None
    with ExitStack() as stack:
        recorder = None
        if options.record is not None:
            file = stack.enter_context(opened(options.record))
            recorder = RelayRecorder(file.write, target.text, time.monotonic(), redactor=Redactor())
        async with open_log(options.log) as show:
            traffic = Traffic(None if options.quiet else show, recorder)
            try:
                return await relay_pipes(entry.command, traffic, options.chaos, env=dict(entry.env), cwd=entry.cwd)
            except ConnectFailed as error:
                failure = failure_of(error)  # raised below: the log's nursery would wrap it
    raise failure
