"""Clients of a protected server over real sockets: logins by browser, by pasted URL and by code, and machines."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from authsite import AuthSite, each_loop, get, run

from mcpio.auth import (
    ApiKey,
    AskUser,
    AuthorizationError,
    BearerToken,
    ClientCredentials,
    Device,
    LoginRequired,
    MemoryCredentials,
    NeedAssertion,
    OAuth,
    PendingAuthorization,
    Secret,
    ShowCode,
    from_text,
    to_text,
)
from mcpio.errors import AuthorizationRequired, ConnectFailed
from mcpio.http.client import HttpClientOptions
from mcpio.stores import FileCredentials
from mcpio.trio import open_http
from mcpio.types import ClientCapabilities


@each_loop
def test_login_by_a_browser_opens_the_client(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        store = MemoryCredentials()
        async with loop.open_http(
            site.url, era="handshake", auth=OAuth(), credentials=store, ask_user=site.browse
        ) as client:
            assert (await client.call_tool("x")).text == "done"
        assert len(site.opened_urls) == 1
        assert site.requests[-1].method == "DELETE"
        # A second client needs no person.
        async with loop.open_http(
            site.url, era="handshake", auth=OAuth(), credentials=store, interaction="never"
        ) as client:
            assert (await client.call_tool("x")).text == "done"
        assert len(site.token_requests) == 1

    run(play, loop=loop)


@each_loop
@pytest.mark.parametrize("uri", ["http://localhost/oauth/done", "http://localhost:{}/oauth/done?from=here"])
def test_given_redirect_uri_on_this_machine_is_listened_at(loop: Any, uri: str) -> None:
    async def play(site: AuthSite) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            oauth = OAuth(redirect_uri=uri.format(free.getsockname()[1]))
        async with loop.open_http(
            site.url, era="handshake", auth=oauth, credentials=MemoryCredentials(), ask_user=site.browse
        ) as client:
            assert (await client.call_tool("x")).text == "done"

    run(play, loop=loop)


@each_loop
def test_program_may_listen_at_its_redirect_uri_itself(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            oauth = OAuth(redirect_uri=f"http://127.0.0.1:{taken.getsockname()[1]}/done")
            async with loop.open_http(
                site.url, era="handshake", auth=oauth, credentials=MemoryCredentials(), ask_user=site.paste
            ) as client:
                assert (await client.call_tool("x")).text == "done"

    run(play, loop=loop)


@each_loop
def test_login_by_a_pasted_url_opens_the_client(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        async with loop.open_http(
            site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=site.paste
        ) as client:
            assert (await client.call_tool("x")).text == "done"

    run(play, loop=loop)


def test_pasted_url_of_another_login_is_reported_and_the_wait_continues(caplog: pytest.LogCaptureFixture) -> None:
    async def play(site: AuthSite) -> None:
        async def ask(effect: AskUser | ShowCode) -> str:
            async with trio.open_nursery() as nursery:

                async def later() -> None:
                    await trio.testing.wait_all_tasks_blocked()
                    await site.browse(effect)

                nursery.start_soon(later)
            return "http://127.0.0.1:1/callback?code=x&state=y"

        async with open_http(
            site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=ask
        ) as client:
            await client.call_tool("x")

    run(play)


@each_loop
def test_first_token_is_stored_in_a_file_and_renewed_by_the_next_program(loop: Any, tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        store = FileCredentials(tmp_path)
        async with loop.open_http(
            site.url, era="handshake", auth=OAuth(), credentials=store, ask_user=site.browse
        ) as client:
            await client.call_tool("x")
        site.server.expire_tokens()
        async with loop.open_http(
            site.url, era="handshake", auth=OAuth(), credentials=FileCredentials(tmp_path)
        ) as client:
            await client.call_tool("x")
        assert len(site.token_requests) == 2
        assert "refresh_token" in site.token_requests[-1]

    run(play, loop=loop)


@pytest.mark.req("AUTH-35")
@each_loop
def test_step_up_asks_for_more_scopes_during_a_call(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        site.needed["tools/call"] = frozenset({"mcp:write"})
        async with loop.open_http(
            site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=site.browse
        ) as client:
            assert (await client.call_tool("x")).text == "done"
        assert [each.get("scope") for each in site.server.authorizations] == [None, "mcp:write"]

    run(play, loop=loop)


def test_twenty_calls_share_one_renewal() -> None:
    async def play(site: AuthSite) -> None:
        async with open_http(
            site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=site.browse
        ) as client:
            await client.call_tool("x")
            site.server.expire_tokens()
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(client.call_tool, "x")
        assert len(site.token_requests) == 2

    run(play)


@each_loop
def test_login_that_is_not_allowed_fails_with_the_url(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        with pytest.raises(ConnectFailed) as caught:
            async with loop.open_http(
                site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), interaction="never"
            ):
                pass
        cause = caught.value.__cause__
        assert isinstance(cause, LoginRequired)
        assert (cause.url or "").startswith(site.base + "/authorize?")
        assert cause.pending.url == cause.url

    run(play, loop=loop)


@each_loop
def test_declined_login_fails_the_connection(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        async def decline(effect: AskUser | ShowCode) -> str:
            assert isinstance(effect, AskUser)
            return site.server.approve(effect.url, time.time(), deny=True)

        with pytest.raises(ConnectFailed) as caught:
            async with loop.open_http(
                site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=decline
            ):
                pass
        assert isinstance(caught.value.__cause__, AuthorizationError)
        assert caught.value.__cause__.code == "access_denied"

    run(play, loop=loop)


@each_loop
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_calls_after_a_declined_login_fail_at_once(loop: Any, era: Any) -> None:
    async def play(site: AuthSite) -> None:
        asks: list[AskUser | ShowCode] = []

        async def ask(effect: AskUser | ShowCode) -> str:
            asks.append(effect)
            assert isinstance(effect, AskUser)
            return site.server.approve(effect.url, time.time(), deny=len(asks) > 1)

        site.is_stateless = era == "stateless"
        async with loop.open_http(
            site.url, era=era, auth=OAuth(), credentials=MemoryCredentials(), ask_user=ask
        ) as client:
            site.needed["tools/call"] = frozenset({"more"})
            for _ in range(3):
                with pytest.raises(AuthorizationError) as caught:
                    await client.call_tool("x")
                assert caught.value.code == "access_denied"
            assert len(asks) == 2

    run(play, loop=loop)


@pytest.mark.parametrize("fault", [RuntimeError("no display"), "http", 7])
@each_loop
def test_failing_ask_user_fails_the_login_and_nothing_else(loop: Any, fault: Any) -> None:
    async def play(site: AuthSite) -> None:
        def ask(effect: AskUser | ShowCode) -> object:
            if isinstance(fault, Exception):
                raise fault
            if fault == "http":
                raise AuthorizationError("nobody there")
            return fault

        with pytest.raises(ConnectFailed) as caught:
            async with loop.open_http(
                site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=ask
            ):
                pass
        assert isinstance(caught.value.__cause__, AuthorizationRequired)

    run(play, loop=loop)


def test_cancelled_login_leaves_no_listener() -> None:
    async def play(site: AuthSite) -> None:
        uris: list[str] = []
        with trio.CancelScope() as scope:

            def ask(effect: AskUser | ShowCode) -> None:
                assert isinstance(effect, AskUser)
                uris.append(effect.pending.redirect_uri)
                scope.cancel()

            async with open_http(
                site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=ask
            ):
                pass
        with pytest.raises(AuthorizationError, match="no answer"):
            await get(uris[0])

    run(play)


def test_device_code_opens_the_client() -> None:
    async def play(site: AuthSite) -> None:
        async with open_http(
            site.url, era="handshake", auth=Device(), credentials=MemoryCredentials(), ask_user=site.browse
        ) as client:
            assert (await client.call_tool("x")).text == "done"

    clock: Any = trio.testing.MockClock(rate=50)
    import authsite

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            site = authsite.AuthSite(nursery)
            await site.listen(nursery)
            await play(site)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)


@each_loop
def test_client_credentials_open_the_client(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        async with loop.open_http(site.url, era="handshake", auth=ClientCredentials("m2m", secret="s3cret")) as client:
            assert (await client.call_tool("x")).text == "done"
        assert site.opened_urls == []

    run(play, loop=loop, clients={"m2m": "s3cret"})


@pytest.mark.req("AUTH-42")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_extension_of_the_grant_is_declared_beside_other_capabilities(era: Any) -> None:
    async def play(site: AuthSite) -> None:
        how: Any = {"era": era, "capabilities": ClientCapabilities(extensions={"com.example/own": {}})}
        for auth, is_declared in ((ClientCredentials("m2m", secret="s3cret"), True), (BearerToken("unknown"), False)):
            site.bodies.clear()
            with contextlib.suppress(ConnectFailed):  # the site answers the handshake era only
                async with open_http(site.url, auth=auth, **how):
                    pass
            assert (b'"io.modelcontextprotocol/oauth-client-credentials":{}' in site.bodies[0]) is is_declared
            assert b'"com.example/own":{}' in site.bodies[0]

    run(play, clients={"m2m": "s3cret"})


def test_client_assertion_comes_from_a_function() -> None:
    async def play(site: AuthSite) -> None:
        needs: list[NeedAssertion] = []

        async def sign(need: NeedAssertion) -> str:
            needs.append(need)
            return f"m2m {need.audience}"

        async with open_http(site.url, era="handshake", auth=ClientCredentials("m2m", assertion=sign)) as client:
            assert (await client.call_tool("x")).text == "done"
        assert [(each.kind, each.audience) for each in needs] == [("client", site.base)]

    run(
        play,
        clients={"m2m": None},
        auth_methods=("private_key_jwt",),
        assertions=lambda jwt: dict(zip(("sub", "aud"), jwt.split(" "), strict=True)),
    )


@pytest.mark.parametrize(("source", "said"), [(None, "no assertion="), (lambda need: 7, "a str or a Secret")])
@each_loop
def test_missing_or_wrong_assertion_fails_the_connection(loop: Any, source: Any, said: str) -> None:
    async def play(site: AuthSite) -> None:
        with pytest.raises(ConnectFailed, match=said):
            async with loop.open_http(site.url, era="handshake", auth=ClientCredentials("m2m", assertion=source)):
                pass

    run(play, loop=loop, clients={"m2m": None}, auth_methods=("private_key_jwt",))


@each_loop
def test_bearer_token_is_sent_at_once_and_asked_for_again_after_a_refusal(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        tokens: list[str] = []

        async def read(need: NeedAssertion) -> Secret:
            store = MemoryCredentials()
            async with loop.open_http(
                site.url, era="handshake", auth=ClientCredentials("m2m", secret="s"), credentials=store
            ):
                pass
            tokens.append(site.requests_with[-1][1] or "")
            return Secret(tokens[-1].removeprefix("Bearer "))

        async with loop.open_http(site.url, era="handshake", auth=BearerToken(read)) as client:
            first = next(n for n, (_, token) in enumerate(site.requests_with) if token == tokens[0])
            await client.call_tool("x")
            site.server.expire_tokens()
            await client.call_tool("x")
        assert first == 1
        assert len(tokens) == 2

    run(play, loop=loop, clients={"m2m": "s"})


@each_loop
def test_refused_bearer_token_fails_the_connection(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        with pytest.raises(ConnectFailed) as caught:
            async with loop.open_http(site.url, era="handshake", auth=BearerToken("guessed")):
                pass
        assert isinstance(caught.value.__cause__, AuthorizationError)
        assert "guessed" not in f"{caught.value!r} {caught.value.__cause__!r}"

    run(play, loop=loop)


@each_loop
def test_api_key_is_a_header_of_every_request(loop: Any) -> None:
    async def play(site: AuthSite) -> None:
        site.is_open = True
        async with loop.open_http(site.url, era="handshake", auth=ApiKey("x-api-key", "k3y")) as client:
            await client.call_tool("x")
        assert {headers.get("x-api-key") for headers in site.headers} == {"k3y"}

    run(play, loop=loop)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"auth": "token"}, TypeError, "auth must be OAuth"),
        ({"auth": OAuth(), "interaction": "sometimes"}, ValueError, "interaction must be 'allow' or 'never'"),
        (
            {"auth": ApiKey("x-k", "k"), "http": HttpClientOptions(headers={"X-K": "other"})},
            ValueError,
            "headers must not have x-k beside auth=",
        ),
        (
            {"auth": OAuth(), "http": HttpClientOptions(headers={"Authorization": "x"})},
            ValueError,
            "headers must not have Authorization beside auth=",
        ),
    ],
)
def test_invalid_options_are_rejected(options: Any, error: type[Exception], said: str) -> None:
    async def main() -> None:
        async with open_http("http://127.0.0.1:1/mcp", **options):
            pass

    with pytest.raises(error, match=said):
        trio.run(main)


@each_loop
def test_authorization_server_that_is_away_fails_the_connection(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: AuthSite) -> None:
        site.server.faults.status = 503
        with pytest.raises(ConnectFailed) as caught:
            async with loop.open_http(
                site.url, era="handshake", auth=OAuth(), credentials=MemoryCredentials(), ask_user=site.paste
            ):
                pass
        assert isinstance(caught.value.__cause__, AuthorizationError)
        assert caught.value.__cause__.temporary

    run(play, loop=loop)


@each_loop
def test_login_is_finished_by_another_process(loop: Any, tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        oauth = OAuth(redirect_uri="https://app.example.com/callback")
        store = FileCredentials(tmp_path)
        with pytest.raises(ConnectFailed) as caught:
            async with loop.open_http(site.url, era="handshake", auth=oauth, credentials=store, interaction="never"):
                pass
        assert isinstance(caught.value.__cause__, LoginRequired)
        pending = from_text(PendingAuthorization, to_text(caught.value.__cause__.pending))
        with pytest.raises(AuthorizationError, match="another state"):
            await loop.finish_login(site.url, oauth, pending, "https://app.example.com/callback", credentials=store)
        site.server.faults.status = 503
        callback = await site.redirected(pending.url)
        with pytest.raises(AuthorizationError):
            await loop.finish_login(site.url, oauth, pending, callback, credentials=store)
        site.server.faults.status = None
        callback = await site.redirected(pending.url)
        await loop.finish_login(site.url, oauth, pending, callback, credentials=store)
        async with loop.open_http(
            site.url, era="handshake", auth=oauth, credentials=FileCredentials(tmp_path)
        ) as client:
            assert (await client.call_tool("x")).text == "done"

    run(play, loop=loop)
