"""The types follow the table of facts: which revisions have a type, which members it has there, which are required."""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs
import pytest

import mcpio.types
from mcpio.revisions import REVISIONS
from mcpio.types._fields import Member, Payload, members

FACTS = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))
LETTERS = dict(zip("ABCDE", REVISIONS, strict=True))
BASES = (
    "CacheableResult ElicitRequest FinalResult ListResult NotificationPayload ObjectPayload Payload RequestPayload "
    "ResultPayload"
)
"""Classes that are there to be extended."""

EVERYWHERE = {"_meta", "extensions"}
"""Members that are sent and read in revisions that do not list them.

``_meta`` is in the params of every request and in every result by what all of them extend (META-01), and ``extensions``
is of use before it became a member (EXT-04).
"""
FILLED_IN = {"resultType", "ttlMs", "cacheScope", "type"}
"""Required members with a default that always goes out, so that a peer that leaves them out is still understood."""
OF_ANOTHER_CLASS = {("UntitledSingleSelectEnumSchema", "enumNames")}
"""With names, an ``EnumSchema`` of 2025-06-18 is a ``LegacyTitledEnumSchema``."""
OF_AN_EXTENSION = {("SubscriptionFilter", "taskIds")}
"""Members that an extension adds: here tasks (XTASK-11)."""
READ_WITHOUT = {("CancelledNotification", "requestId")}
"""Always sent, though one revision does not require it (CANC-01)."""

CASES = [
    pytest.param(name, letter, id=f"{name}-{LETTERS[letter]}")
    for name, facts in FACTS.items()
    for letter in facts["revisions"]
]


def payload_class(name: str) -> type[Payload]:
    found: type[Payload] = getattr(mcpio.types, name)
    assert issubclass(found, Payload)
    return found


def member_of(name: str, member: str) -> Member | None:
    return next((one for one in members(payload_class(name)) if one.name == member), None)


def test_the_table_has_every_payload_class() -> None:
    exported = [getattr(mcpio.types, name) for name in mcpio.types.__all__]
    classes = [one for one in exported if isinstance(one, type) and issubclass(one, Payload)]
    # Those of skills are of an extension, which the official schemas lack.
    payloads = {one.__name__ for one in classes if one.__module__ != "mcpio.types.skills"}
    assert payloads - set(BASES.split()) == set(FACTS)


@pytest.mark.parametrize("name", list(FACTS))
def test_a_type_exists_in_the_revisions_that_have_it(name: str) -> None:
    cls = payload_class(name)
    assert {letter for letter, revision in LETTERS.items() if cls.SINCE <= revision <= cls.UNTIL} == set(
        FACTS[name]["revisions"]
    )


@pytest.mark.parametrize(("name", "letter"), CASES)
def test_a_type_has_the_members_of_the_revision(name: str, letter: str) -> None:
    cls = payload_class(name)
    ours = {one.name for one in members(cls) if one.exists_in(LETTERS[letter])} | set(cls.CONSTANTS)
    ours -= {member for other, member in OF_AN_EXTENSION if other == name}
    theirs = {member for member, facts in FACTS[name]["members"].items() if letter in facts.partition(" ")[0]}
    assert ours - EVERYWHERE == theirs - EVERYWHERE - {member for other, member in OF_ANOTHER_CLASS if other == name}


@pytest.mark.parametrize(("name", "letter"), CASES)
def test_the_members_that_the_revision_requires_go_out(name: str, letter: str) -> None:
    cls = payload_class(name)
    for member, facts in FACTS[name]["members"].items():
        ours = member_of(name, member)
        if ours is None or member in EVERYWHERE or (name, member) in READ_WITHOUT:
            continue
        required = letter in facts.partition(" ")[2]
        goes_out = ours.default is attrs.NOTHING or ours.wire.always or ours.wire.required
        assert (goes_out and ours.exists_in(LETTERS[letter])) == required
        if required and not ours.needed_in(LETTERS[letter]):
            assert member in FILLED_IN
    assert all(letter in FACTS[name]["members"][constant].partition(" ")[2] for constant in cls.CONSTANTS)
