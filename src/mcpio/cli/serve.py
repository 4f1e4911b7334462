"""``mcpio serve``: serve a Server of somebody's module, on standard input and output, over HTTP or on a socket."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from types import ModuleType, TracebackType

import trio

from mcpio._drivers import ServedOnImport, only_importing
from mcpio.app.server import Server
from mcpio.cli import http_serving, recording, sockets
from mcpio.cli.console import is_terminal
from mcpio.cli.failures import Exit, Failure, did_you_mean
from mcpio.trio import serve_stdio

__all__ = ["add_arguments", "load", "run"]

DEFAULT_NAME = "server"
"""What the object is called where the command line does not say."""

MODULE_NAME = "__mcp_main__"
"""What a file's module is called: a name that no other module has, and not ``__main__``, so that it does not serve."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "server",
        metavar="MODULE[:NAME]",
        help="a module or a path to a file.py, and the Server in it (default: server)",
    )
    recording.add_option(parser)
    transports = parser.add_mutually_exclusive_group()
    transports.add_argument(
        "--stdio", action="store_true", help="on standard input and output, for one client; this is the default"
    )
    transports.add_argument(
        "--http",
        type=http_serving.place,
        metavar="[HOST:]PORT",
        help="over HTTP, for any number; on this machine only where there is no host; port 0 finds one; unix:PATH is a "
        "Unix socket",
    )
    transports.add_argument(
        "--tcp",
        type=http_serving.address,
        metavar="[HOST:]PORT",
        help="on TCP, one message a line, for any number; on this machine only where there is no host",
    )
    transports.add_argument("--unix", metavar="PATH", help="on a Unix socket, likewise, for the same user")
    parser.add_argument(
        "--websocket",
        nargs="?",
        const=True,
        type=http_serving.place,
        metavar="[HOST:]PORT",
        help="over WebSocket, likewise; without a place beside --http, at the same address",
    )
    parser.add_argument("--path", help="with --http and --websocket: the path of the endpoint (default: /mcp)")
    parser.add_argument("--health", metavar="PATH", help="with --http: a path that tells whether the server is alive")
    parser.add_argument(
        "--store", metavar="FILE", help="with --http: where sessions are kept, so that they outlive the process"
    )


def run(options: argparse.Namespace) -> int:
    """Be the command."""
    _check(options)
    # What the module prints while it is imported is no protocol either.
    with contextlib.redirect_stdout(sys.stderr):
        server = load(options.server)
    path, websocket = options.path or "/mcp", options.websocket is not None
    if options.http is not None:
        how = {"path": path, "health": options.health, "store": options.store, "websocket": websocket}
        http_serving.serve(server, options.http, **how)
        return Exit.DONE
    if websocket:
        http_serving.serve_websocket(server, options.websocket, path=path)
        return Exit.DONE
    if options.tcp is not None:
        sockets.serve_tcp(server, options.tcp)
        return Exit.DONE
    if options.unix is not None:
        sockets.serve_unix(server, options.unix)
        return Exit.DONE
    if is_terminal(sys.stdin):
        print(f"mcpio: serving {server.info.name!r} on standard input, which is a terminal", file=sys.stderr)
    with recording.recorder(options.record) as tap:
        trio.run(partial(serve_stdio, server, tap=tap))
    return Exit.DONE


def _check(options: argparse.Namespace) -> None:
    """Raise ``Failure`` for options that do not go together."""
    for name in ("path", "health"):
        value = getattr(options, name)
        if value is not None and options.http is None and (name != "path" or options.websocket is None):
            raise Failure(Exit.USAGE, f"--{name} is for --http")
        if value is not None:
            from mcpio.http.options import check_path  # few say one

            try:
                check_path(f"--{name}", value)
            except ValueError as error:
                raise Failure(Exit.USAGE, str(error)) from error
    if options.store is not None and options.http is None:
        raise Failure(Exit.USAGE, "--store is for --http")
    if options.unix == "":
        raise Failure(Exit.USAGE, "--unix names no path")
    _check_websocket(options)
    for name in ("http", "tcp", "unix", "websocket"):
        if getattr(options, name) is not None and options.record is not None:
            raise Failure(Exit.USAGE, f"--record writes down one conversation: it is not for --{name}")


def _check_websocket(options: argparse.Namespace) -> None:
    where = options.websocket
    if where is None:
        return
    if options.stdio or options.tcp is not None or options.unix is not None:
        raise Failure(Exit.USAGE, "--websocket goes with --http, at the same address, and with nothing else")
    if where is True and options.http is None:
        raise Failure(Exit.USAGE, "where? Say --websocket PORT, or --http PORT --websocket for both")
    if where is not True and options.http is not None:
        raise Failure(Exit.USAGE, "one address serves both: say --http PORT --websocket")


def load(reference: str) -> Server:
    """Return the ``Server`` that ``package.module:name`` or ``path/to/file.py:name`` refers to.

    ``Failure`` where there is none. Modules are looked for in the working directory too.
    """
    place, colon, name = reference.rpartition(":")
    # A colon may be part of a path.
    if not colon or not name.isidentifier():
        place, name = reference, DEFAULT_NAME
    module = _file(place) if place.endswith(".py") else _module(place)
    found = getattr(module, name, None)
    if isinstance(found, Server):
        return found
    servers = [each for each, value in vars(module).items() if isinstance(value, Server)]
    if found is not None:
        reason = f"{name!r} in {place} is a {type(found).__name__}, not an mcpio Server."
    else:
        reason = f"{place} has no {name!r}.{did_you_mean(name, servers or vars(module))}"
    there = f" A Server there is {' or '.join(map(repr, servers))}." if servers else " There is no Server in it."
    how = f" Say it as {place}:{servers[0]}." if servers else ""
    raise Failure(Exit.NOT_LOADED, reason + there + how)


def _module(name: str) -> ModuleType:
    if not name or name.startswith("."):
        raise Failure(Exit.NOT_LOADED, f"there is no module {name!r}")
    sys.path.insert(0, os.getcwd())
    try:
        with _importing(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Failure(Exit.NOT_LOADED, f"there is no module {error.name!r}") from error


def _file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise Failure(Exit.NOT_LOADED, f"there is no file {path!r}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    loader = SourceFileLoader(MODULE_NAME, path)
    spec = ModuleSpec(MODULE_NAME, loader, origin=path)
    spec.has_location = True
    module = sys.modules[MODULE_NAME] = module_from_spec(spec)
    with _importing(path):
        loader.exec_module(module)
    return module


@contextlib.contextmanager
def _importing(place: str) -> Iterator[None]:
    """Raise ``Failure`` for whatever an import raises, except that the module itself is not there, and interrupts."""
    try:
        with only_importing():
            yield
    except BaseException as error:
        found = _within(error)
        if any(isinstance(each, ServedOnImport) for each in found):
            reason = _served(place, error)
        elif any(isinstance(each, KeyboardInterrupt) for each in found):
            raise KeyboardInterrupt from error
        elif isinstance(error, SystemExit):
            reason = f"importing {place} ended the program: it raised SystemExit({error.code!r})"
        elif isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
            # One that the module itself imports, and that is missing, is the author's to see.
            raise
        else:
            lines = traceback.format_exception(type(error), error, _own_steps(error))
            reason = f"importing {place} failed:\n{''.join(lines)}".rstrip()
        raise Failure(Exit.NOT_LOADED, reason) from error


def _within(error: BaseException) -> list[BaseException]:
    """Return an exception, or those that a group of exceptions holds."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [found for each in error.exceptions for found in _within(each)]


def _served(place: str, error: BaseException) -> str:
    """Return what is wrong with a module that serves when it is imported, with the line that does."""
    steps = traceback.extract_tb(_own_steps(error))
    at = [step for step in steps if step.name == "<module>" and not _is_machinery(step.filename)][-1]
    return (
        f"{place} serves while it is imported, at line {at.lineno} of {at.filename}:\n  {at.line}\n"
        "Put this under if __name__ == '__main__'"
    )


def _own_steps(error: BaseException) -> TracebackType | None:
    """Return the part of a traceback that is a module's own."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None and _is_machinery(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    return step


def _is_machinery(file: str) -> bool:
    return (
        file in (__file__, contextlib.__file__)
        or file.startswith("<frozen importlib")
        or os.path.dirname(file) == os.path.dirname(importlib.__file__)
    )
