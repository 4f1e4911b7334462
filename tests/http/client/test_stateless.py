"""A client over HTTP of servers of either era: the probe, the header fields, and no session."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

import pytest
from webtalk import WebTalk

from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import AuthorizationRequired, ConnectionLost, RequestCancelled, RequestError, UnexpectedResponse
from mcpio.events import ConnectionClosed, Negotiated, RequestFailed, ResponseReceived
from mcpio.http.client import HttpClientOptions, ParamHeaders, mirrored
from mcpio.http.model import ParamHeader
from mcpio.revisions import REVISIONS, Era
from mcpio.types import (
    CallToolRequest,
    CustomNotification,
    GetPromptRequest,
    ListToolsRequest,
    ReadResourceRequest,
    SubscriptionFilter,
    SubscriptionsListenRequest,
)
from mcpio.types.base import META_PROTOCOL_VERSION

NEW = "2026-07-28"
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": [NEW],
    "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
LISTEN = SubscriptionsListenRequest(SubscriptionFilter(tools_list_changed=True))


class Talk(WebTalk):
    def __init__(self, param_headers: ParamHeaders = lambda _: (), **http: Any) -> None:
        options = Options(revisions=REVISIONS)
        super().__init__(options=options, http=HttpClientOptions(**http), param_headers=param_headers)

    def probe(self) -> Any:
        self.connection.negotiate(self.now)
        (asked,) = self.step()
        return asked

    def reply(self, asked: Any, message: Any, status: int = 200) -> list[Any]:
        before = len(self.requests)
        self.head(asked, status, "application/json")
        self.body(asked, json.dumps(message).encode())
        self.end(asked)
        self.step()
        return self.requests[before:]

    def answered(self, asked: Any, result: dict[str, Any]) -> list[Any]:
        return self.reply(asked, {"jsonrpc": "2.0", "id": asked.json["id"], "result": result})

    def refused(self, asked: Any, status: int, code: int, data: Any = None, id: Any = 0) -> list[Any]:
        error = {"code": code, "message": "no", **({} if data is None else {"data": data})}
        return self.reply(asked, {"jsonrpc": "2.0", "id": asked.json["id"] if id == 0 else id, "error": error}, status)

    @classmethod
    def operating(cls, **http: Any) -> Talk:
        talk = cls(**http)
        talk.answered(talk.probe(), DISCOVERED)
        return talk

    def asked(self, request: Any, **how: Any) -> Any:
        self.ask(request, **how)
        return self.requests[-1]


@pytest.mark.req("ERA-07", "HDR-01", "HDR-02", "SHTTP-03")
def test_probe_is_a_discovery_and_opens_no_session() -> None:
    talk = Talk()
    probe = talk.probe()
    assert (probe.method, probe.json["method"]) == ("POST", "server/discover")
    assert (probe.headers["mcp-protocol-version"], probe.headers["mcp-method"]) == (NEW, "server/discover")
    assert probe.headers["accept"] == "application/json, text/event-stream"
    talk.head(probe, 200, "application/json", mcp_session_id="ignored")
    talk.body(probe, json.dumps({"jsonrpc": "2.0", "id": probe.json["id"], "result": DISCOVERED}).encode())
    # No GET follows, and no notification.
    assert talk.end(probe) == []
    assert any(isinstance(event, Negotiated) for event in talk.events)
    assert talk.connection.era is Era.STATELESS
    assert "mcp-session-id" not in talk.asked(ListToolsRequest()).headers
    talk.connection.close(talk.now)
    talk.step()
    assert [asked.method for asked in talk.requests] == ["POST", "POST"]


@pytest.mark.req("HDR-01", "HDR-02", "HDR-07")
@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (ListToolsRequest(), None),
        (CallToolRequest("Hällo"), "=?base64?SMOkbGxv?="),
        (GetPromptRequest("p"), "p"),
        (ReadResourceRequest("file:///path/to/file%20name.txt"), "file:///path/to/file%20name.txt"),
    ],
)
def test_header_fields_repeat_the_body(request_: Any, name: str | None) -> None:
    asked = Talk.operating().asked(request_)
    assert asked.headers["mcp-protocol-version"] == NEW
    assert asked.headers["mcp-method"] == asked.json["method"]
    assert asked.headers.get("mcp-name") == name


class Region(Enum):
    EU = "eu"


@pytest.mark.req("HDR-07")
def test_known_arguments_are_repeated() -> None:
    region = ParamHeader("Region", ("region",), "string")
    talk = Talk.operating(param_headers=lambda name: (region,) if name == "t" else ())
    assert talk.asked(CallToolRequest("t", {"region": "eu"})).headers["mcp-param-region"] == "eu"
    assert talk.asked(CallToolRequest("t", {"region": Region.EU})).headers["mcp-param-region"] == "eu"
    assert "mcp-param-region" not in talk.asked(CallToolRequest("u", {"region": "eu"})).headers
    assert "mcp-param-region" not in talk.asked(CallToolRequest("t")).headers


@pytest.mark.req("ERA-05", "ERA-06")
@pytest.mark.parametrize(
    ("status", "code", "id"), [(200, -32601, 0), (400, -32000, 0), (400, -32000, None), (404, -32601, 0)]
)
def test_json_error_leads_to_initialize(status: int, code: int, id: Any) -> None:
    talk = Talk()
    (initialize,) = talk.refused(talk.probe(), status, code, id=id)
    assert initialize.json["method"] == "initialize"
    assert "mcp-protocol-version" not in initialize.headers
    assert "mcp-method" not in initialize.headers
    talk.head(initialize, 200, "application/json", mcp_session_id="s1")
    talk.body(initialize, json.dumps({"jsonrpc": "2.0", "id": initialize.json["id"], "result": WELCOME}).encode())
    (initialized,) = talk.end(initialize)
    assert initialized.headers["mcp-session-id"] == "s1"
    assert talk.connection.era is Era.HANDSHAKE


@pytest.mark.req("ERA-06")
def test_status_404_is_of_the_method_with_a_json_error_and_of_the_path_without() -> None:
    talk = Talk.operating()
    talk.refused(talk.asked(ListToolsRequest(), cookie="method"), 404, -32601)
    asked = talk.asked(ListToolsRequest(), cookie="path")
    talk.head(asked, 404, "text/html")
    talk.end(asked)
    talk.step()
    method, path = (event for event in talk.events if isinstance(event, RequestFailed))
    assert isinstance(method.error, RequestError)
    assert (method.cookie, method.error.code) == ("method", -32601)
    assert isinstance(path.error, UnexpectedResponse)
    assert (path.cookie, path.error.status) == ("path", 404)
    assert talk.connection.phase is Phase.OPERATING


@pytest.mark.req("ERA-05")
@pytest.mark.parametrize("status", [400, 404, 405, 415])
def test_other_client_error_leads_to_initialize(status: int) -> None:
    talk = Talk()
    probe = talk.probe()
    talk.head(probe, status, "text/html")
    (initialize,) = talk.end(probe)
    assert initialize.json["method"] == "initialize"


@pytest.mark.req("VER-02")
def test_refused_version_is_probed_again() -> None:
    talk = Talk()
    (again,) = talk.refused(talk.probe(), 400, -32022, {"supported": [NEW], "requested": NEW})
    assert (again.json["method"], again.headers["mcp-method"]) == ("server/discover", "server/discover")
    talk.answered(again, DISCOVERED)
    assert talk.connection.era is Era.STATELESS


@pytest.mark.req("ERA-07")
@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_other_statuses_are_errors(status: int) -> None:
    talk = Talk()
    assert talk.refused(talk.probe(), status, -32603) == []
    failed = next(event for event in talk.events if isinstance(event, RequestFailed))
    assert isinstance(failed.error, AuthorizationRequired) is (status in (401, 403))
    assert isinstance(talk.events[-1], ConnectionClosed)
    assert [asked.json["method"] for asked in talk.requests] == ["server/discover"]


@pytest.mark.req("ERA-07")
def test_broken_or_silent_probe_is_an_error() -> None:
    talk = Talk()
    talk.reset(talk.probe())
    talk.step()
    assert isinstance(talk.events[-1], ConnectionClosed)
    talk = Talk()
    talk.probe()
    assert talk.advance(29) == []
    assert talk.connection.phase is Phase.DISCOVERING
    assert talk.advance(2) == []
    assert isinstance(talk.events[-1], ConnectionClosed)


@pytest.mark.req("SHTTP-07")
def test_broken_stream_loses_its_request() -> None:
    talk = Talk.operating()
    asked = talk.asked(CallToolRequest("t"))
    talk.head(asked, 200, "text/event-stream")
    talk.body(
        asked, b'id: 1\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n\n'
    )
    talk.reset(asked)
    assert talk.step() == []
    (failed,) = talk.found(RequestFailed)
    assert isinstance(failed.error, ConnectionLost)
    assert talk.advance(60) == []


@pytest.mark.req("PAT-06")
def test_cancelled_request_is_a_closed_stream() -> None:
    talk = Talk.operating()
    id = talk.ask(CallToolRequest("t"))
    talk.connection.cancel_request(id, "enough")
    assert talk.step() == []
    assert talk.cut == [talk.requests[-1].number]
    assert isinstance(talk.events[-1].error, RequestCancelled)


def test_other_notifications_are_posted() -> None:
    talk = Talk.operating()
    talk.connection.send_notification(CustomNotification("notifications/example", {"a": 1}))
    (told,) = talk.step()
    assert told.headers["mcp-protocol-version"] == NEW


def test_subscriptions_do_not_count_as_requests() -> None:
    talk = Talk.operating(max_requests=1)
    listening = talk.asked(LISTEN, timeout=None)
    asked = talk.asked(ListToolsRequest())
    assert asked.json["method"] == "tools/list"
    waiting = talk.ask(ListToolsRequest())
    assert talk.requests[-1] is asked
    talk.answered(asked, {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"})
    talk.step()
    assert talk.requests[-1] is not asked
    assert talk.connection.is_pending(waiting)
    assert any(isinstance(event, ResponseReceived) for event in talk.events)
    assert listening.headers["mcp-method"] == "subscriptions/listen"


def test_request_without_a_revision_has_no_header_fields() -> None:
    assert mirrored("tools/list", {"_meta": {}}, b"", lambda _: ()) is None
    assert mirrored("ping", {}, b"", lambda _: ()) is None


@pytest.mark.req("HDR-02", "XTASK-13")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_request_about_a_task_names_the_task_in_a_header_field(method: str) -> None:
    params = {"taskId": "7f", "_meta": {META_PROTOCOL_VERSION: "2026-07-28"}}
    found = mirrored(method, params, b"", lambda _: ())
    assert found is not None
    assert found.fields == [(b"mcp-method", method.encode()), (b"mcp-name", b"7f")]
