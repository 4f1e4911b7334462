from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import attrs
import pytest
from wires import INFO, call, client, feed, new_server, request, result, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.dialect import BatchItem
from mcpio.engine.limits import Limits
from mcpio.errors import ConnectionLost, LocalProtocolError, RequestError
from mcpio.events import IncomingId, OutgoingId
from mcpio.observe.tap import Observation, Tap, add_tap
from mcpio.revisions import REV_2025_11_25
from mcpio.types import CallToolRequest, CallToolResult, ClientCapabilities, CustomNotification, CustomRequest
from mcpio.types.features import LoggingMessageNotification


class Heard(Tap):
    """Keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def called(self, verb: str, arguments: Any, now: float) -> None:
        if verb != "next_event":
            self.calls.append((verb, arguments))


def observed(connection: Any) -> Heard:
    tap = Heard()
    add_tap(connection, tap)
    return tap


def test_base_tap_does_nothing() -> None:
    connection = server()
    add_tap(connection, Tap())
    (event,) = feed(connection, call(1))
    connection.send_result(event.id, CallToolResult(()))
    assert len(connection.data_to_send()) == 1


def test_calls_are_reported_in_wire_form() -> None:
    connection = client()
    tap = observed(connection)
    id = connection.send_request(CallToolRequest("x"), now=1.0, timeout=5, cookie="c", progress=True)
    connection.cancel_request(id, "enough")
    connection.send_request(CustomRequest("a/b", {"c": 1}), now=1.0)
    assert tap.calls[0] == (
        "send_request",
        {
            "method": "tools/call",
            "params": {"name": "x"},
            "timeout": 5,
            "cookie": "c",
            "related_to": None,
            "progress": True,
        },
    )
    assert tap.calls[1] == ("cancel_request", {"id": id, "reason": "enough"})
    assert (tap.calls[2][1]["method"], tap.calls[2][1]["params"]) == ("a/b", {"c": 1})


def test_batch_is_reported_item_by_item() -> None:
    connection = client("2025-03-26")
    tap = observed(connection)
    items = iter([BatchItem(CallToolRequest("x"), 5, "c", True), CustomNotification("a/b")])
    assert connection.send_batch(items, now=1.0) == (2, None)
    ((verb, arguments),) = tap.calls
    first, second = arguments["items"]
    assert (verb, arguments["related_to"]) == ("send_batch", None)
    assert (first["method"], first["waits"], first["timeout"], first["cookie"]) == ("tools/call", True, 5, "c")
    assert (second["method"], second["waits"], second["params"]) == ("a/b", False, {})


def test_calls_of_transports_are_reported() -> None:
    connection = client()
    tap = observed(connection)
    id = connection.send_request(CallToolRequest("x"), now=1.0)
    lost = ConnectionLost("the stream ended")
    assert connection.fail_request(id, lost, 2.0)
    connection.reset_session(3.0)
    assert tap.calls[1:] == [("fail_request", {"id": id, "error": lost}), ("reset_session", {})]
    cases: list[tuple[Any, Any]] = [
        ({}, {"capabilities": None, "info": None}),
        (
            {"capabilities": ClientCapabilities(), "info": INFO},
            {"capabilities": {}, "info": {"name": "test", "version": "1"}},
        ),
    ]
    for options, said in cases:
        fresh = new_server()
        tap = observed(fresh)
        fresh.skip_handshake(REV_2025_11_25, **options)
        assert tap.calls == [("skip_handshake", {"revision": "2025-11-25", **said})]


def test_refused_call_is_not_reported() -> None:
    connection = client()
    tap = observed(connection)
    with pytest.raises(LocalProtocolError):
        connection.cancel_request(OutgoingId(99))
    with pytest.raises(LocalProtocolError):
        connection.send_notification(5)
    assert tap.calls == []


def test_answers_are_reported_as_messages() -> None:
    connection = server()
    tap = observed(connection)
    first, second, third, fourth = feed(connection, call(1, progressToken=1), call(2), call(3), call(4))
    tap.calls.clear()
    connection.send_progress(first.id, 1, 2, "half")
    connection.send_result(first.id, CallToolResult(()))
    connection.send_raw_result(second.id, b'{"a": 1}')
    connection.send_error(third.id, RequestError(1, "no"))
    feed(connection, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}})
    connection.send_result(fourth.id, CallToolResult(()))
    told = [(verb, arguments.get("text")) for verb, arguments in tap.calls if verb != "receive_message"]
    assert told == [
        ("send_progress", None),
        ("respond", b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'),
        ("respond", b'{"jsonrpc":"2.0","id":2,"result":{"a": 1}}'),
        ("respond", b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"no"}}'),
    ]


@pytest.mark.parametrize("data", [b"x", None])
def test_ignored_input_does_not_set_the_time_of_later_calls(data: bytes | None) -> None:
    times: list[tuple[str, float]] = []

    class Timed(Tap):
        def called(self, verb: str, arguments: Any, now: float) -> None:
            times.append((verb, now))

    connection = new_server()
    add_tap(connection, Timed(), 0.0)
    connection.handle_timeout(1.0)
    connection.abort()
    connection.receive_data(data, 2.0)
    connection.receive_message(data, 3.0)
    connection.abort()
    assert times == [("handle_timeout", 1.0), ("abort", 1.0), ("abort", 1.0)]


def test_remaining_verbs_are_reported() -> None:
    connection = new_server(limits=Limits(message_bytes=100))
    tap = observed(connection)
    connection.receive_data(b"", 0.0)
    assert connection.data_to_send() == []
    connection.receive_data(memoryview(b"x"), 0.0)  # type: ignore[arg-type]  # what some transports have
    connection.handle_timeout(1.0)
    connection.receive_message("y" * 200, 1.0)
    list(connection.events())
    connection.receive_message("ignored", 1.0)
    while connection.next_message() is not None:
        pass
    list(connection.events())
    connection.next_message()
    connection.close(2.0, grace=None)
    connection.abort(OSError("x"))
    connection.connection_lost(None, 3.0)
    verbs = [verb for verb, _ in tap.calls]
    assert verbs == [
        "receive_data",
        "handle_timeout",
        "receive_message",
        "next_message",
        "next_message",
        "close",
        "abort",
        "connection_lost",
    ]
    assert tap.calls[0][1] == {"data": b"x"}


def test_notification_and_handshake_are_reported() -> None:
    connection = server()
    connection.capabilities = attrs.evolve(connection.capabilities, logging={})
    tap = observed(connection)
    connection.send_notification(LoggingMessageNotification("info", "x"))
    assert tap.calls == [
        (
            "send_notification",
            {"method": "notifications/message", "params": {"level": "info", "data": "x"}, "related_to": None},
        )
    ]
    fresh = ClientConnection(INFO)
    tap = observed(fresh)
    fresh.send_initialize(now=0.0, cookie="c")
    assert tap.calls[0][0] == "send_initialize"
    assert tap.calls[0][1]["cookie"] == "c"


class Broken(Tap):
    """Fails in whatever way it is told to."""

    def __init__(self, fail: Any) -> None:
        self.fail = fail

    def event(self, event: Any, now: float) -> Any:
        return self.fail()


def raising() -> None:
    raise RuntimeError("no")


async def waiting() -> None:
    """Be awaited by nobody."""


class Awaitable:
    """Something to await that is no coroutine."""

    def __await__(self) -> Any:
        return iter(())


@pytest.mark.parametrize("fail", [raising, waiting, Awaitable])
def test_failing_tap_is_removed_and_reported_once(fail: Any) -> None:
    connection = server()
    reports: list[tuple[str, BaseException | None]] = []
    observation = add_tap(connection, Broken(fail), report=lambda *words: reports.append(words))
    other = observed(connection)
    feed(connection, request("ping", 1), request("ping", 2))
    assert [message for message, _ in reports] == ["a tap failed in event, and is switched off"]
    assert observation.error is reports[0][1]
    assert len([verb for verb, _ in other.calls if verb == "receive_message"]) == 2


def test_failing_report_changes_nothing() -> None:
    connection = server()

    def report(message: str, error: BaseException | None) -> None:
        raise RuntimeError("nor this")

    for reporter in (report, None):
        observation = add_tap(connection, Broken(raising), report=reporter)
        assert len(feed(connection, request("ping", 1))) == 1
        assert isinstance(observation.error, RuntimeError)


def test_bytes_are_reported_in_both_directions() -> None:
    heard: list[Any] = []

    class Bytes(Tap):
        def received(self, data: bytes | None, now: float) -> None:
            heard.append(("in", data))

        def sent(self, data: bytes | None, now: float) -> None:
            heard.append(("out", data))

        def message_sent(self, text: bytes, via: Any, now: float) -> None:
            heard.append(text)

    connection = server()
    add_tap(connection, Bytes())
    connection.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', 0.0)
    connection.receive_data(None, 0.0)
    list(connection.events())
    connection.data_to_send()
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert heard[1:] == [("in", None), ("out", answer + b"\n"), answer, ("out", None)]


def test_stopped_observation_gets_no_calls() -> None:
    connection = server()
    tap = Heard()
    observation = add_tap(connection, tap)
    observation.stop()
    observation.stop()
    feed(connection, call(1))
    connection.send_result(IncomingId(1), CallToolResult(()))
    assert tap.calls == []
    Observation(server(), tap, None).stop()


def test_tap_whose_opened_raises_is_not_added() -> None:
    class Closed(Heard):
        def opened(self, connection: Any, now: float) -> None:
            raise ValueError("not now")

    connection = client()
    tap = Closed()
    with pytest.raises(ValueError, match="not now"):
        add_tap(connection, tap)
    feed(connection, result(99))
    assert tap.calls == []


def test_observed_connection_keeps_its_class() -> None:
    class Mine(ClientConnection):
        """One with an attribute of its own."""

    connection = Mine(INFO)
    connection.extra = 5  # type: ignore[attr-defined]  # it has room for more
    tap = observed(connection)
    connection.send_initialize(now=0.0)
    assert isinstance(connection, Mine)
    assert connection.extra == 5  # type: ignore[attr-defined]  # as above
    assert len(tap.calls) == 1


def test_message_of_a_channel_is_observed_as_bytes() -> None:
    class Heard(Tap):
        def message_received(self, text: bytes, via: Hashable, now: float) -> None:
            heard.append(text)

    heard: list[bytes] = []
    connection = new_server()
    add_tap(connection, Heard())
    for text in ('{"jsonrpc":"2.0","id":1,"method":"é"}', b"[]", '"\ud800"', b"\xff"):
        connection.receive_message(text, 0.0)
    list(connection.events())
    assert heard == ['{"jsonrpc":"2.0","id":1,"method":"é"}'.encode(), b"[]", b'"?"', b"\xff"]
