"""An HTTP server without sessions, under any WSGI server, in any number of threads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http import HTTPStatus
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import Request, urlopen
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from echo_app import answer, new_server

from mcpio import RequestReceived
from mcpio.http import (
    Body,
    End,
    HostPolicy,
    HttpOptions,
    HttpServer,
    RequestHead,
    RequestItem,
    ResponseHead,
    ResponseItem,
)

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

EXCHANGE = "this call"


def wsgi_app(policy: HostPolicy) -> WSGIApplication:
    """Return the application. ``policy`` accepts ``Host`` and ``Origin`` headers."""
    # One JSON object for each request, however long it takes: no streams.
    options = HttpOptions(sessions=False, answers="json", sse_after=None, policy=policy)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        # Nothing outlives a request, so each has its own machine, and threads share nothing.
        machine = HttpServer(lambda _: new_server(), entropy=os.urandom, options=options)
        response: list[ResponseItem] = []
        for item in request(environ):
            machine.receive(item, monotonic())
            response += respond(machine)
            if response:
                break  # The machine may refuse a request before its body is read.
        head = response[0]
        assert isinstance(head, ResponseHead)
        fields = [(name.decode(), value.decode("latin-1")) for name, value in head.headers]
        start_response(f"{head.status} {HTTPStatus(head.status).phrase}", fields)
        return [item.data for item in response if isinstance(item, Body)]

    return app


def request(environ: WSGIEnvironment) -> Iterator[RequestItem]:
    """Yield a request as its head, pieces of its body, and its end."""
    fields = {
        name.removeprefix("HTTP_").lower().replace("_", "-").encode(): value.encode("latin-1")
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in {"CONTENT_TYPE", "CONTENT_LENGTH"}
    }
    path = quote(environ["PATH_INFO"], encoding="latin-1")
    yield RequestHead(EXCHANGE, environ["REQUEST_METHOD"], path, list(fields.items()))
    length = environ.get("CONTENT_LENGTH", "")
    left = int(length) if length.isdecimal() else 0
    while left and (data := environ["wsgi.input"].read(min(left, 65536))):
        left -= len(data)
        yield Body(EXCHANGE, data)
    yield End(EXCHANGE)


def respond(machine: HttpServer) -> list[ResponseItem]:
    """Handle the request, if it has arrived; return the response as far as it is ready."""
    while (item := machine.next_event()) is not None:
        session, event = item
        if isinstance(event, RequestReceived):
            answer(session.connection, event)
    return machine.responses_to_send(EXCHANGE)


class Handler(WSGIRequestHandler):
    """A request handler that does not log."""

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    """Let a client talk to a server."""
    with WSGIServer(("127.0.0.1", 0), Handler) as server:
        server.set_app(wsgi_app(HostPolicy.for_address("127.0.0.1", server.server_port)))
        Thread(target=server.serve_forever).start()
        call = {"name": "echo", "arguments": {"text": "hello"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        }
        url, body = f"http://127.0.0.1:{server.server_port}/mcp", json.dumps(message).encode()
        with urlopen(Request(url, body, headers)) as response:
            print(f"it says: {json.load(response)['result']['content'][0]['text']}")
        server.shutdown()


if __name__ == "__main__":
    main()
