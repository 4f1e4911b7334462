"""Both event loops for whoever asks for ``loop``."""

from __future__ import annotations

import pytest
from asgiwire import LOOPS, EventLoop


@pytest.fixture(params=LOOPS, ids=lambda loop: loop.name)
def loop(request: pytest.FixtureRequest) -> EventLoop:
    """Each of the event loops, in virtual time."""
    found: EventLoop = request.param
    return found
