"""By which adapters the cases run."""

from __future__ import annotations

import pytest
from asgiwire import LOOPS, Asgi
from http2wire import OverHttp2
from httpwire import Adapter, InMemory
from triowire import PARSERS, OverTrio

from mcpio.app.session_store import MemorySessionStore


class SlowStore(MemorySessionStore):
    """Works in a thread."""

    blocking = True


ADAPTERS: dict[str, Adapter] = {
    "in memory": InMemory(),
    "in memory, with a store": InMemory(MemorySessionStore),
    "in memory, with a store that blocks": InMemory(SlowStore),
    **{f"Trio with {parser}": OverTrio(parser) for parser in PARSERS},
    "Trio in HTTP/2": OverHttp2(),
    **{f"ASGI on {loop.name}": Asgi(loop) for loop in LOOPS},
    **{f"ASGI on {loop.name} with a lifespan": Asgi(loop, with_lifespan=True) for loop in LOOPS},
}


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    """Each of the adapters."""
    return ADAPTERS[request.param]
