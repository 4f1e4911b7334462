"""The tables that are written by hand leave nothing out, and their numbers are the library's."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest
import reference
import requirement_tables
from tree import ROOT

import mcpio
import mcpio.asyncio
import mcpio.trio
from mcpio import ClientConnection, Event, Limits, ServerConnection, files
from mcpio._drivers import MOST_LOGGED, MOST_TRACEBACK
from mcpio._drivers.actor import EVENTS_PER_TURN, WORK_PER_TURN
from mcpio._drivers.socket_server import MAX_CONNECTIONS
from mcpio._drivers.stdio import INHERITED_VARIABLES, MAX_LINE, TAIL_SIZE, ProcessOptions
from mcpio.app import client_skills, client_tools, frontmatter, pagination
from mcpio.app.client import Client, ClientOptions
from mcpio.app.context import Context
from mcpio.app.middleware import policies as limiting
from mcpio.app.mounting import MOST_COMPARED
from mcpio.app.pagination import MOST_PAGES
from mcpio.app.registry import prompts as completion
from mcpio.app.registry import resources as uri_template
from mcpio.app.reporting import MOST_TEXT
from mcpio.app.schema.validation import MAX_STEPS, OWN_STEPS, UNTRUSTED_PARTS
from mcpio.app.schema.values import MOST_CONVERSIONS
from mcpio.auth.resource_server import MOST_LOADING
from mcpio.auth.verifiers import (
    MOST_OF_ONE,
    MOST_VERDICT_BYTES,
    MOST_VERDICTS,
    PROOF_SECONDS,
    REFETCH_SECONDS,
)
from mcpio.engine.channel import QUOTE, READ_RATE, STALL
from mcpio.engine.limits import MESSAGE_COST
from mcpio.engine.options import KeepAlive
from mcpio.errors import ErrorCode
from mcpio.framing.json import _LARGE, MAX_INT_DIGITS, MAX_NESTING
from mcpio.http import HttpOptions
from mcpio.http.model import MAX_HEADERS
from mcpio.http.sessions import EXCHANGE_COST, SESSION_COST
from mcpio.observe.tap import _ITEM_COST, _MEMBER_COST, _MOST_SEARCHED, _TEXT_COST
from mcpio.trio import default_environment, start_process

DOCS = ROOT / "docs"


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """Return what stands under a heading, up to the next of its level."""
    level = re.search(rf"^(#+) {re.escape(title)}$", text(page), re.MULTILINE)
    assert level is not None, f"{page} has no heading {title!r}"
    return re.split(rf"^#{{1,{len(level[1])}}} ", text(page)[level.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def cells(page: str, title: str, column: int = 0) -> str:
    """Return one column of the tables under a heading."""
    rows = [row for row in section(page, title).splitlines() if row.startswith("|")]
    return "\n".join(row.split("|")[column + 1] for row in rows)


def public(cls: type) -> Iterator[str]:
    """Yield the names of what a class offers."""
    return (name for name in dir(cls) if not name.startswith("_"))


def test_every_method_of_the_engine_is_in_the_table_of_promises() -> None:
    said = cells("embed.md", "What each verb promises")
    names = {name for cls in (ClientConnection, ServerConnection) for name in public(cls)}
    elsewhere = {"capabilities", "info", "instructions", "options", "principal", "role"}  # what it was made with
    elsewhere |= {"dropped_logs", "send_raw_result", "unanswered"}  # for few: where they are needed, and the reference
    assert {name for name in names - elsewhere if f"`{name}" not in said} == set()


def test_every_event_is_in_the_table_of_events() -> None:
    said = cells("embed.md", "How to handle each event")
    assert {each.__name__ for each in typing.get_args(Event) if f"`{each.__name__}`" not in said} == set()


def test_every_error_is_in_the_tree() -> None:
    tree = section("errors.md", "Errors").partition("```text")[2].partition("```")[0]
    named = re.findall(r"^[│├└─ ]*(\w+)", tree, re.MULTILINE)
    classes = {name for name in mcpio.errors.__all__ if name != "ErrorCode"}
    assert set(named) == classes
    assert len(named) == len(classes)
    parents: list[tuple[int, str]] = []
    for line in tree.strip().splitlines():
        name = re.search(r"\w+", line)
        assert name is not None
        parents = [(depth, parent) for depth, parent in parents if depth < name.start()]
        if parents:
            assert issubclass(getattr(mcpio.errors, name[0]), getattr(mcpio.errors, parents[-1][1]))
        parents.append((name.start(), name[0]))


def test_every_code_is_in_the_table() -> None:
    said = section("errors.md", "Errors on the wire")
    codes = {name: code for name, code in vars(ErrorCode).items() if not name.startswith("_")}
    assert {name for name, code in codes.items() if f"| {code} | `{name}` |" not in said} == set()


def test_every_rule_is_listed_as_kept_or_with_a_reason() -> None:
    rules = requirement_tables.read_rules()
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "conformance").glob("*.md")))
    rows = re.findall(r"^\| `([A-Z]+-\d+)` \|.*\| (.+) \|$", pages, re.MULTILINE)
    assert (len(rows), {name for name, _ in rows}) == (len(rules), set(rules))
    said = dict(rows)
    assert said["RPC-01"] == "kept"
    assert said["RPC-06"] == f"not kept: {rules['RPC-06']['left_out']}"


def test_the_options_of_a_child_process_are_listed_with_their_defaults() -> None:
    rows = section("stdio.md", "For clients").splitlines()
    parameters = inspect.signature(start_process).parameters
    for name in ProcessOptions.__annotations__:
        default = parameters[name].default
        shown = f'"{default}"' if isinstance(default, str) else default
        place = f"| `{name}` | `{shown}` |" if isinstance(default, str | bool | None) else f"| `{name}` | {shown} |"
        assert any(row.startswith(place) for row in rows), place


def test_the_environment_of_a_child_process_is_named() -> None:
    said = section("stdio.md", "Environment")
    assert [name for name in INHERITED_VARIABLES if name not in said] == []
    assert set(default_environment()) <= set(INHERITED_VARIABLES)


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("| nesting of JSON | 128 |", MAX_NESTING == 128),
        ("| digits of an integer | 4,300 |", MAX_INT_DIGITS == 4300),
        ("and does not fit counts as three | 100,000 |", MOST_CONVERSIONS == 100_000),
        ("| pages of one list that a client follows | 1,000 |", pagination.MAX_PAGES == 1000),
        ("| values in an answer to `completion/complete` | 100 |", completion.MOST_VALUES == 100),
        (
            "| malformed items of one list that a client keeps | 1,000, and 1 MiB of JSON |",
            (pagination.MOST_MALFORMED, pagination.MALFORMED_BYTES) == (1000, 1 << 20),
        ),
        (
            "| one list that a client follows | 100,000 items, and 32 MiB of JSON |",
            (pagination.MAX_ITEMS, pagination.MAX_BYTES) == (100_000, 32 << 20),
        ),
        (
            "| tools of one server that a client looks up by name | 10,000, and 16 MiB of JSON |",
            (client_tools.MOST_TOOLS, client_tools.TOOL_BYTES) == (10_000, 16 << 20),
        ),
        (
            "| output schemas that `check_results` keeps compiled | 16 MiB |",
            client_tools.TOOL_BYTES == 16 << 20,
        ),
        ("| entries in the listing of a shared directory | 1,000 |", files.MOST_ENTRIES == 1000),
        (
            "an item of a list counts for 8, a member for 20, and a text for 40 more | 2 MiB |",
            (_MOST_SEARCHED, _ITEM_COST, _MEMBER_COST, _TEXT_COST) == (2 << 20, 8, 20, 40),
        ),
        (
            "| a URI of a skill of a server, or of a file of one | 4,096 characters, and 32 names below the skill's",
            (client_skills.MAX_SKILL_URI, client_skills.MAX_SKILL_DEPTH) == (4096, 32),
        ),
        (
            "| text of an exception, in the log and in a failed tool's result, unless it is a `ToolError` | 10,000",
            (MOST_LOGGED, MOST_TEXT) == (10_000, 10_000),
        ),
        ("| an exception in the log, with its tracebacks | 100,000 characters |", MOST_TRACEBACK == 100_000),
        ("| properties of one tool that are annotated with `x-mcp-header` | 100 |", MAX_HEADERS == 100),
        (
            "| annotated properties of all tools of a server that a client remembers | 4 MiB |",
            client_tools.HEADER_BYTES == 4 << 20,
        ),
        ("| names and values in the frontmatter of a skill | 2,000 |", frontmatter.MAX_NODES == 2000),
        ("| names of a server that are compared with an unknown one, for a hint | 300 |", MOST_COMPARED == 300),
        ("| a URI matched against a template | 65,536 characters |", uri_template.MAX_URI == 65_536),
        ("| steps of a check of arguments against a hand-written schema | 10,000 |", MAX_STEPS == 10_000),
        ("| steps of such a check of a result | 300,000 |", OWN_STEPS == 300_000),
        ("| pages of lists that a server keeps as JSON text | 100 |", MOST_PAGES == 100),
        (
            "| verdicts that one `JwtVerifier` or `Introspection` keeps | 16,384, of tokens or answers with 16 MiB",
            (MOST_VERDICTS, MOST_VERDICT_BYTES) == (16_384, 16 << 20),
        ),
        ("| those of one principal | 1,024 |", MOST_OF_ONE == 1024),
        ("| keys that a `RateLimit` remembers | 4,096 |", limiting.MOST_KEYS == 4096),
        ("| a child's standard error that is kept | 8 KiB |", TAIL_SIZE == 8192),
        ("| a line of it passed to a function | 64 KiB |", MAX_LINE == 65536),
        ("| text of an unreadable line in an event | 200 characters |", QUOTE == 200),
    ],
)
def test_fixed_limit_matches_the_code(said: str, number: bool) -> None:
    assert said in section("limits.md", "Fixed limits")
    assert number


@pytest.mark.parametrize(
    ("page", "said", "is_so"),
    [
        ("limits.md", "at most 32 messages, or about one millisecond", (EVENTS_PER_TURN, WORK_PER_TURN) == (32, 0.001)),
        ("limits.md", "While a text of 100,000 bytes or more is read", _LARGE == 100_000),
        ("limits.md", "has 30 seconds to read some of", STALL == 30),
        ("limits.md", "for each 4 KiB that the transport", READ_RATE == 4096),
        ("limits.md", "counts for at least 4 KiB", SESSION_COST == 4096),
        ("limits.md", "an HTTP request for at least 2 KiB", EXCHANGE_COST == 2048),
        ("limits.md", "its text plus half a KiB", MESSAGE_COST == 512),
        ("limits.md", "has `HttpOptions.resume_within` (60 seconds)", HttpOptions().resume_within == 60),
        (
            "limits.md",
            "three pings in a row get no reply within 10 seconds each",
            (KeepAlive(1).failures, KeepAlive(1).timeout) == (3, 10),
        ),
        ("security.md", "stops after 10,000 steps, about 0.1 seconds", MAX_STEPS == 10_000),
        ("security.md", "stops after 300,000 steps", OWN_STEPS == 300_000),
        ("security.md", "may have at most 5,000 parts", UNTRUSTED_PARTS == 5000),
        ("security.md", "leads to one fetch in 30 seconds", REFETCH_SECONDS == 30),
        ("security.md", "at most 64 fetches are under way", MOST_LOADING == 64),
        ("security.md", "within five minutes of the time that it names", PROOF_SECONDS == 300),
    ],
)
def test_number_in_a_sentence_matches_the_code(page: str, said: str, is_so: bool) -> None:
    assert said in " ".join(text(page).split())
    assert is_so


@pytest.mark.parametrize("each_connection", [256, 640])
def test_maximum_memory_is_the_sum_of_the_default_limits(each_connection: int) -> None:
    limits, said = Limits(), section("limits.md", "Memory of the whole server")
    assert f" {each_connection} KiB |" in said
    connections = MAX_CONNECTIONS * each_connection * 1024
    parts = [size // 1024**2 for size in (limits.total_bytes, limits.peer_bytes, connections)]
    assert [f"{part:,} MiB" in said for part in (*parts, sum(parts))] == [True] * 4


def test_every_call_and_option_of_a_client_is_mentioned() -> None:
    said = text("clients.md")
    options = {name for name in ClientOptions.__annotations__ if f"{name}=" not in said}
    assert options <= {"info", "capabilities"}  # the reference has them
    calls = {name for name in public(Client) if not name.startswith("list_") and f"{name}(" not in said}
    drivers = {"check_open", "connection", "driver", "ended", "initialize", "thread_pool"}
    drivers |= {"account", "account_of", "thread_account_of"}
    raw = {"notify"}  # of what has calls of its own
    assert calls - drivers - raw - {"server", "era"} == set()  # which are not called


def test_every_member_of_a_context_is_mentioned() -> None:
    said = section("servers.md", "Context")
    parts = {"account", "thread_account"}  # what the library's own parts ask for
    assert {name for name in public(Context) if f"ctx.{name}" not in said} <= parts


def test_every_driver_is_in_the_list_of_loops() -> None:
    drivers = r"(?:open|connect|serve)(?:_(?!process|transport)\w+)?|serving|memory_client|open_transport"
    for module, column in ((mcpio.trio, 1), (mcpio.asyncio, 2)):
        said = set(re.findall(r"\b(\w+)\b", cells("loops.md", "Which driver runs on which event loop", column)))
        assert {name for name in module.__all__ if re.fullmatch(drivers, name)} - said == set()
    on_asgi = {"serve_http", "serve_websocket"}
    rows = [row.split("|") for row in text("loops.md").splitlines() if row.startswith("|")]
    assert {name for row in rows if "`mcpio.asgi.app" in row[3] for name in re.findall(r"`(\w+)", row[2])} == on_asgi


def test_every_public_name_is_in_the_reference() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    documented = set(re.findall(r"\{public-names\} ([\w.]+)\n(?::first: .*\n)?```", pages))
    parts = set(re.findall(r"\{public-names\} mcpio\n:from: ([\w.]+)", pages))
    missing = {
        name
        for name, home in reference.homes(mcpio).items()
        if not home.startswith(tuple(parts | documented)) and name != "__version__"
    }
    assert missing == set()


def test_every_module_that_the_reference_documents_lists_its_names() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    # Not imported: some need an extra.
    origins = {name: util.find_spec(name) for name in re.findall(r"\{public-names\} ([\w.]+)", pages)}
    files = {name: Path(spec.origin) for name, spec in origins.items() if spec is not None and spec.origin is not None}
    assert files.keys() == origins.keys()
    assert {name for name, file in files.items() if "__all__" not in file.read_text(encoding="utf-8")} == set()
