"""Both ends of a stream in a test, one of them by hand, on the event loop of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from eachloop import Here
from peers import RawEnd

from mcpio import Client, Server
from mcpio.app import Session

__all__ = ["RawEnd", "conversation", "raw_client", "raw_server"]


@asynccontextmanager
async def conversation(here: Here, server: Server, **options: Any) -> AsyncIterator[Client]:
    """Give a client of a server, over a stream."""
    async with here.served(server) as near, here.open_client(near, **options) as client:
        yield client


@asynccontextmanager
async def raw_client(here: Here, server: Server) -> AsyncIterator[tuple[RawEnd, Session]]:
    """Serve a client by hand that has shaken hands."""
    async with here.served(server) as near:
        raw = RawEnd(near)
        try:
            known = server.sessions
            await raw.shake_hands()
            (session,) = (each for each in server.sessions if each not in known)
            yield raw, session
        finally:
            await raw.close()


@asynccontextmanager
async def raw_server(here: Here, **options: Any) -> AsyncIterator[tuple[RawEnd, Client]]:
    """Give a client whose server is a test."""
    near, far = await here.joined()
    raw = RawEnd(far)
    async with here.tasks() as tasks:
        greeted = here.event()

        async def greet() -> None:
            await raw.greet()
            greeted.set()

        tasks.spawn(greet())
        try:
            async with here.open_client(near, **{"era": "handshake", **options}) as client:
                await greeted.wait()
                yield raw, client
        finally:
            await raw.close()
