"""The page is small, served on loopback to those with the secret, and every result fits into it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

import pytest
import trio

from mcpio import ConnectFailed, Server
from mcpio.errors import UnexpectedResponse
from mcpio.framing.json import dumps
from mcpio.inspecting.backend import SHOWN, _shorten
from mcpio.inspecting.pages import serve_page
from mcpio.trio import open_websocket

FILES = {each.name: each.read_text(encoding="utf-8") for each in files("mcpio.inspecting").joinpath("page").iterdir()}


def test_page_stays_small() -> None:
    assert sum(len(text.encode()) for text in FILES.values()) <= 100_000
    assert sum(text.count("\n") for name, text in FILES.items() if name.endswith(".js")) <= 1_500


@pytest.mark.parametrize("name", sorted(FILES))
def test_page_makes_no_markup_of_texts(name: str) -> None:
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "localStorage",
        "sessionStorage",
    ):
        assert word not in FILES[name]


async def _get(port: int, path: str, host: str) -> str:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return b"".join([chunk async for chunk in stream]).decode()


def test_secret_opens_the_backend_and_nothing_else_does(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(partial(serve_page, Server("backend"), 0))
            place, _, secret = address.partition("/#")
            port = int(place.rpartition(":")[2])
            assert len(secret) == 32
            for path in ("/", "/app.js", "/style.css"):
                answer = await _get(port, path, f"127.0.0.1:{port}")
                assert answer.startswith("HTTP/1.1 200 ")
                assert secret not in answer
                assert f"connect-src ws://127.0.0.1:{port};" in answer
                assert "require-trusted-types-for 'script'" in answer
                assert "frame-ancestors 'none'" in answer
            assert (await _get(port, "/", "evil.example")).startswith("HTTP/1.1 403 ")
            assert (await _get(port, "/trace.html", f"127.0.0.1:{port}")).startswith("HTTP/1.1 404 ")
            assert (await _get(port, "//[/mcp", f"127.0.0.1:{port}")).startswith("HTTP/1.1 404 ")
            assert not [record for record in caplog.records if record.exc_info]
            url = f"{place.replace('http', 'ws')}/mcp"
            async with open_websocket(f"{url}?token={secret}") as client:
                assert client.server.info.name == "backend"
            for wrong in (url, f"{url}?token=", f"{url}?token={secret[:-1]}", f"{url}?token={'é' * 3}"):
                with pytest.raises((ConnectFailed, UnexpectedResponse, ValueError)):
                    async with open_websocket(wrong):
                        pass
            foreign = {"Origin": "http://evil.example"}
            with pytest.raises((ConnectFailed, UnexpectedResponse)):
                async with open_websocket(f"{url}?token={secret}", headers=foreign):
                    pass
            nursery.cancel_scope.cancel()

    trio.run(main)


LONG: dict[str, Callable[[], Any]] = {
    "text": lambda: "x" * 50_000_000,
    "blocks": lambda: {"content": [{"type": "text", "text": "y" * 3_000_000}] * 20},
    "names": lambda: {"name": "n" * 2_000_000, "more": {"k" * 2_000_000: ["z" * 10_000] * 1_000}},
    "lists": lambda: [{"a": [["b" * 200] * 200] * 5}] * 30,
}


@pytest.mark.parametrize("kind", LONG)
def test_long_value_is_shortened(kind: str) -> None:
    size = len(dumps(_shorten(LONG[kind]())))
    assert size <= 2 * SHOWN


def test_shortened_value_keeps_its_names() -> None:
    found = _shorten({"name": "a", "title": "t" * 100_000, "more": 1}, 1000)
    assert list(found) == ["name", "title", "…"]
    assert found["title"].endswith("more characters)")


def test_short_value_stays_as_it_is() -> None:
    value = {"a": [1, None, {"b": "c"}]}
    assert _shorten(value) is value
