"""By which adapters the cases run."""

from __future__ import annotations

import pytest
from httpwire import Adapter, InMemory

ADAPTERS: dict[str, Adapter] = {"in memory": InMemory()}


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    """Each of the adapters."""
    return ADAPTERS[request.param]
