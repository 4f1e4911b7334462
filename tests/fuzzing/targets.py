"""The targets of fuzzing: each takes any bytes, and raises where the library breaks a promise about them.

Every target asserts what its docstring says. The first byte of the input chooses how the rest is split, or which of
several forms it has, so that a fuzzer finds the splits that matter.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

from httpsite import Site

from mcpio._drivers.http_parsers import BadRequest, ParsedHead, ParserMark, ParserName, new_parser
from mcpio.app.frontmatter import FrontmatterFault, differing_members, frontmatter_of, frontmatter_text
from mcpio.app.registry.resources import UriTemplate, UriTemplateError
from mcpio.auth import Secret
from mcpio.auth.payloads import (
    AuthorizationServerMetadata,
    ProtectedResourceMetadata,
    TokenSet,
    max_age,
    parse_challenges,
    read_document,
)
from mcpio.auth.urls import AuthorizationError
from mcpio.auth.verifiers import JwtVerifier, ProofChecker, parse_jwt
from mcpio.codec import codec
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import InvalidMessage, McpError
from mcpio.framing import jsonrpc
from mcpio.framing.headers import decode_field, encode_field
from mcpio.framing.json import JsonError, backend, dumps, has_more_values, loads
from mcpio.framing.lines import LineFramer, Overlong
from mcpio.framing.sse import ServerSentEvent, SseParser, encode_event
from mcpio.http.checks import Rejection
from mcpio.http.model import Body, End, HttpOptions, RequestHead
from mcpio.methods import METHODS
from mcpio.observe.recording import replay
from mcpio.revisions import REVISIONS
from mcpio.testing.script import ScriptError, parse_script
from mcpio.types import Implementation, ServerCapabilities
from mcpio.websocket import (
    FragmentReceived,
    MessageReceived,
    WebSocket,
    WebSocketEnded,
    WebSocketOptions,
    answer_opening,
)
from mcpio.websocket.machine import WebSocketEvent

Target = Callable[[bytes], None]
LIMIT: Final = 200
"""Bytes of a line, message or head: small, so that the fuzzer reaches what happens beyond it."""


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the rest of an input in pieces of the size that its first byte names, and the rest whole."""
    size, rest = (data[0] % 24 + 1, data[1:]) if data else (1, data)
    return [rest[at : at + size] for at in range(0, len(rest), size)], rest


# ----------------------------------------------------------------------------------------------------------- framing


def lines(data: bytes) -> None:
    """Lines are the same however the bytes are split, and no longer than the limit."""

    def read(pieces: list[bytes], resync: bool) -> list[bytes | Overlong]:
        framer, found = LineFramer(LIMIT, resync=resync), []
        for piece in pieces:
            framer.receive(piece)
            while (line := framer.next_line()) is not None:
                found.append(line)
            assert framer.buffered <= LIMIT + 1 + len(piece)
        framer.receive_eof()
        while (line := framer.next_line()) is not None:
            found.append(line)
        return found

    pieces, whole = split(data)
    for resync in (False, True):
        found = read(pieces, resync)
        assert found == read([whole], resync)
        assert all(isinstance(line, Overlong) or 0 < len(line) <= LIMIT for line in found)


def json(data: bytes) -> None:
    """Both JSON libraries give one answer, ``JsonError`` is the only exception, and what was read is written again."""
    outcomes = [_json_outcome(each, data) for each in (backend("stdlib"), backend("compiled"))]
    assert outcomes[0] == outcomes[1], outcomes
    if outcomes[0][0] == "value":
        value = loads(data)
        assert repr(loads(dumps(value))) == repr(value)
        text = data.decode()
        assert repr(loads(text)) == repr(value)
        for count in (1, 3, 9):
            assert has_more_values(data, count) == has_more_values(text, count)


def _json_outcome(used: Any, data: bytes) -> tuple[str, str]:
    try:
        return "value", repr(used.loads(data))
    except JsonError as error:
        return "JsonError", error.reason


def messages(data: bytes) -> None:
    """Any text is a message of one kind; a call or an answer is read again from what is written of it."""
    message = jsonrpc.parse(data, 50)
    jsonrpc.answered_id(data)
    match message:
        case jsonrpc.Request():
            again = jsonrpc.encode_request(message.id, message.method, message.params)
        case jsonrpc.Notification():
            again = jsonrpc.encode_notification(message.method, message.params)
        case jsonrpc.Result():
            again = jsonrpc.encode_result(message.id, message.result)
            kept = jsonrpc.result_in(again)
            assert jsonrpc.encode_kept_result(message.id, kept) == again
            assert jsonrpc.encode_raw_result(message.id, kept) == again
        case jsonrpc.Error():
            again = jsonrpc.encode_error(message.id, message.code, message.message, message.data, with_null_id=True)
            assert message.id is None or jsonrpc.error_code_in(again) == message.code
        case _:
            return
    read = jsonrpc.parse(again)
    assert type(read) is type(message)
    # Members beyond the envelope's are not written again, and neither are empty params and null data.
    for name in set(message.__match_args__) - {"raw"}:
        assert repr(getattr(read, name)) == repr(getattr(message, name))


def payloads(data: bytes) -> None:
    """A payload is read or refused by ``InvalidMessage``; what was read is written and read again as the same."""
    if len(data) < 2:
        return
    revision = REVISIONS[data[0] % len(REVISIONS)]
    classes = _payload_classes()
    cls = classes[data[1] % len(classes)]
    try:
        raw = loads(data[2:])
    except JsonError:
        return
    used = codec(revision)
    try:
        payload = used.decode(raw, cls)
    except InvalidMessage:
        return
    try:
        written = used.encode(payload)
    except InvalidMessage:
        return  # More is read than may be sent (CONT-03).
    assert used.decode(written, cls) == payload
    assert used.encode(used.decode(written, cls)) == written


@cache
def _payload_classes() -> list[type[Any]]:
    found = {row.params_type for row in METHODS.values()}
    found |= {row.result_type for row in METHODS.values() if row.result is not None}
    return sorted(found, key=lambda each: each.__name__)


def server(data: bytes) -> None:
    """No bytes make a server raise, and its events and output are the same however they are split."""

    def talk(pieces: list[bytes]) -> tuple[list[str], bytes]:
        connection = _new_server(Options(limits=Limits(message_bytes=2 * LIMIT)))
        events: list[str] = []
        out: list[bytes | None] = []
        for piece in [*pieces, None]:
            connection.receive_data(piece, 1.0)
            events += [repr(event) for event in connection.events()]
            out += connection.data_to_send()
        for now in (20.0, 4000.0):
            connection.handle_timeout(now)
            events += [repr(event) for event in connection.events()]
            out += connection.data_to_send()
        return events, b"".join(each or b"" for each in out)

    pieces, whole = split(data)
    assert (found := talk(pieces)) == (same := talk([whole])), (found, same)


def _new_server(options: Options) -> ServerConnection:
    return ServerConnection(Implementation("fuzzed", "1"), ServerCapabilities(), options=options)


def events(data: bytes) -> None:
    """Server-sent events are the same however the bytes are split, and each is read again from what is written."""

    def read(pieces: list[bytes]) -> tuple[list[ServerSentEvent], str | None, bool]:
        parser = SseParser(LIMIT)
        found = [event for piece in pieces for event in parser.receive(piece)]
        return found, parser.last_id, parser.is_too_large

    pieces, whole = split(data)
    found = read(pieces)
    assert found == read([whole])
    for event in found[0]:
        if event.data is None or "\0" in event.type:  # which can be received, and not sent
            continue
        text = encode_event(event.data.encode(), type=event.type, id=event.id, retry=event.retry)
        assert SseParser(4 * LIMIT).receive(text) == [event], text


def fields(data: bytes) -> None:
    """A header field is decoded or ``ValueError``; any text is the same after encoding and decoding."""
    try:
        text = decode_field(data.decode("latin-1"))
    except ValueError:
        pass
    else:
        assert decode_field(encode_field(text)) == text
    text = data.decode("utf-8", "ignore")
    encoded = encode_field(text)
    assert decode_field(encoded) == text
    assert encoded.isascii()
    assert encoded.isprintable()


# ------------------------------------------------------------------------------------------------------------- http


def http(data: bytes) -> None:
    """Both parsers read the same requests, however split; every request that they read gets one answer, or waits."""
    pieces, whole = split(data)
    found = [_requests(name, each) for name in ("h11", "httptools") for each in (pieces, [whole])]
    assert all(each == found[0] for each in found[1:]), found
    machine, now = Site(limits=Limits(message_bytes=LIMIT)).machine, 1.0
    for exchange, (head, body, is_whole) in enumerate(found[0]):
        machine.receive(RequestHead(exchange, head.method, head.target, head.headers), now)
        for at in range(0, len(body), 40):
            machine.receive(Body(exchange, body[at : at + 40]), now)
        if is_whole:
            machine.receive(End(exchange), now)
        while machine.next_event() is not None:
            pass
        while (ready := machine.next_ready()) is not None:
            machine.responses_to_send(ready)
    for now in (40.0, 40_000.0):
        machine.handle_timeout(now)
        while machine.next_event() is not None:
            pass


def _requests(name: ParserName, pieces: list[bytes]) -> list[tuple[ParsedHead, bytes, bool]]:
    """Return the heads that a parser read, each with its body and whether that was whole."""
    parser, found = new_parser(name, LIMIT), list[tuple[ParsedHead, bytes, bool]]()
    for piece in [*pieces, b""]:
        parser.feed(piece)
        try:
            while (event := parser.next_event()) is not None:
                if event is ParserMark.CLOSED:
                    return found
                if isinstance(event, ParsedHead):
                    found.append((event, b"", False))
                    continue
                head, body, _ = found.pop()
                found.append((head, body if event is ParserMark.END else body + event, event is ParserMark.END))
                if event is ParserMark.END:
                    if not head.keeps_alive:
                        return found
                    parser.next_cycle()
        except BadRequest:
            # How much of a broken body was read before its fault differs, and no handler gets it.
            return [(head, body if is_whole else b"", is_whole) for head, body, is_whole in found]
    return found


# ------------------------------------------------------------------------------------------------------- websocket


def frames(data: bytes) -> None:
    """No bytes make a WebSocket raise; its events are the same however they are split, and the last one ends it."""
    pieces, whole = split(data)
    for role in Role:
        for bits in (None, 15):
            found = _talk(role, bits, pieces)
            same = _talk(role, bits, [whole])
            assert repr(found) == repr(same), (found, same)  # errors compare by identity
            assert [isinstance(event, WebSocketEnded) for event in found] == [False] * (len(found) - 1) + [True]
            assert all(len(event.text.encode()) <= LIMIT for event in found if isinstance(event, MessageReceived))


def _talk(role: Role, bits: int | None, pieces: list[bytes]) -> list[WebSocketEvent]:
    socket = WebSocket(role, WebSocketOptions(), max_bytes=LIMIT, now=0.0, entropy=bytes, window_bits=bits)
    found: list[WebSocketEvent] = []
    for piece in [*pieces, None]:
        socket.receive_data(piece, 1.0)
        while (event := socket.next_event()) is not None:
            if not isinstance(event, FragmentReceived):  # one for each piece of a message
                found.append(event)
        socket.data_to_send(1.0)
    return found


def handshakes(data: bytes) -> None:
    """A handshake is accepted or rejected; what is accepted names one of the server's subprotocols."""
    for head, _, _ in _requests("h11", [data]):
        answer = answer_opening(
            RequestHead(1, head.method, head.target, head.headers),
            http=HttpOptions(),
            options=WebSocketOptions(compression=True),
            subprotocols=("mcp",),
        )
        assert isinstance(answer, Rejection) or answer.subprotocol == "mcp"


# -------------------------------------------------------------------------------------------------------------- auth

_URL: Final = "https://mcp.example/mcp"
_ISSUER: Final = "https://login.example"


def challenges(data: bytes) -> None:
    """Challenges are read from any field, and read again as the same from what is written of them."""
    for challenge in parse_challenges([data.decode("latin-1")]):
        try:
            text = str(challenge)
        except ValueError:
            continue  # Received with characters that are not written.
        assert parse_challenges([text]) == (challenge,), text
        assert isinstance(challenge.scopes, frozenset)
    max_age([("Cache-Control", data.decode("latin-1"))])


def documents(data: bytes) -> None:
    """A document of an authorization server is read or refused by ``AuthorizationError``."""
    readers: tuple[Callable[[dict[str, Any]], Any], ...] = (
        ProtectedResourceMetadata.parse,
        lambda document: AuthorizationServerMetadata.parse(document, _ISSUER, _URL),
    )
    for read in readers:
        with suppress(AuthorizationError):
            read(read_document(data, "the document"))
    with suppress(AuthorizationError):
        token = TokenSet.parse(data, 1e3, issuer=_ISSUER, resource=_URL, client_id="c", scopes=frozenset({"a"}))
        assert "\n" not in token.access_token.reveal()


def tokens(data: bytes) -> None:
    """A token with any header and claims, and any text as a token or proof, gets a verdict."""
    header, _, claims = data.partition(b"\0")
    made = b".".join([_base64(header), _base64(claims), _base64(b"signature")]).decode()
    for text in (data.decode("utf-8", "surrogateescape"), made):
        parse_jwt(text)
        _verifier().verify(Secret(text), _URL, 1000.0)
        parts: Any = {"method": "POST", "resource": _URL, "target": "/mcp", "token": Secret("t")}
        verdict = ProofChecker().check(text, **parts, at=1000.0, now=0.0)
        assert not isinstance(verdict, str), "nothing here is signed"


@cache
def _verifier() -> JwtVerifier:
    return JwtVerifier(_ISSUER, jwks={"keys": []})


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


# ----------------------------------------------------------------------------------------------------------- programs


def frontmatter(data: bytes) -> None:
    """A skill's frontmatter is plain JSON or a ``FrontmatterFault``; what was read is written and read as the same."""
    with suppress(FrontmatterFault):
        differing_members(data, {"name": "a"})
    try:
        found = frontmatter_of(data)
    except FrontmatterFault:
        return
    assert repr(loads(dumps(found))) == repr(found)
    assert differing_members(data, found) == []
    assert frontmatter_of(frontmatter_text(found).encode()) == found


def templates(data: bytes) -> None:
    """A template matches a URI or not; a URI of plain values matches the template that it was made from.

    Not so where expressions touch, or several name their values: the earlier of two takes as much as it can.
    """
    template_text, _, uri = data.decode("utf-8", "ignore").partition("\n")
    try:
        template = UriTemplate(template_text)
        template.check_matching()
    except UriTemplateError:
        return
    found = template.match(uri)
    if found is not None:
        assert set(found) <= set(template.variables)
        if all(isinstance(value, str) for value in found.values()):
            try:
                template.expand(found)
            except UriTemplateError as error:
                raise AssertionError(f"{found} came from {uri!r}") from error
    # "{.a,b}{.c}" and "{;a}{.b}{;c}" fit no URI with all three.
    if "}{" not in template_text and len(re.findall("{[;?&]", template_text)) <= 1:
        values = dict.fromkeys(template.variables, "v")
        assert template.match(template.expand(values)) is not None


def scripts(data: bytes) -> None:
    """A conversation script is read, or refused by ``ScriptError``, which names the line."""
    with suppress(ScriptError):
        parse_script(data.decode("utf-8", "replace"))


def recordings(data: bytes) -> None:
    """A recording is replayed, or refused by an error of the library."""
    with suppress(McpError):
        replay(data.decode("utf-8", "replace").split("\n"))


TARGETS: Final[dict[str, Target]] = {
    target.__name__: target
    for target in (
        lines, json, messages, payloads, server, events, fields, http, frames, handshakes, challenges, documents,
        tokens, frontmatter, templates, scripts, recordings,
    )
}  # fmt: skip
