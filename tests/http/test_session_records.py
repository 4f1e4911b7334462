from __future__ import annotations

import json
from typing import Any

import pytest

from mcpio.auth.grant import Grant
from mcpio.errors import InvalidMessage, LocalProtocolError
from mcpio.http.sessions import (
    SessionRecord,
    StoredEvent,
    StoredSession,
    StreamRecord,
    dump_session,
    load_session,
)

RECORD = SessionRecord("ann", 7, (StreamRecord(0, 3, 1), StreamRecord(4, 2, 0)), {"engine": {"x": [1]}})


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(dump_session(RECORD)), **members}).encode()


@pytest.mark.parametrize("owner", ["ann", 7, None, Grant("https://id", "ann", None)])
def test_record_round_trips(owner: Any) -> None:
    record = SessionRecord(owner, RECORD.next_stream, RECORD.streams, RECORD.saved)
    assert load_session("key", StoredSession(dump_session(record), 1.5, [StoredEvent(4, 1, b"x")])) == record


def test_record_holds_only_the_identity_of_a_grant() -> None:
    grant = Grant("https://id", "ann", "app", frozenset({"canary-scope"}), 5.0, {"email": "canary@example.com"})
    assert b"canary" not in dump_session(SessionRecord(grant, 1, (), {}))


def test_record_inexpressible_in_json_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="not expressible"):
        dump_session(SessionRecord(None, 1, (), {"x": object()}))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        changed(format=2),
        changed(owner=[]),
        changed(owner=1.5),
        changed(owner=True),
        changed(owner={"issuer": "https://id", "subject": "ann"}),
        changed(owner={"issuer": 7, "subject": "ann", "client_id": None}),
        changed(saved=[]),
        changed(streams=7),
        changed(streams=[7]),
        changed(streams=[[1, 2]]),
        changed(streams=[[1, 2, 3, 4]]),
        changed(streams=[[1, 2, "3"]]),
        changed(streams=[[1, 2, -3]]),
        changed(next_stream=2**63),
        changed(next_stream=True),
        changed(next_stream=None),
    ],
)
def test_invalid_record_is_refused_without_quoting_the_key(text: bytes) -> None:
    with pytest.raises(InvalidMessage, match="not the record of a session") as caught:
        load_session("0123456789", StoredSession(text, 1.5, ()))
    assert "0123456789" not in str(caught.value)
    assert "0123" in str(caught.value)
