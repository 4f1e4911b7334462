"""What the engine knows of the tasks extension: its methods, and the answer to a call that goes on as a task."""

from __future__ import annotations

from typing import Any

import pytest
from stateless import server_of, stateless, tool_call
from wires import one, sent

from mcpio.engine.server import ServerConnection
from mcpio.errors import LocalProtocolError
from mcpio.events import Answered, RequestReceived
from mcpio.types.base import TASKS_EXTENSION, CustomRequest
from mcpio.types.features import PromptsCapability, ServerCapabilities, ToolsCapability
from mcpio.types.tasks import CreatedTask

OFFERS = ServerCapabilities(
    tools=ToolsCapability(), prompts=PromptsCapability(), extensions={TASKS_EXTENSION: {}, "a.b/c": {}}
)
DECLARED: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}}
CREATED = CreatedTask("t", "working", "then", "now", None)


def received(connection: ServerConnection, message: Any) -> RequestReceived:
    event = one(connection, message)
    assert isinstance(event, RequestReceived)
    return event


@pytest.mark.req("XTASK-04")
def test_call_is_answered_by_a_task() -> None:
    connection = server_of(offers=OFFERS)
    event = received(connection, tool_call(declared=DECLARED))
    connection.send_result(event.id, CREATED)
    result = sent(connection)[0]["result"]
    del result["_meta"]
    assert result == {
        "resultType": "task",
        "taskId": "t",
        "status": "working",
        "createdAt": "then",
        "lastUpdatedAt": "now",
        "ttlMs": None,
    }


@pytest.mark.req("XTASK-01")
def test_client_that_did_not_declare_the_extension_gets_no_task() -> None:
    connection = server_of(offers=OFFERS)
    event = received(connection, tool_call())
    with pytest.raises(LocalProtocolError, match="did not declare the extension"):
        connection.send_result(event.id, CREATED)


@pytest.mark.req("XTASK-01", "XTASK-04")
def test_other_requests_never_become_tasks() -> None:
    connection = server_of(offers=OFFERS)
    event = received(connection, stateless("prompts/get", declared=DECLARED, name="x"))
    with pytest.raises(LocalProtocolError, match="only tools/call"):
        connection.send_result(event.id, CREATED)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_methods_of_the_extension_exist_where_it_is_declared(method: str) -> None:
    event = received(server_of(offers=OFFERS), stateless(method, taskId="t"))
    assert isinstance(event.request, CustomRequest)
    answered = one(server_of(), stateless(method, taskId="t"))
    assert isinstance(answered, Answered)
    assert answered.error is not None
    assert answered.error.code == -32601
