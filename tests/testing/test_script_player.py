from __future__ import annotations

import itertools

import pytest

from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2024_11_05, Revision
from mcpio.testing import Chunking, ScriptError, ScriptFailed, at_random, every, parse_script, play, whole

SETUP = """
revision: 2025-11-25 2025-06-18 2025-03-26 2024-11-05
client: {roots: {}}
server: {tools: {}, logging: {}} custom_methods=[x/y]
"""

WHOLE = f"""{SETUP}
client initialize cookie=first
C> {{id: 1, method: initialize, params: {{protocolVersion: *, capabilities: {{roots: {{}}}},
    clientInfo: {{name: client, version: "1"}}}}}}
event server Negotiated info.name=client
deadline client null
phase client operating
"""

CALL = f"""{SETUP}
handshake
client request tools/call {{name: echo, arguments: {{a: 1}}}} cookie=a timeout=5 idle=3 progress=true
C> {{id: 2, method: tools/call, params: {{name: echo, arguments: {{a: 1}}, _meta: {{progressToken: 2}}}}}}
event server RequestReceived request=CallToolRequest request.name=echo raw.id=2 context.revision=* reused_id=false
deadline client 3
at 2
server progress 2 0.5 total=1
S> {{method: notifications/progress, params: {{progressToken: 2, progress: 0.5, total: 1}}}}
event client ProgressReceived progress=0.5 cookie=a
deadline client 5
server request roots/list related=2 cookie=r
S> {{id: 1, method: roots/list}}
event client RequestReceived request=ListRootsRequest
client answer 1 {{roots: [{{uri: "file:///a"}}]}}
C> {{id: 1, result: {{roots: [{{uri: "file:///a"}}]}}}}
event server ResponseReceived cookie=r result.roots.0.uri="file:///a" raw.result.roots=[{{uri: "file:///a"}}]
server answer 2 {{content: []}}
S> {{id: 2, result: {{content: []}}}}
event client ResponseReceived result=CallToolResult cookie=a
no event server
deadline client null
server error 2 -1 late
refused the peer's request 1
client request x/y {{n: 1}}
C> {{id: 3, method: x/y, params: {{n: 1}}}}
server answer 3 {{m: 1}}
S> {{id: 3, result: {{m: 1}}}}
client request tools/list
C> {{id: 4, method: tools/list}}
server error 4 -32603 broken {{why: because}}
S> {{id: 4, error: {{code: -32603, message: broken, data: {{why: because}}}}}}
event client RequestFailed error=RequestError error.data={{why: because}}
server notify notifications/message {{level: info, data: 1}}
S> {{method: notifications/message, params: {{level: info, data: 1}}}}
client request tools/list cookie=b
C> {{id: 5, method: tools/list}}
server notify x/z {{}} related=5
S> {{method: x/z}}
client cancel b enough
C> {{method: notifications/cancelled, params: {{requestId: 5, reason: enough}}}}
event server CancelReceived reason=enough
client cancel 99
refused there never was
client request tools/list timeout=null
C> {{id: 6, method: tools/list}}
"""

CLOSE = """
handshake
client close grace=1
C> end
event client ConnectionClosed reason=CLOSED
event server ConnectionClosed reason=END_OF_FILE
S> end
"""

BOTH = frozenset([Role.CLIENT, Role.SERVER])
ENGINES = [frozenset([Role.CLIENT]), frozenset([Role.SERVER]), BOTH]
NAMES = ["client", "server", "pair"]


@pytest.mark.parametrize("chunk", [whole, every(1), at_random(1), None])
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
@pytest.mark.parametrize("engines", ENGINES, ids=NAMES)
def test_script_passes_with_either_engine_and_both(
    engines: frozenset[Role], revision: Revision, chunk: Chunking | None
) -> None:
    play(parse_script(CALL), engines, revision=revision, chunk=chunk)


@pytest.mark.parametrize("engines", ENGINES, ids=NAMES)
def test_engine_replaced_between_two_lines(engines: frozenset[Role]) -> None:
    def restored(connection: Connection, now: float) -> Connection:
        return type(connection).restore(connection.snapshot(now), now)

    script = parse_script(CALL.replace("custom_methods=[x/y]", "").partition("client request x/y")[0])
    play(script, engines, between=restored)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE + "S> {id: 1, result: {...}}\nC> {method: notifications/initialized}\nevent server Initialized\n",
        CLOSE,
        "handshake\nclient abort\nevent server ConnectionClosed reason=END_OF_FILE\nS> end",
        "handshake\nserver abort\nevent client ConnectionClosed reason=END_OF_FILE\nC> end",
        "handshake\nlost\nevent client ConnectionClosed reason=LOST\nphase server closed",
        "handshake\nclient initialize\nrefused cannot send initialize",
        "client request ping\nrefused cannot send ping in phase new",
        'run: pair\nhandshake\nclient request ping\nC>> {"jsonrpc":"2.0","id":2,"method":"ping"}\nS> {...}',
    ],
)
@pytest.mark.parametrize("chunk", [whole, None])
def test_pair_passes_a_script(text: str, chunk: Chunking | None) -> None:
    play(parse_script(text), BOTH, chunk=chunk)


@pytest.mark.parametrize(
    "text",
    [
        "run: server\nC>> no json\nS> {id: null, error: {code: -32700, ...}}\nevent server ProtocolViolated raw=*",
        "handshake\nclient request ping\nC> {...}\nat 60\nC> {...}\nevent client RequestFailed error.seconds=60",
        "run: server\nserver abort\nserver request ping\nrefused the connection is closed",
        "run: server\nhandshake\nC> end\nS> end\nphase server closed",
        "run: client\nhandshake\nS> end\nevent client ConnectionClosed reason=END_OF_FILE\nC> end",
        "run: client\nhandshake\nS>> oops\nevent client NoiseReceived text=oops",
        "run: client\nS> {id: 1, method: ping}\nC> {id: 1, result: {}}\nserver abort\nevent server Nonsense",
        "run: server\nserver: {} custom_methods=[]\nhandshake\nserver request ping timeout=1\nS> {...}\nat 1\nS> {...}",
    ],
)
@pytest.mark.parametrize("chunk", [whole, None])
def test_single_engine_passes_a_script(text: str, chunk: Chunking | None) -> None:
    play(parse_script(text), chunk=chunk)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("C> {...}", "script:4: the client sent nothing"),
        ("client request ping\nC> {id: 3, ...}", "script:5: the client sent {"),
        ("client request ping\nC> {id: 3, ...}", "id is 2, not 3"),
        ("client request ping\nC> end", ": expected otherwise"),
        ("client close\nC> {...}", "the client sent end: expected otherwise"),
        ('client request ping\nC>> {"id":1}', ': expected {"id":1}'),
        ("client request ping\nclient request ping", "script:5: before this the client sent {"),
        ("client request ping", "the end of the script: before this the client sent {"),
        (
            "client request ping\nC> {...}\nS> {...}\nevent client Answered",
            "script:7: the client reported ResponseReceived(",
        ),
        ("no event client\nevent client Answered", "script:5: the client reported nothing"),
        (
            "client abort\nno event client",
            "before this the client reported ConnectionClosed(reason=ABORTED, cause=None)",
        ),
        ("client abort\nevent client ConnectionClosed reason=CLOSED", "reason is 'ABORTED', not 'CLOSED'"),
        ("client abort\nevent client ConnectionClosed colour=red", "has no colour"),
        ("client request tools/list", "script:4: refused: tools/list needs the capability tools"),
        ("client request tools/list\nrefused because", "script:4: refused: tools/list needs the capability tools"),
        ("client abort\nrefused because", "script:4: this was not refused"),
        ("deadline client 1", "script:4: the client wants to be woken at None, not 1.0"),
        ("phase client new", "script:4: the client is operating, not new"),
    ],
)
def test_deviation_named_in_the_error(text: str, fault: str) -> None:
    with pytest.raises(ScriptFailed) as caught:
        play(parse_script(f"run: pair\n\nhandshake\n{text}"))
    assert fault in str(caught.value)


def test_failure_shows_previous_messages() -> None:
    script = parse_script("run: server\nhandshake\nserver request ping\nS> {...}\nat 7\nS> {...}")
    with pytest.raises(ScriptFailed) as caught:
        play(script)
    first, *before = str(caught.value).splitlines()
    assert (first, before[0]) == ("script:6: the server sent nothing", "  before it, latest last:")
    assert before[-3:] == [
        "    server request ping",
        '    S> {"jsonrpc":"2.0","id":1,"method":"ping"}',
        "    at 7",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("server initialize", "script:1: only a client has this verb"),
        ("server answer 1 {}", "script:1: no request with id 1 came to the server"),
        ("server request tools/call {}", "script:1: name: "),
        ("C> {id: *, method: ping}", "script:1: a message that the script sends is written out in full"),
        ("server cancel nothing", "script:1: the server sent no request with the cookie 'nothing'"),
        ("handshake\nhandshake", "script:2: the conversation has begun already"),
        ("server negotiate", "script:1: only a client has this verb"),
        ("server cancel [1]", "script:1: unhashable type: 'list'"),
        ("C=> {id: 1, method: ping, params: 5}", "script:1: an envelope needs params or a result that is an object"),
        ("revision: 2026-07-28\nhandshake", "script:2: 2026-07-28 has no handshake: the client can adopt it"),
    ],
)
def test_impossible_step_named_when_played(text: str, fault: str) -> None:
    with pytest.raises(ScriptError) as caught:
        play(parse_script(text), frozenset([Role.SERVER]))
    assert str(caught.value).startswith(fault)


def test_client_cannot_acknowledge() -> None:
    text = "client: {roots: {}}\nhandshake\nS> {id: 1, method: roots/list}\nclient acknowledge 1 {}"
    with pytest.raises(ScriptError, match=r"^script:4: only a server has this verb"):
        play(parse_script(text), frozenset([Role.CLIENT]))


STATELESS = """
revision: 2026-07-28
server: {tools: {listChanged: true}, logging: {}}
client adopt {supportedVersions: [2026-07-28], capabilities: {tools: {listChanged: true}}}
client request tools/list {} cookie=a
C=> {id: 1, method: tools/list, params: {}}
stall server
server answer 1 {tools: []}
no event client
resume server
S=> {id: 1, result: {tools: [], ttlMs: 0, cacheScope: private}}
event client ResponseReceived cookie=a
client request tools/list {}
C=> {id: 2, method: tools/list, params: {}}
server request roots/list related=2
refused
"""


@pytest.mark.parametrize("engines", ENGINES, ids=NAMES)
def test_envelope_of_the_stateless_era_is_implied(engines: frozenset[Role]) -> None:
    play(parse_script(STATELESS), engines)
    with pytest.raises(ScriptFailed, match="script:6: the client sent"):
        play(
            parse_script(
                STATELESS.replace("{id: 1, method: tools/list, params: {}}", "{id: 1, method: x, params: {}}")
            ),
            BOTH,
        )


def test_failed_handshake_named_in_the_error() -> None:
    script = parse_script("client: revisions=[2024-11-05]\nserver: revisions=[2025-11-25]\nhandshake")
    with pytest.raises(ScriptFailed, match="script:3: the client is closed after the handshake"):
        play(script, BOTH)
    play(parse_script("client: revisions=[2024-11-05]\nhandshake"), BOTH, revision=REV_2024_11_05)


def test_refused_call_that_changes_state_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    states = itertools.count()
    monkeypatch.setattr("mcpio.testing.script_player._state", lambda *_: next(states))
    with pytest.raises(ScriptFailed, match="refused, but the state is another"):
        play(parse_script("client request ping\nrefused cannot"), BOTH)
