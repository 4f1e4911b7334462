"""Nothing is imported while a server serves: at the limit of open files, importing fails."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

from carriers import added, run

import mcpio
from mcpio.trio import open_http

SOURCE = Path(mcpio.__file__).parent

OTHER_MODULES = {
    "_drivers/login.py": "of clients",
    "_drivers/servers.py": "of clients",
    "_drivers/socket_client.py": "of clients",
    "_drivers/stdio.py": "of clients",
    "app/batching.py": "of clients",
    "app/client.py": "of clients",
    "app/pagination.py": "of clients",
    "app/tasks/calls.py": "of clients",
    "app/tasks/requester.py": "of clients",
    "app/middleware/policies.py": "of clients",
    "app/servers_config.py": "of clients",
    "app/schema/validation.py": "loads all of its package when a tool is registered",
}
"""Modules whose functions import nothing while a server serves, and why."""

AT_THE_START = {
    ("_drivers/__init__.py", "checked_server"): "asked before anything is served",
    ("_drivers/__init__.py", "checked_auth"): "asked before anything is served",
    ("_drivers/setup.py", "preload"): "this is it",
    ("app/http_host.py", "_durable"): "of a store, when the host is made",
    ("app/http_host.py", "_new_worker"): "of a store, when the host is made",
    ("app/http_host.py", "_new_hooks"): "of a store, when the host is made",
    ("_drivers/__init__.py", "_open_skills"): "when skills are added",
    ("app/frontmatter.py", "yaml_package"): "when skills are added",
    ("app/server.py", "skills"): "when skills are added",
    ("app/server.py", "_keep_tasks"): "when the server is made",
    ("app/registry/registration.py", "_validator"): "when a tool is registered",
    ("app/schema/values.py", "_dataclass_fields"): "when a tool is registered",
    ("app/schema/values.py", "attributes_of"): "when a tool is registered",
    ("app/schema/constraints.py", "_re2_search"): "when a tool is registered",
    ("_drivers/http_server.py", "__init__"): "when the server is made",
    ("_drivers/http_server.py", "_http2_for"): "when the server is made",
    ("_drivers/http_server.py", "_websocket_config"): "when the server is made",
    ("observe/replay.py", "_read_profile"): "of recordings that are replayed",
    ("framing/json.py", "_msgspec_loads"): "chosen by preload",
    ("framing/json.py", "_orjson_dumps"): "chosen by preload",
    ("framing/json.py", "_stdlib_dumps"): "chosen by preload",
    ("framing/json.py", "_stdlib_loads"): "chosen by preload",
}
"""Imports inside of functions that come before anything is served, or never for a server, and why."""


def late_imports() -> Iterator[str]:
    """Give the modules that functions import which may run while a server serves."""
    below = ["_drivers", "app", "engine", "errors.py", "framing", "http", "types", "websocket"]
    found = [SOURCE / name for name in (*below, "trio/_event_loop.py")]
    for path in [file for each in found for file in ([each] if each.is_file() else sorted(each.rglob("*.py")))]:
        name = path.relative_to(SOURCE).as_posix()
        if name in OTHER_MODULES:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if (name, function.name) in AT_THE_START:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    yield str(node.module)
                elif isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)


def test_late_imports_are_preloaded_when_serving_starts() -> None:
    program = f"""
        import sys
        from functools import partial
        import trio
        from mcpio import Server
        from mcpio.trio import serve_http
        from mcpio.websocket import WebSocketOptions

        async def main():
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve_http, Server("s"), port=0, websocket=WebSocketOptions()))
                missing = {sorted(set(late_imports()))!r}
                print([name for name in missing if name not in sys.modules])
                nursery.cancel_scope.cancel()

        trio.run(main)
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


AT_THE_LIMIT = """
import resource, sys
from functools import partial
import trio
from mcpio import Server
from mcpio.trio import serve_http

server = Server("s", "1")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

async def main():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    imported = []
    async with trio.open_nursery() as nursery:
        listening = await nursery.start(partial(serve_http, server, port=0, http2=True))
        # What the server left in reserve is in use elsewhere.
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, hard))
        sys.addaudithook(lambda event, args: imported.append(args[0]) if event == "import" else None)
        print(listening.port, flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        # What the thread and the end of the server import is none of it.
        print([name for name in imported if name.startswith("mcpio")], flush=True)
        nursery.cancel_scope.cancel()

trio.run(main)
"""


def test_a_server_at_the_limit_of_open_files_serves_again_when_there_is_room() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", AT_THE_LIMIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline())
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        said = [process.stderr.readline() for _ in range(2)]
        for each in silent:
            each.close()

        async def main() -> None:
            async with open_http(f"http://127.0.0.1:{port}/mcp") as client:
                assert await added(client, 1, 2) == 3

        run(main)
        process.stdin.close()
        assert process.stdout.read() == "[]\n"
        rest = process.stderr.read()
    assert process.returncode == 0
    assert said[0].rstrip() == "max_connections is 48 instead of 768: the process may open 64 files (ulimit -n)"
    assert said[1].rstrip() == "a connection could not be accepted"
    # The one that was reported, whole.
    assert rest.count("Too many open files") == 1
