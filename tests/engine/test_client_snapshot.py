"""Snapshots of clients that find out the era of their server, and of those that have settled the stateless one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.snapshot import dump, load
from mcpio.errors import LocalProtocolError
from mcpio.events import Negotiated, RequestFailed, ResponseReceived
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2026_07_28, Era
from mcpio.types.features import Implementation, ListToolsRequest, ServerCapabilities, ToolsCapability

INFO = Implementation("c", "1")
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "instructions": "hint",
    "ttlMs": 0,
    "cacheScope": "private",
}
UNSUPPORTED = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "x"}}


def sent(client: ClientConnection) -> list[dict[str, Any]]:
    return [json.loads(text) for text in client.data_to_send() if text]


def feed(client: ClientConnection, **members: Any) -> list[Any]:
    client.receive_data(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n", 1.0)
    return list(client.events())


def restored(client: ClientConnection, **options: Any) -> ClientConnection:
    """Write a client down as JSON, and read it again."""
    return ClientConnection.restore(json.loads(json.dumps(client.snapshot(1.0))), 1.0, options=Options(**options))


def probing() -> tuple[ClientConnection, int]:
    client = ClientConnection(INFO)
    client.negotiate(0.0, timeout=Timeout(20, idle=5), cookie="open")
    (probe,) = sent(client)
    assert probe["method"] == "server/discover"
    return client, probe["id"]


@pytest.mark.req("VER-03")
def test_restored_probe_settles_the_stateless_era() -> None:
    client, id = probing()
    client = restored(client)
    (event,) = feed(client, id=id, result=DISCOVERED)
    assert isinstance(event, Negotiated)
    assert (event.cookie, event.revision.era, event.instructions) == ("open", Era.STATELESS, "hint")


def test_restored_stateless_client_asks_a_silent_server_for_a_sign_of_life() -> None:
    client = ClientConnection(INFO, options=Options(keep_alive=1.0))
    client.adopt(REV_2026_07_28)
    client = restored(client, keep_alive=1.0)
    client.handle_timeout(100.0)
    assert [message["method"] for message in sent(client)] == ["server/discover"]


def test_restored_stateless_client_goes_on_with_its_log_level_and_requests() -> None:
    client, id = probing()
    feed(client, id=id, result=DISCOVERED)
    client.log_level = "error"
    asked = client.send_request(ListToolsRequest(), now=1.0, cookie="list")
    sent(client)
    snapshot = client.snapshot(1.0)
    assert snapshot["version"] == 2
    client = restored(client)
    assert (client.era, client.log_level) == (Era.STATELESS, "error")
    assert client.peer is not None
    assert client.peer.capabilities == ServerCapabilities(tools=ToolsCapability())
    (event,) = feed(client, id=int(asked), result={"resultType": "complete", "tools": []})
    assert isinstance(event, ResponseReceived)
    assert event.cookie == "list"
    client.send_request(ListToolsRequest(), now=1.0)
    (again,) = sent(client)
    meta = again["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/logLevel"] == "error"


@pytest.mark.req("ERA-03")
def test_restored_initialize_after_a_probe_turns_to_the_other_era_once() -> None:
    client, id = probing()
    assert feed(client, id=id, error={"code": -32601, "message": "what"}) == []
    (hello,) = sent(client)
    client = restored(client)
    assert feed(client, id=hello["id"], error=UNSUPPORTED) == []
    (probe,) = sent(client)
    assert probe["method"] == "server/discover"
    client = restored(client)
    *_, failed = [
        event for event in feed(client, id=probe["id"], error=UNSUPPORTED) if isinstance(event, RequestFailed)
    ]
    assert "refuses 2026-07-28" in str(failed.error)


def test_lost_stateless_session_is_restored_as_lost() -> None:
    client = ClientConnection(INFO, options=Options(reopens=True))
    client.negotiate(0.0)
    (probe,) = sent(client)
    feed(client, id=probe["id"], result=DISCOVERED)
    client.connection_lost(OSError("gone"), 1.0)
    list(client.events())
    client = restored(client, reopens=True)
    client.negotiate(1.0)
    assert sent(client)[0]["method"] == "server/discover"


def test_server_that_needed_a_handshake_is_opened_with_one_after_a_loss() -> None:
    client = ClientConnection(INFO, options=Options(reopens=True))
    client.negotiate(0.0)
    (probe,) = sent(client)
    feed(client, id=probe["id"], error={"code": -32601, "message": "what"})
    (hello,) = sent(client)
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    feed(client, id=hello["id"], result=result)
    sent(client)
    client.connection_lost(OSError("gone"), 1.0)
    list(client.events())
    client = restored(client, reopens=True)
    client.negotiate(1.0, cookie="again")
    (hello,) = sent(client)
    assert hello["method"] == "initialize"
    # It is a stateless one by now, and says so.
    assert feed(client, id=hello["id"], error=UNSUPPORTED) == []
    (probe,) = sent(client)
    (event,) = feed(client, id=probe["id"], result=DISCOVERED)
    assert (event.cookie, client.era) == ("again", Era.STATELESS)


def test_snapshot_of_a_revision_that_the_options_lack_raises() -> None:
    client, id = probing()
    with pytest.raises(LocalProtocolError, match="the snapshot is of 2026-07-28: options must have that revision"):
        restored(client, revisions=HANDSHAKE_REVISIONS)
    feed(client, id=id, result=DISCOVERED)
    with pytest.raises(LocalProtocolError, match="the snapshot is of 2026-07-28"):
        restored(client, revisions=HANDSHAKE_REVISIONS)


def changed(**members: Any) -> dict[str, Any]:
    snapshot = probing()[0].snapshot(1.0)
    opening = {**snapshot["opening"], **members.pop("opening", {})}
    return {**snapshot, "opening": opening, **members}


@pytest.mark.parametrize(
    ("snapshot", "fault"),
    [
        (changed(opening={"id": 7}), "an opening without its request"),
        ({**changed(), "opening": None}, "an opening without its request"),
        (changed(phase="INITIALIZING"), "an opening by server/discover in phase INITIALIZING of a client"),
        (changed(role="server", phase="NEW"), "an opening by server/discover in phase NEW of a server"),
        (changed(opening={"probed": "2025-11-25"}), "an opening that asks for 2025-11-25"),
        (changed(opening={"again": 1}), r"snapshot\.opening\.again"),
    ],
)
def test_malformed_opening_raises(snapshot: dict[str, Any], fault: str) -> None:
    with pytest.raises(LocalProtocolError, match=fault):
        load(snapshot)


def test_dumped_opening_is_loaded_as_it_was() -> None:
    snapshot = probing()[0].snapshot(1.0)
    assert snapshot["opening"] == {"probed": "2026-07-28", "id": 1, "again": False, "total": 20, "idle": 5}
    assert dump(load(snapshot)) == snapshot
