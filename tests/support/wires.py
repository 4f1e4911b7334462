"""Connections in the middle of a conversation, and messages to feed them: what tests of the engine need."""

from __future__ import annotations

import json
from typing import Any

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.types.features import (
    ClientCapabilities,
    Implementation,
    ResourcesCapability,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

INFO = Implementation("test", "1")
OFFERS = ServerCapabilities(tools=ToolsCapability(), resources=ResourcesCapability())
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", **({"params": params} if params else {})}


def result(id: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": members}


def call(id: Any = 1, **meta: Any) -> dict[str, Any]:
    return request("tools/call", id, name="x", **({"_meta": meta} if meta else {}))


def feed(connection: Connection, *messages: Any, via: Any = None) -> list[Any]:
    for message in messages:
        connection.receive_message(json.dumps(message), 0.0, via=via)
    return list(connection.events())


def one(connection: Connection, message: Any, via: Any = None) -> Any:
    (event,) = feed(connection, message, via=via)
    return event


def sent(connection: Connection) -> list[Any]:
    return [None if chunk is None else json.loads(chunk) for chunk in connection.data_to_send(10**9)]


def new_server(offers: ServerCapabilities = OFFERS, **options: Any) -> ServerConnection:
    return ServerConnection(INFO, offers, options=Options(**options))


def server(
    revision: str = "2025-11-25", *, offers: ServerCapabilities = OFFERS, roots: bool = False, **options: Any
) -> ServerConnection:
    connection = new_server(offers, **options)
    declared: dict[str, Any] = {"roots": {}} if roots else {}
    hello = {"protocolVersion": revision, "capabilities": declared, "clientInfo": {"name": "c", "version": "1"}}
    feed(connection, request("initialize", 0, **hello), INITIALIZED)
    sent(connection)
    return connection


def client(revision: str = "2025-11-25", **options: Any) -> ClientConnection:
    connection = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()), options=Options(**options))
    connection.send_initialize(now=0.0)
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
    info = {"name": "s", "version": "1"}
    feed(connection, result(1, protocolVersion=revision, capabilities=capabilities, serverInfo=info))
    sent(connection)
    return connection


def client_of_tasks() -> ClientConnection:
    """Return a client whose server runs tools as tasks."""
    connection = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()))
    connection.send_initialize(now=0.0)
    capabilities: dict[str, Any] = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
    info = {"name": "s", "version": "1"}
    feed(connection, result(1, protocolVersion="2025-11-25", capabilities=capabilities, serverInfo=info))
    sent(connection)
    return connection


def created(id: Any, task_id: str = "t1") -> dict[str, Any]:
    """Return an answer that tells of a new task."""
    times = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z"}
    return result(id, task={"taskId": task_id, "status": "working", **times, "ttl": None})
