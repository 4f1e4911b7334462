"""P10: every failure is one exception from one tree, never a bare group around it, and the cause is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcpio import errors
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    NoBackChannel,
    RequestCancelled,
    RequestError,
    RequestTimeout,
)
from mcpio.events import CloseReason, ConnectionClosed, ProtocolViolated, RequestFailed
from mcpio.testing import Pair, pair
from mcpio.types import CallToolRequest, Implementation, ListRootsRequest, ServerCapabilities, ToolsCapability

GONE = OSError("gone")


def _tool(link: Pair) -> int:
    return link.client.send_request(CallToolRequest("t"), now=link.now, timeout=5, cookie="t")


def _answer(link: Pair, text: bytes) -> None:
    link.client.receive_data(b'{"jsonrpc":"2.0","id":2,' + text + b"}\n", link.now)


FAILURES: dict[str, tuple[Callable[[Pair], object], type[McpError], str]] = {
    "refused by the peer": (
        lambda link: _answer(link, b'"error":{"code":-32602,"message":"no such tool"}'),
        RequestError,
        "no such tool (-32602)",
    ),
    "answered with nonsense": (
        lambda link: _answer(link, b'"result":{"content":[{"text":5}]}'),
        InvalidMessage,
        "content[0].type: missing",
    ),
    "too late": (lambda link: link.advance(5), RequestTimeout, "tools/call: no answer within 5 s"),
    "cancelled": (
        lambda link: link.client.cancel_request(link.client.pending.outgoing[0], "enough"),
        RequestCancelled,
        "tools/call: cancelled (enough)",
    ),
    "broken": (lambda link: link.lose(GONE), ConnectionLost, "tools/call: the connection ended (the channel broke)"),
    "aborted": (
        lambda link: link.client.abort(GONE),
        ConnectionLost,
        "tools/call: the connection ended (aborted here)",
    ),
    "closed here": (
        lambda link: link.client.close(link.now),
        ConnectionLost,
        "tools/call: the connection ended (closed here)",
    ),
    "closed there": (
        lambda link: link.client.receive_data(None, link.now),
        ConnectionLost,
        "tools/call: the connection ended (closed by the peer)",
    ),
    "swamped": (
        lambda link: link.client.receive_data(b'{"jsonrpc":"2.0","id":"x","method":"ping"}\n' * 2000, link.now),
        ConnectionLost,
        "tools/call: the connection ended (slow-consumer)",
    ),
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.req("LIFE-18")
def test_failed_request_carries_one_raisable_exception(how: str) -> None:
    cause, kind, text = FAILURES[how]
    link = _link()
    _tool(link)
    link.run()
    link.stall(Role.CLIENT)
    cause(link)
    link.run()
    failed = next(event for event in link.client_events if isinstance(event, RequestFailed))
    with pytest.raises(kind) as caught:
        raise failed.error
    assert type(caught.value) is kind
    assert str(caught.value) == text
    assert isinstance(caught.value, McpError)


@pytest.mark.parametrize("how", ["broken", "aborted"])
def test_lost_connection_keeps_its_cause(how: str) -> None:
    link = _link()
    _tool(link)
    FAILURES[how][0](link)
    link.run()
    failed, closed = link.client_events
    assert isinstance(failed, RequestFailed)
    assert failed.error.__cause__ is GONE
    assert isinstance(closed, ConnectionClosed)
    assert closed.cause is GONE
    assert link.client.end == closed


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (b'"error":{"code":1,"message":"no"}', RequestError, CloseReason.HANDSHAKE_FAILED),
        (b'"result":{"protocolVersion":"2025-11-25"}', InvalidMessage, CloseReason.HANDSHAKE_FAILED),
        (b'"result":{"protocolVersion":"1999-01-01"}', ConnectFailed, CloseReason.VERSION_MISMATCH),
    ],
)
def test_failed_handshake_has_one_cause(answer: bytes, kind: type[McpError], reason: CloseReason) -> None:
    client = ClientConnection(Implementation("c", "1"))
    client.send_initialize(now=0.0, cookie="i")
    client.receive_data(b'{"jsonrpc":"2.0","id":1,' + answer + b"}\n", 0.0)
    events = list(client.events())
    failed, closed = events[0], events[-1]
    assert isinstance(failed, RequestFailed)
    assert type(failed.error) is kind
    assert closed == ConnectionClosed(reason, failed.error)


@pytest.mark.parametrize(
    "call",
    [
        lambda side: side.send_request("ping", now=0.0),
        lambda side: side.send_request(ListRootsRequest(), now=0.0),
        lambda side: side.cancel_request(99),
        lambda side: side.send_result(99, {}),
        lambda side: side.send_notification(CallToolRequest("t")),
        lambda side: side.connection_lost("gone", 0.0),
    ],
)
def test_wrong_call_raises_one_exception(call: Callable[[Connection], object]) -> None:
    link = _link()
    with pytest.raises(LocalProtocolError):
        call(link.client)
    link.client.abort()
    with pytest.raises(McpError):
        call(link.client)


def test_request_on_closed_connection_raises_no_back_channel() -> None:
    link = _link()
    link.client.close(link.now)
    with pytest.raises(NoBackChannel, match="closing"):
        _tool(link)


def test_peer_fault_is_an_exception_inside_an_event() -> None:
    link = _link()
    link.server.receive_data(b"garbage\n", 0.0)
    link.run()
    (violated,) = link.server_events
    assert isinstance(violated, ProtocolViolated)
    assert isinstance(violated.error, errors.RemoteProtocolError)
    assert (violated.error.code, violated.error.http_status) == (-32700, 400)


def test_all_errors_share_one_root() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    exceptions = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert len(exceptions) > 10
    assert all(issubclass(kind, McpError) for kind in exceptions)
    assert not any(issubclass(kind, BaseExceptionGroup) for kind in exceptions)


def _link() -> Pair:
    """Return a client and a server in operation; the client has little room for requests."""
    limits = Options(limits=Limits(queued_bytes=20_000))
    link = pair(
        ClientConnection(Implementation("c", "1"), options=limits),
        ServerConnection(Implementation("s", "1"), ServerCapabilities(tools=ToolsCapability())),
    )
    link.handshake()
    link.client_events.clear()
    link.server_events.clear()
    return link
