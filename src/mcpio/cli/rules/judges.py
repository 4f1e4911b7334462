"""Judges: what can be demanded of the answers to raw messages. Each raises Violated with the actual answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from mcpio.cli.rules.rows import META, Judge, Tried, Violated, has_capability, same_id
from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.methods import METHODS
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_06_18, REV_2025_11_25, Era, Revision

# ---------------------------------------------------------------------------------------------------------- one answer


def _answer(tried: Tried) -> dict[str, Any]:
    """Return the response to the last message."""
    reply = tried.reply
    for id in tried.sent[-1].ids:
        if (answer := reply.answer(id)) is not None:
            return dict(answer)
    if reply.ended:
        raise Violated(f"no response came: {reply.ended}")
    responses = [each for each in reply.messages if isinstance(each, dict) and ("result" in each or "error" in each)]
    if responses:
        raise Violated(f"the response has the id {_json(responses[0].get('id'))}")
    raise Violated("no response came")


def _result(tried: Tried) -> dict[str, Any]:
    answer = _answer(tried)
    if "error" in answer:
        code = answer["error"].get("code") if isinstance(answer["error"], dict) else answer["error"]
        raise Violated(f"the response is the error {_json(code)}")
    result = answer.get("result")
    if not isinstance(result, dict):
        raise Violated("the result is not an object")
    return result


def error(*codes: int, by_headers: tuple[int, ...] = ()) -> Judge:
    """Demand an error response, with one of the codes if any are given.

    ``by_headers`` are further codes where header fields repeat the parameters, and may be judged first.
    """

    def judge(tried: Tried) -> None:
        answer = _answer(tried)
        if "error" not in answer:
            result = answer.get("result")
            is_failed = isinstance(result, dict) and result.get("isError")
            raise Violated("the response is a result" + (" with isError" if is_failed else ""))
        talk = tried.conversation
        _check_code(answer["error"], (*codes, *by_headers) if talk.is_stateless and talk.carrier == "http" else codes)

    return judge


def error_of_malformed(*codes: int) -> Judge:
    """Demand that an answer to a message without a readable id is an error with one of the codes."""

    def judge(tried: Tried) -> None:
        responses = [each for each in tried.reply.messages if isinstance(each, dict) and "method" not in each]
        if not responses:
            status = tried.reply.status
            if status is not None and status >= 400:
                return
            raise Violated(f"no error came{f': {tried.reply.ended}' if tried.reply.ended else ''}")
        for each in responses:
            if "error" not in each:
                raise Violated("the response is a result")
            _check_code(each["error"], codes)

    return judge


def not_served(tried: Tried) -> None:
    """Demand that nothing is answered with a result."""
    if any(isinstance(each, dict) and "result" in each for each in tried.reply.messages):
        raise Violated("the response is a result")


def _check_code(value: Any, codes: Collection[int]) -> None:
    code = value.get("code") if isinstance(value, dict) else None
    if codes and code not in codes:
        raise Violated(f"the code is {_json(code)}, not {' or '.join(map(str, codes))}")


def not_error(code: int) -> Judge:
    """Demand an answer that is not the error of a code."""

    def judge(tried: Tried) -> None:
        value = _answer(tried).get("error")
        if isinstance(value, dict) and value.get("code") == code:
            raise Violated(f"the response is the error {code}")

    return judge


def error_data(*names: str) -> Judge:
    """Demand that the error's ``data`` has members."""

    def judge(tried: Tried) -> None:
        value = _answer(tried).get("error")
        data = value.get("data") if isinstance(value, dict) else None
        missing = [name for name in names if not isinstance(data, dict) or name not in data]
        if missing:
            raise Violated(f"data has no {' and no '.join(missing)}")

    return judge


def object_result(tried: Tried) -> None:
    """Demand a result."""
    _result(tried)


def all_answered(tried: Tried) -> None:
    """Demand a result for each request of a batch."""
    for id in tried.sent[-1].ids:
        answer = tried.reply.answer(id)
        if answer is None or "result" not in answer:
            raise Violated(f"the request {_json(id)} has no result")


def empty_result(tried: Tried) -> None:
    """Demand a result without members but ``_meta`` and, in 2026-07-28, ``resultType``."""
    more = _result(tried).keys() - {"_meta", "resultType"}
    if more:
        raise Violated(f"the result has {', '.join(sorted(more))}")


def decoded(method: str) -> Judge:
    """Demand a result of the type that the table of methods gives."""

    def judge(tried: Tried) -> None:
        revision, odd = tried.conversation.revision, list[str]()
        try:
            payload = codec(revision).decode(_result(tried), METHODS[method].result_type, odd)
        except InvalidMessage as fault:
            raise Violated(str(fault)) from None
        odd += [f"item {item.index}: {item.reason}" for item in getattr(payload, "malformed", ())]
        if odd:
            raise Violated(f"{odd[0]}{f', and {len(odd) - 1} more' if len(odd) > 1 else ''}")

    return judge


def cacheable(tried: Tried) -> None:
    """Demand ``ttlMs`` and ``cacheScope``."""
    result = _result(tried)
    if result.get("resultType") == "input_required":
        return
    ttl, scope = result.get("ttlMs"), result.get("cacheScope")
    if not isinstance(ttl, int | float) or isinstance(ttl, bool) or ttl < 0 or ttl != int(ttl):
        raise Violated("there is no ttlMs" if ttl is None else f"ttlMs is {_json(ttl)}")
    if scope not in ("public", "private"):
        raise Violated("there is no cacheScope" if scope is None else f"cacheScope is {_json(scope)}")


def negotiates_a_handshake_revision(tried: Tried) -> None:
    """Demand a result with a revision that has a handshake."""
    version = _result(tried).get("protocolVersion")
    if version not in {revision.name for revision in HANDSHAKE_REVISIONS}:
        raise Violated(f"protocolVersion is {_json(version)}")


def both(*judges: Judge) -> Judge:
    """Join judges."""

    def judge(tried: Tried) -> None:
        for each in judges:
            each(tried)

    return judge


# ------------------------------------------------------------------------------------------------------------ of lists


def each_item(name: str, check: Callable[[dict[str, Any], Revision], str | None]) -> Judge:
    """Demand something of each item of a list; ``check`` returns the fault of an item, if any."""

    def judge(tried: Tried) -> None:
        for item in _items(tried, name):
            if (fault := check(item, tried.conversation.revision)) is not None:
                raise Violated(f"{_named(item)}: {fault}")

    return judge


def unique(name: str, key: str) -> Judge:
    """Demand that no two items have the same ``key``."""

    def judge(tried: Tried) -> None:
        seen = set()
        for item in _items(tried, name):
            value = item.get(key)
            if isinstance(value, str) and value in seen:
                raise Violated(f"two have the {key} {_json(value)}")
            seen.add(value if isinstance(value, str) else None)

    return judge


def same_items(name: str, key: str) -> Judge:
    """Demand that the last two answers have the same items in the same order."""

    def judge(tried: Tried) -> None:
        results = [
            (reply.answer(sent.ids[0]) or {}).get("result")
            for sent, reply in zip(tried.sent, tried.replies, strict=True)
        ]
        first, second = ([item.get(key) for item in _list_in(result, name)] for result in results[-2:])
        if first != second:
            raise Violated(f"first {_json(first)}, then {_json(second)}")

    return judge


def object_schema(*names: str) -> Callable[[dict[str, Any], Revision], str | None]:
    """Return a check of tools: these schemas have the root type ``object``."""

    def check(tool: dict[str, Any], _: Revision) -> str | None:
        for name in names:
            schema = tool.get(name)
            if isinstance(schema, dict) and schema.get("type") != "object":
                return f"the root of {name} has the type {_json(schema.get('type'))}"
        return None

    return check


def uri(item: dict[str, Any], _: Revision) -> str | None:
    """Check that a resource's URI has a scheme."""
    value = item.get("uri")
    return None if not isinstance(value, str) or _URI.match(value) else f"the URI {_json(value)} has no scheme"


_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]*$")


def _items(tried: Tried, name: str) -> Iterable[dict[str, Any]]:
    return _list_in(_result(tried), name)


def _list_in(result: Any, name: str) -> list[dict[str, Any]]:
    items = result.get(name) if isinstance(result, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _named(item: dict[str, Any]) -> str:
    return _json(item.get("name", item.get("uri")))


# -------------------------------------------------------------------------------------------------------- other answers


def silent(tried: Tried) -> None:
    """Demand that nothing answers; over HTTP 202 without a body, or the status of an error."""
    reply = tried.reply
    status = reply.status
    if status is not None:
        if status == 202 and any(part.strip() for part in reply.raw):
            raise Violated("the status is 202, with a body")
        if status != 202 and status < 400:
            raise Violated(f"the status is {status}, not 202")
        return
    if any(isinstance(each, dict) and "method" not in each for each in reply.messages):
        raise Violated("it is answered")
    if reply.ended:
        raise Violated(reply.ended)


def answered_as_sent(tried: Tried) -> None:
    """Demand that each response names a request by its id, or is an error without one."""
    for message in tried.messages:
        if not isinstance(message, dict) or "method" in message or not ("result" in message or "error" in message):
            continue
        id = message.get("id")
        if id is None and "error" in message:
            continue  # of a message whose id could not be read
        if not any(same_id(id, sent) for sent in tried.conversation.ids) and not _is_echo(id, tried):
            raise Violated(f"the response has the id {_json(id)}")


def _is_echo(id: Any, tried: Tried) -> bool:
    """Whether an id stands in a malformed message that was sent."""
    return any(_json(id) in str(sent) for sent in tried.sent if not sent.ids)


def has_status(*statuses: int, kinds: tuple[str, ...] = ()) -> Judge:
    """Demand a status of HTTP, or one of 200 with one of the media types."""

    def judge(tried: Tried) -> None:
        reply = tried.reply
        if reply.status is None:
            raise Violated(reply.ended or "no response came")
        if reply.status in statuses or (reply.status == 200 and _kind(tried) in kinds):
            return
        which = f" with {_kind(tried)}" if kinds and reply.status == 200 else ""
        raise Violated(f"the status is {reply.status}{which}")

    return judge


def _kind(tried: Tried) -> str:
    return tried.reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json_or_events(tried: Tried) -> None:
    """Demand that a successful response to a request is JSON or an event stream."""
    if tried.reply.status == 200 and tried.sent[-1].ids and _kind(tried) not in (_JSON, _EVENTS):
        raise Violated(f"the content type is {_kind(tried) or 'missing'}")


_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


def session_id_is_visible(tried: Tried) -> None:
    """Demand that a session id is visible ASCII."""
    id = tried.reply.headers.get("mcp-session-id")
    if id is not None and not re.fullmatch(r"[!-~]+", id):
        raise Violated(f"the session id is {id!r}")


def is_listening(tried: Tried) -> None:
    """Demand a subscription."""
    first = next(iter(tried.reply.messages), None)
    if isinstance(first, dict) and "error" in first:
        _result(tried)


def is_acknowledged(tried: Tried) -> None:
    """Demand that a subscription, if there is one, begins with its acknowledgement."""
    first = next(iter(tried.reply.messages), None)
    if not isinstance(first, dict):
        raise Violated(tried.reply.ended or "nothing came")
    if "error" in first:
        return
    if first.get("method") != "notifications/subscriptions/acknowledged":
        raise Violated(f"the first message is {_json(first.get('method', 'a response'))}")
    params = first.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    id = meta.get(f"{META}subscriptionId") if isinstance(meta, dict) else None
    if not same_id(id, tried.sent[-1].ids[0]):
        raise Violated(f"the subscriptionId is {_json(id)}, not {_json(tried.sent[-1].ids[0])}")
    if not isinstance(params, dict) or not isinstance(params.get("notifications"), dict):
        raise Violated("it does not say what is subscribed to")


# ------------------------------------------------------------------------------------------------------- every message


def is_message(tried: Tried) -> None:
    """Demand that everything on a stream is a JSON object, or in 2025-03-26 an array."""
    for reply in tried.replies:
        for raw in reply.raw if reply.status is None else ():
            try:
                value = loads(raw)
            except JsonError as fault:
                raise Violated(f"{raw[:80]!r} is not JSON: {fault}") from None
            if not isinstance(value, dict) and not (isinstance(value, list) and _has_batches(tried)):
                raise Violated(f"{raw[:80]!r} is not an object")


def _has_batches(tried: Tried) -> bool:
    return tried.conversation.revision.has_batches


def _objects(tried: Tried) -> Iterable[dict[str, Any]]:
    return (each for each in tried.messages if isinstance(each, dict))


def _responses(tried: Tried) -> Iterable[dict[str, Any]]:
    """Yield what can only be meant as a response. A body of HTTP that refuses a request may be anything."""
    return (each for each in _objects(tried) if "method" not in each and ("id" in each or "jsonrpc" in each))


def _calls(tried: Tried) -> Iterable[dict[str, Any]]:
    return (each for each in _objects(tried) if "method" in each)


def version_two(tried: Tried) -> None:
    """Demand ``"jsonrpc": "2.0"``."""
    for message in (*_responses(tried), *_calls(tried)):
        if message.get("jsonrpc") != "2.0":
            raise Violated(f"jsonrpc is {_json(message.get('jsonrpc'))}")


def one_of_result_and_error(tried: Tried) -> None:
    """Demand exactly one of ``result`` and ``error``, and a result that is an object."""
    for message in _responses(tried):
        if ("result" in message) == ("error" in message):
            raise Violated(f"a response has {'both' if 'result' in message else 'neither'}")
        if "result" in message and not isinstance(message["result"], dict):
            raise Violated(f"the result is {_json(message['result'])}")


def error_has_code_and_message(tried: Tried) -> None:
    """Demand an integer and a text in each error."""
    for message in _responses(tried):
        if "error" not in message:
            continue
        value = message["error"]
        if not isinstance(value, dict) or type(value.get("code")) is not int:
            raise Violated("an error has no integer code")
        if not isinstance(value.get("message"), str):
            raise Violated("an error has no message")


def codes_of_the_protocol(tried: Tried) -> None:
    """Demand that 2026-07-28 uses its range of codes as it says, and no code that it removed."""
    for message in _responses(tried):
        value = message.get("error")
        code = value.get("code") if isinstance(value, dict) else None
        if type(code) is int and (code in (-32002, -32042) or -32099 <= code <= -32023):
            raise Violated(f"an error has the code {code}")


def no_request(tried: Tried) -> None:
    """Demand that the server sends no request."""
    for message in _calls(tried):
        if "id" in message:
            raise Violated(f"it sent the request {_json(message['method'])}")


def asks_only_what_was_declared(tried: Tried) -> None:
    """Demand no request of the server but ``ping``: the check declares no capability."""
    for message in _calls(tried):
        if "id" in message and message["method"] != "ping":
            raise Violated(f"it sent the request {_json(message['method'])}")


def logs_only_where_declared(tried: Tried) -> None:
    """Demand no log message without the capability, nor in 2026-07-28, where no request asks for them."""
    conversation = tried.conversation
    for message in _calls(tried):
        if message["method"] != "notifications/message":
            continue
        if not has_capability(conversation.capabilities, "logging"):
            raise Violated("it sent notifications/message and does not declare logging")
        if conversation.is_stateless:
            raise Violated("it sent notifications/message, and no request has a logLevel")


def no_progress(tried: Tried) -> None:
    """Demand no progress: no request has a token."""
    if any(message["method"] == "notifications/progress" for message in _calls(tried)):
        raise Violated("it sent notifications/progress, and no request has a progressToken")


def no_cancellation(tried: Tried) -> None:
    """Demand that nothing is cancelled but subscriptions."""
    if tried.sent and tried.sent[-1].until == "message":
        return
    if any(message["method"] == "notifications/cancelled" for message in _calls(tried)):
        raise Violated("it sent notifications/cancelled")


def notifies_of_declared_changes(tried: Tried) -> None:
    """Demand ``listChanged`` of a server that sends such notifications, and in 2026-07-28 a subscription."""
    for message in _calls(tried):
        match = re.fullmatch(r"notifications/(tools|prompts|resources)/list_changed", str(message["method"]))
        if match is None:
            continue
        if not has_capability(tried.conversation.capabilities, f"{match[1]}.listChanged"):
            raise Violated(f"it sent {message['method']} and does not declare listChanged")
        if tried.conversation.revision.era is Era.STATELESS:
            raise Violated(f"it sent {message['method']}, and nothing is subscribed to")


def result_type(tried: Tried) -> None:
    """Demand ``resultType`` in each result."""
    for message in _responses(tried):
        result = message.get("result")
        if isinstance(result, dict) and not isinstance(result.get("resultType"), str):
            raise Violated("a result has no resultType")


def server_info(tried: Tried) -> None:
    """Demand ``serverInfo`` in the ``_meta`` of each result."""
    for message in _responses(tried):
        result = message.get("result")
        if not isinstance(result, dict):
            continue
        meta = result.get("_meta")
        if not isinstance(meta, dict) or not isinstance(meta.get(f"{META}serverInfo"), dict):
            raise Violated("a result has no serverInfo")


# --------------------------------------------------------------------------------------------------------- single items


def tool_name(tool: dict[str, Any], _: Revision) -> str | None:
    """Check a tool's name."""
    name = tool.get("name")
    if not isinstance(name, str) or re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name):
        return None
    return "a name has 1 to 128 of the characters A-Z, a-z, 0-9, _, - and ."


def revision_members(tool: dict[str, Any], revision: Revision) -> str | None:
    """Check that ``execution`` stands only in 2025-11-25, and schemas are those of the revision."""
    if "execution" in tool and revision > REV_2025_11_25:
        return "execution was removed"
    schema = tool.get("outputSchema")
    if REV_2025_06_18 <= revision <= REV_2025_11_25 and isinstance(schema, dict) and schema.get("type") != "object":
        return f"the root of outputSchema has the type {_json(schema.get('type'))}"
    return None


def _json(value: Any) -> str:
    text = dumps(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."
