"""Wrong arguments of the machines for HTTP, WebSockets and logins: refused where they are passed, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mcpio.auth import ApiKeys, Authorizer, BearerToken, ResourceServer, Response
from mcpio.auth.resource_server import Guard
from mcpio.engine import ClientConnection, ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError
from mcpio.http.client import HttpClient, Location
from mcpio.http.model import RequestHead, ResponseHead
from mcpio.http.server import HttpServer
from mcpio.types import Implementation
from mcpio.websocket.frames import WebSocketOptions
from mcpio.websocket.machine import WebSocket

INFO = Implementation("x", "1")
HEAD = RequestHead(1, "GET", "/mcp", ())
TIMES: list[Any] = [math.nan, math.inf, "0", None, b"1"]
PROTECTED = ResourceServer(verify=ApiKeys({"0" * 64: "me"}))


def http_server(**wrong: Any) -> HttpServer:
    given: dict[str, Any] = {"connect": lambda _: ServerConnection(INFO), "entropy": bytes}
    return HttpServer(**given | wrong)


def http_client(**wrong: Any) -> HttpClient:
    given: dict[str, Any] = {"connection": ClientConnection(INFO), "location": Location.parse("http://a.example/mcp")}
    return HttpClient(**given | wrong)


def websocket(**wrong: Any) -> WebSocket:
    given: dict[str, Any] = {"role": Role.CLIENT, "options": WebSocketOptions(), "max_bytes": 99, "now": 0.0}
    return WebSocket(**given | {"entropy": bytes} | wrong)


def authorizer(**wrong: Any) -> Authorizer:
    given: dict[str, Any] = {"server_url": "https://a.example/mcp", "method": BearerToken("t"), "entropy": bytes}
    return Authorizer(**given | wrong)


def guard(**wrong: Any) -> Guard:
    return Guard(**{"server": PROTECTED} | wrong)


def protected(**wrong: Any) -> ResourceServer:
    return ResourceServer(**{"verify": ApiKeys({"0" * 64: "me"})} | wrong)


WRONG: dict[Callable[..., Any], dict[str, list[Any]]] = {
    http_server: {
        "connect": [5, None],
        "entropy": [5, b"x"],
        "options": [5, {}],
        "limits": [5, {}],
        "ledger": [5, {}],
        "on_given_up": [5, None],
        "on_room": [5],
        "on_advice": ["x"],
        "param_headers": [5, {}],
        "stateless": [5],
        "protected": [5, "x"],
    },
    http_client: {
        "connection": [5, ServerConnection(INFO), None],
        "location": ["http://a.example/mcp", None],
        "options": [5, {}],
        "session_id": [5, b"x"],
        "authorizer": [5, "t"],
        "param_headers": [5, {}],
    },
    websocket: {
        "role": ["client", None],
        "options": [5, None],
        "max_bytes": ["9", -1, None, True],
        "entropy": [5, None],
        "window_bits": ["9", 8],
        "now": TIMES,
    },
    authorizer: {
        "server_url": [5, None],
        "method": ["token", None],
        "entropy": [5, b"x"],
        "epoch": ["0", math.nan, None],
        "interaction": ["ask", None],
        "reach": [5],
    },
    guard: {"server": [5, None], "entropy": [5], "epoch": ["0", math.nan], "reach": [5]},
    protected: {"name": [5], "metadata_url": [5, b"x"], "mtls": [1, "yes"], "outlive_token": [1, None]},
}
CONSTRUCTORS = [
    (make, name, value) for make, names in WRONG.items() for name, values in names.items() for value in values
]


@pytest.mark.parametrize(("make", "name", "wrong"), CONSTRUCTORS)
def test_wrong_argument_of_a_constructor_is_refused_by_name(make: Any, name: str, wrong: Any) -> None:
    make()
    with pytest.raises((TypeError, ValueError, LocalProtocolError), match=f"^{name} must be "):
        make(**{name: wrong})


VERBS: list[tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = [
    (http_server, lambda machine, now: machine.receive(None, now)),
    (http_server, lambda machine, now: machine.serve(None, b"", now)),
    (http_server, lambda machine, now: machine.handle_timeout(now)),
    (http_server, lambda machine, now: machine.store_done(1, None, now)),
    (http_server, lambda machine, now: machine.close(now)),
    (http_client, lambda machine, now: machine.requests_to_send(now)),
    (http_client, lambda machine, now: machine.receive(None, now)),
    (http_client, lambda machine, now: machine.handle_timeout(now)),
    (websocket, lambda machine, now: machine.receive_data(b"x", now)),
    (websocket, lambda machine, now: machine.connection_lost(now)),
    (websocket, lambda machine, now: machine.extend(now)),
    (websocket, lambda machine, now: machine.data_to_send(now)),
    (websocket, lambda machine, now: machine.handle_timeout(now)),
    (websocket, lambda machine, now: machine.close(1000, "", now)),
    (authorizer, lambda machine, now: machine.authorize(1, "x", now)),
    (authorizer, lambda machine, now: machine.refused(1, 401, (), now)),
    (authorizer, lambda machine, now: machine.answer(1, Response(200, (), b""), now)),
    (authorizer, lambda machine, now: machine.failed(1, "x", now)),
    (authorizer, lambda machine, now: machine.handle_timeout(now)),
    (authorizer, lambda machine, now: machine.close(now)),
    (guard, lambda machine, now: machine.admit(1, (), "/", now)),
    (guard, lambda machine, now: machine.answer(1, Response(200, (), b""), now)),
    (guard, lambda machine, now: machine.failed(1, "x", now)),
    (guard, lambda machine, now: machine.handle_timeout(now)),
]


@pytest.mark.parametrize("now", TIMES)
@pytest.mark.parametrize(("make", "verb"), VERBS)
def test_what_is_no_time_is_refused_by_name(make: Any, verb: Any, now: Any) -> None:
    machine = make()
    with pytest.raises(LocalProtocolError, match=r"^now must be a number of seconds on a monotonic clock, not"):
        verb(machine, now)


def test_times_that_are_integers_are_taken() -> None:
    machine = websocket(now=0)
    machine.extend(5)
    client = http_client()
    client.handle_timeout(5)
    client.handle_timeout(3)
    assert client.requests_to_send(4) == []


@pytest.mark.parametrize("wrong", ["text", 5, [b"x"]])
def test_input_and_output_of_the_wrong_kind_are_refused_by_name(wrong: Any) -> None:
    machine = websocket()
    with pytest.raises(LocalProtocolError, match=r"^data must be bytes, not"):
        machine.receive_data(wrong, 0.0)
    with pytest.raises(LocalProtocolError, match=r"^text must be bytes in UTF-8, not"):
        machine.send_message(wrong)


@pytest.mark.parametrize("wrong", [None, "item", (1, b"x"), {}])
@pytest.mark.parametrize(("make", "first"), [(http_server, "RequestHead"), (http_client, "ResponseHead")])
def test_what_is_no_item_is_refused_by_name(make: Any, first: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"receive\(\) must get a {first}, Body, End or Reset, not"):
        make().receive(wrong, 0.0)


@pytest.mark.parametrize(("make", "item"), [(http_server, ResponseHead(1, 200, ())), (http_client, HEAD)])
def test_heads_of_the_other_role_are_refused(make: Any, item: Any) -> None:
    with pytest.raises(TypeError, match=r"receive\(\) must get a "):
        make().receive(item, 0.0)


def test_whole_request_of_wrong_parts_is_refused_by_name() -> None:
    machine: Any = http_server()
    with pytest.raises(TypeError, match="head must be RequestHead, not None"):
        machine.serve(None, b"", 0.0)
    with pytest.raises(TypeError, match="body must be bytes, not 'text'"):
        machine.serve(HEAD, "text", 0.0)
    assert machine.serve(HEAD, bytearray(b"{}"), 0.0) is not None
