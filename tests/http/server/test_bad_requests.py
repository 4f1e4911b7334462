"""The catalogue of bad requests (``bad_requests.txt``): each by every adapter, and each time the session goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from httpwire import Exchange, RawClient, Serve, everywhere

from mcpio import Options, Server
from mcpio.engine.limits import Limits
from mcpio.http.model import HttpOptions


@attrs.frozen
class Row:
    """One line of the catalogue."""

    line: str
    method: str
    path: str
    fields: dict[str, str | None]
    """What differs from a good request's; ``None`` for what is left out."""
    body: bytes
    status: int
    code: str
    message: str


def rows() -> Iterator[Row]:
    text = (Path(__file__).parent / "bad_requests.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        place, differences, body, answer = (part.strip() for part in line.split(" | "))
        method, path = place.split()
        status, code, message = answer.split(" ", 2)
        yield Row(line, method, path, dict(fields(differences)), spelt(body).encode(), int(status), code, message)


def fields(text: str) -> Iterator[tuple[str, str | None]]:
    for field in text.split():
        name, _, value = field.partition("=")
        yield (name[1:], None) if name.startswith("-") else (name, spelt(value))


def spelt(text: str) -> str:
    text = text.replace("{+", '{"jsonrpc":"2.0",')
    return re.sub(r"^@(\d+)$", lambda found: "x" * int(found[1]), text)


def good_fields(client: RawClient, method: str) -> dict[str, str]:
    kinds = {
        "POST": {"content-type": "application/json", "accept": "application/json, text/event-stream"},
        "GET": {"accept": "text/event-stream"},
    }
    return kinds.get(method, {}) | client.headers


def told(answer: Exchange) -> tuple[int, str, str]:
    """Return the status, and the code and the message of the error."""
    assert answer.is_over
    assert answer.headers["content-type"] == "application/json"
    error = answer.json["error"]
    assert set(answer.json) <= {"jsonrpc", "id", "error"}
    return answer.status, str(error["code"]), error["message"]


@pytest.mark.req("HTTP-02", "HTTP-07", "HTTP-08", "HTTP-10", "HTTP-31", "SESS-04", "SESS-05")
@everywhere
async def test_each_bad_request_gets_a_descriptive_error_and_the_session_continues(serve: Serve) -> None:
    server = Server("s", "1", options=Options(limits=Limits(message_bytes=65536)))
    async with serve(server, HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        for row in rows():
            given = good_fields(client, row.method) | row.fields
            kept = {name: value for name, value in given.items() if value is not None}
            answer = await wire.ask(row.method, row.path, kept, row.body)
            status, code, message = told(answer)
            assert (status, code, message[: len(row.message)]) == (row.status, row.code, row.message), row.line
            pong = await client.post({"jsonrpc": "2.0", "id": "after", "method": "ping"})
            assert (pong.status, pong.json) == (200, {"jsonrpc": "2.0", "id": "after", "result": {}}), row.line


def test_the_catalogue_can_be_read() -> None:
    found = list(rows())
    assert len(found) > 40
    assert len({row.line for row in found}) == len(found)
