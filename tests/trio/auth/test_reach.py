"""Clients and servers over real sockets, of peers that name URLs which lead inside (SSRF)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from authsite import AuthSite, encoded, run
from protectedsites import AS, MCP, bearer
from rawsite import RawRequest, Wire

from mcpio._drivers.guarding import RequestGuard
from mcpio.auth import (
    AuthorizationError,
    Fetch,
    JwtVerifier,
    MemoryCredentials,
    OAuth,
    ResourceServer,
    Response,
)
from mcpio.errors import ConnectFailed
from mcpio.framing.json import dumps, loads
from mcpio.http.model import header_fields
from mcpio.trio import open_http
from mcpio.trio._event_loop import TrioEventLoop

EVIL = "https://169.254.169.254"


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("named", ["resource_metadata", "issuer", "registration_endpoint", "token_endpoint"])
def test_url_with_a_private_address_is_never_connected_to(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any URL that a server names may be meant for what only this machine can reach."""
    opened: list[str] = []
    open_tcp_stream = trio.open_tcp_stream

    async def watched(host: str, port: int, **more: Any) -> Any:
        opened.append(host)
        return await open_tcp_stream(host, port, **more)

    monkeypatch.setattr(trio, "open_tcp_stream", watched)

    async def play(site: AuthSite) -> None:
        async def lie(request: RawRequest, wire: Wire) -> None:
            if request.target == "/mcp" and named == "resource_metadata":
                challenge = f'Bearer resource_metadata="{EVIL}/x"'
                await wire.send(encoded(Response(401, (("www-authenticate", challenge),))))
            elif "oauth-protected-resource" in request.target and named == "issuer":
                await wire.send(
                    encoded(Response(200, (), dumps({"resource": site.url, "authorization_servers": [EVIL]})))
                )
            elif "oauth-authorization-server" in request.target:
                effect = Fetch(method="GET", url=site.base + request.target)
                true = loads(site.server.respond(effect, 0.0).body)
                await wire.send(encoded(Response(200, (), dumps({**true, named: EVIL + "/x", "issuer": site.base}))))
            else:
                await AuthSite.handle(site, request, wire)

        site.handler = lie
        with pytest.raises(ConnectFailed, match=r"169\.254\.169\.254") as caught:
            async with open_http(site.url, auth=OAuth(), credentials=MemoryCredentials(), ask_user=site.browse):
                pass
        assert isinstance(caught.value.__cause__, AuthorizationError)

    run(play)
    assert set(opened) == {"127.0.0.1"}


@pytest.mark.req("SEC-03")
def test_url_of_keys_that_leads_inside_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    async def watched(host: str, port: int, **more: Any) -> Any:
        opened.append(host)
        raise OSError("unreachable")

    monkeypatch.setattr(trio, "open_tcp_stream", watched)

    async def main() -> None:
        verify = JwtVerifier(AS, jwks=EVIL + "/keys")
        guard = RequestGuard(ResourceServer(resource=MCP, authorization_servers=[AS], verify=verify), TrioEventLoop)
        verdict: Any = guard.admit("POST", "/mcp", header_fields(tuple(bearer().items())))
        refused = await verdict
        assert (refused.status, refused.message) == (503, "Tokens cannot be verified now")

    trio.run(main)
    assert opened == []
