"""The WSGI application of the docs serves whoever asks, under any server, and keeps to what WSGI asks of it."""

from __future__ import annotations

import io
import json
import wsgiref.validate
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIServer
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
import trio
import waitress.server
import wsgi_app

from mcpio import Client
from mcpio.http import HostPolicy
from mcpio.trio import open_http

HELLO: dict[str, Any] = {"name": "echo", "arguments": {"text": "hello"}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": HELLO}
JSON = {"CONTENT_TYPE": "application/json", "HTTP_ACCEPT": "application/json, text/event-stream"}


def ask(body: bytes, **environ: str) -> tuple[str, dict[str, str], bytes]:
    """Make a request as a server would that checks everything; return status, header fields and body."""
    request: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mcp",
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_HOST": "localhost:8000",
        "wsgi.input": io.BytesIO(body),
        **JSON,
        **environ,
    }
    setup_testing_defaults(request)
    said: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        said.extend([status, dict(headers)])
        return said.append

    application: Any = validator(wsgi_app.wsgi_app(HostPolicy.for_address("127.0.0.1", 8000)))
    with closing(application(request, start_response)) as chunks:
        return said[0], said[1], b"".join(chunks)


def test_a_call_is_answered_with_json() -> None:
    status, headers, body = ask(json.dumps(CALL).encode())
    assert (status, headers["content-type"], headers["content-length"]) == (
        "200 OK",
        "application/json",
        str(len(body)),
    )
    assert json.loads(body)["result"] == {"content": [{"type": "text", "text": "hello"}]}


@pytest.mark.parametrize(
    ("status", "body", "environ"),
    [
        ("400 Bad Request", b"{", {}),
        ("400 Bad Request", b"{}", {"CONTENT_LENGTH": ""}),
        ("403 Forbidden", b"{}", {"HTTP_HOST": "example.com"}),
        ("403 Forbidden", b"{}", {"HTTP_ORIGIN": "https://example.com"}),
        ("404 Not Found", b"{}", {"PATH_INFO": "/%C3\xa9"}),
        ("405 Method Not Allowed", b"", {"REQUEST_METHOD": "GET"}),
        ("406 Not Acceptable", b"{}", {"HTTP_ACCEPT": "text/html"}),
        (f"413 {HTTPStatus(413).phrase}", b"{}", {"CONTENT_LENGTH": "9" * 20}),  # Python 3.13 has another phrase
        ("415 Unsupported Media Type", b"{}", {"CONTENT_TYPE": "text/plain"}),
    ],
)
def test_unserved_request_gets_a_wsgi_status(status: str, body: bytes, environ: dict[str, str]) -> None:
    assert ask(body, **environ)[0] == status


def test_a_notification_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # The validator asks for the type of a body even where there is none.
    monkeypatch.setattr(wsgiref.validate, "check_content_type", lambda *_: None)
    assert ask(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')[0] == "202 Accepted"


def test_non_numeric_content_length_means_no_body() -> None:
    machine_items = list(wsgi_app.request({"PATH_INFO": "/mcp", "REQUEST_METHOD": "POST", "CONTENT_LENGTH": "x"}))
    assert len(machine_items) == 2


class Server(WSGIServer):
    request_queue_size = 64  # connections that wait for its one thread


@contextmanager
def under_wsgiref() -> Iterator[int]:
    with Server(("127.0.0.1", 0), wsgi_app.Handler) as server:
        server.set_app(wsgi_app.wsgi_app(HostPolicy.for_address("127.0.0.1", server.server_port)))
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@contextmanager
def under_waitress() -> Iterator[int]:
    app = wsgi_app.wsgi_app(HostPolicy(None, None))
    server = waitress.server.create_server(app, host="127.0.0.1", port=0, threads=8)
    thread = Thread(target=server.run)
    thread.start()
    yield server.effective_port
    server.trigger.pull_trigger(server.close)
    thread.join()


@pytest.mark.parametrize("under", [under_wsgiref, under_waitress])
def test_a_client_makes_64_calls_at_once(under: Any) -> None:
    async def main(port: int) -> None:
        async with open_http(f"http://127.0.0.1:{port}/mcp") as client, trio.open_nursery() as nursery:
            for n in range(64):
                nursery.start_soon(call, client, str(n))

    async def call(client: Client, text: str) -> None:
        result = await client.call_tool("echo", {"text": text})
        answers.append(result.content[0].text)  # type: ignore[union-attr]  # as the server answers

    answers: list[str] = []
    with under() as port:
        trio.run(main, port)
    assert sorted(answers, key=int) == [str(n) for n in range(64)]
