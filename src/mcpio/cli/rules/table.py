"""The table of raw messages by rule: what ``mcpio check`` sends, and what it demands.

To try another thing, add a row: a name, the ids of the rules (``docs/conformance`` lists them), what the server has to
do, a judge, and the messages. ``tests/cli/rules/`` runs the table over mcpio's own servers, and over answers that are
wrong on purpose: a row that finds no fault with any of them fails there.

No row may have an effect on a server: it lists, pings, discovers, negotiates, and otherwise sends what has to be
refused. A ``must`` stands only where the specification says MUST, or where its schema or JSON-RPC leaves no choice.
"""

from __future__ import annotations

from typing import Any, Final

from mcpio.cli.rules.judges import (
    all_answered,
    answered_as_sent,
    asks_only_what_was_declared,
    both,
    cacheable,
    codes_of_the_protocol,
    decoded,
    each_item,
    empty_result,
    error,
    error_data,
    error_has_code_and_message,
    error_of_malformed,
    has_status,
    is_acknowledged,
    is_json_or_events,
    is_listening,
    is_message,
    logs_only_where_declared,
    negotiates_a_handshake_revision,
    no_cancellation,
    no_progress,
    no_request,
    not_error,
    not_served,
    notifies_of_declared_changes,
    object_result,
    object_schema,
    one_of_result_and_error,
    result_type,
    revision_members,
    same_items,
    server_info,
    session_id_is_visible,
    silent,
    tool_name,
    unique,
    uri,
    version_two,
)
from mcpio.cli.rules.rows import CLIENT, NEXT_ID, Row, Send, Tried, get, initialize, notification, request
from mcpio.revisions import REV_2024_11_05 as A
from mcpio.revisions import REV_2025_03_26 as B
from mcpio.revisions import REV_2025_06_18 as C
from mcpio.revisions import REV_2025_11_25 as D
from mcpio.revisions import REV_2026_07_28 as E

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022

NO_TOOL = "mcpio-check-no-such-tool"
NO_PROMPT = "mcpio-check-no-such-prompt"
NO_RESOURCE = "mcpio-check://no/such/resource"
NO_TASK = "mcpio-check-no-such-task"
NO_CURSOR = "mcpio-check: no such cursor"
NO_METHOD = "mcpio-check/no-such-method"

_BASIC = "basic"
_LIFECYCLE = "basic/lifecycle"
_TRANSPORTS = "basic/transports"
_VERSIONING = "basic/versioning"
_HTTP = "basic/transports/streamable-http"
_PAGING = "server/utilities/pagination"


# fmt: off

# ------------------------------------------------------------------------------------------------------- every message

EVERY_MESSAGE: Final = (
    Row("every message is JSON", "STDIO-04 STDIO-02", "Write nothing but messages, one on a line.", is_message,
        watches=True, carrier="stream", page=_TRANSPORTS),
    Row('every message has "jsonrpc": "2.0"', "RPC-01", 'Put "jsonrpc": "2.0" into every message.', version_two,
        watches=True, page=_BASIC),
    Row("every response has one outcome", "RPC-09 RPC-10", "Answer with a result that is an object, or with an error.",
        one_of_result_and_error, watches=True, page=_BASIC),
    Row("every error has a code and a message", "RPC-11", "Give errors an integer code and a string message.",
        error_has_code_and_message, watches=True, page=_BASIC),
    Row("every response has the id of its request", "RPC-08", "Answer with the id of the request, of the same type.",
        answered_as_sent, watches=True, page=_BASIC),
    Row("requests to the client", "CAP-04 LIFE-14", "Ask the client for nothing that it did not declare.",
        asks_only_what_was_declared, watches=True, since=C, until=D, page=_LIFECYCLE),
    Row("requests to the client", "PAT-01 SSTD-01", "Send no requests.", no_request, watches=True, since=E,
        page=_BASIC),
    Row("log messages", "LOG-01 GONE-04", "Declare logging to send log messages; from 2026-07-28, send them only to "
        "requests that have a logLevel.", logs_only_where_declared, watches=True, page="server/utilities/logging"),
    Row("progress", "PROG-03", "Report progress only to requests that have a progressToken.", no_progress,
        watches=True, page="basic/utilities/progress"),
    Row("notifications of changes", "CAP-07 SUB-03", "Declare listChanged to notify of changes.",
        notifies_of_declared_changes, watches=True, until=D, level="should", page=_LIFECYCLE),
    Row("notifications of changes", "SUB-03", "Notify of changes only those who subscribed.",
        notifies_of_declared_changes, watches=True, since=E, page="basic/utilities/subscriptions"),
    Row("cancellations", "PAT-05", "Cancel nothing but subscriptions.", no_cancellation, watches=True, since=E,
        page="basic/utilities/cancellation"),
    Row("every result has a resultType", "ENV-10", "Put resultType into every result.", result_type, watches=True,
        since=E, page=_BASIC),
    Row("every result has the server's info", "ENV-06", "Put serverInfo into the _meta of every result.", server_info,
        watches=True, since=E, level="should", page=_BASIC),
    Row("codes of errors", "XERR-02 XERR-03", "Use no reserved code that the specification does not define, nor "
        "-32002 and -32042.", codes_of_the_protocol, watches=True, since=E, page=_BASIC),
    Row("content types", "HTTP-11", "Answer requests with JSON or with an event stream.", is_json_or_events,
        watches=True, carrier="http", since=B, until=D, page=_TRANSPORTS),
    Row("content types", "SHTTP-05", "Answer requests with JSON or with an event stream.", is_json_or_events,
        watches=True, carrier="http", since=E, page=_HTTP),
)


# ---------------------------------------------------------------------------------------------------------- the opening


def _without(name: str) -> Row:
    return Row(f"initialize without {name}", "LIFE-02", f"Refuse initialize without {name}, with -32602.",
               error(INVALID_PARAMS), (initialize("2025-11-25", **{name: None}),), place="first", until=D,
               level="should", page=_LIFECYCLE)


OPENING: Final = (
    Row("the result of initialize", "LIFE-07 CAP-01", "Answer with protocolVersion, capabilities and serverInfo.",
        decoded("initialize"), until=D, page=_LIFECYCLE),
    Row("the session id", "SESS-02", "Make session ids of visible ASCII characters.", session_id_is_visible, until=D,
        since=B, carrier="http", page=_TRANSPORTS),
    Row("the result of server/discover", "VER-03 VER-05", "Answer server/discover with supportedVersions and "
        "capabilities.", decoded("server/discover"), since=E, page="server/discover"),
    Row("caching of server/discover", "CACHE-01", "Give ttlMs and cacheScope with the result of server/discover.",
        cacheable, since=E, page="server/utilities/caching"),
    Row("an unknown version", "LIFE-05", "Answer initialize for an unknown version with a version that the server "
        "supports, not with an error.", negotiates_a_handshake_revision, (initialize("1999-01-01"),), place="first",
        until=D, page=_LIFECYCLE),
    Row("initialize for 2026-07-28", "ERA-11 LIFE-05", "Answer initialize for a revision without a handshake with one "
        "that has it.", negotiates_a_handshake_revision, (initialize("2026-07-28"),), place="first", until=D,
        level="should", page=_LIFECYCLE),
    Row("ping before initialize", "PING-01", "Answer ping at any time.", object_result, (request("ping"),),
        place="first", until=D, carrier="stream", page="basic/utilities/ping"),
    _without("protocolVersion"),
    _without("capabilities"),
    _without("clientInfo"),
)


# ------------------------------------------------------------------------------------ requests, ids, notifications


def _identified(id: Any, named: str) -> tuple[Row, ...]:
    """Return the rows for a request whose id is legal."""
    demand = "Answer a request whatever string or integer its id is, with that id."
    return (
        Row(f"an id that is {named}", "RPC-03 RPC-08", demand, object_result, (request("ping", id=id),), until=D,
            page=_BASIC),
        Row(f"an id that is {named}", "RPC-03 RPC-08 ENV-12", demand, object_result,
            (request("server/discover", id=id),), since=E, page=_BASIC),
    )


def _malformed(named: str, rules: str, code: int, body: Any) -> Row:
    """Return the row for a malformed message."""
    return Row(named, rules, f"Answer with the error {code}, and go on.", error_of_malformed(code), (Send(body),),
               level="should", page=_BASIC)


def _unanswered(named: str, rules: str, method: str, params: Any = None, **more: Any) -> Row:
    return Row(f"a notification: {named}", rules, "Do not answer notifications.", silent,
               (notification(method, params),), page=_BASIC, **more)


MESSAGES: Final = (
    Row("ping", "PING-01", "Answer ping with a result.", object_result, (request("ping"),), until=D,
        page="basic/utilities/ping"),
    Row("the result of ping", "PING-01", "Answer ping with an empty result.", empty_result, (request("ping"),),
        until=D, level="should", page="basic/utilities/ping"),
    *_identified("mcpio-check", "a string"),
    *_identified("17", "a string of digits"),
    *_identified("", "an empty string"),
    *_identified(0, "0"),
    *_identified(-5, "negative"),
    *_identified(2**53 - 1, "large"),
    _unanswered("unknown", "RPC-13", "notifications/mcpio-check"),
    _unanswered("params that are an array", "RPC-13 RPC-14", "notifications/mcpio-check", []),
    _unanswered("cancelled for an unknown request", "RPC-13 CANC-06 CANC-09", "notifications/cancelled",
                {"requestId": "mcpio-check-none"}),
    _unanswered("cancelled without requestId", "RPC-13 CANC-09", "notifications/cancelled", {}),
    _unanswered("progress for an unknown token", "RPC-13", "notifications/progress",
                {"progressToken": "mcpio-check-none", "progress": 1}),
    _unanswered("roots/list_changed", "RPC-13", "notifications/roots/list_changed", until=D),
    _unanswered("roots/list_changed, which was removed", "RPC-13 GONE-01", "notifications/roots/list_changed", since=E),
    _unanswered("initialized, which was removed", "RPC-13 GONE-01", "notifications/initialized", since=E),
    Row("a response that nobody waits for", "RPC-18", "Do not answer responses.", silent,
        (Send({"id": "mcpio-check-none", "result": {}}),), until=D, page=_BASIC),
    Row("a response", "PAT-01 RPC-18", "Do not answer responses.", silent,
        (Send({"id": "mcpio-check-none", "result": {}}),), since=E, page=_BASIC),
    _malformed("what is not JSON", "RPC-15 STDIO-12", PARSE_ERROR, b"this is not JSON"),
    _malformed("half an object", "RPC-15", PARSE_ERROR, b'{"jsonrpc":"2.0","id":1,"method":"pi'),
    Row("what is not UTF-8", "RPC-02", "Answer with an error, and go on.", error_of_malformed(),
        (Send(b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}'),), level="should", page=_BASIC),
    _malformed("a string", "RPC-01 RPC-15", INVALID_REQUEST, b'"ping"'),
    _malformed("an object without a method", "RPC-01 RPC-15", INVALID_REQUEST, {"id": NEXT_ID}),
    _malformed("no jsonrpc", "RPC-01", INVALID_REQUEST, {"jsonrpc": None, "id": NEXT_ID, "method": "ping"}),
    _malformed('"jsonrpc": "1.0"', "RPC-01", INVALID_REQUEST, {"jsonrpc": "1.0", "id": NEXT_ID, "method": "ping"}),
    _malformed("a method that is a number", "RPC-15", INVALID_REQUEST, {"id": NEXT_ID, "method": 7}),
    _malformed("an id that is null", "RPC-04", INVALID_REQUEST, {"id": None, "method": "ping"}),
    _malformed("an id that is true", "RPC-03", INVALID_REQUEST, {"id": True, "method": "ping"}),
    _malformed("an id that is 1.5", "RPC-03", INVALID_REQUEST, {"id": 1.5, "method": "ping"}),
    _malformed("an id that is an array", "RPC-03", INVALID_REQUEST, {"id": [1], "method": "ping"}),
)


BATCHES: Final = (
    Row("a batch of two requests", "BATCH-01 BATCH-05", "Answer every request of a batch.", all_answered,
        (Send([{"id": NEXT_ID, "method": "ping"}, {"id": NEXT_ID, "method": "ping"}]),), since=B, until=B,
        page=_BASIC),
    Row("a batch of notifications", "BATCH-05 BATCH-06 RPC-13", "Do not answer a batch of notifications.", silent,
        (Send([{"method": "notifications/mcpio-check"}, {"method": "notifications/mcpio-check"}]),), since=B, until=B,
        page=_BASIC),
    Row("an empty batch", "BATCH-05", "Answer an empty batch with the error -32600.",
        error_of_malformed(INVALID_REQUEST), (Send([]),), since=B, until=B, level="should", page=_BASIC),
    Row("a batch, which has no place here", "BATCH-02", "Do not serve batches.", not_served,
        (Send([{"id": NEXT_ID, "method": "ping"}]),), since=C, level="should", page=_BASIC),
)


# -------------------------------------------------------------------------------------------------------------- methods


def _unknown(method: str, named: str, *, rules: str = "RPC-16 RPC-15", params: Any = None, **more: Any) -> Row:
    return Row(named, rules, "Answer a method that the server does not have with -32601.", error(METHOD_NOT_FOUND),
               (request(method, params),), page=_BASIC, **more)


def _removed(method: str, params: Any = None) -> tuple[Row, ...]:
    """Return the rows for a method that 2026-07-28 has no more."""
    return (
        _unknown(method, f"{method}, which was removed", rules="GONE-01", params=params, since=E),
        Row(f"the status of {method}, which was removed", "GONE-01 SHTTP-08", "Answer with status 404.",
            has_status(404), (request(method, params),), since=E, carrier="http", page=_HTTP),
    )


def _undeclared(method: str, capability: str, params: Any = None, *, since: Any = A, until: Any = E) -> tuple[Row, ...]:
    """Return the rows for a method whose capability the server does not declare."""
    demand = f"Answer {method} with -32601 without the capability {capability}."
    send = (request(method, params),)
    named = f"{method} without the capability {capability}"
    return (
        Row(named, "RPC-16 CAP-05", demand, error(METHOD_NOT_FOUND), send, since=since, until=min(until, D),
            lacks=capability, level="should", page=_BASIC),
        *(() if until < E else (
            Row(named, "RPC-16 SHTTP-09", demand, error(METHOD_NOT_FOUND), send, since=E, lacks=capability,
                page=_BASIC),
            Row(f"the status of {named}", "SHTTP-09", "Answer with status 404.", has_status(404), send, since=E,
                lacks=capability, carrier="http", page=_HTTP),
        )),
    )


UNKNOWN: Final = (
    _unknown(NO_METHOD, "an unknown method"),
    _unknown("", "an empty method"),
    _unknown("tools", "half a method"),
    _unknown("notifications/cancelled", "a notification with an id", level="should"),
    _unknown("sampling/createMessage", "a request that only clients serve",
             params={"messages": [], "maxTokens": 1}),
    _unknown("elicitation/create", "another request that only clients serve", params={"message": "?"}),
    Row("the status of an unknown method", "SHTTP-08", "Answer an unknown method with status 404.", has_status(404),
        (request(NO_METHOD),), since=E, carrier="http", page=_HTTP),
    *_removed("ping"),
    *_removed("logging/setLevel", {"level": "info"}),
    *_removed("resources/subscribe", {"uri": NO_RESOURCE}),
    *_removed("resources/unsubscribe", {"uri": NO_RESOURCE}),
    *_removed("tasks/result", {"taskId": NO_TASK}),
    *_removed("tasks/list"),
    Row("initialize, which was removed", "VER-07", "Answer initialize with the _meta of 2026-07-28 as an unknown "
        "method, or name the versions.", error(METHOD_NOT_FOUND, UNSUPPORTED_VERSION),
        (request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}),),
        since=E, level="should", page=_VERSIONING),
    *_undeclared("tools/list", "tools"),
    *_undeclared("tools/call", "tools", {"name": NO_TOOL}),
    *_undeclared("resources/list", "resources"),
    *_undeclared("resources/templates/list", "resources"),
    *_undeclared("resources/read", "resources", {"uri": NO_RESOURCE}),
    *_undeclared("prompts/list", "prompts"),
    *_undeclared("prompts/get", "prompts", {"name": NO_PROMPT}),
    *_undeclared("completion/complete", "completions", since=B, params={
        "ref": {"type": "ref/prompt", "name": NO_PROMPT}, "argument": {"name": "a", "value": ""}}),
    *_undeclared("logging/setLevel", "logging", {"level": "info"}, until=D),
    *_undeclared("resources/subscribe", "resources.subscribe", {"uri": NO_RESOURCE}, until=D),
    *_undeclared("tasks/list", "tasks.list", since=D, until=D),
    *_undeclared("tasks/get", "tasks", {"taskId": NO_TASK}, since=D, until=D),
)


# ---------------------------------------------------------------------------------------------------------------- lists


def _next_page(method: str) -> Any:
    """Return the step that asks for the second page, if there is one."""

    def step(tried: Tried) -> Send | None:
        answer = tried.reply.answer(tried.sent[-1].ids[0]) or {}
        result = answer.get("result")
        cursor = result.get("nextCursor") if isinstance(result, dict) else None
        return request(method, {"cursor": cursor}) if isinstance(cursor, str) else None

    return step


def _list(method: str, capability: str, rules: str, page: str) -> tuple[Row, ...]:
    """Return the rows for a method that lists."""
    return (
        Row(method, rules, f"Answer {method} with the members and types of its result.", decoded(method),
            (request(method),), needs=capability, page=page),
        Row(f"the second page of {method}", f"{rules} PAGE-01", "Answer a cursor that the server gave with the next "
            "page.", decoded(method), (request(method), _next_page(method)), needs=capability, page=_PAGING),
        Row(f"{method} with an unknown cursor", "PAGE-04", "Refuse an unknown cursor with -32602.",
            error(INVALID_PARAMS), (request(method, {"cursor": NO_CURSOR}),), needs=capability, level="should",
            page=_PAGING),
        Row(f"{method} with a cursor that is a number", "PAGE-01 RPC-15", "Refuse a cursor that is no string with "
            "-32602.", error(INVALID_PARAMS), (request(method, {"cursor": 5}),), needs=capability, level="should",
            page=_PAGING),
        Row(f"caching of {method}", "CACHE-01", f"Give ttlMs and cacheScope with the result of {method}.", cacheable,
            (request(method),), since=E, needs=capability, page="server/utilities/caching"),
    )


LISTS: Final = (
    *_list("tools/list", "tools", "TOOL-02 TOOL-03", "server/tools"),
    *_list("resources/list", "resources", "RES-02", "server/resources"),
    *_list("resources/templates/list", "resources", "RES-04", "server/resources"),
    *_list("prompts/list", "prompts", "PROM-02", "server/prompts"),
    Row("tasks/list", "TASK-24 TASK-12", "Answer tasks/list with the members and types of its result.",
        decoded("tasks/list"), (request("tasks/list"),), since=D, until=D, needs="tasks.list",
        page="basic/utilities/tasks"),
    Row("the root of input schemas", "TOOL-05", "Give inputSchema the root type object.",
        each_item("tools", object_schema("inputSchema")), (request("tools/list"),), needs="tools",
        page="server/tools"),
    Row("the root of output schemas", "TOOL-06", "Give outputSchema the root type object.",
        each_item("tools", object_schema("outputSchema")), (request("tools/list"),), needs="tools", since=C, until=D,
        page="server/tools"),
    Row("members of tools that were removed", "GONE-02", "Give tools no execution.",
        each_item("tools", revision_members), (request("tools/list"),), needs="tools", since=E, level="should",
        page="server/tools"),
    Row("names of tools", "TOOL-04", "Name tools with 1 to 128 of the characters A-Z, a-z, 0-9, _, - and .",
        each_item("tools", tool_name), (request("tools/list"),), needs="tools", since=D, level="should",
        page="server/tools"),
    Row("tools of one name", "TOOL-04", "Give each tool a name of its own.", unique("tools", "name"),
        (request("tools/list"),), needs="tools", level="should", page="server/tools"),
    Row("the order of tools", "ENV-15", "List tools in the same order each time.", same_items("tools", "name"),
        (request("tools/list"), request("tools/list")), needs="tools", since=E, level="should", page="server/tools"),
    Row("URIs of resources", "RES-11", "Give resources absolute URIs.", each_item("resources", uri),
        (request("resources/list"),), needs="resources", page="server/resources"),
    Row("resources of one URI", "RES-02", "Give each resource a URI of its own.", unique("resources", "uri"),
        (request("resources/list"),), needs="resources", level="should", page="server/resources"),
    Row("prompts of one name", "PROM-02", "Give each prompt a name of its own.", unique("prompts", "name"),
        (request("prompts/list"),), needs="prompts", level="should", page="server/prompts"),
)


# ------------------------------------------------------------------------------------------------------- wrong requests


def _refused(named: str, rules: str, method: str, params: Any, *, needs: str, page: str, **more: Any) -> Row:
    return Row(named, rules, "Refuse it with -32602.", error(INVALID_PARAMS), (request(method, params),), needs=needs,
               page=page, **more)


def _required(method: str, params: Any, named: str, needs: str, page: str, **more: Any) -> tuple[Row, ...]:
    """Return the rows for a request that lacks a required parameter, or has one of the wrong type."""
    return (
        Row(named, "RPC-15", "Answer a request that lacks a required parameter with an error.", error(),
            (request(method, params),), needs=needs, page=page, **more),
        Row(f"the code for {named}", "RPC-15", "Refuse it with -32602.",
            error(INVALID_PARAMS, by_headers=(HEADER_MISMATCH,)), (request(method, params),), needs=needs, page=page,
            level="should", **more),
    )


WRONG: Final = (
    _refused("an unknown tool", "TOOL-09", "tools/call", {"name": NO_TOOL, "arguments": {}}, needs="tools",
             page="server/tools", level="should"),
    *_required("tools/call", {"arguments": {}}, "tools/call without a name", "tools", "server/tools"),
    *_required("tools/call", {"name": 5}, "tools/call with a number for a name", "tools", "server/tools"),
    *_required("tools/call", {"name": NO_TOOL, "arguments": []}, "tools/call with an array of arguments", "tools",
               "server/tools"),
    Row("an unknown resource", "RES-05", "Refuse it with -32002.", error(-32002),
        (request("resources/read", {"uri": NO_RESOURCE}),), until=D, needs="resources", level="should",
        page="server/resources"),
    _refused("an unknown resource", "XERR-04", "resources/read", {"uri": NO_RESOURCE}, since=E, needs="resources",
             page="server/resources"),
    *_required("resources/read", {}, "resources/read without a URI", "resources", "server/resources"),
    *_required("resources/read", {"uri": 5}, "resources/read with a number for a URI", "resources",
               "server/resources"),
    _refused("an unknown prompt", "PROM-05", "prompts/get", {"name": NO_PROMPT}, needs="prompts",
             page="server/prompts", level="should"),
    *_required("prompts/get", {}, "prompts/get without a name", "prompts", "server/prompts"),
    *_required("prompts/get", {"name": NO_PROMPT, "arguments": []}, "prompts/get with an array of arguments",
               "prompts", "server/prompts"),
    _refused("completion for an unknown prompt", "COMP-05", "completion/complete",
             {"ref": {"type": "ref/prompt", "name": NO_PROMPT}, "argument": {"name": "a", "value": ""}},
             needs="completions", page="server/utilities/completion", level="should"),
    _refused("completion for a tool", "COMP-02 COMP-05", "completion/complete",
             {"ref": {"type": "ref/tool", "name": NO_TOOL}, "argument": {"name": "a", "value": ""}},
             needs="completions", page="server/utilities/completion", level="should"),
    *_required("completion/complete", {"ref": {"type": "ref/prompt", "name": NO_PROMPT}},
               "completion/complete without an argument", "completions", "server/utilities/completion"),
    Row("logging/setLevel", "LOG-03", "Answer logging/setLevel with a result.", object_result,
        (request("logging/setLevel", {"level": "info"}),), until=D, needs="logging",
        page="server/utilities/logging"),
    _refused("an unknown log level", "LOG-06", "logging/setLevel", {"level": "mcpio-check"}, until=D,
             needs="logging", page="server/utilities/logging", level="should"),
    *_required("resources/subscribe", {}, "resources/subscribe without a URI", "resources.subscribe",
               "server/resources", until=D),
    *(_refused(f"{method} of an unknown task", "TASK-33", method, {"taskId": NO_TASK}, since=D, until=D, needs=needs,
               page="basic/utilities/tasks")
      for method, needs in (("tasks/get", "tasks"), ("tasks/result", "tasks"), ("tasks/cancel", "tasks.cancel"))),
)


# ----------------------------------------------------------------------------------------------------------- 2026-07-28

_TASKS = "extensions.io.modelcontextprotocol/tasks"

STATELESS: Final = (
    Row("no clientCapabilities", "ENV-03", "Refuse a request without clientCapabilities, with -32602.",
        error(INVALID_PARAMS), (request("server/discover", meta={"clientCapabilities": None}),), since=E,
        page=_VERSIONING),
    Row("clientCapabilities that are an array", "ENV-03", "Refuse it with -32602.", error(INVALID_PARAMS),
        (request("server/discover", meta={"clientCapabilities": []}),), since=E, page=_VERSIONING),
    Row("no clientInfo", "ENV-03 ENV-02", "Serve requests without clientInfo.", object_result,
        (request("server/discover", meta={"clientInfo": None}),), since=E, page=_VERSIONING),
    Row("an unknown key of _meta", "RPC-17", "Serve requests with unknown keys in _meta.", object_result,
        (request("server/discover", {"_meta": {"com.example/mcpio-check": 1}}),), since=E, page=_BASIC),
    Row("an unknown version", "VER-01 VER-06", "Refuse an unknown version with -32022, and say which are supported.",
        both(error(UNSUPPORTED_VERSION), error_data("supported", "requested")),
        (request("server/discover", meta={"protocolVersion": "2999-01-01"},
                 headers={"mcp-protocol-version": "2999-01-01"}),), since=E, page=_VERSIONING),
    Row("an unknown version of another method", "VER-01", "Refuse an unknown version with -32022.",
        error(UNSUPPORTED_VERSION), (request(NO_METHOD, meta={"protocolVersion": "2999-01-01"},
                                             headers={"mcp-protocol-version": "2999-01-01"}),), since=E,
        page=_VERSIONING),
    Row("capabilities of an earlier request", "ENV-04 ENV-13", "Take capabilities from the request alone.",
        error(INVALID_PARAMS), (request("server/discover"),
                                request("server/discover", meta={"clientCapabilities": None})), since=E,
        page=_BASIC),
    Row("an invalid log level", "XERR-06", "Refuse an invalid logLevel with -32602.", error(INVALID_PARAMS),
        (request("server/discover", meta={"logLevel": "mcpio-check"}),), since=E, level="should",
        page="server/utilities/logging"),
    Row("subscriptions/listen", "SUB-02 ENV-09", "Begin a subscription with its acknowledgement, which has its id.",
        is_acknowledged, (request("subscriptions/listen", {"notifications": {"toolsListChanged": True}},
                                  until="message"),), since=E, page="basic/utilities/subscriptions"),
    Row("subscriptions/listen to declared changes", "SUB-13 SUB-01", "Serve subscriptions to the changes that the "
        "server declares.", is_listening, (request("subscriptions/listen", {"notifications": {"toolsListChanged":
        True}}, until="message"),), since=E, needs="tools.listChanged", level="should",
        page="basic/utilities/subscriptions"),
    Row("subscriptions/listen without a filter", "SUB-12", "Refuse it with -32602.", error(INVALID_PARAMS),
        (request("subscriptions/listen"),), since=E, level="should", page="basic/utilities/subscriptions"),
    Row("tasks/get without the extension", "XTASK-12", "Refuse it with -32021.", error(MISSING_CAPABILITY),
        (request("tasks/get", {"taskId": NO_TASK}),), since=E, needs=_TASKS, page=_BASIC),
    Row("tasks/get of an unknown task", "XTASK-12", "Refuse it with -32602.", error(INVALID_PARAMS),
        (request("tasks/get", {"taskId": NO_TASK},
                 meta={"clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}),), since=E,
        needs=_TASKS, page=_BASIC),
)


# ----------------------------------------------------------------------------------------------------------------- HTTP


def _after_the_end(tried: Tried) -> Send | None:
    """Return a request in a session that was deleted, if the server has sessions and deletes them."""
    status = tried.reply.status
    return request("ping") if tried.conversation.session and status is not None and 200 <= status < 300 else None


def _in_a_session(tried: Tried) -> Send | None:
    """Return a request without a session id, if the server gave one."""
    return request("ping", headers={"mcp-session-id": None}) if tried.conversation.session else None


HTTP: Final = (
    Row("the status of a notification", "HTTP-09", "Answer a notification with status 202.", has_status(202),
        (notification("notifications/cancelled", {"requestId": "mcpio-check-none"}),), since=B, until=D,
        carrier="http", page=_TRANSPORTS),
    Row("the status of a notification", "SHTTP-04", "Answer a notification with status 202.", has_status(202),
        (notification("notifications/cancelled", {"requestId": "mcpio-check-none"}),), since=E, carrier="http",
        page=_HTTP),
    Row("GET", "HTTP-27 HTTP-01", "Answer GET with an event stream, or with status 405.",
        has_status(405, kinds=("text/event-stream",)), (get(),), since=B, until=D, carrier="http", page=_TRANSPORTS),
    Row("an origin that is not allowed", "HTTP-02", "Refuse requests of a foreign Origin.",
        has_status(*range(400, 500)), (request("ping", headers={"origin": "http://mcpio-check.invalid"}),), since=B,
        until=C, carrier="http", page=_TRANSPORTS),
    Row("an origin that is not allowed", "HTTP-02 HTTP-03", "Refuse requests of a foreign Origin with status 403.",
        has_status(403), (request("ping", headers={"origin": "http://mcpio-check.invalid"}),), since=D, until=D,
        carrier="http", page=_TRANSPORTS),
    Row("an origin that is not allowed", "SHTTP-02 HTTP-03", "Refuse requests of a foreign Origin with status 403.",
        has_status(403), (request("server/discover", headers={"origin": "http://mcpio-check.invalid"}),), since=E,
        carrier="http", page=_HTTP),
    Row("an unknown version in the header", "HTTP-31", "Refuse an unknown MCP-Protocol-Version with status 400.",
        has_status(400), (request("ping", headers={"mcp-protocol-version": "1999-01-01"}),), since=C, until=D,
        carrier="http", page=_TRANSPORTS),
    Row("names of header fields in capitals", "HTTP-35", "Read the names of header fields in any case.",
        object_result, (request("ping", headers={"content-type": None, "CONTENT-TYPE": "application/json"}),),
        since=B, until=D, carrier="http", page=_TRANSPORTS),
    Row("a session that was deleted", "SESS-05", "Answer a session that was deleted with status 404.",
        has_status(404), (Send(None, verb="DELETE", headers={"content-type": None}), _after_the_end), since=B,
        until=D, carrier="http", place="own", page=_TRANSPORTS),
    Row("DELETE", "SESS-08", "Answer DELETE with success, or with status 405.", has_status(405, *range(200, 300)),
        (Send(None, verb="DELETE", headers={"content-type": None}),), since=B, until=D, carrier="http", place="own",
        level="should", page=_TRANSPORTS),
    Row("no session id", "SESS-04", "Refuse requests without the session id with status 400.", has_status(400),
        (request("ping"), _in_a_session), since=B, until=D, carrier="http", level="should", page=_TRANSPORTS),
    *(Row(f"the status of {named}", "SHTTP-08 ENV-03 VER-01", "Answer with status 400.", has_status(400), (send,),
          since=E, carrier="http", page=_HTTP)
      for named, send in (
          ("a request without clientCapabilities", request("server/discover", meta={"clientCapabilities": None})),
          ("an unknown version", request("server/discover", meta={"protocolVersion": "2999-01-01"},
                                         headers={"mcp-protocol-version": "2999-01-01"})),
      )),
    Row("a version that differs in header and body", "HDR-01 HDR-03", "Refuse it with status 400 and -32020.",
        both(error(HEADER_MISMATCH), has_status(400)),
        (request("server/discover", headers={"mcp-protocol-version": "2999-01-01"}),), since=E, carrier="http",
        page=_HTTP),
    Row("no MCP-Protocol-Version", "HDR-03 HDR-04", "Do not serve a request of 2026-07-28 without the header.",
        not_served, (request("server/discover", headers={"mcp-protocol-version": None}),), since=E, carrier="http",
        page=_HTTP),
    Row("no _meta under the header of 2026-07-28", "ENV-03", "Refuse it with status 400 and -32602.",
        both(error(INVALID_PARAMS), has_status(400)),
        (request("server/discover", meta=None, headers={"mcp-protocol-version": "2026-07-28",
                                                        "mcp-method": "server/discover"}),), since=E, carrier="http",
        page=_HTTP),
    Row("no Mcp-Method", "HDR-03", "Refuse it with status 400 and -32020.",
        both(error(HEADER_MISMATCH), has_status(400)), (request("server/discover", headers={"mcp-method": None}),),
        since=E, carrier="http", page=_HTTP),
    Row("an Mcp-Method that differs", "HDR-03", "Refuse it with status 400 and -32020.",
        both(error(HEADER_MISMATCH), has_status(400)),
        (request("server/discover", headers={"mcp-method": "tools/list"}),), since=E, carrier="http", page=_HTTP),
    Row("an Mcp-Method in another case", "HDR-03", "Refuse it with status 400 and -32020.",
        both(error(HEADER_MISMATCH), has_status(400)),
        (request("server/discover", headers={"mcp-method": "Server/Discover"}),), since=E, carrier="http",
        page=_HTTP),
    *(Row(f"{named} for {method}", "HDR-02 HDR-03", "Refuse it with status 400 and -32020.",
          both(error(HEADER_MISMATCH), has_status(400)), (request(method, params, headers={"mcp-name": value}),),
          since=E, carrier="http", needs=needs, page=_HTTP)
      for method, params, needs in (
          ("tools/call", {"name": NO_TOOL}, "tools"),
          ("prompts/get", {"name": NO_PROMPT}, "prompts"),
          ("resources/read", {"uri": NO_RESOURCE}, "resources"),
      )
      for named, value in (("no Mcp-Name", None), ("an Mcp-Name that differs", "mcpio-check-another"))),
    Row("an encoded Mcp-Name", "HDR-08 HDR-09", "Decode Mcp-Name before it is compared.",
        not_error(HEADER_MISMATCH), (request("prompts/get", {"name": f"{NO_PROMPT} \u00fc"}),), since=E,
        carrier="http", needs="prompts", page=_HTTP),
    Row("names of header fields in capitals", "HTTP-35 HDR-03", "Read the names of header fields in any case.",
        object_result, (request("server/discover", headers={"mcp-method": None, "MCP-METHOD": "server/discover"}),),
        since=E, carrier="http", page=_HTTP),
    Row("a session id", "SHTTP-01", "Ignore Mcp-Session-Id.", object_result,
        (request("server/discover", headers={"mcp-session-id": "mcpio-check-none"}),), since=E, carrier="http",
        level="should", page=_HTTP),
)

# fmt: on

TABLE: Final = (*EVERY_MESSAGE, *OPENING, *MESSAGES, *BATCHES, *UNKNOWN, *LISTS, *WRONG, *STATELESS, *HTTP)
"""All rows."""
