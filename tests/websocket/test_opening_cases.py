"""Who is let in, by the table of refusals in the binding, over raw bytes: alone at an address, and beside HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from rawends import played, refused
from rawframes import PING, PONG, FarClient, Frame, accept_for, request

from mcpio import AuthorizationRequired, RemoteProtocolError, Server
from mcpio.errors import UnexpectedResponse
from mcpio.http import Denied, RequestHead
from mcpio.trio import SocketPeer, serve_http, serve_websocket
from mcpio.websocket import WebSocketOptions

Serve = Callable[..., Any]

WAYS: dict[str, Serve] = {
    "alone": serve_websocket,
    "alone, httptools": partial(serve_websocket, parser="httptools"),
    "beside HTTP": partial(serve_http, websocket=WebSocketOptions()),
}


def principal(head: RequestHead, _: SocketPeer) -> Any:
    credentials = dict(head.headers).get(b"authorization")
    if credentials == b"Bearer of-bad-news":
        return Denied(403, "You may not")
    if credentials == b"Bearer of-no-news":
        return Denied(401, "Who are you?", ((b"www-authenticate", b"Bearer"),))
    return "somebody"


@asynccontextmanager
async def asked(way: str) -> AsyncIterator[FarClient]:
    """Serve for a block, and give the far end of a connection on which nothing was said."""

    async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
        await WAYS[way](Server("near"), port=0, principal=principal, task_status=task_status)

    async with trio.open_nursery() as nursery:
        port = (await nursery.start(serve)).port
        async with FarClient(await trio.open_tcp_stream("127.0.0.1", port), f"127.0.0.1:{port}") as far:
            yield far
        nursery.cancel_scope.cancel()


REFUSALS: list[tuple[dict[str, str], int]] = [
    ({"path": "/elsewhere"}, 404),
    ({"host": "evil.example"}, 403),
    ({"without": "host"}, 400),
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"authorization": "Bearer of-bad-news"}, 403),
    ({"authorization": "Bearer of-no-news"}, 401),
    ({"sec_websocket_version": "12"}, 426),
    ({"without": "sec-websocket-version"}, 426),
    ({"without": "sec-websocket-key"}, 400),
    ({"sec_websocket_key": "short"}, 400),
    ({"sec_websocket_key": "not base64 of 16 bytes!!"}, 400),
    ({"sec_websocket_key": "dGhlIHNhbXBsZSBub25jZSBpcyB0b28gbG9uZw=="}, 400),
    ({"connection": "close"}, 400),
    ({"without": "sec-websocket-protocol"}, 400),
    ({"sec_websocket_protocol": "soap, MCP, mcp.v1"}, 400),
    ({"content_length": "5"}, 400),
    # Who may ask counts before what is asked.
    ({"origin": "https://evil.example", "authorization": "Bearer of-no-news", "sec_websocket_version": "12"}, 403),
    ({"authorization": "Bearer of-no-news", "without": "sec-websocket-key"}, 401),
]


@pytest.mark.req("XPORT-04", "HTTP-02", "HTTP-04")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("fields", "status"), REFUSALS, ids=str)
def test_opening_request_gets_the_listed_status(way: str, fields: dict[str, str], status: int) -> None:
    async def play() -> None:
        async with asked(way) as far:
            found, answer = await far.ask(**fields)
            assert found == status
            if status == 426:
                assert (answer["upgrade"], answer["sec-websocket-version"]) == ("websocket", "13")
            if status == 401:
                assert answer["www-authenticate"] == "Bearer"

    played(play)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "fields",
    [
        {"upgrade": "WebSocket", "connection": "keep-alive, UPGRADE"},
        {"sec_websocket_protocol": "soap, mcp , other"},
        {"origin": "http://localhost"},
        {"path": "/mcp?ticket=1"},
        {"mcp_protocol_version": "1999-01-01", "mcp_session_id": "gone", "accept": "text/html"},
        {"authorization": "Bearer of-good-news"},
    ],
    ids=str,
)
def test_opening_request_is_accepted(way: str, fields: dict[str, str]) -> None:
    async def play() -> None:
        async with asked(way) as far:
            status, answer = await far.ask(**fields)
            assert (status, answer["sec-websocket-accept"]) == (101, accept_for("dGhlIHNhbXBsZSBub25jZQ=="))
            assert (answer["sec-websocket-protocol"], answer["upgrade"].lower()) == ("mcp", "websocket")
            await far.shake_hands()

    played(play)


@pytest.mark.parametrize("way", WAYS)
def test_frames_after_the_opening_request_are_received(way: str) -> None:
    async def play() -> None:
        async with asked(way) as far:
            await far.send_bytes(request(far.host) + Frame(PING, b"at once").wire(masked=True))
            first, _ = await far.head()
            assert "101" in first
            assert await far.frame() == Frame(PONG, b"at once")

    played(play)


@pytest.mark.parametrize("way", ["alone", "alone, httptools"])
def test_other_requests_to_a_websocket_only_server_get_a_clear_error(way: str) -> None:
    async def play() -> None:
        async with asked(way) as far:
            await far.send_bytes(f"GET /mcp HTTP/1.1\r\nHost: {far.host}\r\n\r\n".encode())
            first, answer = await far.head()
            assert "426" in first
            assert answer["upgrade"] == "websocket"
        async with asked(way) as far:
            await far.send_bytes(f"POST /mcp HTTP/1.1\r\nHost: {far.host}\r\nContent-Length: 0\r\n\r\n".encode())
            first, answer = await far.head()
            assert "405" in first
            assert answer["allow"] == "GET"

    played(play)


ANSWERS: list[tuple[dict[str, str], type[Exception]]] = [
    ({"sec_websocket_accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, UnexpectedResponse),
    ({"sec_websocket_protocol": ""}, UnexpectedResponse),
    ({"sec_websocket_protocol": "soap"}, UnexpectedResponse),
    ({"sec_websocket_protocol": "mcp, soap"}, UnexpectedResponse),
    ({"upgrade": "h2c"}, UnexpectedResponse),
    ({"upgrade": ""}, UnexpectedResponse),
    ({"connection": "close"}, UnexpectedResponse),
    ({"sec_websocket_extensions": "permessage-deflate"}, UnexpectedResponse),
]


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize(("fields", "cause"), ANSWERS, ids=str)
def test_client_rejects_an_invalid_answer(fields: dict[str, str], cause: type[Exception]) -> None:
    async def play() -> None:
        assert isinstance((await refused(fields)).__cause__, cause)

    played(play)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n", AuthorizationRequired),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", AuthorizationRequired),
        (b"HTTP/1.1 301 Moved\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", UnexpectedResponse),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", UnexpectedResponse),
        (b"HTTP/1.1 503 Busy\r\n\r\nwithout a length", UnexpectedResponse),
        (b"SSH-2.0-OpenSSH_9.2\r\n", RemoteProtocolError),
        (b"HTTP/1.1 101 Switching", RemoteProtocolError),
        (b"", RemoteProtocolError),
    ],
)
def test_refused_opening_raises_the_listed_cause(answer: bytes, cause: type[Exception]) -> None:
    async def play() -> None:
        assert isinstance((await refused(answer)).__cause__, cause)

    played(play)
