"""WebSocket at a server: who is let in, the port that it shares, floods, silence, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import trio
import trio.testing
from rawframes import PING, PONG, FarClient, Frame, close, request, text
from runners import run_by
from triowire import RawHttp, in_virtual_time
from websocketed import (
    ENDED,
    HOST,
    KINDS,
    Ends,
    call,
    called,
    each_kind,
    half_stalled,
    heard_close,
    is_over,
    make_server,
    websocket_site,
)

from mcpio import CloseReason, Limits, Options
from mcpio.errors import RemoteProtocolError
from mcpio.http.model import Denied, RequestHead
from mcpio.observe import Tap
from mcpio.profiles import Profile
from mcpio.trio import SocketPeer, serve_websocket


@pytest.fixture(autouse=True)
def _forget() -> None:
    ENDED.clear()


# The way in


@pytest.mark.req("XPORT-04")
@each_kind
@run_by(in_virtual_time)
async def test_frames_sent_with_the_opening_request_are_received(kind: str) -> None:
    async with websocket_site(make_server(), kind) as site:
        far = site.dial()
        ping = Frame(PING, b"first").wire(masked=True)
        await far.send_bytes(request(HOST) + ping)
        first, fields = await far.head()
        assert (first, fields["sec-websocket-protocol"]) == ("HTTP/1.1 101 Switching Protocols", "mcp")
        assert await far.frame() == Frame(PONG, b"first")
        await far.shake_hands()
        assert await called(far, "who") == "None"
        await far.send(close())
        assert await far.frame() == close()
        assert await is_over(far)


@pytest.mark.parametrize("kind", KINDS[1:])
@run_by(in_virtual_time)
async def test_port_serves_http_and_websocket(kind: str) -> None:
    server = make_server()
    async with websocket_site(server, kind) as site:
        http, far = site.connect(), await site.open()
        await http.initialize()
        assert (await http.post(http.call("who"))).json["result"]["content"][0]["text"] == "None"
        assert await called(far, "who") == "None"
        # A connection that served HTTP may go on as a WebSocket.
        await http.say(request(HOST))
        after = FarClient(http.stream, HOST)
        assert (await after.head())[0].startswith("HTTP/1.1 101 ")
        await after.shake_hands()
        assert await called(after, "who") == "None"
        assert len(server.sessions) == 3


@pytest.mark.parametrize("kind", KINDS[1:])
@run_by(in_virtual_time)
async def test_frames_read_ahead_of_an_answer_are_received(kind: str) -> None:
    server, go_on = make_server(), trio.Event()

    @server.tool
    async def late() -> None:
        await go_on.wait()

    async with websocket_site(server, kind) as site:
        http = site.connect()
        await http.initialize()
        await http.say(http.posted(http.call("late"), accept="application/json, text/event-stream"))
        for data in (request(HOST), Frame(PING, b"first").wire(masked=True)):
            await http.say(data)
            await trio.testing.wait_all_tasks_blocked()
        go_on.set()
        assert (await http.hear()).status == 200
        far = FarClient(http.stream, HOST)
        assert (await far.head())[0].startswith("HTTP/1.1 101 ")
        assert await far.frame() == Frame(PONG, b"first")


@pytest.mark.req("XPORT-04", "HTTP-02", "HTTP-04")
@each_kind
@pytest.mark.parametrize(
    ("fields", "without", "path", "status"),
    [
        ({"origin": "https://evil.example"}, "", "/mcp", 403),
        ({"sec_websocket_version": "8"}, "", "/mcp", 426),
        ({}, "sec-websocket-version", "/mcp", 426),
        ({}, "sec-websocket-key", "/mcp", 400),
        ({"connection": "close"}, "", "/mcp", 400),
        ({}, "sec-websocket-protocol", "/mcp", 400),
        ({"sec_websocket_protocol": "chat"}, "", "/mcp", 400),
        ({"content_length": "3"}, "", "/mcp", 400),
        ({}, "", "/elsewhere", 404),
        ({}, "host", "/mcp", 400),
    ],
)
def test_invalid_handshakes_are_rejected(
    kind: str, fields: dict[str, str], without: str, path: str, status: int
) -> None:
    async def main() -> None:
        async with websocket_site(make_server(), kind) as site:
            far = site.dial()
            found, answer = await far.ask(path, without=without, **fields)
            assert found == status
            assert (answer.get("sec-websocket-version"), answer.get("upgrade")) == (
                ("13", "websocket") if status == 426 else (None, None)
            )
            assert (await called(await site.open(), "who")) == "None"

    in_virtual_time(main)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n", 426),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}", 405),
        (b"GET /mcp HTTP/1.0\r\nhost: localhost\r\nupgrade: websocket\r\n\r\n", 400),
        (b"GET /mcp?x=1 HTTP/1.1\r\nhost: localhost\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", 426),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    ],
)
@run_by(in_virtual_time)
async def test_other_requests_to_a_websocket_server_are_refused(data: bytes, status: int) -> None:
    async with websocket_site(make_server()) as site:
        http = site.connect()
        await http.say(data)
        heard = await http.hear()
        assert (heard.status, heard.headers["connection"]) == (status, "close")
        assert heard.headers.get("allow") == ("GET" if status == 405 else None)
        assert await http.rest() == b""


@pytest.mark.parametrize("kind", KINDS[1:])
@run_by(in_virtual_time)
async def test_http_1_0_cannot_upgrade(kind: str) -> None:
    async with websocket_site(make_server(), kind) as site:
        http = site.connect()
        await http.say(request(HOST).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await http.hear()).status == 406


def _user(head: RequestHead, peer: SocketPeer) -> Any:
    user = dict(head.headers).get(b"x-user")
    if user == b"broken":
        raise ValueError("no")
    return Denied(headers=((b"www-authenticate", b"Bearer"),)) if user is None else user.decode()


@pytest.mark.req("XPORT-05")
@each_kind
@run_by(in_virtual_time)
async def test_principal_function_decides_the_principal_of_a_session(kind: str) -> None:
    async with websocket_site(make_server(), kind, principal=_user) as site:
        assert await called(await site.open(x_user="ada"), "who") == "'ada'"
        status, fields = await site.dial().ask()
        assert (status, fields["www-authenticate"]) == (401, "Bearer")
        assert (await site.dial().ask(x_user="broken"))[0] == 500


@pytest.mark.req("XPORT-04")
@each_kind
@run_by(in_virtual_time)
async def test_erlmcp_subprotocol_selects_its_dialect(kind: str) -> None:
    server = make_server(options=Options(profiles={Profile.ERLMCP}))
    async with websocket_site(server, kind) as site:
        far = await site.open(sec_websocket_protocol="mcp.v1")
        assert far.opened["sec-websocket-protocol"] == "mcp.v1"
        ping = '{"jsonrpc":"2.0","id":%d,"method":"ping"}'
        await far.send(text(f"{ping % 1}\n{ping % 2}\n"))
        assert [(await far.message())["id"] for _ in range(2)] == [1, 2]


@run_by(in_virtual_time)
async def test_mcp_v1_is_offered_only_with_the_erlmcp_profile() -> None:
    async with websocket_site(make_server()) as site:
        assert (await site.dial().ask(sec_websocket_protocol="mcp.v1"))[0] == 400


@run_by(in_virtual_time)
async def test_clients_beyond_the_limit_wait() -> None:
    server = make_server()
    async with websocket_site(server, max_connections=20) as site:
        fars = [await site.open() for _ in range(20)]
        late = site.dial()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(late.open)
            await trio.sleep(1)
            assert len(server.sessions) == 20
            await fars[0].send(close())
        assert await called(late, "who") == "None"


# What costs one session only


@each_kind
def test_failing_session_start_ends_only_its_connection(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Tap):
        def opened(self, connection: Any, now: float) -> None:
            raise ValueError("no")

    async def main() -> None:
        async with websocket_site(make_server(), kind, tap=Failing) as site:
            for _ in range(2):
                far = site.dial()
                assert (await far.ask())[0] == 101
                assert await is_over(far)

    in_virtual_time(main)
    assert "a session could not be started" in caplog.text


@each_kind
@pytest.mark.parametrize(
    ("frame", "code"),
    [(Frame(2, b"x"), 1003), (text(b"\xff"), 1007), (text("x" * 101), 1009), (Frame(3), 1002), (close(999), 1002)],
)
@run_by(in_virtual_time)
async def test_client_that_violates_the_protocol_gets_a_close_code(kind: str, frame: Frame, code: int) -> None:
    server = make_server(options=Options(limits=Limits(message_bytes=100)))
    async with websocket_site(server, kind, tap=Ends) as site:
        other, far = site.dial(), site.dial()
        await other.ask()
        await far.ask()
        await far.send(text('{"jsonrpc":"2.0","id":1,"method":"ping"}'), frame)
        assert (await far.message())["result"] == {}
        assert (await heard_close(far))[0] == code
        assert await is_over(far)
        await other.say(id=1, method="ping")
        assert (await other.message())["result"] == {}
        assert [end.reason for end in ENDED] == [CloseReason.LOST]
        assert isinstance(ENDED[0].cause, RemoteProtocolError)


@run_by(in_virtual_time)
async def test_floods_of_control_frames_and_fragments_are_bounded() -> None:
    async with websocket_site(make_server()) as site:
        other, far = await site.open(), await site.open()
        flood = Frame(PING, b"x").wire(masked=True) * 2000 + Frame(PONG).wire(masked=True) * 2000
        empty = Frame(1, b"", fin=False).wire(masked=True) + Frame(0, b"", fin=False).wire(masked=True) * 2000
        await far.send_bytes(flood + empty)
        assert await called(other, "who") == "None"
        await trio.sleep(1)
        await far.send(Frame(0, b'{"jsonrpc":"2.0","id":"after","method":"ping"}'))
        pongs = 0
        while (frame := await far.frame()).opcode == PONG:
            pongs += 1
        assert b'"after"' in frame.payload
        assert 16 <= pongs <= 600


@pytest.mark.req("XPORT-04")
@run_by(in_virtual_time)
async def test_client_that_reads_nothing_affects_no_other() -> None:
    limits = Limits(high_water=1000, queued_bytes=250_000)
    async with websocket_site(make_server(options=Options(limits=limits)), tap=Ends) as site:
        other, stalled = await site.open(), site.dial(half_stalled)
        await stalled.open()
        for n in range(2):
            await call(stalled, n, "much", size=100_000)
        # Nothing is read from it either, so that its silence is no sign of anything.
        for _ in range(10):
            assert await called(other, "who") == "None"
            await trio.sleep(20)
        assert ENDED == []
        assert len((await stalled.message())["result"]["content"][0]["text"]) == 100_000


@pytest.mark.req("XPORT-04")
@run_by(in_virtual_time)
async def test_output_for_a_client_that_does_not_read_is_bounded() -> None:
    limits = Limits(queued_bytes=250_000)
    async with websocket_site(make_server(options=Options(limits=limits)), tap=Ends) as site:
        stalled = site.dial(half_stalled)
        await stalled.open()
        for n in range(5):
            await call(stalled, n, "much", size=100_000)
        await trio.sleep(200)
        # It answers no pings either, which ends it before its time to read so much is over.
        assert [end.reason for end in ENDED] == [CloseReason.LOST]


# The rest


def test_unknown_parser_raises() -> None:
    with pytest.raises(ValueError, match="parser"):
        trio.run(lambda: serve_websocket(make_server(), parser="no"))  # type: ignore[arg-type]  # which is the point


def test_http_server_without_websocket_does_not_import_it() -> None:
    program = "import sys, mcpio.trio; from mcpio.trio import serve_http, open_tcp; print('wsproto' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@run_by(in_virtual_time)
async def test_without_websocket_a_port_serves_http_only() -> None:
    from triowire import memory_site

    async with memory_site(make_server()) as site:
        http: RawHttp = site.connect()
        await http.say(request(HOST))
        assert (await http.hear()).status == 406


@pytest.mark.req("HTTP-02", "HTTP-04")
@each_kind
def test_refused_host_and_origin_are_logged_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with websocket_site(make_server(), kind) as site:
            for _ in range(2):
                assert (await site.dial().ask("/mcp", origin="https://page.example"))[0] == 403

    in_virtual_time(main)
    (said,) = [record.message for record in caplog.records]
    assert said.startswith("the Origin 'https://page.example' is refused: ")
