"""Requests and results that find no room in the output, or are too large for it, and what drivers say of failures."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.runtime import BroadcastEvent
from mcpio.app.server import Server
from mcpio.engine.limits import DEFAULT, Limits, Timeout
from mcpio.engine.options import Options
from mcpio.errors import ConnectionLost, ErrorCode, NoBackChannel, RequestError, RequestTimeout
from mcpio.events import CloseReason
from mcpio.testing import ManualCancelled, ManualRuntime
from mcpio.types.features import CallToolRequest, PingRequest

LARGE = {"text": "x" * 3000}


def server(**limits: Any) -> Server:
    found = Server("s", options=Options(limits=Limits(**limits)))

    @found.tool
    def echo(text: str) -> str:
        return text

    @found.resource("memo://large", name="large")
    def large() -> str:
        return "x" * 3000

    return found


class Full:
    """A client whose output has no room for a second large request until its peer reads."""

    def __init__(self) -> None:
        self.link = Link(server(), options=Options(limits=Limits(queued_bytes=5000)))
        self.outcomes: list[Any] = []
        self.start(None)
        self.link.runtime.run()

    def start(self, timeout: Any) -> Any:
        return self.link.runtime.spawn(self._call(timeout))

    async def _call(self, timeout: Any) -> None:
        try:
            request = CallToolRequest("echo", LARGE)
            self.outcomes.append(await self.link.client.request(request, timeout=timeout))
        except (Exception, ManualCancelled) as error:
            self.outcomes.append(error)


@pytest.mark.parametrize("timeout", [DEFAULT, None, 5, Timeout(5)])
def test_request_without_room_waits_until_the_peer_reads(timeout: Any) -> None:
    full = Full()
    full.start(timeout)
    full.link.runtime.run()
    assert full.link.client.health().asked == 1
    full.link.run()
    full.link.client._settle()
    full.link.run()
    assert [result.text for result in full.outcomes] == [LARGE["text"]] * 2
    full.link.client._settle()


def test_request_without_room_times_out() -> None:
    full = Full()
    full.start(5)
    full.link.runtime.run()
    full.link.runtime.advance_to(6)
    (error,) = full.outcomes
    assert isinstance(error, RequestTimeout)
    assert "tools/call" in str(error)


def test_cancelled_wait_for_room_sends_nothing() -> None:
    full = Full()
    task = full.start(5)
    full.link.runtime.run()
    task.cancel()
    full.link.runtime.run()
    assert isinstance(full.outcomes[0], ManualCancelled)
    assert full.link.client.health().asked == 1


def test_requests_without_room_are_woken_one_at_a_time() -> None:
    full = Full()
    for _ in range(2):
        full.start(5)
    full.link.runtime.run()
    full.link.client._settle()  # nothing was read yet
    for done in (1, 2, 3):
        full.link.run()
        assert len(full.outcomes) == done
        full.link.client._settle()


def test_connection_end_fails_requests_without_room() -> None:
    full = Full()
    full.start(5)
    full.link.runtime.run()
    full.link.pair.client.abort()
    full.link.run()
    assert [type(error) for error in full.outcomes] == [ConnectionLost, NoBackChannel]


def test_broadcast_event_wakes_the_longest_waiter_first() -> None:
    runtime = ManualRuntime()
    event = BroadcastEvent(runtime)
    woken: list[int] = []

    async def wait(number: int) -> None:
        await event.wait(None)
        woken.append(number)

    for number in range(2):
        runtime.spawn(wait(number))
    runtime.run()
    for _ in range(3):
        event.notify_one()
        runtime.run()
    assert woken == [0, 1]


def test_too_large_tool_result_becomes_an_error_result() -> None:
    link = Link(server(sent_message_bytes=1500))
    assert link.text("echo", **LARGE).startswith("failed: The result is too large: 3,")
    assert "the result of tools/call 'echo' cannot be sent" in link.reports[0]


def test_too_large_result_of_another_request_is_an_error() -> None:
    link = Link(server(sent_message_bytes=1500))
    with pytest.raises(RequestError, match="The result is too large") as caught:
        link.do(link.client.read_resource("memo://large"))
    assert caught.value.code == ErrorCode.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("reason", "report"),
    [
        (CloseReason.SLOW_CONSUMER, "bytes of output unread"),
        (CloseReason.OVERLOADED, "when all sessions held too much"),
    ],
)
def test_enforced_end_is_reported(reason: CloseReason, report: str) -> None:
    link = Link(server())
    link.pair.server.abort(reason=reason)
    link.run()
    assert report in link.reports[0]


def test_overloaded_server_ends_the_largest_session() -> None:
    link = Link(server(total_bytes=1000))
    link.session.connection.held.subscriptions = 2000
    link.session._settle()
    link.run()
    assert link.session.ended is not None
    assert link.session.ended.reason is CloseReason.OVERLOADED


def test_driver_explains_failures_and_the_end() -> None:
    link = Link(server())

    async def explain(error: Exception) -> Exception:
        return ConnectionLost(f"explained: {error}")

    link.client._explain = explain
    link.client._closed_because = "the child died"
    with pytest.raises(ConnectionLost, match="explained: Unknown tool"):
        link.do(link.client.call_tool("unknown"))
    link.pair.client.abort()
    link.run()
    with pytest.raises(NoBackChannel, match="the connection is closed: the child died"):
        link.do(link.client.request(PingRequest()))
