from __future__ import annotations

from pathlib import Path

import pytest

from mcpio.engine.options import Options
from mcpio.engine.table import Phase, Role
from mcpio.revisions import LATEST_HANDSHAKE, REV_2024_11_05, REV_2025_03_26, REVISIONS
from mcpio.testing import ScriptError, parse_script, read_script
from mcpio.testing.script import (
    Act,
    At,
    DeadlineIs,
    EventIs,
    Flow,
    Handshake,
    Location,
    Lost,
    NoEvent,
    PhaseIs,
    Step,
    Wire,
)

CLIENT, SERVER = Role.CLIENT, Role.SERVER
LOCATION = Location("script", 1)


def test_script_parsed_into_setup_and_steps() -> None:
    script = parse_script(
        """# A comment.
req: RPC-01 RPC-02
run: server pair
revision: 2025-03-26 2024-11-05
client: {roots: {}} revisions=[2024-11-05]
server: {tools: {listChanged: true}} strict_initialized=true custom_methods=[x/y] message_bytes=100

handshake
# Another.
C> {id: 2,
    method: ping}
at 1
""",
        "a.txt",
    )
    assert script.name == "a.txt"
    assert script.requirements == ("RPC-01", "RPC-02")
    assert script.engines == (frozenset([SERVER]), frozenset([CLIENT, SERVER]))
    assert script.revisions == (REV_2025_03_26, REV_2024_11_05)
    assert script.setups[CLIENT].capabilities == {"roots": {}}
    assert script.setups[CLIENT].options == Options(revisions=(REV_2024_11_05,))
    server = script.setups[SERVER]
    assert server.capabilities == {"tools": {"listChanged": True}}
    assert server.options.strict_initialized
    assert server.options.custom_methods == {"x/y"}
    assert server.options.limits.message_bytes == 100
    assert [str(step.location) for step in script.steps] == ["a.txt:8", "a.txt:10", "a.txt:12"]


def test_line_separators_within_json_end_no_line() -> None:
    (step,) = parse_script('S> {"method":"x","params":{"text":"a\u2028# \x85b"}}\r\n').steps
    assert step == parse_script(r'S> {"method":"x","params":{"text":"a\u2028# \u0085b"}}').steps[0]


def test_setup_is_optional() -> None:
    script = parse_script("")
    assert (script.requirements, script.revisions, script.steps) == ((), (LATEST_HANDSHAKE,), ())
    assert script.engines == (frozenset([CLIENT]), frozenset([SERVER]), frozenset([CLIENT, SERVER]))
    assert script.setups[SERVER].options.revisions == REVISIONS


def test_script_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ping.txt"
    path.write_text("lost\nfound\n", encoding="utf-8")
    with pytest.raises(ScriptError, match=r"^ping.txt:2: expected the keyword of a step, not 'found'$"):
        read_script(path)
    path.write_text("lost\n", encoding="utf-8")
    assert read_script(str(path)).steps == (Lost(Location("ping.txt", 1)),)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("C> {id: 1, method: ping}", Wire(LOCATION, CLIENT, None, {"jsonrpc": "2.0", "id": 1, "method": "ping"})),
        ("S> {jsonrpc: 1, id: 1}", Wire(LOCATION, SERVER, None, {"jsonrpc": 1, "id": 1})),
        ("S> [1]", Wire(LOCATION, SERVER, None, [1])),
        ("S=> {id: 1, result: {}}", Wire(LOCATION, SERVER, None, {"jsonrpc": "2.0", "id": 1, "result": {}}, True)),
        ("C>> {id: é ", Wire(LOCATION, CLIENT, "{id: é".encode(), None)),
        ("C> end", Wire(LOCATION, CLIENT, None, None)),
        ("at 1.5", At(LOCATION, 1.5)),
        ("handshake", Handshake(LOCATION)),
        ("lost", Lost(LOCATION)),
        ("stall server", Flow(LOCATION, SERVER, True)),
        ("resume client", Flow(LOCATION, CLIENT, False)),
        ("client adopt", Act(LOCATION, CLIENT, "adopt", (), {})),
        ("client log_level null", Act(LOCATION, CLIENT, "log_level", (None,), {})),
        (
            "event client Answered method=ping error=null",
            EventIs(LOCATION, CLIENT, "Answered", {"method": "ping", "error": None}),
        ),
        ("no event server", NoEvent(LOCATION, SERVER)),
        ("deadline client 30", DeadlineIs(LOCATION, CLIENT, 30)),
        ("deadline server null", DeadlineIs(LOCATION, SERVER, None)),
        ("phase server closing", PhaseIs(LOCATION, SERVER, Phase.CLOSING)),
        ("client close", Act(LOCATION, CLIENT, "close", (), {})),
        ("client close grace=2", Act(LOCATION, CLIENT, "close", (), {"grace": 2})),
        ("client request ping", Act(LOCATION, CLIENT, "request", ("ping",), {})),
        ("client request ping cookie=a", Act(LOCATION, CLIENT, "request", ("ping",), {"cookie": "a"})),
        ("client request x {a: 1} idle=1", Act(LOCATION, CLIENT, "request", ("x", {"a": 1}), {"idle": 1})),
        ('server error "1" -1 no {}', Act(LOCATION, SERVER, "error", ("1", -1, "no", {}), {})),
        ("client abort\nrefused never mind", Act(LOCATION, CLIENT, "abort", (), {}, "never mind")),
    ],
)
def test_line_parsed_into_a_step(line: str, step: Step) -> None:
    assert parse_script(line).steps == (step,)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("run: both", "script: run must be client, server or pair, not 'both'"),
        ("revision: 2026-07-29", "script: revision must be one of the protocol, not '2026-07-29'"),
        ("server: revisions=[1]", "script: revision must be one of the protocol, not 1"),
        ("server: colour=red", "script: expected a member of Options or Limits, not 'colour'"),
        ("server: revisions=5", "script: 'int' object is not iterable"),
        ("server: {tools}", "script: expected ':' before '}'"),
        ("lost\nreq: RPC-01", "script:2: expected the keyword of a step, not 'req:'"),
        ("C=> {id: 1, error: {}}", "script:1: expected a request or a result: nothing else has an envelope"),
        ("C=> [1]", "script:1: expected a request or a result: nothing else has an envelope"),
        ("stall", "script:1: expected client or server"),
        ("C> start", "script:1: expected a message in braces, or end"),
        ("C> {id: 1} x", "script:1: expected the end of the line, not 'x'"),
        ("C> {id: 1,\n\n  x}", "script:1: expected ':' before '}'"),
        ("client", "script:1: expected what it does"),
        ("client jump", "script:1: expected one of initialize, negotiate, adopt, log_level, request, "),
        ("client answer 1", "script:1: expected a result after answer"),
        ("client abort grace=1", "script:1: expected an option of abort, not 'grace'"),
        ("client close 1 2", "script:1: expected '=' before '2'"),
        ("event both X", "script:1: expected client or server, not 'both'"),
        ("no message client", "script:1: expected event after no"),
        ("at noon", "script:1: expected a number of seconds, not 'noon'"),
        ("at null", "script:1: expected a number of seconds, not None"),
        ("phase client asleep", "script:1: 'asleep' is not a valid Phase"),
        ("refused x", "script:1: refused must follow a line that says what a side does"),
        ("lost\nrefused x", "script:2: refused must follow a line that says what a side does"),
    ],
)
def test_malformed_line_named_in_the_error(text: str, fault: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(text)
    assert str(caught.value).startswith(fault)
