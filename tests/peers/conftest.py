"""What runs conversations with ``server-everything``.

``MCPIO_PEERS_DIR`` names the directory where npm has installed what ``package.json`` here names.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Unpack

import pytest
import trio
from everything import MODES, Everything, Heard, Talk

from mcpio import Client
from mcpio.app import ClientOptions


@pytest.fixture(scope="session")
def everything() -> Iterator[Everything]:
    """Give the server."""
    server = Everything(Path(os.environ["MCPIO_PEERS_DIR"]))
    yield server
    server.close()


@pytest.fixture(params=MODES)
def talk(everything: Everything, request: pytest.FixtureRequest) -> Talk:
    """Give what runs a conversation over each transport."""

    def run(conversation: Callable[[Client, Heard], Awaitable[None]], **options: Unpack[ClientOptions]) -> None:
        async def main() -> None:
            heard = Heard()
            given: ClientOptions = {**options, "on_log": heard.log, "on_notification": heard.tell}
            with trio.fail_after(30):
                async with everything.open(request.param, **given) as client:
                    await conversation(client, heard)

        trio.run(main)

    return run
