"""``HttpClient`` with a server that knows only the transport of 2024-11-05: what goes out when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpio.app.client import client_connection
from mcpio.http.client import HttpClient, Location
from mcpio.http.model import Body, End, RequestHead, ResponseHead
from mcpio.types import ListToolsRequest


class Server:
    """The other side, by hand: what was asked of it, and what it answers."""

    def __init__(self, machine: HttpClient) -> None:
        self.machine = machine

    def asked(self) -> list[tuple[Any, str, str, Any]]:
        """Return the requests that go out: exchange, method, target, and the JSON in it."""
        while self.machine.next_event() is not None:
            pass
        heads: dict[Any, list[Any]] = {}
        for item in self.machine.requests_to_send(0.0):
            if isinstance(item, RequestHead):
                heads[item.exchange] = [item.exchange, item.method, item.target, None]
            elif isinstance(item, Body):
                heads[item.exchange][3] = json.loads(item.data)
        return [(exchange, method, target, text) for exchange, method, target, text in heads.values()]

    def answer(self, exchange: Any, status: int) -> None:
        self.machine.receive(ResponseHead(exchange, status, ()), 0.0)
        self.machine.receive(End(exchange), 0.0)

    def say(self, exchange: Any, type: str, data: str) -> None:
        self.machine.receive(Body(exchange, f"event: {type}\ndata: {data}\n\n".encode()), 0.0)


@pytest.mark.req("FALL-07")
def test_nothing_is_sent_before_the_end_of_the_handshake() -> None:
    connection = client_connection()
    server = Server(HttpClient(connection, Location.parse("http://a.example/sse")))
    connection.send_initialize(now=0.0)
    ((exchange, method, target, initialize),) = server.asked()
    assert (method, target, initialize["method"]) == ("POST", "/sse", "initialize")
    server.answer(exchange, 405)

    ((stream, method, target, text),) = server.asked()
    assert (method, target, text) == ("GET", "/sse", None)
    server.machine.receive(ResponseHead(stream, 200, ((b"content-type", b"text/event-stream"),)), 0.0)
    server.say(stream, "endpoint", "/messages?session=1")
    ((exchange, method, target, text),) = server.asked()
    assert (method, target, text) == ("POST", "/messages?session=1", initialize)
    server.answer(exchange, 202)

    result = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "", "version": ""}}
    server.say(stream, "message", json.dumps({"jsonrpc": "2.0", "id": initialize["id"], "result": result}))
    ((exchange, _, _, text),) = server.asked()
    assert text["method"] == "notifications/initialized"
    connection.send_request(ListToolsRequest(), now=0.0)
    assert server.asked() == []
    server.answer(exchange, 202)
    ((_, _, _, text),) = server.asked()
    assert text["method"] == "tools/list"
