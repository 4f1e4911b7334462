"""Text from a peer reaches no terminal and no log of a whole server raw: on standard input, over HTTP, from a child."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpio import ConnectFailed
from mcpio.framing.headers import encode_field
from mcpio.http.model import mirrored_name
from mcpio.trio import open_stdio

HOSTILE = "bad \x1b[2J\n2026-01-01 CRITICAL forged \u202e\rover"
SERVER = f"""
from mcpio import Server
server = Server("s", "1")

@server.tool
def fails(text: str) -> str:
    raise ValueError(text)

@server.resource("x://{{text}}")
def page(text: str) -> str:
    raise KeyError(text)

@server.prompt
def ask(text: str) -> str:
    error = RuntimeError(text)
    error.add_note({HOSTILE!r})
    raise error
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": HOSTILE, "version": HOSTILE},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": HOSTILE, "version": HOSTILE},
}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "fails", "arguments": {"text": HOSTILE}}),
    ("tools/call", {"name": HOSTILE}),
    ("tools/call", {"name": "fails", "arguments": {HOSTILE: 1}}),
    ("resources/read", {"uri": "x://%1b%5b2J%0a2026-01-01 CRITICAL forged"}),
    ("resources/read", {"uri": HOSTILE}),
    ("prompts/get", {"name": "ask", "arguments": {"text": HOSTILE}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": HOSTILE}, "argument": {"name": "a", "value": "b"}}),
    ("logging/setLevel", {"level": HOSTILE}),
    (HOSTILE, {}),
]


def check(text: str) -> None:
    """Check that a log has no control characters, and no line that a peer began."""
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text), ascii(text)
    assert not re.search(r"^(2026-01-01|over)", text, re.MULTILINE), text


def messages(*, stateless: bool) -> list[dict[str, Any]]:
    found = [] if stateless else [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}]
    for id, (method, params) in enumerate(CALLS, 1):
        sent = {**params, "_meta": META} if stateless else params
        found.append({"jsonrpc": "2.0", "id": id, "method": method, "params": sent})
    return found


def run(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "mcpio", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=50, check=False, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hostile.py").write_text(SERVER)
    return tmp_path


@pytest.mark.parametrize("stateless", [False, True])
def test_log_of_a_stdio_server_has_escapes(folder: Path, stateless: bool) -> None:
    lines = [json.dumps(message, ensure_ascii=False).encode() for message in messages(stateless=stateless)]
    noise = [b"\x1b[2J noise", b"\xff\xfe\x1b", b'{"jsonrpc": "2.0", "id": "\x1b[2J", ']
    ended = run(folder, "serve", "hostile.py", "--log-level", "debug", input=b"\n".join([*noise, *lines, b""]))
    log = ended.stderr.decode()
    check(log)
    assert "bad \\x1b[2J" in log


def test_log_of_an_http_server_has_escapes(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["serve", "hostile.py", "--http", f"127.0.0.1:{port}", "--log-level", "debug", "--access-log"]
    command = [sys.executable, "-m", "mcpio", *arguments]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stderr is not None
        try:
            head = b""
            while b"http" not in head:
                head += server.stderr.readline()
            for message in messages(stateless=True):
                body = json.dumps(message).encode()
                fields = [f"content-length: {len(body)}", "accept: application/json, text/event-stream"]
                fields += ["content-type: application/json", "mcp-protocol-version: 2026-07-28"]
                fields += [f"host: 127.0.0.1:{port}", "connection: close"]
                fields += [f"mcp-method: {message['method']!a}".replace("'", "")]
                if (name := mirrored_name(message["method"], message["params"])) is not None:
                    fields += [f"mcp-name: {encode_field(name)}"]
                send(port, "\r\n".join(["POST /mcp HTTP/1.1", *fields, "", ""]).encode() + body)
            for raw in (
                b"GET /\x1b[2J HTTP/1.1\r\nhost: a\r\n\r\n",
                b"G\x1bT / HTTP/1.1\r\nhost: a\r\n\r\n",
                b"GET /%1b%0aforged HTTP/1.1\r\nhost: \x1b[2J\r\nconnection: close\r\n\r\n",
                "GET /mcp HTTP/1.1\r\nhost: evil-\u202e\r\norigin: \u202e\r\nconnection: close\r\n\r\n".encode(),
                b"\x1b[2J\nforged\r\n\r\n",
            ):
                send(port, raw)
        finally:
            server.terminate()
            _, rest = server.communicate(timeout=50)
    check((head + rest).decode())
    assert b"POST /mcp 200" in rest


def send(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        found = b""
        while more := connection.recv(65536):
            found += more
    return found


def test_error_quotes_the_last_words_of_a_child_as_escapes(folder: Path) -> None:
    (folder / "dies.py").write_text(f"import sys\nsys.exit({HOSTILE!r})\n")

    async def main() -> None:
        with pytest.raises(ConnectFailed) as failed:
            async with open_stdio([sys.executable, str(folder / "dies.py")], stderr="capture"):
                pass
        assert "bad \\x1b[2J\n" in str(failed.value)  # it has several lines, which stay
        check(str(failed.value).replace("\n", "\n    "))

    trio.run(main)
