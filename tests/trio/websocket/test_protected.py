"""A protected server over WebSocket: the handshake is authorized, and the session ends with its token."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from protectedsites import bearer, notes, protected, token
from rawframes import close
from runners import run_by
from triowire import in_virtual_time
from websocketed import call, called, each_kind, is_over, websocket_site

from mcpio import Server
from mcpio.auth import Grant
from mcpio.trio import serve_websocket


@pytest.mark.req("AUTH-03", "AUTH-08", "XPORT-04")
@each_kind
@run_by(in_virtual_time)
async def test_handshake_without_a_valid_token_is_refused(kind: str) -> None:
    async with websocket_site(notes(), kind, auth=protected(scopes=["notes:read"])) as site:
        for fields, status in (({}, 401), (bearer(aud="other"), 401), (bearer("x"), 403)):
            answer, said = await site.dial().ask(**fields)
            assert answer == status
            assert "resource_metadata=" in said["www-authenticate"]
        in_query = await site.dial().ask(path=f"/mcp?access_token={token()}")
        assert in_query[0] == 400


@pytest.mark.req("AUTH-34")
@each_kind
@run_by(in_virtual_time)
async def test_request_with_too_few_scopes_gets_an_error(kind: str) -> None:
    async with websocket_site(notes(), kind, auth=protected()) as site:
        far = await site.open(**bearer("notes:read"))
        assert await called(far, "who") == "ada by app: notes:read"
        await call(far, 7, "erase")
        error = (await far.message())["error"]
        assert (error["code"], error["data"]["scope"]) == (1014, "notes:write")


@pytest.mark.req("AUTH-37")
@each_kind
@run_by(in_virtual_time)
async def test_session_ends_when_its_token_expires(kind: str) -> None:
    async with websocket_site(notes(), kind, auth=protected()) as site:
        far = await site.open(**bearer(lasts=10.0))
        assert await called(far, "who") == "ada by app: "
        frame = await far.frame()
        assert frame == close(1008, "the token has expired")
        await far.send(close(1008))
        assert await is_over(far)


@each_kind
@run_by(in_virtual_time)
async def test_session_outlives_its_token_where_the_server_allows_it(kind: str) -> None:
    async with websocket_site(notes(), kind, auth=protected(outlive_token=True)) as site:
        far = await site.open(**bearer(lasts=10.0))
        await trio.sleep(15)
        assert await called(far, "who") == "ada by app: "


def test_auth_and_principal_exclude_each_other() -> None:
    async def main(**how: Any) -> None:
        await serve_websocket(Server("s"), 0, **how)

    with pytest.raises(ValueError, match="either auth= or principal="):
        trio.run(lambda: main(auth=protected(), principal=lambda *_: Grant(None, "me")))
    with pytest.raises(TypeError, match="ResourceServer"):
        trio.run(lambda: main(auth="secret"))
