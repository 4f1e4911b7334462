"""The envelope of a stateless request: what is required, and which fault is told first."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from mcpio.engine.envelope import (
    UNKNOWN,
    Envelope,
    EnvelopeReader,
    read_envelope,
    unsupported_version,
    write_envelope,
)
from mcpio.errors import ErrorCode, RequestError
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, REVISIONS
from mcpio.types.features import ClientCapabilities, Implementation, RootsCapability

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
INFO = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"

GOOD: dict[str, Any] = {VERSION: "2026-07-28", CAPABILITIES: {}}


def fault(params: Any, header: tuple[str, ...] | None = None, revisions: Any = REVISIONS) -> RequestError:
    with pytest.raises(RequestError) as raised:
        read_envelope(params, revisions, header=header)
    return raised.value


@pytest.mark.req("ENV-01", "ENV-02", "ENV-03")
def test_envelope_is_read_and_written() -> None:
    assert read_envelope({"_meta": GOOD}, REVISIONS) == Envelope(REV_2026_07_28, ClientCapabilities(), UNKNOWN, None)
    full = {**GOOD, CAPABILITIES: {"roots": {}}, INFO: {"name": "c", "version": "1"}, LEVEL: "error"}
    envelope = read_envelope({"_meta": {**full, "progressToken": "t"}}, REVISIONS, header=("2026-07-28",))
    said = ClientCapabilities(roots=RootsCapability()), Implementation("c", "1")
    assert envelope == Envelope(REV_2026_07_28, *said, "error")
    assert write_envelope(REV_2026_07_28, *said, "error") == full
    assert write_envelope(REV_2026_07_28, ClientCapabilities(), None, None) == GOOD


@pytest.mark.req("ENV-03", "XERR-06")
@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "params._meta"),
        ({"_meta": None}, "params._meta"),
        ({"_meta": []}, "params._meta"),
        ({"_meta": {}}, f"params._meta.{VERSION}"),
        ({"_meta": {**GOOD, VERSION: 20260728}}, f"params._meta.{VERSION}"),
        ({"_meta": {VERSION: "2026-07-28"}}, f"params._meta.{CAPABILITIES}"),
        ({"_meta": {**GOOD, CAPABILITIES: []}}, f"params._meta.{CAPABILITIES}"),
        ({"_meta": {**GOOD, CAPABILITIES: None}}, f"params._meta.{CAPABILITIES}"),
        ({"_meta": {**GOOD, INFO: "me"}}, f"params._meta.{INFO}"),
        ({"_meta": {**GOOD, INFO: None}}, f"params._meta.{INFO}"),
        ({"_meta": {**GOOD, INFO: {"name": "c"}}}, f"params._meta.{INFO}.version"),
        ({"_meta": {**GOOD, LEVEL: "loud"}}, f"params._meta.{LEVEL}"),
        ({"_meta": {**GOOD, LEVEL: ["error"]}}, f"params._meta.{LEVEL}"),
        ({"_meta": {**GOOD, "progressToken": 1.5}}, "params._meta.progressToken"),
    ],
)
def test_bad_envelope_names_the_faulty_member(params: Any, path: str) -> None:
    error = fault(params)
    assert (error.code, error.data) == (ErrorCode.INVALID_PARAMS, {"path": path})
    assert error.message.startswith(f"Invalid params: {path}: ")


@pytest.mark.req("VER-01", "ERA-11")
@pytest.mark.parametrize("name", ["2099-01-01", "2025-11-25", "", "2026-07-28 "])
def test_version_that_is_not_served_gets_those_that_are(name: str) -> None:
    error = fault({"_meta": {VERSION: name}}, revisions=(REV_2025_11_25, REV_2026_07_28))
    assert error.code == ErrorCode.UNSUPPORTED_VERSION
    assert error.data == {"supported": ["2026-07-28", "2025-11-25"], "requested": name}
    assert unsupported_version(name, (REV_2026_07_28, REV_2025_11_25)).data == error.data


def test_version_of_sessions_in_an_envelope_is_refused_with_advice() -> None:
    error = fault({"_meta": {VERSION: "2025-11-25"}}, revisions=(REV_2025_11_25, REV_2026_07_28))
    assert error.message.endswith("2025-11-25 is spoken only in a session, which initialize begins")
    error = fault({"_meta": {VERSION: "2025-06-18"}}, revisions=(REV_2025_11_25, REV_2026_07_28))
    assert error.message.endswith("2025-06-18 (supported: 2026-07-28, 2025-11-25)")


@pytest.mark.req("HDR-01", "HDR-03")
@pytest.mark.parametrize("header", [(), ("2025-11-25",), ("2026-07-28", "2026-07-28"), ("2026-07-28x",)])
def test_header_must_be_there_once_and_equal(header: tuple[str, ...]) -> None:
    error = fault({"_meta": GOOD}, header)
    assert error.code == ErrorCode.HEADER_MISMATCH
    assert f"MCP-Protocol-Version is {', '.join(header) or 'missing'}, the body says" in error.message


RUNGS: list[tuple[dict[str, Any], tuple[str, ...], int]] = [
    ({VERSION: 1}, ("2026-07-28",), ErrorCode.INVALID_PARAMS),
    ({}, (), ErrorCode.HEADER_MISMATCH),
    ({VERSION: "2099-01-01"}, ("2099-01-01",), ErrorCode.UNSUPPORTED_VERSION),
    ({CAPABILITIES: 1}, ("2026-07-28",), ErrorCode.INVALID_PARAMS),
]


@pytest.mark.req("ERA-13")
@pytest.mark.parametrize(("first", "second"), list(combinations(range(len(RUNGS)), 2)))
def test_first_of_two_faults_is_reported(first: int, second: int) -> None:
    changed = {**GOOD, **RUNGS[second][0], **RUNGS[first][0]}
    header = () if 1 in (first, second) else RUNGS[first][1]
    if second == 2 and first == 0:
        header = RUNGS[0][1]
    assert fault({"_meta": changed}, header).code == RUNGS[first][2]


# The reader


def test_same_envelope_is_decoded_once() -> None:
    reader = EnvelopeReader(REVISIONS)
    first = reader.read({"_meta": {**GOOD, INFO: {"name": "c", "version": "1"}}})
    again = {"_meta": {**GOOD, INFO: {"name": "c", "version": "1"}, "progressToken": 1}}
    assert reader.read(again) is first
    assert reader.read(again, header=("2026-07-28",)) is first
    assert reader.read({"_meta": GOOD}) is not first


@pytest.mark.req("ENV-04")
def test_envelope_that_was_read_before_is_checked_as_a_new_one() -> None:
    reader = EnvelopeReader(REVISIONS)
    reader.read({"_meta": GOOD})
    for params, header, code in (
        ({"_meta": {**GOOD, "progressToken": 1.5}}, None, ErrorCode.INVALID_PARAMS),
        ({"_meta": GOOD}, ("2025-11-25",), ErrorCode.HEADER_MISMATCH),
        ({"_meta": GOOD}, (), ErrorCode.HEADER_MISMATCH),
        ({"_meta": {**GOOD, INFO: None}}, None, ErrorCode.INVALID_PARAMS),
        ({}, None, ErrorCode.INVALID_PARAMS),
    ):
        with pytest.raises(RequestError) as raised:
            reader.read(params, header=header)
        assert raised.value.code == code


@pytest.mark.parametrize(
    "extension",
    [
        {"x": True},
        {"x": 1},
        {"x": 1.0},
        {"x": "y" * 2000},
        {"x": ["y"] * 200},
        {"x": [[0]]},
        {str(n): "" for n in range(200)},
    ],
    ids=["bool", "int", "float", "long", "many", "nested", "members"],
)
def test_envelope_that_is_large_or_equal_to_others_is_not_kept(extension: Any) -> None:
    reader = EnvelopeReader(REVISIONS)
    params = {"_meta": {**GOOD, CAPABILITIES: {"experimental": {"e": extension}}}}
    assert reader.read(params) is not reader.read(params)
    assert reader.read(params) == reader.read(params)


def test_clients_that_take_turns_are_each_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpio.engine.envelope._MOST_KNOWN", 3)
    reader = EnvelopeReader(REVISIONS)

    def read(name: Any, declared: Any = None) -> Envelope:
        meta = {VERSION: "2026-07-28", CAPABILITIES: declared or {}, INFO: {"name": name, "version": "1"}}
        return reader.read({"_meta": meta})

    first, second = read("a"), read("b")
    assert (read("a"), read("b")) == (first, second)
    assert read("a") is first
    assert read("b") is second
    other = read("a", {"roots": {}})  # the same name says nothing: only an equal envelope is the same
    assert other.capabilities.roots is not None
    assert read("a", {"roots": {}}) is other
    with pytest.raises(RequestError):
        read(["a"])
    for name in "cde":
        read(name)
    assert read("b") is not second
