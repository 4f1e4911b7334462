"""Processes that share the credentials of one account in files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from authsite import AuthSite, run, store_expired
from rawsite import RawRequest, Wire

import mcpio.trio
from mcpio.auth import OAuth
from mcpio.errors import AuthorizationRequired
from mcpio.stores import FileCredentials

PROGRAM = """
import {loop}

import mcpio.{loop} as driver
from mcpio.auth import OAuth
from mcpio.stores import FileCredentials


class Store(FileCredentials):
    def try_lock(self, key):
        is_free = super().try_lock(key)
        print("lock", is_free, flush=True)
        return is_free


async def main():
    how = {{"auth": OAuth(), "credentials": Store({path!r}), "interaction": "never"}}
    async with driver.open_http({url!r}, era="handshake", **how) as client:
        print((await client.call_tool("x")).text, flush=True)


if driver.__name__ == "mcpio.trio":
    trio.run(main)
else:
    asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_process_that_starts_while_another_renews_waits_for_it(loop: str, tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        await store_expired(site, mcpio.trio, tmp_path)
        asked, may_answer, handle = trio.Event(), trio.Event(), site.handle

        async def slowly(request: RawRequest, wire: Wire) -> None:
            if request.target == "/token":
                asked.set()
                await may_answer.wait()
            await handle(request, wire)

        site.handler = slowly
        program = PROGRAM.format(loop=loop, path=str(tmp_path), url=site.url)
        renewals = len(site.token_requests)
        async with trio.open_nursery() as nursery:

            async def first() -> None:
                how: Any = {"auth": OAuth(), "credentials": FileCredentials(tmp_path), "interaction": "never"}
                async with mcpio.trio.open_http(site.url, era="handshake", **how) as client:
                    assert (await client.call_tool("x")).text == "done"

            nursery.start_soon(first)
            await asked.wait()
            other = await trio.lowlevel.open_process([sys.executable, "-c", program], stdout=subprocess.PIPE)
            assert other.stdout is not None
            said = bytearray()
            while b"lock False\n" not in said:
                said += await other.stdout.receive_some()
            may_answer.set()
            async for data in other.stdout:
                said += data
            assert await other.wait() == 0
        assert said.endswith(b"lock True\ndone\n")
        assert len(site.token_requests) == renewals + 1
        assert site.server.reused == []

    run(play)


def test_logout_holds_against_the_renewal_of_a_running_client(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        store = FileCredentials(tmp_path)
        how: Any = {"era": "handshake", "auth": OAuth(), "credentials": store}
        async with mcpio.trio.open_http(site.url, **how, ask_user=site.browse) as client:
            [key] = store.keys()
            FileCredentials(tmp_path).forget(key)
            site.server.expire_tokens()
            asks = len(site.opened_urls)
            await client.call_tool("x")
            assert len(site.opened_urls) == asks + 1
        async with mcpio.trio.open_http(site.url, **how, interaction="never") as client:
            store.forget(key)
            site.server.expire_tokens()
            with pytest.raises(AuthorizationRequired):
                await client.call_tool("x")
            assert store.keys() == []

    run(play)


@pytest.mark.parametrize("damage", ["text", "mode"])
def test_file_that_is_damaged_while_a_client_runs_does_not_end_its_login(damage: str, tmp_path: Path) -> None:
    def spoil() -> None:
        [file] = tmp_path.glob("*.json")
        if damage == "text":
            file.write_text("{")
        else:
            file.chmod(0o644)

    async def play(site: AuthSite) -> None:
        how: Any = {"era": "handshake", "auth": OAuth(), "credentials": FileCredentials(tmp_path)}
        async with mcpio.trio.open_http(site.url, **how, ask_user=site.browse) as client:
            spoil()
            for _ in range(2):
                site.server.expire_tokens()
                assert (await client.call_tool("x")).text == "done"
        assert len(site.opened_urls) == 1
        assert site.server.reused == []

    run(play)
