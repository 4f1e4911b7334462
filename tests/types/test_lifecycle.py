from __future__ import annotations

from typing import Any

import pytest
from unchecked import unchecked

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.methods import declares
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
    Revision,
)
from mcpio.types import (
    CancelledNotification,
    ClientCapabilities,
    ElicitationCapability,
    EmptyResult,
    Icon,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeResult,
    PingRequest,
    ProgressNotification,
    ResourcesCapability,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    ToolsCapability,
)

INFO = {"name": "a", "version": "1"}


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_initialize_round_trips(revision: Revision) -> None:
    conversion = codec(revision)
    raw = {"protocolVersion": revision.name, "capabilities": {}, "clientInfo": INFO}
    request = conversion.decode(raw, InitializeRequest)
    assert request == InitializeRequest(revision.name, ClientCapabilities(), Implementation("a", "1"))
    assert conversion.encode(request) == raw
    raw = {"protocolVersion": revision.name, "capabilities": {}, "serverInfo": INFO, "instructions": "be kind"}
    result = conversion.decode(raw, InitializeResult)
    assert result == InitializeResult(revision.name, ServerCapabilities(), Implementation("a", "1"), "be kind")
    assert conversion.encode(result) == raw
    assert conversion.encode(conversion.decode({}, InitializedNotification)) == {}
    assert conversion.encode(conversion.decode({}, PingRequest)) == {}
    assert conversion.encode(conversion.decode({}, EmptyResult)) == {}


@pytest.mark.parametrize("name", ["protocolVersion", "capabilities", "clientInfo"])
def test_incomplete_initialize_is_refused(name: str) -> None:
    raw = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
    del raw[name]
    with pytest.raises(InvalidMessage, match=f"^{name}: missing$"):
        codec(REV_2025_11_25).decode(raw, InitializeRequest)


def test_initialize_does_not_exist_in_the_stateless_revision() -> None:
    with pytest.raises(InvalidMessage, match=r"^PingRequest does not exist in 2026-07-28$"):
        codec(REV_2026_07_28).encode(PingRequest())
    with pytest.raises(InvalidMessage, match=r"^InitializeRequest does not exist in 2026-07-28$"):
        codec(REV_2026_07_28).decode({}, InitializeRequest)


@pytest.mark.req("LIFE-15")
@pytest.mark.parametrize(
    ("revision", "names"),
    [
        (REV_2024_11_05, {"name", "version"}),
        (REV_2025_03_26, {"name", "version"}),
        (REV_2025_06_18, {"name", "version", "title"}),
        (REV_2025_11_25, {"name", "version", "title", "description", "icons", "websiteUrl"}),
        (REV_2026_07_28, {"name", "version", "title", "description", "icons", "websiteUrl"}),
    ],
)
def test_implementation_members_follow_the_revision(revision: Revision, names: set[str]) -> None:
    whole = Implementation("a", "1", "A", "an a", (Icon("https://x/i.png"),), "https://x")
    assert set(codec(revision).encode(whole)) == names


def test_display_name_prefers_the_title() -> None:
    assert Implementation("a", "1").display_name == "a"
    assert Implementation("a", "1", "An A").display_name == "An A"


@pytest.mark.req("CAP-01")
def test_empty_capability_is_declared_and_absent_is_not() -> None:
    read = codec(REV_2025_11_25).decode({"tools": {}, "logging": {}}, ServerCapabilities)
    assert read == ServerCapabilities(tools=ToolsCapability(), logging={})
    assert read.resources is None


@pytest.mark.req("CAP-02", "RPC-17")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("cls", "raw"),
    [
        (ServerCapabilities, {"tools": {"enabled": True, "listChanged": False}, "experimental": {"x": {"y": 1}}}),
        (ServerCapabilities, {"resources": {"subscribe": True}, "prompts": {}, "logging": {}, "completions": {}}),
        (ServerCapabilities, {"tasks": {"list": {}, "requests": {"tools": {"call": {}}}}, "teleport": {"speed": 9}}),
        (ClientCapabilities, {"roots": {"listChanged": True}, "sampling": {"tools": {}}, "elicitation": {"url": {}}}),
        (ClientCapabilities, {"tasks": {"requests": {"sampling": {"createMessage": {}}}}, "extensions": {"a/b": {}}}),
    ],
)
def test_capabilities_round_trip_in_every_revision(cls: type, raw: dict[str, Any], revision: Revision) -> None:
    assert codec(revision).encode(codec(revision).decode(raw, cls)) == raw


@pytest.mark.parametrize("raw", [{"tools": True}, {"tools": []}, {"logging": True}, {"tools": {"listChanged": "yes"}}])
def test_malformed_capability_counts_as_not_declared(raw: dict[str, Any]) -> None:
    odd: list[str] = []
    read = codec(REV_2025_11_25).decode(raw, ServerCapabilities, odd)
    assert not declares(read, ("tools", "list_changed"))
    assert not declares(read, ("logging",))
    assert len(odd) == 1
    assert codec(REV_2025_11_25).encode(read) == raw


def test_capabilities_follow_the_revision() -> None:
    capabilities = ClientCapabilities(
        RootsCapability(list_changed=True),
        SamplingCapability(context={}, tools={}),
        ElicitationCapability(form={}),
        extensions={"io.modelcontextprotocol/ui": {}},
    )
    assert codec(REV_2024_11_05).encode(capabilities) == {
        "roots": {"listChanged": True},
        "sampling": {},
        "extensions": {"io.modelcontextprotocol/ui": {}},
    }
    assert codec(REV_2026_07_28).encode(capabilities) == {
        "roots": {},
        "sampling": {"context": {}, "tools": {}},
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/ui": {}},
    }
    assert codec(REV_2024_11_05).encode(ServerCapabilities(resources=ResourcesCapability(True, False))) == {
        "resources": {"subscribe": True, "listChanged": False}
    }


@pytest.mark.parametrize("id", [0, -5, 2**70, "", "a", "1"])
def test_a_cancellation_names_a_request(id: int | str) -> None:
    raw = {"requestId": id, "reason": "no more time"}
    read = codec(REV_2025_11_25).decode(raw, CancelledNotification)
    assert read == CancelledNotification(id, "no more time")
    assert type(read.request_id) is type(id)
    assert codec(REV_2025_11_25).encode(read) == raw


@pytest.mark.parametrize("id", [True, 1.0, 1.5, [], {}])
def test_an_id_is_a_string_or_an_integer(id: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^requestId: expected an integer or a string, got"):
        codec(REV_2025_11_25).decode({"requestId": id}, CancelledNotification)
    with pytest.raises(InvalidMessage, match=r"^requestId: expected an integer or a string, got"):
        codec(REV_2025_11_25).encode(unchecked(CancelledNotification(), request_id=id))


@pytest.mark.parametrize("revision", REVISIONS)
def test_cancellation_without_id_is_never_sent_and_accepted_only_in_2025_11_25(revision: Revision) -> None:
    with pytest.raises(InvalidMessage, match=r"^requestId: missing$"):
        codec(revision).encode(CancelledNotification())
    if revision is REV_2025_11_25:
        assert codec(revision).decode({}, CancelledNotification).request_id is None
    else:
        with pytest.raises(InvalidMessage, match=r"^requestId: missing$"):
            codec(revision).decode({}, CancelledNotification)


@pytest.mark.parametrize("number", [0, 5, 0.25, 1e300])
def test_progress_is_any_number(number: float) -> None:
    raw = {"progressToken": "a", "progress": number, "total": number, "message": "so far"}
    read = codec(REV_2025_11_25).decode(raw, ProgressNotification)
    assert read == ProgressNotification("a", number, number, "so far")
    assert codec(REV_2025_11_25).encode(read) == raw
    assert "message" not in codec(REV_2024_11_05).encode(read)


@pytest.mark.parametrize("number", [True, "5", None])
def test_progress_must_be_a_number(number: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^progress: expected a number, got"):
        codec(REV_2025_11_25).decode({"progressToken": 1, "progress": number}, ProgressNotification)
