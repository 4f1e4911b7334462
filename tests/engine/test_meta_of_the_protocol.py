"""The keys of ``_meta`` that belong to the protocol: which ones go out by themselves, and what comes in means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import call, client, one, sent, server

from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_11_25, Revision
from mcpio.types.base import META_RELATED_TASK
from mcpio.types.features import CallToolResult, PingRequest

revisions = pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)


@revisions
@pytest.mark.req("META-06", "PROG-01")
def test_engine_adds_only_a_requested_progress_token_to_meta(revision: Revision) -> None:
    connection = client(revision.name)
    ids = [int(connection.send_request(PingRequest(), now=0.0, progress=wanted)) for wanted in (True, False)]
    asked, plain = sent(connection)
    assert asked == {
        "jsonrpc": "2.0",
        "id": ids[0],
        "method": "ping",
        "params": {"_meta": {"progressToken": ids[0]}},
    }
    assert plain == {"jsonrpc": "2.0", "id": ids[1], "method": "ping"}


@revisions
@pytest.mark.req("META-06", "TASK-28")
def test_related_task_key_matters_only_with_tasks(revision: Revision) -> None:
    connection = server(revision.name)
    mark = {META_RELATED_TASK: {"taskId": "t"}}
    event = one(connection, call(1, progressToken="p", **mark))
    connection.send_progress(event.id, 1)
    connection.send_result(event.id, CallToolResult(()))
    progress, answer = sent(connection)
    carried: Any = mark if revision is REV_2025_11_25 else None
    assert progress["params"].get("_meta") == carried
    assert answer["result"].get("_meta") == carried
    assert ("related-task" in json.dumps([progress, answer])) is (carried is not None)
