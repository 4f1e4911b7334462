"""Our server in a conversation with a client that package ``websockets`` carries: nothing of ours is on its side."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from listening import serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

PROGRAM = Path(__file__).with_name("mcpio_server.py")
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
CAPABILITIES: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
MIB = 1024 * 1024


class Talk:
    """A client made by hand."""

    def __init__(self, connection: ClientConnection, process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self.process = process
        self.told: list[dict[str, Any]] = []
        """The notifications that came."""
        self._ids = iter(range(1, 1000))

    def say(self, **message: Any) -> None:
        self.connection.send(json.dumps({"jsonrpc": "2.0", **message}))

    def hear(self) -> dict[str, Any]:
        text = self.connection.recv(timeout=10)
        assert isinstance(text, str)
        found: dict[str, Any] = json.loads(text)
        return found

    def begin(self, method: str, **params: Any) -> int:
        id = next(self._ids)
        self.say(id=id, method=method, params=params)
        return id

    def answer_to(self, id: int) -> dict[str, Any]:
        """Return the message that answers a request, or the request of the server that comes before."""
        while "method" in (message := self.hear()) and "id" not in message:
            self.told.append(message)
        assert "method" in message or message["id"] == id
        return message

    def ask(self, method: str, **params: Any) -> Any:
        return self.answer_to(self.begin(method, **params))["result"]

    def call(self, tool: str, **arguments: Any) -> str:
        result = self.ask("tools/call", name=tool, arguments=arguments)
        text: str = result["content"][0]["text"]
        return text

    def shake_hands(self, revision: str = "2025-11-25") -> dict[str, Any]:
        info = {"name": "by hand", "version": "1"}
        result: dict[str, Any] = self.ask(
            "initialize", protocolVersion=revision, capabilities=CAPABILITIES, clientInfo=info
        )
        self.say(method="notifications/initialized")
        return result


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Give the address of a server, and its process."""
    with serving(PROGRAM, "2025-11-25", "ws") as (url, process):
        yield url.replace("http:", "ws:") + "/mcp", process


@contextmanager
def talking(site: tuple[str, subprocess.Popen[bytes]], *, deflate: bool = False, **options: Any) -> Iterator[Talk]:
    url, process = site
    options = {"subprotocols": [Subprotocol("mcp")], "max_size": 16 * MIB, **options}
    with connect(url, compression="deflate" if deflate else None, **options) as connection:
        yield Talk(connection, process)


@pytest.fixture(params=[False, True], ids=["plain", "deflate"])
def talk(site: tuple[str, subprocess.Popen[bytes]], request: pytest.FixtureRequest) -> Iterator[Talk]:
    """Give a client that has shaken hands, with compression and without."""
    with talking(site, deflate=request.param) as talk:
        assert bool(talk.connection.protocol.extensions) is request.param
        talk.shake_hands()
        yield talk


@pytest.mark.req("XPORT-04", "LIFE-07")
@pytest.mark.parametrize("revision", REVISIONS)
def test_opening_and_mcp_handshake(site: tuple[str, subprocess.Popen[bytes]], revision: str) -> None:
    with talking(site) as talk:
        assert talk.connection.subprotocol == "mcp"
        result = talk.shake_hands(revision)
        assert result["protocolVersion"] == revision
        assert result["serverInfo"]["name"] == "mcpio"


def test_list_and_calls_with_progress(talk: Talk) -> None:
    first = talk.ask("tools/list")
    assert [tool["name"] for tool in first["tools"]] == ["add", "echo", "mixed"]
    assert talk.ask("tools/list", cursor=first["nextCursor"])["tools"][0]["name"] == "fail"
    assert talk.call("echo", text="42") == "42"
    result = talk.ask("tools/call", name="count", arguments={"to": 3}, _meta={"progressToken": "p"})
    assert result["content"][0]["text"] == "done"
    assert [told["params"]["progress"] for told in talk.told if told["method"] == "notifications/progress"][-1] == 3


def test_server_requests(talk: Talk) -> None:
    asked = talk.begin("tools/call", name="ask_user")
    question = talk.answer_to(asked)
    assert question["method"] == "elicitation/create"
    talk.say(id=question["id"], result={"action": "accept", "content": {"name": "Ada"}})
    assert talk.answer_to(asked)["result"]["content"][0]["text"] == "accept Ada"
    asked = talk.begin("tools/call", name="ask_model")
    question = talk.answer_to(asked)
    assert question["method"] == "sampling/createMessage"
    said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "4"}}
    talk.say(id=question["id"], result=said)
    assert talk.answer_to(asked)["result"]["content"][0]["text"] == "m: 4"


@pytest.mark.parametrize("size", [100, 70_000, 3 * MIB])
def test_messages_of_all_sizes_and_alphabets(talk: Talk, size: int) -> None:
    text = ("é\u2028𝄞" * (size // 9))[:size]
    assert talk.call("echo", text=text) == text


def test_fragmented_message(talk: Talk) -> None:
    whole = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 99,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "é" * 50}},
        }
    )
    talk.connection.send([whole[:10], whole[10:100], whole[100:]])
    assert talk.answer_to(99)["result"]["content"][0]["text"] == "é" * 50


@pytest.mark.req("CANC-05")
def test_cancelled_call_gets_no_response(talk: Talk) -> None:
    asked = talk.begin("tools/call", name="wait")
    assert talk.ask("ping") == {}
    talk.say(method="notifications/cancelled", params={"requestId": asked})
    happened = talk.ask("tools/call", name="what_happened")["structuredContent"]["result"]
    assert happened[-2:] == ["wait began", "wait was cancelled"]


def test_many_concurrent_calls(talk: Talk) -> None:
    asked = [talk.begin("tools/call", name="echo", arguments={"text": str(number)}) for number in range(200)]
    answers = {}
    for _ in asked:
        message = talk.hear()
        answers[message["id"]] = message["result"]["content"][0]["text"]
    assert answers == {id: str(number) for number, id in enumerate(asked)}


def test_websocket_and_mcp_pings(talk: Talk) -> None:
    assert talk.connection.ping(b"anyone?").wait(10)
    assert talk.ask("ping") == {}


@pytest.mark.parametrize(
    ("say", "code"),
    [
        (lambda connection: connection.send(b"binary"), 1003),
        (lambda connection: connection.send(b"\xff\xfe", text=True), 1007),
        (lambda connection: connection.send("*" * (17 * MIB)), 1009),
    ],
    ids=["binary", "no UTF-8", "too long"],
)
def test_close_code_of_the_server(talk: Talk, say: Any, code: int) -> None:
    with suppress(ConnectionClosed):
        say(talk.connection)
    with pytest.raises(ConnectionClosed) as ended:
        talk.connection.recv(timeout=10)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == code


@pytest.mark.parametrize("code", [1000, 1001, 1011, 4000])
def test_close_code_of_the_client(talk: Talk, code: int) -> None:
    talk.connection.close(code, "enough")
    sent, heard = talk.connection.protocol.close_sent, talk.connection.protocol.close_rcvd
    assert sent is not None
    assert heard is not None
    assert heard.code in (code, 1000)


def test_stopping_server_answers_running_calls_and_closes_with_1001() -> None:
    with serving(PROGRAM, "2025-11-25", "ws") as (url, process):
        with talking((url.replace("http:", "ws:") + "/mcp", process)) as talk:
            talk.shake_hands()
            assert talk.ask("ping") == {}
            process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as ended:
                talk.connection.recv(timeout=10)
            assert ended.value.rcvd is not None
            assert ended.value.rcvd.code == 1001
        assert process.wait(10) == -signal.SIGTERM or process.returncode == 143


def test_vanished_client_costs_only_its_session(site: tuple[str, subprocess.Popen[bytes]]) -> None:
    with talking(site) as other:
        other.shake_hands()
        with talking(site) as talk:
            talk.shake_hands()
            talk.begin("tools/call", name="wait")
            talk.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            talk.connection.socket.close()
        assert other.call("echo", text="still here") == "still here"


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"subprotocols": [Subprotocol("soap")]}, 400),
        ({"subprotocols": None}, 400),
    ],
    ids=["origin", "another subprotocol", "none"],
)
def test_refused_openings(site: tuple[str, subprocess.Popen[bytes]], options: dict[str, Any], status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, talking(site, **options):
        pass
    assert refused.value.response.status_code == status
