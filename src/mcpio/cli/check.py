"""``mcpio check``: ask a server by raw messages whether it keeps the rules of the protocol, or what it has locked."""

from __future__ import annotations

import argparse
import json  # indented, for people
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias
from xml.etree import ElementTree as ET

import attrs
import trio

import mcpio
from mcpio.app.client import Client
from mcpio.cli import connect, lock
from mcpio.cli.exit_status import Exit, Failure, failure_of
from mcpio.cli.logins import token_for
from mcpio.cli.output import Console
from mcpio.cli.rules.table import TABLE
from mcpio.cli.rules.trial import Connect, HttpCarrier, LineCarrier, Outcome, RawCarrier, Trial, try_rows
from mcpio.cli.targets import SOCKET_SCHEMES, WEBSOCKET, parse_socket_url
from mcpio.errors import McpError
from mcpio.http.client import Location
from mcpio.revisions import REVISIONS, Revision
from mcpio.trio import open_process_stream, run_until_signalled

TIMEOUT = 10.0
"""Seconds to wait for each answer. A server that answers nothing is asked several hundred times."""

LONGEST = 2000
"""How many characters of a message a report shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    connect.add_words(parser)
    parser.set_defaults(timeout=TIMEOUT)
    parser.add_argument("--strict", action="store_true", help="show warnings in full, and fail for them too")
    parser.add_argument(
        "--revision",
        action="append",
        choices=[revision.name for revision in REVISIONS],
        help="check only this revision; may be repeated (default: all that the server speaks)",
    )
    parser.add_argument("--junit", metavar="FILE", help="write the checks to a file, as JUnit's XML")
    parser.add_argument("--sarif", metavar="FILE", help="write the faults to a file, as SARIF")
    parser.add_argument("--locked", metavar="FILE", help="compare the server with a file of mcpio lock instead")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    connect.no_more_words(options)
    if options.locked is not None:
        if options.revision is not None:
            raise Failure(Exit.USAGE, "--revision cannot be combined with --locked: it is for the rules")
        locked = lock.read(options.locked)
        return connect.run(partial(_compare, locked), options)
    for name in ("record", "sampling", "root"):
        if getattr(options, name):
            raise Failure(Exit.USAGE, f"--{name} needs --locked: raw messages do not use it")
    if not options.timeout:
        raise Failure(Exit.USAGE, "--timeout must be above 0, not 0: a server may leave a message unanswered")
    return run_until_signalled(partial(_check, options), timeout=None)


async def _compare(locked: Mapping[str, Any], client: Client, options: argparse.Namespace, console: Console) -> int:
    checks = [
        Check(name, "Be as it was locked.", change, "broken", options.locked)
        for name, change in lock.differences(locked, await lock.definitions(client))
    ]
    report = Report(options.target, client.server.info.name, (options.locked,), checks)
    _write(report, options, console)
    return Exit.DRIFTED if report.faults("broken") else Exit.DONE


async def _check(options: argparse.Namespace) -> int:
    console = Console(quiet=options.quiet)
    names = options.revision or [revision.name for revision in REVISIONS]

    def note_revision(revision: Revision, is_spoken: bool) -> None:
        console.note(f"{revision}: {'checked' if is_spoken else 'not spoken'}")

    try:
        trial = await try_rows(
            _connect(options, console),
            TABLE,
            revisions=[revision for revision in REVISIONS if revision.name in names],
            headers=await _headers(options),
            on_revision=note_revision,
        )
    except McpError as error:
        raise failure_of(error) from error
    except OSError as error:
        raise Failure(Exit.UNREACHABLE, f"cannot connect to {options.target}: {error.strerror or error}") from error
    if not trial.opened:
        raise _not_opened(trial, options)
    for revision, count in trial.untried.items():
        console.failure(f"{revision}: {count} checks were left out: the server could not be opened again")
    report = _report(trial, options)
    _write(report, options, console)
    return Exit.PROTOCOL if report.faults("broken") or (options.strict and report.faults("warning")) else Exit.DONE


async def _headers(options: argparse.Namespace) -> dict[str, str]:
    """Return the fields of each HTTP request: those that were given, or else with the token of a stored login."""
    headers = {name.lower(): value for name, value in options.header}
    url: str | None = options.url
    if url is None or url.startswith(SOCKET_SCHEMES) or connect.stored_login(options) is None:
        return headers
    # A client renews the token if it must. The raw messages below find the server's faults.
    with suppress(McpError):
        async with connect.open_client(options, stderr="capture"):
            pass
    token = token_for(url, options.auth)
    return headers if token is None else {**headers, "authorization": f"Bearer {token}"}


def _not_opened(trial: Trial, options: argparse.Namespace) -> Failure:
    """Return the failure for a server that speaks no revision."""
    newest = next(reversed(trial.refused.values()))
    came = _shorten(str(newest.reply))
    if newest.reply.ended:
        status = Exit.UNREACHABLE if options.url is not None else Exit.SERVER_DIED
        return Failure(status, f"{options.target}: {newest.reply.ended}")
    status = Exit.REFUSED if newest.reply.status in (401, 403) else Exit.PROTOCOL
    return Failure(status, f"{options.target} speaks no revision that was asked for. It answered: {came}")


def _connect(options: argparse.Namespace, console: Console) -> Connect:
    """Return what connects to the chosen server. Raises Failure if that cannot carry raw messages."""
    url = options.url
    timeout = options.timeout
    if url is None:
        return partial(_process, options, console, timeout)
    if url.startswith(WEBSOCKET):
        raise Failure(Exit.USAGE, f"the server must be a program, a socket or an HTTP URL, not {url}")
    if url.startswith(SOCKET_SCHEMES):
        return partial(_socket, url, timeout)
    location = Location.parse(url)

    @asynccontextmanager
    async def by_http() -> AsyncIterator[RawCarrier]:
        yield HttpCarrier(location, timeout=timeout)

    return by_http


@asynccontextmanager
async def _process(options: argparse.Namespace, console: Console, timeout: float) -> AsyncIterator[RawCarrier]:
    started = open_process_stream(
        options.server,
        stderr=console.server_said if options.verbose else "capture",
        **connect.process_options(options),
    )
    async with started as process:
        yield LineCarrier(process.stream, timeout=timeout, last_words=process.last_words)


@asynccontextmanager
async def _socket(url: str, timeout: float) -> AsyncIterator[RawCarrier]:
    address = parse_socket_url(url)
    stream: trio.SocketStream
    if isinstance(address, str):
        stream = await trio.open_unix_socket(address)
    else:
        stream = await trio.open_tcp_stream(address.host, address.port)
    try:
        yield LineCarrier(stream, timeout=timeout)
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)


def _report(trial: Trial, options: argparse.Namespace) -> Report:
    checks = [_of_outcome(outcome) for outcome in trial.outcomes]
    newest = max(trial.opened, key=lambda revision: revision.rank)
    checks += _of_tools(trial)
    return Report(options.target, _name(trial, newest), tuple(map(str, trial.opened)), checks)


def _of_outcome(outcome: Outcome) -> Check:
    row, tried = outcome.row, outcome.tried
    return Check(
        row.name,
        row.demand,
        outcome.fault,
        "broken" if row.level == "must" else "warning",
        str(outcome.revision),
        tuple(row.rules.split()),
        "\n".join(_shorten(str(sent)) for sent in tried.sent),
        "\n".join(_shorten(str(reply)) for reply in tried.replies),
        row.url(outcome.revision),
    )


def _of_tools(trial: Trial) -> Iterator[Check]:
    for tool in trial.tools:
        faults: list[str | None] = [*warnings_of(tool)]
        for fault in faults or [None]:
            yield Check(f"the tool {tool.get('name')!r}", "Define tools that hosts take.", fault, "warning", "hosts")


def _name(trial: Trial, revision: Revision) -> str:
    server = trial.opened[revision].conversation.server
    meta = server.get("_meta")
    info = server.get("serverInfo") or (meta.get("io.modelcontextprotocol/serverInfo") if meta else None)
    values = [info.get(key) for key in ("name", "version")] if isinstance(info, dict) else []
    return " ".join(each for each in values if isinstance(each, str) and each) or "a server without a name"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def _write(report: Report, options: argparse.Namespace, console: Console) -> None:
    """Print the report, and write it to files."""
    for path, make in ((options.junit, report.junit), (options.sarif, report.sarif)):
        if path is not None:
            lock.write(path, make())
    if options.json:
        console.result(report.as_json())
    else:
        for line in report.text(whole_warnings=options.strict):
            console.result(line or "\n")


# -------------------------------------------------------------------------------------------------------------- reports


Level: TypeAlias = Literal["broken", "warning"]


@attrs.frozen
class Check:
    """One thing that was checked."""

    name: str
    demand: str
    fault: str | None
    """The actual behaviour, where it differs from the demand; else ``None``."""
    level: Level
    """The severity of a fault."""
    group: str
    """The revision, or the other subject of the comparison."""
    rules: tuple[str, ...] = ()
    sent: str = ""
    came: str = ""
    url: str = ""


@attrs.frozen
class Report:
    """All checks of one server."""

    target: str
    """The server, as it was named."""
    server: str
    """The name and version that the server reports."""
    groups: tuple[str, ...]
    """The revisions that the server speaks, or what else was compared."""
    checks: Sequence[Check]

    def faults(self, level: Level) -> list[Check]:
        """Return the faults of a level."""
        return [check for check in self.checks if check.fault is not None and check.level == level]

    def text(self, *, whole_warnings: bool) -> Iterator[str]:
        """Yield lines for people. Equal faults in several revisions are one entry; a warning is one line of it."""
        levels: tuple[Level, ...] = ("broken", "warning")
        for level in levels:
            faults = sorted(self.faults(level), key=_likeness)
            for _, alike in groupby(faults, key=_likeness):
                yield from _entry(list(alike), is_whole=level == "broken" or whole_warnings)
        broken, warnings = len(self.faults("broken")), len(self.faults("warning"))
        yield f"{self.server}: {', '.join(self.groups)}"
        yield f"{len(self.checks)} checks, {broken} broken, {_count(warnings, 'warning')}"

    def as_json(self) -> str:
        """Return the report as one JSON object."""
        faults = [
            {"level": check.level, **attrs.asdict(check, filter=lambda field, _: field.name != "level")}
            for check in self.checks
            if check.fault is not None
        ]
        whole = {"server": self.server, "revisions": self.groups, "checks": len(self.checks), "faults": faults}
        return json.dumps(whole, ensure_ascii=False)

    def junit(self) -> bytes:
        """Return the report as JUnit's XML: a suite for each revision. A warning is a test that is passed."""
        root = ET.Element("testsuites", name=_xml(f"mcpio check {self.target}"))
        for group in dict.fromkeys(check.group for check in self.checks):
            checks = [check for check in self.checks if check.group == group]
            failed = sum(check.fault is not None and check.level == "broken" for check in checks)
            suite = ET.SubElement(root, "testsuite", name=_xml(group), tests=str(len(checks)), failures=str(failed))
            for check in checks:
                case = ET.SubElement(suite, "testcase", classname=_xml(f"mcpio.{group}"), name=_xml(check.name))
                if check.fault is None:
                    continue
                if check.level == "broken":
                    ET.SubElement(case, "failure", message=_xml(check.fault)).text = _xml(_fault_lines(check))
                else:
                    ET.SubElement(case, "system-out").text = _xml(f"warning: {check.fault}\n{_fault_lines(check)}")
        ET.indent(root)
        return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"

    def sarif(self) -> str:
        """Return the faults as SARIF 2.1.0."""
        faults = [*self.faults("broken"), *self.faults("warning")]
        rules = {
            _rule_id(check): {
                "id": _rule_id(check),
                "name": check.name,
                "shortDescription": {"text": check.demand},
                **({"helpUri": check.url} if check.url else {}),
            }
            for check in faults
        }
        driver = {
            "name": "mcpio check",
            "version": mcpio.__version__,
            "rules": list(rules.values()),
        }
        return json.dumps(
            {
                "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
                "version": "2.1.0",
                "runs": [{"tool": {"driver": driver}, "results": [self._sarif_result(check) for check in faults]}],
            },
            indent=2,
        )

    def _sarif_result(self, check: Check) -> dict[str, Any]:
        return {
            "ruleId": _rule_id(check),
            "level": "error" if check.level == "broken" else "warning",
            "message": {"text": f"{check.name}, {check.group}: {check.fault}\n{_fault_lines(check)}"},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": self.target.replace(" ", "%20")}},
                    "logicalLocations": [{"fullyQualifiedName": f"{check.group}: {check.name}"}],
                }
            ],
        }


def _rule_id(check: Check) -> str:
    return f"{'+'.join(check.rules) or 'mcpio'}: {check.name}"


def _likeness(check: Check) -> tuple[str, str, str]:
    return (",".join(check.rules), check.name, check.fault or "")


def _entry(alike: list[Check], *, is_whole: bool) -> Iterator[str]:
    first = alike[0]
    rules = f" ({', '.join(first.rules)})" if first.rules else ""
    head = f"{first.level}: {first.name}{rules}, {', '.join(check.group for check in alike)}"
    if not is_whole:
        yield f"{head}: {first.fault}"
        return
    yield head
    for line in _fault_lines(first).splitlines():
        yield f"  {line}"
    yield ""


def _fault_lines(check: Check) -> str:
    """Return all that is known of a fault, in lines."""
    parts = {
        "demanded": check.demand,
        "found": check.fault or "",
        "sent": check.sent,
        "came": check.came,
        "see": check.url,
    }
    lines = [
        f"{name if not index else '':9}{line}"
        for name, text in parts.items()
        for index, line in enumerate(text.splitlines())
    ]
    return "\n".join(lines)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _xml(text: str) -> str:
    """Return a text with characters that XML cannot have escaped."""
    return "".join(
        each if each in "\t\n" or " " <= each <= "\ud7ff" or "\ue000" <= each <= "\ufffd" or each > "\uffff"
        else f"\\x{ord(each):02x}"
        for each in text
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- hosts


NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
LONGEST_NAME: Final = 64
CURSOR_NAMES: Final = 60
PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LONGEST_DESCRIPTION: Final = 1024
DEEPEST: Final = 10


def warnings_of(tool: Mapping[str, Any]) -> Iterator[str]:
    """Yield what hosts reject of a tool's definition."""
    name = tool.get("name")
    if isinstance(name, str):
        yield from _of_name(name)
    description = tool.get("description")
    if isinstance(description, str) and len(description) > LONGEST_DESCRIPTION:
        yield (
            f"the description has {len(description)} characters: OpenAI's API rejects more than {LONGEST_DESCRIPTION}"
        )
    schema = tool.get("inputSchema")
    if isinstance(schema, Mapping):
        yield from _of_root(schema)
        yield from _of_parts(schema)
    output = tool.get("outputSchema")
    if isinstance(output, Mapping) and output.get("type") != "object":
        yield "outputSchema does not have the root type object: clients of the TypeScript SDK 1 lose the whole list"


def _of_name(name: str) -> Iterator[str]:
    if len(name) > LONGEST_NAME:
        yield f"the name has {len(name)} characters: the APIs of Anthropic and OpenAI reject more than {LONGEST_NAME}"
    elif len(name) >= CURSOR_NAMES:
        yield f"the name has {len(name)} characters: Cursor drops tools whose name and server's name exceed 60"
    if NAME.fullmatch(name) is None:
        yield "the name has other characters than A-Z, a-z, 0-9, _ and -: the APIs of Anthropic and OpenAI reject it"


def _of_root(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("type") != "object":
        yield "inputSchema does not have the root type object: clients of the official SDKs lose the whole list"
    joined = [word for word in ("oneOf", "anyOf", "allOf") if word in schema]
    if joined:
        yield f"inputSchema has {' and '.join(joined)} at its root: Anthropic's API rejects it, Claude Code drops it"


def _of_parts(root: Mapping[str, Any]) -> Iterator[str]:
    seen = set()
    for path, depth, schema in _subschemas(root, "inputSchema", 0):
        for kind, text in _of_part(root, path, schema):
            # One of a kind is enough to find the others.
            if kind not in seen:
                seen.add(kind)
                yield text
        if depth > DEEPEST and "deep" not in seen:
            seen.add("deep")
            yield f"{path} is nested more than {DEEPEST} levels deep: OpenAI's API rejects it in strict mode"


def _of_part(root: Mapping[str, Any], path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if not reference.startswith("#"):
            yield "outside", f"{path} refers to {reference!r}, outside of the schema: hosts do not fetch it"
        elif _resolved(root, reference) is None:
            yield "nowhere", f"{path} refers to {reference!r}, which does not exist: Gemini's API rejects it"
    types = schema.get("type")
    is_array = types == "array" or (isinstance(types, list) and "array" in types)
    if is_array and "items" not in schema and "prefixItems" not in schema:
        yield "items", f"{path} is an array without items: the APIs of OpenAI and Google reject it"
    properties = schema.get("properties")
    for name in properties if isinstance(properties, Mapping) else ():
        if PROPERTY.fullmatch(name) is None:
            yield (
                "property",
                f"{path} has the property {name!r}: Anthropic's API takes up to 64 of A-Z, a-z, 0-9, _, . and -",
            )


def _subschemas(schema: Any, path: str, depth: int) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield a schema and those in it, with their paths and depths."""
    if not isinstance(schema, Mapping):
        return
    yield path, depth, schema
    for word, each in _inner(schema):
        deeper = depth + word.startswith(("properties", "items", "prefixItems"))
        yield from _subschemas(each, f"{path}.{word}", deeper)


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for word in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
        parts = schema.get(word)
        if isinstance(parts, Mapping):
            yield from ((f"{word}.{name}", part) for name, part in parts.items())
    for word in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
        yield word, schema.get(word)
    for word in ("oneOf", "anyOf", "allOf", "prefixItems"):
        parts = schema.get(word)
        if isinstance(parts, Iterable) and not isinstance(parts, str | Mapping):
            yield from ((f"{word}.{index}", part) for index, part in enumerate(parts))


def _resolved(root: Any, reference: str) -> Any:
    """Return the target of a JSON pointer or an anchor, or ``None``."""
    pointer = reference.removeprefix("#")
    if pointer and not pointer.startswith("/"):
        return next((each for _, _, each in _subschemas(root, "", 0) if each.get("$anchor") == pointer), None)
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            root = root.get(key) if isinstance(root, Mapping) else None
    return root
