"""A protected server and its authorization server, on this machine, for logins to try."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import time
from typing import Any

import trio

from mcpio import Server
from mcpio.auth import Challenge, Fetch, Flow, FlowContext, Grant, ResourceServer, Secret
from mcpio.testing import AuthorizationServer
from mcpio.trio import serve_http

server = Server("guarded", "1")


@server.tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


class Tokens(BaseHTTPRequestHandler):
    """The authorization server, for browsers and for programs."""

    def do_GET(self) -> None:
        """Log the browser in, or answer a program."""
        if self.path.startswith("/authorize?"):
            self.send_response(302)
            self.send_header("location", tokens.approve(issuer + self.path, time()))
            self.end_headers()
            return
        headers = [(name.lower(), value) for name, value in self.headers.items()]
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = Fetch(
            method="GET" if self.command == "GET" else "POST",
            url=issuer + self.path,
            headers=headers,
            body=body,
        )
        answer = tokens.respond(request, time())
        self.send_response(answer.status)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_POST = do_GET  # noqa: N815  # the name that the class looks for

    def log_message(self, *args: Any) -> None:
        """Do not log requests."""


class OurTokens:
    """Verifies the tokens of that server, which is in this process.

    For an authorization server elsewhere, take a JwtVerifier or an Introspection.
    """

    challenges_with_metadata = True
    header = "authorization"

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | None:
        """Return the grant of a token, or None."""
        decision = tokens.accepts([("authorization", f"Bearer {token.reveal()}")], at)
        if isinstance(decision, Challenge):
            return None
        return Grant(issuer, decision.subject, decision.client_id, decision.scopes)

    def load_key(self, token: Secret) -> None:
        """Return None: no key has to be fetched."""

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Do nothing, since no key has to be fetched."""
        yield from ()


with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
url = f"http://127.0.0.1:{port}/mcp"
listener = ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
issuer = f"http://127.0.0.1:{listener.server_port}"
tokens = AuthorizationServer(issuer, url, clients={"nightly": "its secret"})
Thread(target=listener.serve_forever, daemon=True).start()


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Serve, and yield the URL."""
    async with trio.open_nursery() as nursery:
        auth = ResourceServer(resource=url, authorization_servers=[issuer], verify=OurTokens())
        await nursery.start(partial(serve_http, server, port=port, auth=auth))
        yield url
        nursery.cancel_scope.cancel()
