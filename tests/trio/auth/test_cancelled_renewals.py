"""A client that is cancelled while it renews its token: the lock and the refresh token are left for the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from authsite import AuthSite, each_loop, run, store_expired

import mcpio.trio
from mcpio._drivers import login
from mcpio.auth import Credentials, OAuth, Secret, Stored, from_text
from mcpio.stores import FileCredentials


class GatedStore(FileCredentials):
    """Stops at one of its calls, before or after it is made, until the client is cancelled."""

    def __init__(self, path: Path, place: int, *, is_done: bool) -> None:
        super().__init__(path)
        self.place = place
        self.is_done = is_done
        self.reached, self.cancelled, self.unlocked = threading.Event(), threading.Event(), threading.Event()
        self.calls: list[str] = []
        self.running = threading.Lock()

    def _gated(self, name: str, call: Callable[[], Any]) -> Any:
        self.calls.append(name)
        stops = len(self.calls) == self.place
        with self.running:
            found = call() if self.is_done or not stops else None
            if stops:
                self.reached.set()
                assert self.cancelled.wait(10)
            return found if self.is_done or not stops else call()

    def load(self, key: str) -> Stored | None:
        if self.running.locked():
            return super().load(key)  # within another call
        return cast("Stored | None", self._gated("load", lambda: super(GatedStore, self).load(key)))

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        return cast("int | None", self._gated("swap", lambda: super(GatedStore, self).swap(key, record, version)))

    def try_lock(self, key: str) -> bool:
        return cast("bool", self._gated("try_lock", lambda: super(GatedStore, self).try_lock(key)))

    def unlock(self, key: str) -> None:
        super().unlock(key)
        self.unlocked.set()


async def wait_for(event: threading.Event, loop: Any) -> None:
    in_thread: Any = trio.to_thread.run_sync if loop is mcpio.trio else asyncio.to_thread
    assert await in_thread(event.wait, 10)


async def cancel_when(
    reached: threading.Event, loop: Any, client: Callable[[], Awaitable[None]], then: Callable[[], object] = bool
) -> bool:
    """Run a client, cancel it when something was reached, and call ``then``; return whether it was cancelled."""
    if loop is mcpio.trio:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await wait_for(reached, loop)
                scope.cancel()
                then()

            nursery.start_soon(watch)
            with trio.CancelScope() as scope:
                await client()
        return scope.cancelled_caught
    task = asyncio.ensure_future(client())
    await wait_for(reached, loop)
    task.cancel()
    then()
    await asyncio.wait([task])
    return task.cancelled()


async def forever(loop: Any) -> None:
    if loop is mcpio.trio:
        await trio.sleep_forever()
    await asyncio.Event().wait()


async def still_works(site: AuthSite, loop: Any, path: Path, key: str) -> None:
    """Check that the next program can lock and renew, without a person."""
    store = FileCredentials(path)
    assert store.try_lock(key)
    store.unlock(key)
    async with loop.open_http(
        site.url, era="handshake", auth=OAuth(), credentials=store, interaction="never"
    ) as client:
        assert (await client.call_tool("x")).text == "done"
    assert site.server.reused == []


@each_loop
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", range(1, 6))
def test_client_cancelled_during_a_call_of_the_store_leaves_no_lock_and_no_mark(
    loop: Any, place: int, is_done: bool, tmp_path: Path
) -> None:
    """The calls of a renewal: load, try_lock, load, swap (the mark), swap (the renewed record)."""

    async def play(site: AuthSite) -> None:
        key = await store_expired(site, loop, tmp_path)
        store = GatedStore(tmp_path, place, is_done=is_done)

        async def client() -> None:
            async with loop.open_http(site.url, era="handshake", auth=OAuth(), credentials=store, interaction="never"):
                raise AssertionError("it was not cancelled")

        assert await cancel_when(store.reached, loop, client, store.cancelled.set)
        if place > 1:
            # The thread of a cancelled call gives the lock back itself.
            await wait_for(store.unlocked, loop)
        assert store.calls[:place] == ["load", "try_lock", "load", "swap", "swap"][:place]
        await still_works(site, loop, tmp_path, key)

    run(play, loop=loop)


@each_loop
@pytest.mark.parametrize("over", ["http", "websocket"])
def test_client_cancelled_while_its_token_is_renewed_leaves_the_refresh_token(
    loop: Any, over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(site: AuthSite) -> None:
        key = await store_expired(site, loop, tmp_path)
        store, reached = FileCredentials(tmp_path), threading.Event()
        unpatched: Any = vars(login)["fetch"]

        async def fetch(effect: Any, *args: Any, **options: Any) -> Any:
            if effect.url.endswith("/token"):
                reached.set()
                await forever(loop)
            return await unpatched(effect, *args, **options)

        monkeypatch.setattr(login, "fetch", fetch)
        opening = loop.open_http if over == "http" else loop.open_websocket
        url = site.url if over == "http" else site.url.replace("http:", "ws:")
        options: Any = {"era": "handshake"} if over == "http" else {}

        async def client() -> None:
            async with opening(url, auth=OAuth(), credentials=store, interaction="never", **options):
                raise AssertionError("it was not cancelled")

        assert await cancel_when(reached, loop, client)
        monkeypatch.setattr(login, "fetch", unpatched)
        found = store.load(key)
        assert found is not None
        assert from_text(Credentials, found.record).refresh_token is not None
        await still_works(site, loop, tmp_path, key)

    run(play, loop=loop)
