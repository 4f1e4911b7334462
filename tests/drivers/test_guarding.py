"""Requests that wait for keys: one of them fetches these for all, on either event loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiwire import LOOPS, EventLoop
from authkeys import ED25519

from mcpio._drivers import guarding
from mcpio._drivers.guarding import RequestGuard
from mcpio.asgi._event_loop import running_loop
from mcpio.auth import (
    EffectFailed,
    Fetch,
    Grant,
    Introspection,
    JwtVerifier,
    ResourceServer,
    Response,
    load_signer,
    signed_jwt,
)
from mcpio.framing.json import dumps
from mcpio.http.model import Denied

AS = "https://id.example.com"
MCP = "https://mcp.example.com/mcp"
SIGNER: Any = load_signer(ED25519, key_id="k1")
KEYS = Response(200, (), dumps({"keys": [{**SIGNER.public_jwk, "kid": "k1"}]}))


class Site:
    """A guard on an event loop, whose fetches the test answers."""

    def __init__(self, loop: EventLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self.loop = loop
        self.caplog = caplog
        self.fetches: list[str] = []
        self.timeouts: list[float] = []
        self.verdicts: list[Any] = []
        self.answer: Any = KEYS
        self.may_answer = loop.event()
        verify = JwtVerifier(AS, jwks=AS + "/keys")
        self.guard = RequestGuard(ResourceServer(resource=MCP, authorization_servers=[AS], verify=verify), running_loop)
        monkeypatch.setattr(guarding, "fetch", self._fetch)

    async def _fetch(self, effect: Fetch, loop: Any) -> Response:
        self.fetches.append(effect.url)
        self.timeouts.append(effect.timeout)
        await self.may_answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Response = self.answer
        return answer

    def freeze(self) -> list[float]:
        """Stop the clock of the guard, at a list of one number, which the test moves on."""
        now = [1000.0]
        self.guard._now = lambda: now[0]  # type: ignore[method-assign]  # the guard reads time nowhere else
        self.guard.guard.epoch = time.time() - now[0]
        return now

    def admit(self, **claims: Any) -> Any:
        said = {"iss": AS, "sub": "ada", "aud": MCP, "exp": time.time() + 60, **claims}
        token = signed_jwt(SIGNER, said, "at+jwt").encode()
        return self.guard.admit("POST", "/mcp", [(b"authorization", b"Bearer " + token)])

    def start(self, **claims: Any) -> Callable[[], None]:
        verdict: Awaitable[Any] = self.admit(**claims)

        async def wait() -> None:
            self.verdicts.append(await verdict)

        return self.loop.start(wait)


def on_each_loop(test: Callable[[Site], Awaitable[None]]) -> Any:
    @pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
    def run(loop: EventLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        async def main() -> None:
            await test(Site(loop, monkeypatch, caplog))

        loop.run(main)

    return run


@on_each_loop
async def test_one_request_fetches_the_keys_for_all(site: Site) -> None:
    for _ in range(3):
        site.start()
    await site.loop.settle()
    assert (site.fetches, site.verdicts) == ([AS + "/keys"], [])
    site.may_answer.set()
    await site.loop.settle()
    assert [verdict.subject for verdict in site.verdicts] == ["ada"] * 3
    assert isinstance(site.admit(), Grant)
    assert isinstance(site.admit(aud="other"), Denied)
    assert len(site.fetches) == 1


@on_each_loop
async def test_refused_token_leaves_one_line_with_its_claim(site: Site) -> None:
    assert isinstance(site.admit(aud=MCP + "/"), Denied)
    [line] = site.caplog.messages
    assert line == f"a token is refused with status 401: aud is '{MCP}/', expected '{MCP}'"
    site.caplog.clear()
    site.answer = Response(200, (), dumps({"keys": []}))
    site.may_answer.set()
    site.start()
    await site.loop.settle()
    assert isinstance(site.verdicts[0], Denied)
    assert "kid is 'k1', expected a key of the issuer" in site.caplog.text
    site.caplog.clear()
    # Each claim is limited on its own, so that a flood of one fault does not hide the others.
    for _ in range(100):
        site.admit(exp=5)
    assert isinstance(site.admit(iss=AS + "/"), Denied)
    assert sum("exp is 5, expected" in line for line in site.caplog.messages) == 11
    assert sum(f"iss is '{AS}/', expected '{AS}'" in line for line in site.caplog.messages) == 1


@on_each_loop
async def test_lines_about_refused_tokens_never_have_the_token(site: Site) -> None:
    site.may_answer.set()
    said = {"iss": AS, "sub": "ada", "aud": MCP, "exp": 5}
    signed = signed_jwt(SIGNER, said, "at+jwt").encode()
    secrets = [signed, b"sesame", b"sesame!" + b"x" * 20000, b"s\xe9same"]
    for secret in secrets:
        for field in (b"Bearer " + secret, secret, b"Basic " + secret, b"DPoP " + secret):
            verdict = site.guard.admit("POST", "/mcp", [(b"authorization", field)])
            if not isinstance(verdict, Denied):
                await verdict  # type: ignore[misc]  # it is no grant
    site.guard.admit("POST", "/mcp?access_token=sesame", [])
    site.guard.admit("POST", "/mcp", [(b"authorization", b"Bearer sesame")] * 2)
    text = "\n".join(site.caplog.messages)
    assert "same" not in text
    assert signed.decode() not in text
    for part in signed.decode().split("."):
        assert part not in text
    assert text.count("a token is refused") >= 5


@on_each_loop
async def test_request_without_a_token_leaves_no_line(site: Site) -> None:
    assert isinstance(site.guard.admit("POST", "/mcp", []), Denied)
    assert site.caplog.messages == []


@on_each_loop
async def test_cancelled_request_leaves_the_fetch_to_the_next(site: Site) -> None:
    first = site.start()
    await site.loop.settle()
    _, third = site.start(), site.start()
    await site.loop.settle()
    first()
    third()
    await site.loop.settle()
    assert site.fetches == [AS + "/keys"] * 2
    site.may_answer.set()
    await site.loop.settle()
    assert [verdict.subject for verdict in site.verdicts] == ["ada"]


@on_each_loop
async def test_fetch_of_cancelled_requests_is_made_for_a_later_one(site: Site) -> None:
    only = site.start()
    await site.loop.settle()
    only()
    await site.loop.settle()
    site.may_answer.set()
    site.start()
    await site.loop.settle()
    assert [verdict.subject for verdict in site.verdicts] == ["ada"]


@on_each_loop
async def test_fetches_of_cancelled_requests_do_not_refuse_later_tokens(site: Site) -> None:
    verify = Introspection(AS + "/introspect", issuer=AS, client_id="mcp", secret="s3cret")
    site.guard = RequestGuard(ResourceServer(resource=MCP, authorization_servers=[AS], verify=verify), running_loop)
    now = site.freeze()
    cancels = [site.start(jti=number) for number in range(64)]
    await site.loop.settle()
    for cancel in cancels:
        cancel()
    await site.loop.settle()
    assert len(site.fetches) == 64
    now[0] += 5.0
    site.answer = Response(200, (), dumps({"active": True, "sub": "ada", "aud": MCP}))
    site.may_answer.set()
    site.start()
    await site.loop.settle()
    assert [verdict.subject for verdict in site.verdicts] == ["ada"]
    # The fetches that were abandoned are not made after all.
    assert len(site.fetches) == 65


@on_each_loop
async def test_fetch_after_a_cancelled_one_has_the_time_that_is_left(site: Site) -> None:
    now = site.freeze()
    first = site.start()
    await site.loop.settle()
    site.start()
    now[0] += 2.0
    first()
    await site.loop.settle()
    assert site.timeouts == [5.0, 3.0]


@pytest.mark.req("AUTH-58")
@on_each_loop
async def test_failed_fetch_refuses_with_503_and_is_logged(site: Site) -> None:
    site.answer = EffectFailed("no connection")
    site.may_answer.set()
    site.start()
    await site.loop.settle()
    assert [(verdict.status, dict(verdict.headers)) for verdict in site.verdicts] == [(503, {b"retry-after": b"30"})]
    assert site.caplog.messages == ["what verifies tokens could not be fetched: no connection"]
    assert all(record.levelname == "WARNING" for record in site.caplog.records)


@on_each_loop
async def test_many_failed_fetches_do_not_flood_the_log(site: Site) -> None:
    site.answer = EffectFailed("no connection")
    site.may_answer.set()
    now = site.freeze()
    for _ in range(20):
        now[0] += 5.0
        site.start(exp=time.time() + 1000)
        await site.loop.settle()
    assert len(site.fetches) == 20
    assert 1 < len(site.caplog.messages) < 20


@on_each_loop
async def test_metadata_leads_to_the_keys(site: Site) -> None:
    verify = JwtVerifier(AS)
    site.guard = RequestGuard(ResourceServer(resource=MCP, authorization_servers=[AS], verify=verify), running_loop)
    site.answer = Response(200, (), dumps({"issuer": AS, "jwks_uri": AS + "/keys"}))
    site.start()
    await site.loop.settle()
    site.may_answer.set()
    await site.loop.settle()
    # The same document is no key set.
    assert site.fetches == [AS + "/.well-known/oauth-authorization-server", AS + "/keys"]
    assert [verdict.status for verdict in site.verdicts] == [503]
