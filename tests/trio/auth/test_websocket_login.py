"""Clients over WebSocket of a protected server: what authorizes the opening of a connection."""

from __future__ import annotations

import asyncio
import os
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from authkeys import ED25519
from authsite import AuthSite, run
from protectedsites import notes

import mcpio.asyncio
from mcpio import Options, Server
from mcpio.app.contracts import CacheHint
from mcpio.auth import (
    ApiKey,
    ApiKeys,
    AskUser,
    AuthorizationError,
    BearerToken,
    ClientCredentials,
    Credentials,
    JwtVerifier,
    LoginRequired,
    MemoryCredentials,
    NeedAssertion,
    OAuth,
    ResourceServer,
    Secret,
    ShowCode,
    TokenSet,
    api_key_digest,
    load_signer,
    signed_jwt,
    to_text,
)
from mcpio.auth.keys import base64url, new_proof_key
from mcpio.backoff import Backoff
from mcpio.errors import ConnectFailed, McpError, UnexpectedResponse
from mcpio.framing.json import dumps, loads
from mcpio.revisions import REVISIONS
from mcpio.stores import FileCredentials
from mcpio.testing import AuthorizationServer
from mcpio.trio import open_http, open_websocket, serve_http
from mcpio.trio._runtime import TrioRuntime
from mcpio.websocket import WebSocketOptions

SIGNER: Any = load_signer(ED25519, key_id="k1")
AT_ONCE = Backoff(0.0)


class Revocable:
    """Verifies tokens until they are all revoked."""

    def __init__(self, verifier: JwtVerifier) -> None:
        self.verifier = verifier
        self.is_revoked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.verifier, name)

    def verify(self, token: Secret, resource: str | None, at: float) -> Any:
        return None if self.is_revoked else self.verifier.verify(token, resource, at)


@asynccontextmanager
async def protected(site: AuthSite, server: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[str]:
    """Serve the notes beside their authorization server, and give their URL."""
    async with trio.open_nursery() as nursery:
        yield await start_protected(site, nursery, server, **options)
        nursery.cancel_scope.cancel()


async def start_protected(
    site: AuthSite,
    nursery: trio.Nursery,
    server: dict[str, Any] | None = None,
    program: Server | None = None,
    **options: Any,
) -> str:
    """Start to serve the notes, and return their URL."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
    site.server = AuthorizationServer(site.base, url, signer=SIGNER, **(server or {}))
    verify = [JwtVerifier(site.base, jwks={"keys": [{**SIGNER.public_jwk, "kid": "k1"}]})]
    auth = ResourceServer(**{"resource": url, "authorization_servers": [site.base], "verify": verify, **options})
    serve = partial(serve_http, program or notes(), listeners=[listener], auth=auth, websocket=WebSocketOptions())
    await nursery.start(serve)
    return "ws" + url.removeprefix("http")


def logging_in(site: AuthSite, **more: Any) -> Any:
    return {"auth": OAuth(), "credentials": MemoryCredentials(), "ask_user": site.browse, **more}


async def who(client: Any) -> str:
    return str((await client.call_tool("who")).text)


@pytest.mark.req("AUTH-03", "AUTH-05", "XPORT-04")
def test_login_by_a_browser_opens_the_client() -> None:
    async def play(site: AuthSite) -> None:
        async with protected(site) as url:
            store = MemoryCredentials()
            async with open_websocket(url, **logging_in(site, credentials=store)) as client:
                assert (await who(client)).startswith("ada by client-")
            # The tokens are those of the same server over HTTP, and the second client needs no person.
            [key] = store.keys()
            assert key == f"http{url.removeprefix('ws')} default"
            async with open_websocket(url, auth=OAuth(), credentials=store, interaction="never") as client:
                await who(client)
        assert (len(site.opened_urls), len(site.token_requests)) == (1, 1)

    run(play)


@pytest.mark.req("AUTH-35")
def test_opening_that_needs_more_scopes_asks_for_them() -> None:
    async def play(site: AuthSite) -> None:
        async with protected(site, scopes=["notes:read"]) as url:
            store = MemoryCredentials()
            async with open_websocket(url, **logging_in(site, credentials=store, auth=OAuth(scopes=["x"]))) as client:
                assert "notes:read" in await who(client)
        assert [each.get("scope") for each in site.server.authorizations] == ["x", "notes:read x"]

    run(play)


@pytest.mark.req("AUTH-41")
def test_token_that_expired_is_renewed_when_the_client_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, began = trio.testing.MockClock(), time.time()
    monkeypatch.setattr(TrioRuntime, "wall_clock", lambda _: began + clock.current_time())

    async def play(site: AuthSite) -> None:
        async with protected(site, {"lifetime": 61.0}) as url:
            lost = trio.Event()
            more = {"reconnect": AT_ONCE, "on_session_lost": lost.set}
            async with open_websocket(url, **logging_in(site, **more)) as client:
                await who(client)
                clock.jump(61)
                await lost.wait()  # the server ends the session
                await who(client)
        assert (len(site.opened_urls), len(site.token_requests)) == (1, 2)

    run(play, clock=clock)


def test_reconnecting_asks_no_person() -> None:
    clock = trio.testing.MockClock()

    async def play(site: AuthSite) -> None:
        jwks = {"keys": [{**SIGNER.public_jwk, "kid": "k1"}]}
        verifier = Revocable(JwtVerifier(site.base, jwks=jwks))
        async with protected(site, {"refreshes": False, "lifetime": 61.0}, verify=verifier) as url:
            lost = trio.Event()
            more = {"reconnect": Backoff(0.0, tries=1), "on_session_lost": lost.set}
            async with open_websocket(url, **logging_in(site, **more)) as client:
                verifier.is_revoked = True
                clock.jump(61)
                await lost.wait()
                with pytest.raises(McpError, match="a person has to log in"):
                    await who(client)
        assert len(site.opened_urls) == 1

    run(play, clock=clock)


def test_login_opens_a_client_on_asyncio() -> None:
    async def play(site: AuthSite) -> None:
        def start() -> str:
            return trio.from_thread.run(start_protected, site, site.nursery, trio_token=site.token)

        url = await asyncio.to_thread(start)
        async with mcpio.asyncio.open_websocket(url, **logging_in(site)) as client:
            assert (await who(client)).startswith("ada by client-")
        with pytest.raises(ConnectFailed) as caught:
            async with mcpio.asyncio.open_websocket(url, **logging_in(site, interaction="never")):
                pass
        assert isinstance(caught.value.__cause__, LoginRequired)

    run(play, loop=mcpio.asyncio)


def test_client_credentials_open_the_client() -> None:
    async def play(site: AuthSite) -> None:
        method = ClientCredentials("m2m", secret="s3cret")
        async with protected(site, {"clients": {"m2m": "s3cret"}}) as url, open_websocket(url, auth=method) as client:
            assert await who(client) == "client by m2m: "

    run(play)


@pytest.mark.req("AUTH-51")
def test_opening_proves_possession_of_the_key_of_its_token() -> None:
    async def play(site: AuthSite) -> None:
        async with protected(site, dpop="require", dpop_nonces=Secret("n" * 32)) as url:
            store = bound_credentials("http" + url.removeprefix("ws"), site.base)
            async with open_websocket(url, auth=OAuth(), credentials=store, interaction="never") as client:
                assert await who(client) == "ada by app: "

    run(play)


def bound_credentials(resource: str, issuer: str) -> MemoryCredentials:
    """Return a store with a token that is bound to a key."""
    store, key = MemoryCredentials(), new_proof_key(os.urandom)
    jwk = load_signer(key.reveal()).public_jwk
    text = dumps({name: jwk[name] for name in ("crv", "kty", "x", "y")})
    claims = {"iss": issuer, "sub": "ada", "client_id": "app", "aud": resource, "exp": time.time() + 60}
    bound = {"cnf": {"jkt": base64url(sha256(text).digest())}}
    access = Secret(signed_jwt(SIGNER, {**claims, **bound}, "at+jwt"))
    token = TokenSet(access, issuer, resource, "app", time.time(), is_bound=True)
    store.swap(f"{resource} default", to_text(Credentials(token, proof_key=key)), None)
    return store


@pytest.mark.parametrize("carrier", ["http", "websocket"])
def test_refused_proof_is_explained_by_the_clocks(carrier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrioRuntime, "wall_clock", lambda _: time.time() - 3600)

    async def play(site: AuthSite) -> None:
        async with protected(site, dpop="require") as url:
            resource = "http" + url.removeprefix("ws")
            how: Any = {"auth": OAuth(), "credentials": bound_credentials(resource, site.base)}
            with pytest.raises(ConnectFailed, match=r"its clock is 3(600|599) s ahead of this one"):
                async with open_http(resource, **how) if carrier == "http" else open_websocket(url, **how):
                    pass

    run(play)


@pytest.mark.parametrize("carrier", ["http", "websocket"])
def test_proofs_have_the_right_time_after_the_clock_of_the_loop_stood_still(
    carrier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, issued = 0.0, list[float]()
    monkeypatch.setattr(TrioRuntime, "wall_clock", lambda _: time.time() + slept)

    def note_proof(head: Any, _: Any) -> None:
        proof = dict(head.headers)[b"dpop"].split(b".")[1]
        issued.append(loads(urlsafe_b64decode(proof + b"=="))["iat"])

    async def main() -> None:
        nonlocal slept
        server = Server("s", "1")
        server.tool(lambda: "here", name="who")
        async with trio.open_nursery() as nursery:
            serve = partial(serve_http, server, port=0, principal=note_proof, websocket=WebSocketOptions())
            url = (await nursery.start(serve)).url
            options: Any = {"auth": OAuth(), "credentials": bound_credentials(url, "https://issuer.example")}
            if carrier == "http":
                async with open_http(url, **options, era="handshake") as client:
                    await who(client)
                    slept = 3600.0
                    await who(client)
            else:
                lost = trio.Event()
                more: Any = {"reconnect": AT_ONCE, "on_session_lost": lost.set}
                async with open_websocket(
                    "ws" + url.removeprefix("http"), **options, **more, era="handshake"
                ) as client:
                    slept = 3600.0
                    server.sessions[0].close()
                    await lost.wait()
                    await who(client)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert abs(issued[0] - time.time()) < 60
    assert abs(issued[-1] - time.time() - 3600) < 60


def test_bearer_token_is_sent_at_once() -> None:
    async def play(site: AuthSite) -> None:
        async with protected(site) as url:
            needs: list[NeedAssertion] = []

            def read(need: NeedAssertion) -> str:
                needs.append(need)
                return "guessed"

            with pytest.raises(ConnectFailed, match="the server refuses the token that was given") as caught:
                async with open_websocket(url, auth=BearerToken(read)):
                    pass
        assert isinstance(caught.value.__cause__, AuthorizationError)
        assert (caught.value.__cause__.status, len(needs)) == (401, 1)
        assert "guessed" not in f"{caught.value!r} {caught.value.__cause__!r}"

    run(play)


def test_api_key_is_a_field_of_the_opening() -> None:
    async def play(site: AuthSite) -> None:
        keys = ApiKeys({api_key_digest("mcp_key"): "robot"}, header="x-api-key")
        key = ApiKey("x-api-key", "mcp_key")
        async with protected(site, verify=keys) as url, open_websocket(url, auth=key) as client:
            assert await who(client) == "robot by None: "

    run(play)


def test_login_that_is_not_allowed_fails_with_the_url() -> None:
    async def play(site: AuthSite) -> None:
        async with protected(site) as url:
            with pytest.raises(ConnectFailed) as caught:
                async with open_websocket(url, **logging_in(site, interaction="never")):
                    pass
        assert isinstance(caught.value.__cause__, LoginRequired)
        assert str(caught.value.__cause__.url).startswith(site.base + "/authorize?")

    run(play)


def test_refusal_that_no_token_would_help_fails_the_connection() -> None:
    async def play(site: AuthSite) -> None:
        async with protected(site) as url:
            with pytest.raises(ConnectFailed, match="status 404") as caught:
                async with open_websocket(url + "/nowhere", **logging_in(site)):
                    pass
        assert isinstance(caught.value.__cause__, UnexpectedResponse)
        assert site.opened_urls == []

    run(play)


def test_time_for_a_login_does_not_count_as_time_to_connect() -> None:
    clock = trio.testing.MockClock()

    async def play(site: AuthSite) -> None:
        async with protected(site) as url:

            async def ask(effect: AskUser | ShowCode) -> None:
                clock.jump(300)
                await site.browse(effect)

            async with open_websocket(url, **logging_in(site, ask_user=ask, connect_timeout=5)) as client:
                await who(client)

    run(play, clock=clock)


def test_cancelled_login_leaves_no_lock(tmp_path: Any) -> None:
    async def play(site: AuthSite) -> None:
        async with protected(site) as url:
            store = FileCredentials(tmp_path)
            with trio.CancelScope() as scope:

                def ask(effect: AskUser | ShowCode) -> None:
                    scope.cancel()

                async with open_websocket(url, **logging_in(site, ask_user=ask, credentials=store)):
                    pass
            assert scope.cancelled_caught
            async with open_websocket(url, **logging_in(site, credentials=store)) as client:
                await who(client)

    run(play)


@pytest.mark.req("CACHE-05")
def test_results_of_an_earlier_login_are_not_used_after_the_next_one() -> None:
    """Over HTTP: a login in the middle of a session may be that of another user."""

    async def play(site: AuthSite) -> None:
        program, reads = notes(), []
        program.options = attrs.evolve(program.options, revisions=REVISIONS)

        @program.resource("notes:mine", name="mine", cache=CacheHint(60, "private"))
        def mine() -> str:
            reads.append(1)
            return "mine"

        async with protected(site, program=program) as url:
            how = logging_in(site, era="stateless", options=Options(revisions=REVISIONS))
            async with open_http("http" + url.removeprefix("ws"), **how) as client:
                await client.read_resource("notes:mine")
                await client.read_resource("notes:mine")
                assert len(reads) == 1
                await client.call_tool("erase")  # needs another scope, and so another login
                await client.read_resource("notes:mine")
        assert (len(site.opened_urls), len(reads)) == (2, 2)

    run(play)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"auth": "token"}, TypeError, "auth must be OAuth"),
        ({"auth": ApiKey("x-k", "k"), "headers": {"X-K": "v"}}, ValueError, "headers must not have x-k beside auth="),
        (
            {"auth": OAuth(), "headers": {"Authorization": "x"}},
            ValueError,
            "headers must not have Authorization beside auth=",
        ),
    ],
)
def test_invalid_options_are_rejected(options: Any, error: type[Exception], said: str) -> None:
    async def main() -> None:
        async with open_websocket("ws://127.0.0.1:1/mcp", **options):
            pass

    with pytest.raises(error, match=said):
        trio.run(main)
