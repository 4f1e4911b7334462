"""What guides to the protocol claim, row by row: the base protocol (A), capabilities (B), errors (E), checklists (H).

The guides contradict each other and the specification, which wins. A row is shown by the rules of
``requirements.toml`` that say the same, or by a test here that is named after it; where a guide's way is supported on
request, by both ways: as it is, and with the profile. Rows about products and history have nothing to show.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from requirement_map import FAMILIES, read_map
from tree import ROOT
from wires import INFO, INITIALIZED, call, client, feed, new_server, one, request, sent, server

from mcpio.backoff import Backoff
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import RequestError
from mcpio.events import (
    Answered,
    CloseReason,
    ConnectionClosed,
    IgnoreReason,
    IncomingId,
    MessageIgnored,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
)
from mcpio.profiles import Profile
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2024_11_05
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    PingRequest,
    ResourcesCapability,
    ServerCapabilities,
)

ERLMCP = frozenset({Profile.ERLMCP})
LSP = frozenset({Profile.LSP_ALIASES})
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}

# Rows that rules show: what is claimed, and the rules.
RULES: dict[str, tuple[str, str]] = {
    "A1": ("jsonrpc is exactly 2.0", "RPC-01"),
    "A2": ("an id is a string or an integer, never null", "RPC-03 RPC-04"),
    "A3": ("ids are unique among the outstanding ones; in a session, even", "RPC-05"),
    "A4": ("ids are not used again in a session", "RPC-05"),
    "A5": ("a response has a result or an error", "RPC-09"),
    "A6": ("a result may be anything: it is an object", "RPC-10"),
    "A7": ("params may be an array: they are an object", "RPC-14"),
    "A8": ("a notification has no id", "RPC-13"),
    "A9": ("an error has code, message and data", "RPC-11"),
    "A10": ("the standard codes", "RPC-15"),
    "A12": ("ids up to 2^53-1", "RPC-21"),
    "A14": ("strings are UTF-8", "RPC-02"),
    "A15": ("the revision is 2025-11-25", "LIFE-03"),
    "A18": ("initialize has revision, capabilities and clientInfo", "LIFE-02"),
    "A19": ("its result has those of the server, and perhaps instructions", "LIFE-07"),
    "A20": ("who a side is", "LIFE-15"),
    "A21": ("a description in serverInfo", "LIFE-15"),
    "A22": ("the client says notifications/initialized", "LIFE-08"),
    "A24": ("a client that forgets notifications/initialized", "LIFE-12"),
    "A25": ("only pings before the handshake, and log messages", "LIFE-09 LIFE-10"),
    "A29": ("three phases", "LIFE-01"),
    "A30": ("how a revision is settled on", "LIFE-03 LIFE-04 LIFE-05 LIFE-06"),
    "A31": ("an orderly end where there is no revision in common", "LIFE-06"),
    "A32": ("no message for the end", "LIFE-17"),
    "A46": ("proper handling of errors on transports", "LIFE-18 STDIO-12"),
    "A47": ("standard input is bounded", "SEC-10"),
    "A49": ("the keys of _meta", "META-02 META-03 META-04"),
    "A50": ("metadata of a client's own", "META-01"),
    "A51": ("icons", "ICON-01"),
    "B1": ("only declared features are used", "LIFE-14 CAP-05"),
    "B2": ("what clients declare", "CAP-04"),
    "B3": ("what servers declare", "CAP-03"),
    "B10": ("experimental on both sides", "CAP-02"),
    "B11": ("a client need declare nothing", "CAP-01"),
    "B12": ("capabilities are exchanged in the handshake", "CAP-01 CAP-05"),
    "C46": ("progress and cancellation", "PROG-02 CANC-01 CANC-05"),
    "C47": ("progress grows, and comes before the result", "PROG-03 PROG-04"),
    "C48": ("a stream that ends is no cancellation", "HTTP-24"),
    "E6": ("-32042 asks for a visit", "ELIC-17"),
    "E9": ("failures of a tool are results, those of the protocol errors", "TOOL-09 TOOL-10 TOOL-11"),
}

# Rows with nothing to show, and why.
NOTHING: dict[str, str] = {
    "A13": "about another implementation's strings",
    "A17": "how revisions are named: docs/revisions.md lists them",
    "A38": "true of 2026-07-28 only, which no connection speaks yet",
    "A39": "the whole engine is this",
    "A42": "roles: the engine has two, and a host is a program with clients",
    "A44": "a hint of another implementation that contradicts A43",
    "A48": "sessions over HTTP; on one channel a lost connection is a new handshake",
    "B9": "a count that the protocol does not make",
    "C35": "what another implementation had when; docs/revisions.md says which revision has what",
    "C51": "a count: docs/revisions.md has every method of every revision",
    "E10": "a rule of 2026-07-28, whose codes some of these collide with",
}

CHECKLISTS: list[tuple[str, str]] = [
    ("JSON-RPC 2.0", "RPC-01 RPC-08 RPC-15"),
    ("the core methods, by capability", "CAP-03 LIFE-21"),
    ("capabilities in the handshake", "CAP-01 LIFE-14"),
    ("errors with proper codes", "RPC-11 RPC-15"),
    ("transports behave", "STDIO-01 STDIO-04 HTTP-01 XPORT-02"),
    ("security and consent", "SEC-09"),
    ("tasks, completion, elicitation, sampling", "TASK-09 COMP-02 ELIC-01 SAMP-08"),
    ("templates, progress, cancellation", "RES-04 PROG-04 CANC-01"),
    ("initialize comes first", "LIFE-02 LIFE-11"),
    ("what is declared is served", "CAP-03 CAP-05"),
    ("notifications are sent", "TOOL-16 RES-07 RES-08 PROM-07 HTTP-34"),
    ("a limit of 16 MB", "SEC-10"),
    ("ids are not used again", "RPC-05"),
    ("timeouts", "TIME-01"),
    ("transports are tested alike", "XPORT-02"),
    ("inputs are validated", "TOOL-19 AUTH-01 SEC-09"),
    ("ids are tracked, stray answers dropped", "RPC-08 RPC-18"),
    ("subscriptions end with the connection", "RES-09"),
    ("encoding and decoding", "RPC-02"),
    ("stdout is kept clean, revisions negotiated", "STDIO-04 LIFE-04 LIFE-05"),
    ("cancellation", "CANC-01"),
    ("logs go to stderr", "STDIO-06"),
    ("a client validates what servers answer, and survives their end", "LIFE-06 LIFE-17 TOOL-14"),
]
"""Table H: the items of the guides' checklists, and what they come down to."""


# The tables themselves


def shown(ids: str) -> None:
    """Check that rules are on the map, with tests or with a reason; but for families that it need not have in full."""
    known = read_map()
    for each in ids.split():
        family, _, number = each.partition("-")
        assert family.isalpha()
        assert 1 <= int(number) <= FAMILIES.get(family, 99)
        assert each in known or family not in FAMILIES
        assert each not in known or known[each].get("tests") or known[each].get("left_out")


@pytest.mark.parametrize("row", RULES)
def test_row_resting_on_rules_names_rules_with_tests(row: str) -> None:
    shown(RULES[row][1])


@pytest.mark.parametrize(("item", "ids"), CHECKLISTS)
def test_checklist_items_map_to_rules(item: str, ids: str) -> None:
    assert item
    shown(ids)


def test_every_row_has_a_test() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_seeds*.py"))
    named = re.findall(r"^def test_((?:[a-z]\d+_)+)", texts, re.MULTILINE)
    tested = {row for rows in named for row in rows.split("_") if row[:1] in {"a", "b", "c", "e"}}
    sizes = {"A": 51, "B": 13, "C": 53, "E": 10}
    rows = {f"{table}{n}" for table, size in sizes.items() for n in range(1, size + 1)}
    assert RULES.keys() | NOTHING.keys() | {row.upper() for row in tested} == rows
    assert not RULES.keys() & NOTHING.keys()
    assert all(NOTHING.values())


# A: base protocol


def test_a11_arrays_are_batches_in_2025_03_26_and_elsewhere_on_request() -> None:
    for revision in HANDSHAKE_REVISIONS:
        plain, tolerant = server(revision.name), server(revision.name, profiles=ERLMCP)
        event = one(plain, [request("ping", 1)])
        assert type(event) is (Answered if revision.has_batches else ProtocolViolated)
        assert isinstance(one(tolerant, [request("ping", 1)]), Answered)
        assert isinstance(one(new_server(profiles=ERLMCP), [request("initialize", 1, **HELLO)]), ProtocolViolated)


def test_a16_first_revision_is_supported() -> None:
    assert server("2024-11-05").revision is client("2024-11-05").revision is REV_2024_11_05


@pytest.mark.parametrize("profiles", [frozenset(), ERLMCP])
def test_a23_initialized_from_a_server_is_ignored(profiles: Any) -> None:
    connection = client(profiles=profiles)
    for message in (INITIALIZED, {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}):
        event = one(connection, message)
        assert isinstance(event, MessageIgnored)
        assert event.reason is IgnoreReason.WRONG_DIRECTION
    speaking = new_server(profiles=profiles, emit_profile=Profile.ERLMCP)
    feed(speaking, request("initialize", 1, **HELLO), INITIALIZED)
    assert [message for message in sent(speaking) if "method" in message] == []


@pytest.mark.req("LIFE-11")
def test_a26_profile_refuses_early_requests_with_its_code_and_answers_ping() -> None:
    for profiles, code in ((frozenset[Profile](), -32600), (LSP, -32600), (ERLMCP, -32005)):
        connection = new_server(profiles=profiles)
        feed(connection, request("tools/list", 1), request("ping", 2), request("no/such", 3))
        refused, pong, unknown = sent(connection)
        assert refused["error"]["code"] == code
        assert refused["error"]["data"] == {"reason": "not initialized"}
        assert pong["result"] == {}
        assert unknown["error"]["code"] == -32601
    strict = new_server(profiles=ERLMCP, strict_initialized=True)
    feed(strict, request("initialize", 1, **HELLO), request("tools/list", 2))
    assert sent(strict)[1]["error"]["code"] == -32005


def test_a27_second_initialize_is_refused() -> None:
    for profiles, code in ((frozenset[Profile](), -32600), (ERLMCP, -32005)):
        connection = server(profiles=profiles)
        feed(connection, request("initialize", 5, **HELLO))
        assert sent(connection)[0]["error"]["code"] == code
        assert connection.phase is Phase.OPERATING


def test_a28_phase_names_match_the_specification() -> None:
    # DISCOVERING is that of a client that finds out the era of its server: the source document is older.
    assert [phase.name for phase in Phase] == ["NEW", "DISCOVERING", "INITIALIZING", "OPERATING", "CLOSING", "CLOSED"]


def test_a33_shutdown_is_a_method_only_in_the_profile() -> None:
    plain = server()
    assert isinstance(one(plain, request("shutdown", 1)), Answered)
    assert sent(plain)[0]["error"]["code"] == -32601
    assert plain.phase is Phase.OPERATING
    connection = server(profiles=ERLMCP)
    feed(connection, call("runs"))
    event = one(connection, request("shutdown", 2))
    assert isinstance(event, Answered)
    assert event.raw["method"] == "shutdown"
    assert event.error is None
    assert sent(connection) == [{"jsonrpc": "2.0", "id": 2, "result": {}}]
    assert connection.phase.value == "closing"
    connection.send_result(IncomingId(1), CallToolResult(()))
    answer, end = sent(connection)
    assert answer["id"] == "runs"
    assert end is None
    (closed,) = connection.events()
    assert closed == ConnectionClosed(CloseReason.CLOSED, None)
    assert isinstance(one(client(profiles=ERLMCP), request("shutdown", 1)), Answered)


def test_a34_profile_presets_timeouts() -> None:
    options = Options().with_erlmcp_timeouts()
    assert (options.request_timeout, options.initialize_timeout) == (Timeout(5.0), 30.0)
    connection = client(request_timeout=options.request_timeout)
    connection.send_request(PingRequest(), now=0.0)
    assert connection.next_deadline() == 5.0


@pytest.mark.req("TIME-01")
def test_a35_timed_out_request_is_not_retried() -> None:
    connection = client()
    connection.send_request(CallToolRequest("x"), now=0.0, timeout=1.0)
    sent(connection)
    connection.handle_timeout(1.0)
    assert [type(event) for event in connection.events()] == [RequestFailed]
    assert [message["method"] for message in sent(connection)] == ["notifications/cancelled"]
    connection.handle_timeout(1000.0)
    assert sent(connection) == []


def test_a36_backoff_doubles() -> None:
    busy = RequestError(1056, "Rate limit exceeded", {"retryable": True})
    assert [Backoff().next_delay(attempt, busy) for attempt in range(4)] == [0.1, 0.2, 0.4, None]


def test_a37_some_refusals_are_retryable() -> None:
    assert all(RequestError(code, "x").is_retryable() for code in (1056, 1080))
    assert not any(RequestError(code, "x").is_retryable() for code in (1059, 1011, -32602))


@pytest.mark.req("LIFE-21", "CAP-03")
def test_a40_only_the_base_protocol_is_required() -> None:
    connection = ServerConnection(INFO)
    feed(connection, request("initialize", 0, **HELLO), INITIALIZED)
    sent(connection)
    for name in ("tools/list", "tools/call", "resources/list", "resources/read", "prompts/list", "prompts/get"):
        feed(connection, request(name, 1))
        assert sent(connection)[0]["error"]["code"] == -32601
    assert isinstance(one(connection, request("ping", 1)), Answered)


@pytest.mark.req("LIFE-21")
def test_a41_server_without_tools_works() -> None:
    connection = ServerConnection(INFO, ServerCapabilities(resources=ResourcesCapability()))
    feed(connection, request("initialize", 0, **HELLO), INITIALIZED)
    assert isinstance(one(connection, request("resources/list", 1)), RequestReceived)
    assert isinstance(one(connection, request("tools/list", 2)), Answered)


@pytest.mark.req("SEC-10")
def test_a43_messages_are_limited_to_16_mib() -> None:
    assert Limits().message_bytes == 16 * 1024 * 1024
    for profiles, code in ((frozenset[Profile](), -32600), (ERLMCP, -32012)):
        connection = server(profiles=profiles, limits=Limits(message_bytes=1024, resync=True))
        connection.receive_data(b"x" * 2000 + b"\n", 0.0)
        (event,) = connection.events()
        assert isinstance(event, ProtocolViolated)
        assert sent(connection)[0]["error"]["code"] == event.error.code == code
        assert isinstance(one(connection, request("ping", 1)), Answered)


@pytest.mark.req("PING-03")
def test_a45_either_side_can_ping() -> None:
    for connection in (client(), server()):
        connection.send_request(PingRequest(), now=0.0, timeout=1.0)
        connection.handle_timeout(1.0)
        assert [type(event) for event in connection.events()] == [RequestFailed]


# B: capabilities


def test_b13_docs_call_only_tasks_experimental() -> None:
    page = (ROOT / "docs" / "revisions.md").read_text(encoding="utf-8")
    assert "only the [tasks](tasks.md) of 2025-11-25 are experimental" in page
