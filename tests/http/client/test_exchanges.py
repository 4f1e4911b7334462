from __future__ import annotations

from mcpio.http.client import LEAVING, ClientExchange, ClientExchanges, Purpose
from mcpio.http.model import Body, End, RequestHead, Reset


def made(exchanges: ClientExchanges, purpose: Purpose = Purpose.ASK, text: bytes = b"{}") -> ClientExchange:
    call = exchanges.new(purpose, text=text)
    exchanges.make(call, "s", "2025-11-25")
    return call


def test_a_call_becomes_a_request() -> None:
    exchanges = ClientExchanges("/mcp", {"X-Y": "z"})
    call = made(exchanges)
    head, *rest = exchanges.pop_items()
    assert isinstance(head, RequestHead)
    assert (head.exchange, head.method, head.target) == (1, "POST", "/mcp")
    assert (head.headers[0], head.headers[-1]) == ((b"x-y", b"z"), (b"mcp-protocol-version", b"2025-11-25"))
    assert rest == [Body(1, b"{}"), End(1)]
    assert exchanges.pop_items() == []
    assert exchanges.get(1) is call
    assert exchanges.get("1") is exchanges.get(2) is None
    listening = exchanges.new(Purpose.LISTEN)
    exchanges.make(listening, None, None)
    head, *rest = exchanges.pop_items()
    assert isinstance(head, RequestHead)
    assert b"mcp-protocol-version" not in dict(head.headers)
    assert rest == [End(2)]
    assert (len(exchanges), call in exchanges) == (2, True)


def test_a_call_may_be_made_later_or_never() -> None:
    exchanges = ClientExchanges("/mcp", {})
    exchanges.now = 10.0
    first, second, third = (exchanges.new(Purpose.RESUME) for _ in range(3))
    for call in (first, second, third):
        exchanges.make_later(call, 5.0)
    assert first in exchanges
    exchanges.end_soon(second, 2.0)
    exchanges.cut(third)
    assert exchanges.timers.pop_expired(15.0) == [first.number]
    assert exchanges.pop_due(first.number) is first
    assert exchanges.pop_due(first.number) is None
    assert not any(call in exchanges for call in (first, second, third))
    assert exchanges.pop_items() == []


def test_a_call_that_is_broken_off_is_forgotten() -> None:
    exchanges = ClientExchanges("/mcp", {})
    exchanges.now = 0.0
    calls = [made(exchanges) for _ in range(3)]
    exchanges.pop_items()
    exchanges.end_soon(calls[0], 2.0)
    assert exchanges.timers.next() == 2.0
    exchanges.cut_all(but=calls[1])
    assert exchanges.pop_items() == [Reset(1), Reset(3)]
    assert exchanges.timers.next() is None
    assert len(exchanges) == 1
    exchanges.end_soon(calls[0], 2.0)
    assert exchanges.timers.next() is None
    exchanges.forget(calls[1])
    assert exchanges.is_idle
    assert all(call.number > LEAVING for call in calls)
