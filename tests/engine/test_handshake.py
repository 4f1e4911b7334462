"""The handshake session as a part of a connection: when it is made, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest
from wires import INFO, call, client, feed, new_server, note, one, request, sent, server

from mcpio.engine.handshake import Handshake
from mcpio.engine.pending import IncomingDialogue, OutgoingDialogue
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Input, Phase, Role
from mcpio.errors import LocalProtocolError
from mcpio.types import SamplingCapability
from mcpio.types.base import RawRequest
from mcpio.types.features import CallToolResult, ClientCapabilities, ServerCapabilities, ToolsCapability


def test_connection_without_a_handshake_creates_none() -> None:
    connection = new_server()
    feed(connection, request("ping", 1), request("tools/list", 2), request("no/such", 3), note("initialized"))
    assert [message.get("error", {}).get("code") for message in sent(connection)] == [None, -32600, -32601]
    connection.close(0.0)
    connection.data_to_send()
    assert connection._handshake is None
    assert (connection.phase, connection.revision, connection.peer) == (Phase.CLOSED, None, None)


def test_requests_remember_their_dialogue_and_context() -> None:
    connection = server()
    received = one(connection, call("a"))
    record = connection._incoming.get(received.id)
    assert record is not None
    assert record.dialogue is connection._handshake
    assert record.context is received.context


def test_handshake_is_a_dialogue_that_moves_by_the_table() -> None:
    handshake = Handshake(Role.SERVER, None)
    incoming: IncomingDialogue = handshake
    outgoing: OutgoingDialogue = handshake
    assert (handshake.phase, handshake.context, handshake.peer_capabilities) == (Phase.NEW, None, None)
    handshake.step(Input.RECV_INITIALIZE)
    handshake.step(Input.RECV_REQUEST)
    assert handshake.phase is Phase.OPERATING
    assert incoming is handshake
    assert outgoing is handshake


@pytest.mark.req("SAMP-05")
def test_request_whose_params_need_an_undeclared_capability_is_refused() -> None:
    connection = ServerConnection(INFO, ServerCapabilities())
    declared: dict[str, Any] = {"sampling": {}}
    hello = {"protocolVersion": "2025-11-25", "capabilities": declared, "clientInfo": {"name": "c", "version": "1"}}
    feed(connection, request("initialize", 0, **hello), note("initialized"))
    asked = RawRequest("sampling/createMessage", {"messages": [], "maxTokens": 5, "tools": []})
    with pytest.raises(LocalProtocolError, match=r"sampling/createMessage: tools needs the capability sampling\.tools"):
        connection.send_request(asked, 0.0)


def test_changed_capabilities_hold_from_then_on() -> None:
    connection = server(offers=ServerCapabilities())
    assert [type(event).__name__ for event in feed(connection, call("a"))] == ["Answered"]
    connection.capabilities = ServerCapabilities(tools=ToolsCapability())
    received = one(connection, call("b"))
    connection.send_result(received.id, CallToolResult(()))
    assert [message["id"] for message in sent(connection)] == ["a", "b"]
    fresh = client()
    fresh.capabilities = ClientCapabilities(sampling=SamplingCapability())
    assert fresh.capabilities.sampling == SamplingCapability()
    unopened = new_server()
    unopened.capabilities = ServerCapabilities()
    assert unopened._handshake is None
