from __future__ import annotations

from typing import Any

import pytest
from wires import feed, request, sent, server


@pytest.mark.req("RPC-07")
def test_ping_with_an_id_in_flight_is_refused_and_the_request_runs_on() -> None:
    connection = server()
    (event,) = feed(connection, request("tools/call", 7, name="x"))
    answered: Any
    (answered,) = feed(connection, request("ping", 7))
    assert answered.error.code == -32600
    assert "in use" in sent(connection)[0]["error"]["message"]
    assert connection.pending.incoming == (event.id,)
    feed(connection, request("ping", 8))
    assert sent(connection)[0]["result"] == {}
