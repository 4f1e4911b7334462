"""``mcpio serve``: serve the Server of a module, on standard input and output, over HTTP or on a socket."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio import asyncio as on_asyncio
from mcpio import trio as on_trio
from mcpio._drivers import ServedOnImport, only_importing
from mcpio.app.server import Server
from mcpio.cli.exit_status import Exit, Failure, did_you_mean
from mcpio.cli.output import add_record_option, is_terminal, recorder
from mcpio.cli.targets import TCP, UNIX, Address, parse_address, parse_place
from mcpio.errors import ConnectFailed

if TYPE_CHECKING:
    from mcpio.trio import HttpListening, SocketListening, WebSocketListening

LOOPS: Final = {"trio": on_trio, "asyncio": on_asyncio}
"""The calls of each loop. They are lazy: what a command does not use is not imported."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "server",
        nargs="?",
        metavar="MODULE[:NAME]",
        help="a module or a path to a file.py, and the Server in it (default: server)",
    )
    parser.add_argument(
        "--skills",
        action="append",
        default=[],
        metavar="FOLDER",
        help="serve the skills in a folder too, or without a module by themselves; may be repeated",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="start the server again when a Python file in its folder changes; clients stay connected",
    )
    parser.add_argument(
        "--loop",
        choices=tuple(LOOPS),
        default="trio",
        help="the event loop of the handlers (default: trio)",
    )
    parser.add_argument(
        "--outlive-parent",
        action="store_true",
        help="on standard input and output: go on when the process that started this one ends, until the input does",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="log from this level on, to standard error, with the time; by default warnings and errors, without it",
    )
    parser.add_argument(
        "--access-log",
        action="store_true",
        help="with --http: log a line for each request, to standard error: method, path, status, time, bytes, client",
    )
    add_record_option(parser)
    transports = parser.add_mutually_exclusive_group()
    transports.add_argument(
        "--stdio", action="store_true", help="on standard input and output, for one client; this is the default"
    )
    transports.add_argument(
        "--http",
        type=parse_place,
        metavar="[HOST:]PORT",
        help="over HTTP, for many clients; without a host, on this machine only; port 0 picks a free one; unix:PATH is "
        "a Unix socket",
    )
    transports.add_argument(
        "--tcp",
        type=parse_address,
        metavar="[HOST:]PORT",
        help="on TCP, one message a line, for many clients; without a host, on this machine only",
    )
    transports.add_argument("--unix", metavar="PATH", help="on a Unix socket, likewise, for the same user only")
    parser.add_argument(
        "--websocket",
        nargs="?",
        const=True,
        type=parse_place,
        metavar="[HOST:]PORT",
        help="over WebSocket, likewise; together with --http, without an address: both share one",
    )
    parser.add_argument("--path", help="with --http and --websocket: the path of the endpoint (default: /mcp)")
    parser.add_argument("--health", metavar="PATH", help="with --http: the path of a health check")
    parser.add_argument(
        "--store", metavar="FILE", help="with --http: the file that keeps sessions, so that they outlive the process"
    )


_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    _check(options)
    if options.log_level is not None:
        logging.basicConfig(level=options.log_level.upper(), format=_LOG_FORMAT)
    if options.access_log:
        logging.basicConfig(format=_LOG_FORMAT)  # does nothing a second time
        logging.getLogger("mcpio.access").setLevel(logging.INFO)
    # Standard output carries the protocol; what the module prints while it is imported must not.
    with contextlib.redirect_stdout(sys.stderr):
        server = _server(options)
    if server.scope_rules is not None:
        raise Failure(
            Exit.NOT_LOADED,
            f"mcpio serve cannot grant the scopes that {options.server} asks for: serve it from your program, with"
            " serve_http(server, auth=...) or serve_stdio(server, principal=Grant(...))",
        )
    if server.lifespan is not None:
        server.lifespan = partial(_report_exit, server.lifespan)
    try:
        _serve(server, options)
    except ConnectFailed as error:
        raise Failure(Exit.NOT_LOADED, f"--reload: {error}") from error
    return Exit.DONE


@contextlib.asynccontextmanager
async def _report_exit(lifespan: Any, server: Server) -> AsyncIterator[Any]:
    """Enter a lifespan. Raises Failure for its exceptions, which otherwise look like those of listening or options."""
    of_body: BaseException | None = None
    try:
        async with lifespan(server) as state:
            try:
                yield state
            except BaseException as error:
                of_body = error
                raise
    except ConnectFailed:
        raise  # a server that is loaded again does not start
    except Exception as error:
        if error is of_body:
            raise
        text = "".join(traceback.format_exception(error)).rstrip()
        raise Failure(Exit.NOT_LOADED, f"the lifespan of {server.info.name!r} failed:\n{text}") from error


def _server(options: argparse.Namespace) -> Server:
    """Return the object to serve: the Server itself, or with ``--reload`` a proxy of a child process."""
    if options.reload:
        from mcpio.cli.reloading import reloading_server

        return reloading_server(options.server, options.skills)
    if options.server is not None:
        server = load(options.server)
    else:
        server = Server(os.path.basename(os.path.abspath(options.skills[0])))
    for folder in options.skills:
        try:
            server.skills.add_folder(folder)
        except (OSError, ValueError, ImportError) as error:
            raise Failure(Exit.NOT_LOADED, f"--skills {folder}: {error}") from error
    return server


def _check(options: argparse.Namespace) -> None:
    """Raise Failure for options that exclude each other."""
    if options.server is None and not options.skills:
        raise Failure(Exit.USAGE, "nothing to serve: name a module or a file.py, or --skills FOLDER")
    for name in ("path", "health"):
        value = getattr(options, name)
        if value is not None and options.http is None and (name != "path" or options.websocket is None):
            raise Failure(Exit.USAGE, f"--{name} needs --http")
        if value is not None:
            from mcpio.http.model import check_path  # most runs have no path to check

            try:
                check_path(f"--{name}", value)
            except ValueError as error:
                raise Failure(Exit.USAGE, str(error)) from error
    if options.store is not None and options.http is None:
        raise Failure(Exit.USAGE, "--store needs --http")
    if options.access_log and options.http is None:
        raise Failure(Exit.USAGE, "--access-log needs --http")
    if options.unix == "":
        raise Failure(Exit.USAGE, "--unix must be a path, not empty")
    _check_websocket(options)
    if options.loop == "asyncio" and options.reload:
        raise Failure(Exit.USAGE, "--reload cannot be combined with --loop asyncio: it runs on Trio")
    for name in ("http", "tcp", "unix", "websocket"):
        if getattr(options, name) is not None and options.record is not None:
            raise Failure(Exit.USAGE, f"--record cannot be combined with --{name}: it writes one conversation")


def _check_websocket(options: argparse.Namespace) -> None:
    address = options.websocket
    if address is None:
        return
    if options.stdio or options.tcp is not None or options.unix is not None:
        raise Failure(Exit.USAGE, "--websocket cannot be combined with --stdio, --tcp or --unix")
    if address is True and options.http is None:
        raise Failure(Exit.USAGE, "--websocket must have an address unless --http has one: write --websocket PORT")
    if address is not True and options.http is not None:
        raise Failure(Exit.USAGE, "--http and --websocket share one address: write --http PORT --websocket")


# ---------------------------------------------------------------------------------------------------------- the serving


def _serve(server: Server, options: argparse.Namespace) -> None:
    """Serve until the client or a signal ends it. Raises Failure if that cannot begin."""
    loop: Any = LOOPS[options.loop]
    path, websocket = options.path or "/mcp", options.websocket is not None
    listen = partial(_listen, options.loop, server)
    if options.http is not None:
        with _http_options(path, websocket, options) as http_options:
            listen(partial(loop.serve_http, **http_options), options.http, ("http", "ws") if websocket else ("http",))
    elif websocket:
        listen(partial(loop.serve_websocket, path=path), options.websocket, ("ws",))
    elif options.tcp is not None:
        listen(loop.serve_tcp, options.tcp)
    elif options.unix is not None:
        listen(lambda served, *, unix, **http_options: loop.serve_unix(served, unix, **http_options), options.unix)
    else:
        if is_terminal(sys.stdin):
            print(f"mcpio: serving {server.info.name!r} on standard input, which is a terminal", file=sys.stderr)
        with recorder(options.record) as tap:
            serve = partial(loop.serve_stdio, server, tap=tap, end_with_parent=not options.outlive_parent)
            _run(options.loop, serve)


@contextlib.contextmanager
def _http_options(path: str, websocket: bool, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the keyword arguments of ``serve_http``. Raises Failure if the file of sessions cannot be opened."""
    from mcpio.http.model import HttpOptions  # only servers over HTTP pay for these

    http_options = {"options": HttpOptions(path=path, health=options.health), "access_log": options.access_log}
    if websocket:
        from mcpio.websocket.frames import WebSocketOptions

        http_options["websocket"] = WebSocketOptions()
    if options.store is None:
        yield http_options
        return
    import sqlite3

    from mcpio.stores import SqliteStore

    try:
        store = SqliteStore(options.store)
    except (sqlite3.Error, ValueError) as error:
        raise Failure(Exit.NOT_LOADED, f"cannot keep sessions in {options.store}: {error}") from error
    with store:
        yield {**http_options, "store": store}


def _listen(loop: str, server: Server, serve: Any, address: Address | str, schemes: Sequence[str] = ()) -> None:
    """Serve until SIGINT or SIGTERM, and print the address once clients can connect.

    Raises Failure if the address cannot be listened at.
    """
    at: dict[str, str | int]
    if isinstance(address, str):
        at, named = {"unix": address}, address
    else:
        at, named = {"host": address.host, "port": address.port}, f"{address.host} port {address.port}"

    def say(listening: HttpListening | WebSocketListening | SocketListening) -> None:
        shown = _shown(listening, address, schemes)
        print(f"mcpio: serving {server.info.name!r} at {shown}", file=sys.stderr, flush=True)

    try:
        _run(loop, partial(serve, server, **at, handle_signals=True), say)
    except (OSError, UnicodeError) as error:  # UnicodeError: the host cannot be encoded as a host name
        reason = getattr(error, "strerror", None) or error
        raise Failure(Exit.NOT_LOADED, f"cannot listen at {named}: {reason}") from error
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error


def _shown(listening: Any, address: Address | str, schemes: Sequence[str]) -> str:
    """Return the address as a client names it."""
    if schemes:
        rest = listening.url.removeprefix("http").removeprefix("ws")
        return " and ".join(scheme + rest for scheme in schemes)
    if isinstance(address, str):
        return f"{UNIX}{address}"
    return f"{TCP}{f'[{listening.host}]' if ':' in listening.host else listening.host}:{listening.port}"


def _run(loop: str, serve: Any, say: Callable[[Any], None] | None = None) -> None:
    if loop == "trio":
        import trio

        trio.run(serve if say is None else partial(serve, task_status=_Status(say)))
        return
    import asyncio

    async def main() -> None:
        if say is None:
            await serve()
            return
        started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        started.add_done_callback(lambda done: done.cancelled() or say(done.result()))
        await serve(started=started)

    asyncio.run(main())


@attrs.frozen
class _Status:
    """A Trio task status."""

    started: Callable[[Any], None]


# -------------------------------------------------------------------------------------------------------------- loading


DEFAULT_NAME = "server"
"""The variable that holds the Server unless the command line names another."""

MODULE_NAME = "__mcp_main__"
"""The module name of a file: unlike any other, and not ``__main__``, so that the file does not serve when imported."""


def load(reference: str) -> Server:
    """Import and return the Server at ``package.module:name`` or ``path/to/file.py:name``.

    The working directory is searched too. Raises Failure if the server cannot be loaded.
    """
    module_name, colon, name = reference.rpartition(":")
    # The colon may be part of a path.
    if not colon or not name.isidentifier():
        module_name, name = reference, DEFAULT_NAME
    module = _file(module_name) if module_name.endswith(".py") else _module(module_name)
    named_value = getattr(module, name, None)
    if isinstance(named_value, Server):
        return named_value
    servers = [each for each, value in vars(module).items() if isinstance(value, Server)]
    if named_value is not None:
        reason = f"{name!r} in {module_name} is a {type(named_value).__name__}, not an mcpio Server."
    else:
        reason = f"{module_name} has no {name!r}.{did_you_mean(name, servers or vars(module))}"
    there = f" It has the Server {' and '.join(map(repr, servers))}." if servers else " It has no Server."
    advice = f" Write {module_name}:{servers[0]}." if servers else ""
    raise Failure(Exit.NOT_LOADED, reason + there + advice)


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
def _importing(module_name: str) -> Iterator[None]:
    """Convert everything that an import raises to Failure, except interrupts and the absence of the module itself."""
    try:
        with only_importing():
            yield
    except BaseException as error:
        causes = _within(error)
        if any(isinstance(each, ServedOnImport) for each in causes):
            reason = _served(module_name, error)
        elif any(isinstance(each, KeyboardInterrupt) for each in causes):
            raise KeyboardInterrupt from error
        elif isinstance(error, SystemExit):
            reason = f"importing {module_name} ended the program: it raised SystemExit({error.code!r})"
        elif isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            # The named module itself is missing, which the caller reports. Its own missing imports get a traceback.
            raise
        else:
            lines = traceback.format_exception(type(error), error, _own_steps(error))
            reason = f"importing {module_name} failed:\n{''.join(lines)}".rstrip()
        raise Failure(Exit.NOT_LOADED, reason) from error


def _within(error: BaseException) -> list[BaseException]:
    """Return the exception, or the leaves of an exception group."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _within(each)]


def _served(module_name: str, error: BaseException) -> str:
    """Describe a module that starts to serve when it is imported, with the line that does it."""
    steps = traceback.extract_tb(_own_steps(error))
    at = [step for step in steps if step.name == "<module>" and not _is_machinery(step.filename)][-1]
    return (
        f"{module_name} serves while it is imported, at line {at.lineno} of {at.filename}:\n  {at.line}\n"
        "Move this line under if __name__ == '__main__'"
    )


def _own_steps(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames of the import machinery and of this module."""
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
