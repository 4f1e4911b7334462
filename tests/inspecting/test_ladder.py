"""The ladder: entries of messages, what is open, and what is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Timeout
from mcpio.errors import RequestError
from mcpio.events import OutgoingId
from mcpio.inspecting.ladder import Ladder, LadderTap
from mcpio.observe import Redactor, add_tap
from mcpio.testing import pair
from mcpio.types import Implementation, PingRequest


def ladder(**bounds: int) -> Ladder:
    return Ladder(lambda: 100.0, **bounds)


def said(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def test_answer_belongs_to_its_request() -> None:
    found = ladder()
    ask = found.message("client", said(id=1, method="tools/call", params={"name": "cut", "arguments": {"a": 1}}), 100.0)
    assert (ask["n"], ask["at"], ask["kind"], ask["name"]) == (1, 0.0, "request", "cut")
    assert "arguments" in ask["head"]
    assert [each["name"] for each in found.open.values()] == ["cut"]
    answer = found.message("server", said(id=1, result={"content": [], "isError": True}), 102.5)
    assert (answer["of"], answer["took"], answer["method"], answer["failed"]) == (1, 2.5, "tools/call", True)
    assert not found.open


def test_ids_of_the_two_sides_do_not_meet() -> None:
    found = ladder()
    found.message("client", said(id=1, method="ping"))
    found.message("server", said(id=1, method="roots/list"))
    answer = found.message("client", said(id=1, result={}))
    assert (answer["of"], answer["method"]) == (2, "roots/list")


def test_progress_and_cancellation_belong_to_their_request() -> None:
    found = ladder()
    found.message("client", said(id="a", method="x", params={"_meta": {"progressToken": 7}}), 100.0)
    said_progress = said(method="notifications/progress", params={"progressToken": 7, "progress": 1})
    progress = found.message("server", said_progress, 101.0)
    (record,) = found.open.values()
    assert (progress["of"], record["heard"], record["progress"]) == (1, 1.0, {"progress": 1})
    cancelled = found.message("client", said(method="notifications/cancelled", params={"requestId": "a"}), 103.0)
    assert (cancelled["of"], list(found.open)) == (1, [])
    assert found.given_up[-1]["until"] == 3.0


@pytest.mark.parametrize(
    "text", [b"{", b"\xff", b"5", b"[5]", b'{"a":1}', b'{"id":null,"method":5}', b'{"id":[1],"result":1}']
)
def test_nonsense_has_an_entry(text: bytes) -> None:
    found = ladder()
    entry = found.message("server", text)
    assert entry["bytes"] == len(text)
    assert found.text(1)
    json.dumps(entry)


def test_batch_answers_each_request() -> None:
    found = ladder()
    asked = [{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in (1, 2)]
    entry = found.message("client", json.dumps(asked).encode())
    assert (entry["kind"], len(found.open)) == ("batch", 2)
    found.message("server", json.dumps([{"jsonrpc": "2.0", "id": 1, "result": {}}]).encode())
    assert [record["id"] for record in found.open.values()] == [2]


def test_bounds_drop_the_oldest() -> None:
    found = ladder(max_entries=3, max_bytes=1000, text_bytes=100)
    for number in range(5):
        found.message("server", said(method="x", params={"n": number}))
    assert (found.dropped, found.last, [each["n"] for each in found.after(0)]) == (2, 5, [3, 4, 5])
    assert [each["n"] for each in found.after(4)] == [5]
    with pytest.raises(LookupError, match="there is no entry 2: the ladder has 3 to 5"):
        found.text(2)
    found.message("server", said(method="x", params={"text": "é" * 5000}))
    assert (found.entry(6)["cut"], len(found.text(6))) == (True, 100)
    found = ladder(max_bytes=150)
    for _ in range(5):
        found.note("x" * 100)
    assert (found.last - found.dropped, found.held_bytes) == (1, 100)


def test_hostile_texts_stay_short() -> None:
    long = "<b>" * 400_000
    found = ladder()
    entry = found.message("server", said(id=long, method=long, params={"name": long, long: {long: [long]}}), via=long)
    assert len(json.dumps(entry)) < 3_000
    assert len(json.dumps(list(found.open.values()))) < 3_000
    deep = b"[" * 100 + b"]" * 100
    assert found.message("server", b'{"method":"x","params":{"a":' + deep + b"}}")["head"] == '{"a":[[[[]]]]}'


def test_open_requests_are_bounded() -> None:
    found = ladder(max_entries=10)
    for number in range(50):
        found.message("server", said(id=number, method="ping", params={"_meta": {"progressToken": number}}))
    assert len(found.open) == 10
    found.forget_open()
    assert not found.open


def test_repeated_ids_and_tokens_are_bounded() -> None:
    found = ladder()

    def ask(id: int, token: object) -> None:
        found.message("client", said(id=id, method="ping", params={"_meta": {"progressToken": token}}))

    for number in range(20):
        ask(1, f"token {number}")
    assert (len(found.open), len(found._tokens), len(found._token_of)) == (1, 1, 1)
    ask(2, "token 19")
    found.message("server", said(id=1, result={}))
    progress = said(method="notifications/progress", params={"progressToken": "token 19", "progress": 1})
    assert found.message("server", progress)["of"] == 21  # of the newest request with the token
    ask(3, 4)
    found.message("client", said(id=4, method="ping"))
    found.message("server", said(id=4, result={}))  # an id, though equal to a token
    assert "of" in found.message("server", said(method="notifications/progress", params={"progressToken": 4}))
    for id in (2, 3):
        found.message("server", said(id=id, result={}))
    assert (found.open, found._tokens, found._token_of) == ({}, {}, {})


def test_tap_adds_messages_phases_and_deadlines() -> None:
    link = pair()
    found = ladder()
    tap = LadderTap(found)
    add_tap(link.client, tap, 0.0)
    link.handshake()
    link.client.send_request(PingRequest(), now=link.now, timeout=Timeout(30, 5))
    link.run()
    entries = found.after(0)
    assert [(each["from"], each.get("method"), each["phase"]) for each in entries[:3]] == [
        ("client", "initialize", "initializing"),
        ("server", "initialize", "initializing"),
        ("client", "notifications/initialized", "operating"),
    ]
    assert entries[0]["due"] == 30
    asked = entries[3]
    assert (asked["due"], asked["idle"], asked["revision"]) == (30, 5, "2025-11-25")
    assert found.heard["server"] == 0.0


@pytest.mark.parametrize("redactor", [None, Redactor()])
def test_request_that_its_transport_failed_is_open_no_more(redactor: Redactor | None) -> None:
    found = ladder()
    client = ClientConnection(Implementation("c", "1"))
    add_tap(client, LadderTap(found, redactor=redactor), 0.0)
    client.over_http = True
    client.negotiate(0.0)
    client.data_to_send()
    assert [each["method"] for each in found.open.values()] == ["server/discover"]
    client.fail_request(OutgoingId(1), RequestError(-32000, "Server not initialized"), 2.0)
    ended = found.entry(2)
    assert (ended["from"], ended["of"], ended["took"], ended["failed"]) == ("server", 1, 2.0, True)
    assert found.text(2) == "Server not initialized (-32000)"
    assert [sender for sender, _ in found.exchange(1)] == ["client"]
    client.data_to_send()
    assert [each["method"] for each in found.open.values()] == ["initialize"]


def test_call_has_the_rounds_that_answer_its_questions() -> None:
    def asked(id: int, name: str, **more: Any) -> None:
        found.message("client", said(id=id, method="tools/call", params={"name": name, **more}))

    found = ladder()
    wants_input = {"resultType": "input_required"}
    asked(1, "a")
    asked(2, "b")
    found.message("server", said(id=1, result=wants_input))
    found.message("server", said(id=2, result=wants_input))
    asked(3, "b", inputResponses={"x": {}})
    asked(4, "a")
    asked(5, "a", inputResponses={"x": {}})
    found.message("client", said(id=6, method="ping"))
    found.message("server", said(id=5, result=wants_input))
    asked(7, "a", requestState="s")
    found.message("server", said(id=7, result={}))
    asked(8, "a", inputResponses={"x": {}})
    assert [json.loads(text)["id"] for _, text in found.call(1)] == [1, 1, 5, 5, 7, 7]
    assert [json.loads(text)["id"] for _, text in found.call(10)] == [7, 7]


def test_exchange_has_what_belongs_to_a_request() -> None:
    found = ladder()
    found.message("client", said(id=1, method="ping"))
    found.message("client", said(id=2, method="tools/call"))
    found.message("server", said(id=1, result={}))
    found.message("server", said(id=9, method="roots/list"))
    found.note("a line", kind="stderr")
    found.message("client", said(id=9, result={"roots": []}))
    found.message("server", said(id=2, result={}))
    found.message("server", said(method="notifications/message"))
    assert [(sender, json.loads(text)["id"]) for sender, text in found.exchange(2)] == [
        ("client", 2), ("server", 9), ("client", 9), ("server", 2),
    ]  # fmt: skip
    for number in (3, 50):
        with pytest.raises(LookupError):
            found.exchange(number)
