"""curl and our server in HTTP/2: a client that shares no code with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from certificates import authority, serving_as

from mcpio import Context, Server
from mcpio.http.model import HttpOptions
from mcpio.trio import serve_http

SPOKEN = "\n%{http_version} %{http_code}"


server = Server("here", "1.0")


@server.tool
def echo(text: str) -> str:
    return text


@server.tool
async def steps(ctx: Context) -> str:
    for step in range(3):
        ctx.progress(step, 3)
        await trio.sleep(0.001)
    return "done"


@asynccontextmanager
async def listening(**how: Any) -> AsyncIterator[str]:
    options = HttpOptions(sessions=False, health="/health")
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            found = await nursery.start(partial(serve_http, server, port=0, http2=True, options=options, **how))
            yield found.url.replace("127.0.0.1", "localhost")
            nursery.cancel_scope.cancel()


async def curl(*arguments: str, said: bytes = b"") -> tuple[str, bytes]:
    """Return the version of HTTP that was spoken, with the status, and the body."""
    command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--write-out", SPOKEN, *arguments]
    done = await trio.run_process(command, stdin=said, capture_stdout=True)
    body, _, spoken = done.stdout.rpartition(b"\n")
    return spoken.decode(), body


def post(url: str) -> list[str]:
    fields = ("Content-Type: application/json", "Accept: application/json, text/event-stream")
    return [url, *(word for field in fields for word in ("--header", field)), "--data-binary", "@-"]


def call(tool: str, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def test_http2_by_alpn(tmp_path: Path) -> None:
    trusted = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(str(trusted))

    async def main() -> None:
        async with listening(ssl_context=serving_as("localhost")) as url:
            secure = ["--cacert", str(trusted)]
            for version, spoken in (("--http2", "2 200"), ("--http1.1", "1.1 200")):
                found, body = await curl(version, *secure, *post(url), said=call("echo", text="x"))
                assert (found, json.loads(body)["result"]["content"][0]["text"]) == (spoken, "x")
                # Two requests by one connection.
                health = url.replace("/mcp", "/health")
                found, body = await curl(version, *secure, "--write-out", "\n%{num_connects}", health, health)
                assert (found, body) == ("0", b'{"status":"ok"}\n1{"status":"ok"}')

    trio.run(main)


def test_http2_with_prior_knowledge() -> None:
    async def main() -> None:
        async with listening() as url:
            known = "--http2-prior-knowledge"
            for text in ("x", "x" * 1_000_000):
                found, body = await curl(known, *post(url), said=call("echo", text=text))
                assert (found, json.loads(body)["result"]["content"][0]["text"]) == ("2 200", text)
            found, body = await curl(known, *post(url), said=call("steps"))
            assert (found, body.count(b"notifications/progress"), b'"done"' in body) == ("2 200", 3, True)
            found, body = await curl(known, "--header", "Expect: 100-continue", *post(url), said=call("echo", text="x"))
            assert found == "2 200"
            found, body = await curl(known, "--head", url.replace("/mcp", "/health"))
            assert (found, b"content-length: 15" in body) == ("2 200", True)

    trio.run(main)


def test_upgrade_to_h2c_is_ignored() -> None:
    async def main() -> None:
        async with listening() as url:
            found, body = await curl("--http2", *post(url), said=call("echo", text="x"))
            assert (found, json.loads(body)["result"]["content"][0]["text"]) == ("1.1 200", "x")

    trio.run(main)
