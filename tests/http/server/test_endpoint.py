from __future__ import annotations

import json
from typing import Any

import pytest
from httpsite import BOTH, Site, initialize, note, tool_call

from mcpio.app.session_store import MemorySessionStore
from mcpio.auth.grant import Grant
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import LocalProtocolError, NoBackChannel, URLElicitationRequired
from mcpio.events import IgnoreReason, MessageIgnored, RequestFailed, RequestReceived, ResponseReceived
from mcpio.http.model import Body, Cors, End, HttpOptions
from mcpio.revisions import REV_2025_11_25
from mcpio.types import (
    ElicitURLRequest,
    ListRootsRequest,
    PingRequest,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)

ALONE = HttpOptions(sessions=False)


# Sessions


@pytest.mark.req("SESS-01", "SESS-02", "HTTP-11")
@pytest.mark.parametrize("answers", ["auto", "json", "sse"])
def test_initialize_response_carries_the_session_id(answers: Any) -> None:
    site = Site(HttpOptions(answers=answers))
    response = site.post(initialize())
    assert response.status == 200
    assert response.headers["mcp-session-id"] == f"{1:032x}"
    assert all(0x21 <= ord(character) <= 0x7E for character in response.headers["mcp-session-id"])
    answer = response.new_messages()[0] if answers == "sse" else response.json
    assert answer["result"]["protocolVersion"] == "2025-11-25"
    assert response.is_over
    assert site.kinds() == ["SessionOpened", "Negotiated"]


@pytest.mark.req("SESS-02", "SESS-09")
def test_session_id_spells_sixteen_random_bytes_and_nothing_else() -> None:
    drawn: list[bytes] = []

    def entropy(size: int) -> bytes:
        drawn.append(bytes((0xFF - len(drawn) - 7 * each) % 256 for each in range(size)))
        return drawn[-1]

    site = Site(entropy=entropy)
    ids = [site.open() for _ in range(3)]
    assert [len(each) for each in drawn] == [16, 16, 16]
    assert ids == [each.hex() for each in drawn]


@pytest.mark.req("SESS-01")
def test_session_ids_differ_and_later_responses_carry_none() -> None:
    site = Site()
    first, second = site.open(), site.open()
    assert first != second
    exchange, event = site.call(first)
    site.answer(event)
    assert "mcp-session-id" not in exchange.headers


@pytest.mark.req("SESS-04")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_get_and_delete_without_session_are_refused(method: str) -> None:
    response = Site().ask(method, accept="text/event-stream")
    assert (response.status, "initialize" in response.json["error"]["message"]) == (400, True)


@pytest.mark.req("SESS-04", "BATCH-03")
@pytest.mark.parametrize(
    "message", [tool_call(), note("initialized"), {"jsonrpc": "2.0", "id": 1, "result": {}}, [initialize()], []]
)
def test_only_initialize_is_served_without_session(message: Any) -> None:
    site = Site()
    response = site.post(message)
    assert (response.status, response.json["error"]["code"]) == (400, -32600)
    assert site.kinds() == []
    assert site.machine.sessions == ()


@pytest.mark.req("SESS-05")
@pytest.mark.parametrize("id", ["", "x" * 100_000, "\xff", "0" * 32, "a, a"])
def test_unknown_session_gets_404(id: str) -> None:
    site = Site()
    site.open()
    for response in (
        site.post(tool_call(), id),
        site.listen(id),
        site.ask("DELETE", mcp_session_id=id),
        site.post(initialize(), id),
    ):
        assert (response.status, response.json["error"]["code"]) == (404, -32600)


@pytest.mark.req("SESS-05", "SESS-08", "HTTP-36")
def test_delete_ends_session_with_all_its_streams() -> None:
    site = Site(HttpOptions(answers="sse"))
    session = site.open()
    listening = site.listen(session)
    streaming, _ = site.call(session)
    site.kinds()
    ended = site.ask("DELETE", mcp_session_id=session)
    assert (ended.status, ended.data) == (204, b"")
    assert "content-length" not in ended.headers
    assert listening.is_over
    assert streaming.is_over
    assert site.kinds() == ["ConnectionClosed", "SessionClosed"]
    assert site.post(tool_call(), session).status == 404
    assert site.ask("DELETE", mcp_session_id=session).status == 404


@pytest.mark.req("SESS-05")
def test_running_request_is_cut_off_when_its_session_ends() -> None:
    """Clients take 404 for proof that a request never ran, and may send it again in a new session."""
    site = Site()
    session = site.open()
    waiting, _ = site.call(session)
    site.ask("DELETE", mcp_session_id=session)
    assert (waiting.status, waiting.is_over) == (500, True)


@pytest.mark.req("SESS-05")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_request_that_comes_while_its_session_ends_gets_404(method: str) -> None:
    site = Site()
    session = site.open()
    fields = {"accept": "application/json, text/event-stream", "content_type": "application/json"}
    coming = site.ask(method, body=None, mcp_session_id=session, **fields)
    site.ask("DELETE", mcp_session_id=session)
    site.complete(coming, json.dumps(note("initialized")).encode())
    assert coming.status == 404


@pytest.mark.req("SESS-09", "SEC-04")
def test_session_of_another_principal_gets_404() -> None:
    site = Site()
    session = site.open(principal="me")
    assert site.session().principal == site.session().connection.principal == "me"
    for principal in ("you", None):
        assert site.post(tool_call(), session, principal=principal).status == 404
        assert site.listen(session, principal=principal).status == 404
        assert site.ask("DELETE", mcp_session_id=session, principal=principal).status == 404
    assert site.requests() == []
    assert site.ask("DELETE", mcp_session_id=session, principal="me").status == 204


@pytest.mark.req("SEC-04", "SESS-09")
def test_each_request_has_the_grant_of_its_own_token() -> None:
    site = Site()
    old, new = (Grant("https://id", "ann", "app", frozenset({scope})) for scope in ("read", "write"))
    session = site.open(principal=old)
    for grant in (old, new):
        site.post(tool_call(), session, principal=grant)
    assert all(event.context.principal is grant for event, grant in zip(site.requests(), (old, new), strict=True))
    for other in (Grant("https://id", "bob", "app"), Grant("https://id", "ann", "other"), Grant(None, "ann", "app")):
        assert site.post(tool_call(), session, principal=other).status == 404


def test_second_initialize_is_refused_and_the_session_continues() -> None:
    site = Site()
    session = site.open()
    again = site.post(initialize(), session)
    assert (again.status, again.json["error"]["code"]) == (200, -32600)
    exchange, event = site.call(session)
    site.answer(event)
    assert exchange.status == 200


def test_failed_handshake_leaves_no_session() -> None:
    site = Site()
    bad = initialize()
    del bad["params"]["clientInfo"]
    response = site.post(bad)
    assert (response.status, response.json["error"]["code"]) == (200, -32602)
    assert "mcp-session-id" not in response.headers
    assert site.machine.sessions == ()
    assert site.kinds() == ["SessionOpened", "Answered", "ConnectionClosed", "SessionClosed"]


# Revisions


@pytest.mark.req("HTTP-30", "HTTP-31", "LIFE-20")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_version_header_of_another_revision_is_refused(method: str) -> None:
    site = Site()
    session = site.open("2025-06-18")
    fields = {"accept": "*/*", "content_type": "application/json", "mcp_session_id": session}
    body = json.dumps(note("initialized")).encode()
    for version in ("2025-11-25", "2099-01-01", "x"):
        assert site.ask(method, body=body, mcp_protocol_version=version, **fields).status == 400
    assert site.ask(method, body=body, mcp_protocol_version="2025-06-18", **fields).status in (200, 202, 204)


@pytest.mark.req("HTTP-32")
def test_version_header_is_optional_in_a_session() -> None:
    site = Site()
    session = site.open("2025-06-18")
    _, event = site.call(session)
    assert event.context.revision.name == "2025-06-18"


@pytest.mark.req("HTTP-31")
def test_unserved_revision_is_refused() -> None:
    for options in (HttpOptions(), ALONE):
        site = Site(options, engine=Options(revisions=(REV_2025_11_25,)))
        response = site.post(initialize(), mcp_protocol_version="2025-06-18")
        assert (response.status, "2025-06-18 is not served" in response.json["error"]["message"]) == (400, True)
        assert site.post(initialize(), mcp_protocol_version="2025-11-25").status == 200
        assert site.post(initialize()).status == 200


# Messages


@pytest.mark.req("RPC-12", "HTTP-13", "SESS-04")
@pytest.mark.parametrize("options", [HttpOptions(), ALONE])
@pytest.mark.parametrize(
    ("message", "id"),
    [
        ({"jsonrpc": "2.0", "id": "x", "method": 5}, "x"),
        ({"id": 7, "method": "initialize"}, 7),
        ({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": []}, 7),
        ({"jsonrpc": "2.0", "id": None, "method": "initialize"}, None),
        ({"jsonrpc": "2.0", "id": 7, "result": None}, None),
        (b'{"id":7,', None),
    ],
)
def test_malformed_first_message_is_answered_with_its_id(message: Any, id: Any, options: HttpOptions) -> None:
    response = Site(options).post(message)
    assert (response.status, response.json.get("id"), "id" in response.json) == (400, id, id is not None)


@pytest.mark.req("RPC-12", "SESS-04")
def test_request_without_its_session_is_refused_with_its_id() -> None:
    assert Site().post(tool_call(7)).json["id"] == 7
    assert "id" not in Site().post({"jsonrpc": "2.0", "id": 7, "result": {}}).json


@pytest.mark.req("HTTP-10", "RPC-09", "RPC-10")
@pytest.mark.parametrize("answer", [{"result": None}, {"error": {}}, {"result": {"roots": 5}}])
def test_malformed_answer_gets_400_and_fails_the_request(answer: dict[str, Any]) -> None:
    site = Site()
    session = site.open(capabilities={"roots": {}})
    asked = site.session().connection.send_request(ListRootsRequest(), now=0.0)
    site.touch(site.session())
    (request,) = site.listen(session).new_messages()
    response = site.post({"jsonrpc": "2.0", "id": request["id"], **answer}, session)
    assert (response.status, response.json["error"]["code"], "id" in response.json) == (400, -32600, False)
    failed = site.events[-1][1]
    assert isinstance(failed, RequestFailed)
    assert failed.id == asked


@pytest.mark.req("HTTP-09", "RPC-18")
def test_answer_that_comes_twice_gets_202_and_is_ignored() -> None:
    site = Site()
    session = site.open(capabilities={"roots": {}})
    site.session().connection.send_request(PingRequest(), now=0.0)
    site.touch(site.session())
    (ping,) = site.listen(session).new_messages()
    answer = {"jsonrpc": "2.0", "id": ping["id"], "result": {}}
    assert [site.post(answer, session).status for _ in range(2)] == [202, 202]
    ignored = site.events[-1][1]
    assert isinstance(ignored, MessageIgnored)
    assert ignored.reason is IgnoreReason.REPEATED_RESPONSE
    assert site.post({**answer, "id": 99}, session).status == 400


def test_answered_request_of_a_server_leaves_no_deadline() -> None:
    site = Site(HttpOptions(session_idle=None, keep_alive=None, resume_within=None))
    session = site.open()
    listening = site.listen(session)
    site.session().connection.send_request(PingRequest(), now=0.0, timeout=5)
    site.touch(site.session())
    assert site.machine.next_deadline() == 5
    (ping,) = listening.new_messages()
    assert site.post({"jsonrpc": "2.0", "id": ping["id"], "result": {}}, session).status == 202
    assert site.machine.next_deadline() is None


@pytest.mark.req("HTTP-09")
def test_notifications_and_responses_get_202() -> None:
    site = Site()
    session = site.open(capabilities={"roots": {}})
    asked = site.session().connection.send_request(PingRequest(), now=0.0)
    site.touch(site.session())
    listening = site.listen(session)
    (ping,) = listening.new_messages()
    for message in (note("roots/list_changed"), note("x"), {"jsonrpc": "2.0", "id": ping["id"], "result": {}}):
        response = site.post(message, session)
        assert (response.status, response.data, response.headers["content-length"]) == (202, b"", "0")
    assert isinstance(site.events[-1][1], ResponseReceived)
    assert site.events[-1][1].id == asked


@pytest.mark.req("HTTP-10", "HTTP-13", "BATCH-02")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
        (b"5", -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":77,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":5}', -32602),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}', -32602),
    ],
)
def test_unacceptable_message_gets_400_and_the_session_continues(body: bytes, code: int) -> None:
    site = Site()
    session = site.open()
    response = site.post(body, session)
    assert (response.status, response.headers["content-type"]) == (400, "application/json")
    assert response.json["error"]["code"] == code
    assert response.json.get("id") is None
    exchange, event = site.call(session)
    site.answer(event)
    assert exchange.json["id"] == 1
    assert site.session().streams == {}


@pytest.mark.req("HTTP-13")
def test_malformed_message_is_refused_without_session() -> None:
    site = Site()
    assert [site.post(body).json["error"]["code"] for body in (b"{", b"5")] == [-32700, -32600]
    assert site.kinds() == []


@pytest.mark.req("HTTP-11")
def test_errors_of_well_formed_requests_have_status_200() -> None:
    site = Site()
    session = site.open()
    for message, code in (
        ({"jsonrpc": "2.0", "id": 7, "method": "no/such"}, -32601),
        ({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {}}, -32602),
    ):
        response = site.post(message, session)
        assert (response.status, response.json["id"], response.json["error"]["code"]) == (200, 7, code)


@pytest.mark.req("RPC-07", "HTTP-33")
def test_twelve_exchanges_with_one_request_id_get_their_own_answers() -> None:
    site = Site()
    session = site.open()
    calls = [site.call(session, 1) for _ in range(12)]
    for number, (_, event) in reversed(list(enumerate(calls))):
        site.answer(event, str(number))
    assert [exchange.json["result"]["content"][0]["text"] for exchange, _ in calls] == [str(n) for n in range(12)]


def test_requests_beyond_the_limit_of_streams_get_503() -> None:
    site = Site(limits=Limits(streams=2))
    session = site.open()
    calls = [site.call(session) for _ in range(2)]
    refused = site.post(note("initialized"), session)
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    for seen in (None, "1-1"):
        assert site.listen(session, seen).status == 503
    for _, event in calls:
        site.answer(event)
    assert site.post(note("initialized"), session).status == 202
    assert site.listen(session).status == 200


def test_unfinished_requests_count_as_streams() -> None:
    site = Site(limits=Limits(streams=2))
    session = site.open()
    fields = {"content_type": "application/json", "accept": BOTH, "mcp_session_id": session}
    calls = [site.ask("POST", body=None, **fields) for _ in range(5)]
    for id, exchange in enumerate(calls):
        site.complete(exchange, json.dumps(tool_call(id)).encode())
    assert len(site.requests()) == 2
    assert [exchange.status for exchange in calls[2:]] == [503] * 3


def test_requests_without_session_are_limited_whether_or_not_their_clients_left() -> None:
    site = Site(HttpOptions(sessions=False), limits=Limits(exchanges=3))
    calls = [site.post(tool_call()) for _ in range(3)]
    refused = site.post(tool_call())
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    site.reset(calls[1])
    assert len(site.machine.sessions) == 3
    before = site.machine.sessions
    assert site.post(tool_call()).status == 0
    assert [session in site.machine.sessions for session in before] == [True, False, True]
    assert site.post(tool_call()).status == 503
    site.answer(site.requests()[0])
    assert site.post(tool_call()).status == 0


# Batches (2025-03-26)


def batch(*messages: Any) -> list[Any]:
    return list(messages)


@pytest.mark.req("BATCH-01", "BATCH-05", "BATCH-06")
@pytest.mark.parametrize("answers", ["auto", "json", "sse"])
def test_batch_is_answered_by_one_array(answers: Any) -> None:
    site = Site(HttpOptions(answers=answers))
    session = site.open("2025-03-26")
    ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
    exchange = site.post(batch(tool_call(1), note("x"), tool_call(2), ping), session)
    first, second = site.requests()
    site.answer(second)
    assert exchange.new_messages() == [] if answers == "sse" else exchange.status == 0
    site.answer(first)
    (answer,) = exchange.new_messages() if answers == "sse" else [exchange.json]
    assert [each["id"] for each in answer] == [3, 2, 1]
    assert exchange.is_over


@pytest.mark.req("BATCH-06")
@pytest.mark.parametrize("messages", [[note("x"), note("y")], [note("x")]])
def test_batch_without_requests_gets_202(messages: list[Any]) -> None:
    site = Site()
    response = site.post(messages, site.open("2025-03-26"))
    assert (response.status, response.data) == (202, b"")


@pytest.mark.req("BATCH-04", "BATCH-05")
def test_batch_of_only_malformed_messages_gets_400() -> None:
    site = Site()
    session = site.open("2025-03-26")
    response = site.post([1, {}], session)
    assert (response.status, [each["error"]["code"] for each in response.json]) == (400, [-32600, -32600])
    assert site.post([], session).status == 400


@pytest.mark.req("BATCH-07")
def test_batch_with_cancelled_request_answers_the_others() -> None:
    site = Site()
    session = site.open("2025-03-26")
    exchange = site.post(batch(tool_call(1), tool_call(2)), session)
    first, _ = site.requests()
    site.post(note("cancelled", requestId=2), session)
    assert exchange.status == 0
    site.answer(first)
    assert [each["id"] for each in exchange.json] == [1]
    every = site.post(batch(tool_call(1), tool_call(2)), session)
    site.post(batch(note("cancelled", requestId=1), note("cancelled", requestId=2)), session)
    assert (every.status, every.data, every.is_over) == (200, b"", True)


# Without sessions


@pytest.mark.req("SESS-10")
def test_request_without_sessions_stands_alone() -> None:
    site = Site(ALONE)
    hello = site.post(initialize())
    assert hello.json["result"]["protocolVersion"] == "2025-11-25"
    assert "mcp-session-id" not in hello.headers
    assert site.post(note("initialized"), mcp_protocol_version="2025-11-25").status == 202
    exchange, event = site.call(None, mcp_protocol_version="2025-11-25")
    assert event.context.revision.name == "2025-11-25"
    site.answer(event)
    assert exchange.json["result"]["content"] == [{"type": "text", "text": "ok"}]
    assert site.machine.sessions == ()
    assert site.machine.next_deadline() is None


@pytest.mark.req("SESS-10")
def test_request_without_sessions_opens_and_closes_a_session() -> None:
    site = Site(ALONE)
    exchange, event = site.call(None)
    site.answer(event)
    assert exchange.is_over
    assert site.kinds() == ["SessionOpened", "RequestReceived", "ConnectionClosed", "SessionClosed"]


EVERYTHING = ServerCapabilities(
    tools=ToolsCapability(list_changed=True),
    prompts=PromptsCapability(list_changed=True),
    resources=ResourcesCapability(list_changed=True, subscribe=True),
    logging={},
    completions={},
)


@pytest.mark.req("SESS-10", "CAP-03", "CAP-07")
@pytest.mark.parametrize("capabilities", [EVERYTHING, ServerCapabilities(logging={})])
@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("listening", [True, False])
def test_capabilities_beyond_the_transport_are_not_declared(
    sessions: bool, listening: bool, capabilities: ServerCapabilities
) -> None:
    site = Site(HttpOptions(sessions=sessions, listening=listening), capabilities=capabilities)
    declared = site.post(initialize()).json["result"]["capabilities"]
    feature = {"listChanged": True} if sessions and listening else {}
    expected: dict[str, Any] = {"logging": {}} if sessions else {}
    if capabilities is EVERYTHING:
        resources = {**feature, "subscribe": True} if feature else {}
        expected |= {"tools": feature, "prompts": feature, "resources": resources, "completions": {}}
    assert declared == expected


@pytest.mark.req("ELIC-17", "SESS-10")
def test_request_without_sessions_may_ask_for_url_elicitation() -> None:
    site = Site(ALONE)
    visit = URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com/1", "1")])
    exchange, event = site.call(None, mcp_protocol_version="2025-11-25")
    site.session().connection.send_error(event.id, visit)
    site.touch(site.session())
    assert exchange.json["error"]["code"] == -32042
    _, older = site.call(None, mcp_protocol_version="2025-06-18")
    with pytest.raises(LocalProtocolError):
        site.session().connection.send_error(older.id, visit)


@pytest.mark.req("HTTP-32")
def test_request_without_version_header_speaks_2025_03_26() -> None:
    site = Site(ALONE)
    _, event = site.call(None)
    assert event.context.revision.name == "2025-03-26"
    narrow = Site(ALONE, engine=Options(revisions=(REV_2025_11_25,)))
    assert narrow.post(tool_call()).status == 400


@pytest.mark.req("SESS-10", "HTTP-27")
def test_server_without_sessions_serves_only_post_and_ignores_session_ids() -> None:
    site = Site(ALONE)
    for method in ("GET", "DELETE"):
        response = site.ask(method, accept="text/event-stream")
        assert (response.status, response.headers["allow"]) == (405, "POST")
    exchange, event = site.call("whatever")
    site.answer(event)
    assert exchange.status == 200


@pytest.mark.req("SESS-10", "HTTP-16")
def test_handler_without_sessions_may_notify_and_not_ask() -> None:
    site = Site(ALONE)
    exchange = site.post(tool_call(1, progressToken="p"))
    (event,) = site.requests()
    session = site.session()
    session.connection.send_progress(event.id, 1)
    with pytest.raises(LocalProtocolError, match=r"tools\.list_changed"):
        session.connection.send_notification(ToolListChangedNotification())
    with pytest.raises(NoBackChannel):
        session.connection.send_request(PingRequest(), now=0.0)
    session.connection.send_request(PingRequest(), now=0.0, related_to=event.id)
    site.touch(session)
    (failed,) = [each for _, each in site.events if isinstance(each, RequestFailed)]
    assert isinstance(failed.error, NoBackChannel)
    site.answer(event)
    assert [each.get("id") for each in exchange.new_messages()] == [None, 1]
    assert session.undelivered == 1


@pytest.mark.req("SESS-10")
def test_response_without_sessions_is_refused() -> None:
    site = Site(ALONE)
    assert site.post({"jsonrpc": "2.0", "id": 1, "result": {}}).status == 400
    assert site.post(note("cancelled", requestId=1)).status == 202
    assert site.post(b"{").status == 400
    assert site.machine.sessions == ()


@pytest.mark.req("HTTP-24", "SESS-10")
def test_handler_without_sessions_continues_after_its_client_disconnects() -> None:
    site = Site(ALONE)
    exchange, event = site.call(None)
    site.reset(exchange)
    assert [type(each) for _, each in site.events][-1] is RequestReceived
    session = site.session()
    site.answer(event)
    assert (site.machine.sessions, session.undelivered) == ((), 1)


# Sessions in a store


def test_stored_session_is_found_and_unstorable_one_waits() -> None:
    store = MemorySessionStore()
    session = Site(store=store).open()
    site = Site(store=store, first_id=100)
    assert site.post(note("x"), session).status == 202
    assert site.post(note("x"), "f" * 32).status == 404
    site.is_store_failing = True
    site.post(tool_call(1, progressToken="p"), session)
    site.session().connection.send_progress(site.requests()[0].id, 1)
    site.touch(site.session())
    assert site.post(note("x"), session).status == 503
    assert site.listen(session).status == 503


def test_end_of_unknown_exchange_is_ignored() -> None:
    site = Site(HttpOptions(cors=Cors()))
    site.open()
    exchange = site.ask("OPTIONS", body=None)
    site.complete(exchange)
    assert exchange.status == 204


def test_first_message_is_refused_when_closing_or_full() -> None:
    site = Site(limits=Limits(sessions=1))
    site.listen(site.open())
    assert site.post(initialize()).status == 503
    coming = site.ask("POST", body=None, accept="*/*", content_type="application/json")
    site.machine.close(site.now)
    site.complete(coming, json.dumps(initialize()).encode())
    assert (coming.status, "closing" in coming.json["error"]["message"]) == (503, True)


def test_streams_without_exchanges_count_when_a_request_is_complete() -> None:
    site = Site(HttpOptions(answers="sse"), limits=Limits(streams=2))
    session = site.open()
    begun = site.ask("POST", body=None, mcp_session_id=session, content_type="application/json", accept=BOTH)
    for id in (1, 2):
        exchange, _ = site.call(session, id)
        site.reset(exchange)
    site.complete(begun, json.dumps(tool_call(3)).encode())
    assert begun.status == 503


def test_response_without_session_is_pulled_in_pieces() -> None:
    site = Site(HttpOptions(health="/ok"))
    site.stall(exchange := site.ask("GET", "/ok", body=None))
    site.complete(exchange)
    name, taken = site.name(exchange), []
    while items := site.machine.responses_to_send(name, 4):
        taken += items
    assert b"".join(item.data for item in taken if isinstance(item, Body)) == b'{"status":"ok"}'
    assert isinstance(taken[-1], End)
