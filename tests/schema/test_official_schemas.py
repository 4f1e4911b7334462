"""The payload types and the official JSON Schemas agree, for every type and every revision.

The schemas are no part of the project. ``MCPIO_SCHEMA_DIR`` names the directory that has them, one folder for each
revision; without it none of this is collected. What the schemas say in short is in ``tests/types/facts.toml``, and this
file shows that the table tells the truth; ``tests/types/test_facts.py`` holds the types to the table anywhere.
"""

from __future__ import annotations

import functools
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import jsonschema
import pytest
from normal import normal

import mcpio.types
from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.methods import METHODS, Direction, Kind
from mcpio.revisions import REVISIONS, Revision
from mcpio.types._fields import Description, Member, members
from mcpio.types.base import ResultPayload

if TYPE_CHECKING:
    from mcpio.types import Payload

DIRECTORY = Path(os.environ["MCPIO_SCHEMA_DIR"])
FACTS = tomllib.loads((Path(__file__).parents[1] / "types" / "facts.toml").read_text(encoding="utf-8"))
LETTERS = dict(zip("ABCDE", REVISIONS, strict=True))

# Where a class stands in the schemas, when it is not the definition of its own name (or, of a request or notification,
# that definition's ``params``): a path through the properties, for all revisions or for some.

PLACES: dict[str, str | dict[str, str]] = {
    "Annotations": {"A": "Annotated/annotations", "BCDE": "Annotations"},
    "ClientTaskRequestsCapability": "ClientCapabilities/tasks/requests",
    "ClientTasksCapability": "ClientCapabilities/tasks",
    "Completion": "CompleteResult/completion",
    "CompletionArgument": "CompleteRequest/params/argument",
    "CompletionContext": "CompleteRequest/params/context",
    "ElicitFormRequest": {"C": "ElicitRequest/params", "DE": "ElicitRequestFormParams"},
    "ElicitSchema": {"C": "ElicitRequest/params/requestedSchema", "DE": "ElicitRequestFormParams/requestedSchema"},
    "ElicitURLRequest": "ElicitRequestURLParams",
    "ElicitationCapability": "ClientCapabilities/elicitation",
    "ElicitationTasksCapability": "ClientCapabilities/tasks/requests/elicitation",
    "LegacyTitledEnumSchema": {"C": "EnumSchema", "DE": "LegacyTitledEnumSchema"},
    "MissingRequiredClientCapabilityData": "MissingRequiredClientCapabilityError/error/data",
    "MultiSelectItems": "UntitledMultiSelectEnumSchema/items",
    "PromptsCapability": "ServerCapabilities/prompts",
    "ResourceTemplateReference": {"AB": "ResourceReference", "CDE": "ResourceTemplateReference"},
    "ResourcesCapability": "ServerCapabilities/resources",
    "RootsCapability": "ClientCapabilities/roots",
    "SamplingCapability": "ClientCapabilities/sampling",
    "SamplingTasksCapability": "ClientCapabilities/tasks/requests/sampling",
    "ServerTaskRequestsCapability": "ServerCapabilities/tasks/requests",
    "ServerTasksCapability": "ServerCapabilities/tasks",
    "TitledChoice": "TitledSingleSelectEnumSchema/oneOf/items",
    "TitledItems": "TitledMultiSelectEnumSchema/items",
    "ToolTasksCapability": "ServerCapabilities/tasks/requests/tools",
    "ToolsCapability": "ServerCapabilities/tools",
    "URLElicitationRequiredData": "URLElicitationRequiredError/error/data",
    "UnsupportedProtocolVersionData": "UnsupportedProtocolVersionError/error/data",
    "UntitledSingleSelectEnumSchema": {"C": "EnumSchema", "DE": "UntitledSingleSelectEnumSchema"},
}

NO_PAYLOADS = {
    "the error object, which mcpio.framing.jsonrpc knows": (
        "Error HeaderMismatchError InternalError InvalidParamsError InvalidRequestError MethodNotFoundError ParseError"
    ),
    "what others extend": (
        "Annotated BaseMetadata CacheableResult Icons InputResponseRequestParams Notification NotificationParams "
        "PaginatedRequest PaginatedRequestParams PaginatedResult Request RequestParams ResourceContents "
        "ResourceRequestParams Result TaskAugmentedRequestParams"
    ),
    "plain values": "Cursor LoggingLevel ProgressToken RequestId ResultType Role TaskStatus",
    "plain mappings by design": (
        "JSONArray JSONObject JSONValue MetaObject NotificationMetaObject RequestMetaObject ResultMetaObject "
        "SubscriptionsListenResultMetaObject"
    ),
    "unions": (
        "ClientNotification ClientRequest ClientResult ContentBlock ElicitRequest ElicitRequestParams EnumSchema "
        "InputRequest InputRequests InputResponse InputResponses MultiSelectEnumSchema PrimitiveSchemaDefinition "
        "SamplingMessageContentBlock ServerNotification ServerRequest ServerResult SingleSelectEnumSchema"
    ),
}
"""Definitions that are no payload, by the reason."""

PAYLOADS: dict[str, type[Payload]] = {name: getattr(mcpio.types, name) for name in FACTS}


# Reading a schema


class Schema:
    """The schema of one revision."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.root = json.loads((DIRECTORY / revision.name / "schema.json").read_text(encoding="utf-8"))
        self.key = "$defs" if "$defs" in self.root else "definitions"
        self.definitions: dict[str, Any] = self.root[self.key]

    def resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follow a reference, and put together what ``allOf`` takes apart."""
        while "$ref" in schema:
            schema = self.definitions[schema["$ref"].rpartition("/")[2]]
        if "allOf" not in schema:
            return schema
        parts = [self.resolve(part) for part in schema["allOf"]]
        merged: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        for part in parts:
            merged["properties"].update(part.get("properties", {}))
            merged["required"] += part.get("required", [])
        return merged

    def follow(self, path: str) -> Mapping[str, Any]:
        first, *steps = path.split("/")
        schema = self.resolve(self.definitions[first])
        for step in steps:
            schema = self.resolve(schema["items"] if schema.get("type") == "array" else schema["properties"][step])
        return schema

    def valid(self, schema: Mapping[str, Any], value: Any) -> bool:
        return not list(self.faults(schema, value))

    def faults(self, schema: Mapping[str, Any], value: Any) -> Iterator[str]:
        kind = jsonschema.Draft202012Validator if self.key == "$defs" else jsonschema.Draft7Validator
        for error in kind({**schema, self.key: self.definitions}).iter_errors(value):
            yield f"{error.json_path}: {error.message}"


@functools.cache
def schema_of(revision: Revision) -> Schema:
    return Schema(revision)


def path_of(name: str, letter: str) -> str:
    place = PLACES.get(name, name)
    if isinstance(place, dict):
        place = next(path for letters, path in place.items() if letter in letters)
    is_message = name.endswith(("Request", "Notification")) and name not in PLACES
    return f"{place}/params" if is_message else place


def definition_of(name: str, letter: str) -> Mapping[str, Any]:
    """Return the schema of a class. A request or notification without params takes an empty object."""
    schema, path = schema_of(LETTERS[letter]), path_of(name, letter)
    try:
        return schema.follow(path)
    except KeyError:
        assert path.endswith("/params")
        return {"type": "object"}


# Making what a schema allows

STRINGS = {"byte": "aGk=", "uri": "file:///a/b", "uri-template": "file:///{path}"}

SENDABLE = {
    "blob": "aGk=",
    "data": "aGk=",
    "lastModified": "2025-01-12T15:00:58Z",
    "mimeType": "text/plain",
    "src": "https://example.com/icon.png",
}
"""Strings whose form the prose prescribes and the schemas do not: others are read, and not sent (CONT-03, CONT-04)."""


def samples(schema: Schema, part: Mapping[str, Any], *, full: bool, depth: int = 0) -> list[Any]:
    """Return values that the schema allows, the plainest first: between them, each choice is made once."""
    part = schema.resolve(part)
    if "const" in part:
        return [part["const"]]
    if "enum" in part:
        return list(part["enum"])
    if "anyOf" in part:
        return [value for choice in part["anyOf"] for value in samples(schema, choice, full=full, depth=depth)]
    match part.get("type"):
        case list(kinds):
            return [value for kind in kinds for value in samples(schema, {**part, "type": kind}, full=full)]
        case "object":
            return objects(schema, part, full=full, depth=depth)
        case "array":
            return arrays(schema, part.get("items", {}), full=full, depth=depth)
        case "string":
            return [STRINGS.get(part.get("format", ""), "text")]
        case "integer":
            return [part.get("minimum", 3)]
        case "number":
            return [part.get("minimum", 1), part.get("maximum", 2.5)]
        case "boolean":
            return [True, False]
        case "null":
            return [None]
    return [{"any": [1, None, "x"]}, "text", 1.5, None]


def arrays(schema: Schema, items: Mapping[str, Any], *, full: bool, depth: int) -> list[Any]:
    if depth > 8:  # JSONValue holds itself.
        return [[]]
    return [[], *([value] for value in samples(schema, items, full=full, depth=depth + 1))]


def objects(schema: Schema, part: Mapping[str, Any], *, full: bool, depth: int) -> list[Any]:
    required = part.get("required", ())
    others = part.get("additionalProperties", True)
    choices = {
        name: [SENDABLE[name]]
        if name in SENDABLE and schema.resolve(property_).get("type") == "string"
        else samples(schema, property_, full=full, depth=depth + 1)
        for name, property_ in part.get("properties", {}).items()
        if full or name in required
    }
    if full and isinstance(others, dict) and others and depth < 8:
        choices["a key"] = samples(schema, others, full=full, depth=depth + 1)
    plain = {name: values[-1] for name, values in choices.items()}
    if full and (others is True or others == {}):
        plain["unknown member"] = {"deep": [1, {"er": None}]}
    return [plain, *({**plain, name: value} for name, values in choices.items() for value in values[:-1])]


CASES = [
    pytest.param(name, letter, id=f"{name}-{LETTERS[letter]}")
    for name, facts in FACTS.items()
    for letter in facts["revisions"]
]
"""Every class with every revision that has it."""


def allowed(name: str, letter: str) -> Iterator[Any]:
    schema, definition = schema_of(LETTERS[letter]), definition_of(name, letter)
    for full in (False, True):
        yield from samples(schema, definition, full=full)


# Knowingly different


def is_different(name: str, letter: str, value: Any) -> bool:
    """Whether the difference is meant. Each has its reason."""
    if not isinstance(value, Mapping):
        return False
    return (
        # The request's id may be missing in the schema of 2025-11-25 alone: it is read so and never sent (CANC-01).
        (name == "CancelledNotification" and letter == "D" and "requestId" not in value)
        # EnumSchema of 2025-06-18 is two classes here, one with names and one without.
        or (name == "LegacyTitledEnumSchema" and letter == "C" and "enumNames" not in value)
        or (name == "UntitledSingleSelectEnumSchema" and letter == "C" and "enumNames" in value)
    )


# The tests


@pytest.mark.parametrize("letter", list(LETTERS))
def test_every_definition_has_its_class(letter: str) -> None:
    definitions = set(schema_of(LETTERS[letter]).definitions)
    placed = {path_of(name, letter).split("/")[0] for name in FACTS if letter in FACTS[name]["revisions"]}
    others = {name for names in NO_PAYLOADS.values() for name in names.split()}
    rest = {name for name in definitions - placed - others if not name.startswith("JSONRPC")}
    assert {
        name for name in rest if name.removesuffix("Params") not in placed and not name.endswith("Response")
    } == set()


@pytest.mark.parametrize(("name", "letter"), CASES)
def test_the_table_of_facts_is_true(name: str, letter: str) -> None:
    definition = definition_of(name, letter)
    there, required = set(definition.get("properties", ())), set(definition.get("required", ()))
    assert there == {member for member, facts in FACTS[name]["members"].items() if letter in facts.partition(" ")[0]}
    assert required == {member for member, facts in FACTS[name]["members"].items() if letter in facts.partition(" ")[2]}


@pytest.mark.parametrize("name", list(FACTS))
def test_the_table_knows_every_revision_that_has_the_class(name: str) -> None:
    found = ""
    for letter, revision in LETTERS.items():
        try:
            path = path_of(name, letter).removesuffix("/params")
            schema_of(revision).follow(path)
        except (KeyError, StopIteration):
            continue
        found += letter
    assert FACTS[name]["revisions"] == found


@pytest.mark.parametrize(("name", "letter"), CASES)
def test_values_of_the_schema_round_trip(name: str, letter: str) -> None:
    conversion = codec(LETTERS[letter])
    for value in allowed(name, letter):
        if not is_different(name, letter, value):
            payload = conversion.decode(value, PAYLOADS[name])
            assert normal(conversion.encode(payload)) == normal(value)
            assert not getattr(payload, "malformed", ())


@pytest.mark.parametrize(("name", "letter"), CASES)
def test_minimal_payload_fits_the_schema(name: str, letter: str) -> None:
    """The defaults of the class fill in what the schema requires."""
    conversion, definition = codec(LETTERS[letter]), definition_of(name, letter)
    for value in samples(schema_of(LETTERS[letter]), definition, full=False):
        if is_different(name, letter, value):
            continue
        read = conversion.decode(value, PAYLOADS[name])
        wanted = [member.attribute for member in members(type(read)) if member.needed_in(LETTERS[letter])]
        if "_meta" in definition.get("required", ()):  # Requests of 2026-07-28: the engine puts it there (ENV-01).
            wanted.append("meta")
        made = type(read)(**{attribute: getattr(read, attribute) for attribute in wanted})
        assert list(schema_of(LETTERS[letter]).faults(definition, conversion.encode(made))) == []


@pytest.mark.parametrize(("name", "letter"), CASES)
def test_full_payload_fits_the_schema(name: str, letter: str) -> None:
    """Members that a revision lacks are left out, or refused where they are essential."""
    definition = definition_of(name, letter)
    for payload in everything(name):
        assert list(schema_of(LETTERS[letter]).faults(definition, said_in(payload, letter))) == []


def said_in(payload: Any, letter: str) -> Any:
    """Return the payload as JSON, without the essential members that the revision lacks: with one, it is refused.

    Where a value inside it is too new as well, a sample of the revision's own takes its place.
    """
    conversion = codec(LETTERS[letter])
    for member in members(type(payload)):
        if member.wire.essential and not member.exists_in(LETTERS[letter]):
            with pytest.raises(InvalidMessage):
                conversion.encode(payload)
            payload = attrs.evolve(payload, **{member.attribute: member.default})
    try:
        return conversion.encode(payload)
    except InvalidMessage as error:
        words = ("does not exist in", "it is a single one", "expected an object", 'must have "type": "object"')
        if not any(word in error.reason for word in words):
            raise
        name = next(name for name, cls in PAYLOADS.items() if cls is type(payload))
        return next(value for value in allowed(name, letter) if not is_different(name, letter, value))


def everything(name: str) -> Iterator[Any]:
    """Yield payloads of a class that have the members of all revisions at once, without unknown ones."""
    found: dict[type, dict[str, Any]] = {}
    for letter in FACTS[name]["revisions"]:
        for value in samples(schema_of(LETTERS[letter]), definition_of(name, letter), full=True):
            if not is_different(name, letter, value):
                payload = codec(LETTERS[letter]).decode(value, PAYLOADS[name])
                found.setdefault(type(payload), {}).update(said(payload))
    for cls, values in found.items():
        yield cls(**values)


def said(payload: Any) -> dict[str, Any]:
    values = {member.attribute: getattr(payload, member.attribute) for member in members(type(payload))}
    return {name: value for name, value in values.items() if name not in payload.given and value is not None}


KINDS: list[Any] = [5, 1.5, True, "neither", None, [], [5], ["neither"], {}, {"neither": 5}]

LOOSE = {
    "_meta",
    "experimental",
    "extensions",
    "inputSchema",  # SCHEMA-04: a bad schema is its tool's trouble, found when the tool is used
    "outputSchema",
    "params",
}
"""Plain mappings: what they hold is for whoever uses them."""


@pytest.mark.parametrize(("name", "letter"), CASES)
def test_codec_and_schema_agree_on_faults(name: str, letter: str) -> None:
    """Each member in turn gets values of every kind: read losslessly when the schema allows it, refused otherwise."""
    schema, definition, conversion = schema_of(LETTERS[letter]), definition_of(name, letter), codec(LETTERS[letter])
    whole = samples(schema, definition, full=True)[0]
    for member in set(definition.get("properties", ())) - LOOSE:
        for wrong in KINDS:
            value = {**whole, member: wrong}
            if is_different(name, letter, value) or is_tolerated(name, member, wrong):
                continue
            is_only_read = member in SENDABLE or (name, member) == ("Root", "uri")  # roots are files
            if isinstance(wrong, str) and is_only_read and schema.valid(definition, value):
                conversion.decode(value, PAYLOADS[name])
            elif schema.valid(definition, value):
                assert normal(conversion.encode(conversion.decode(value, PAYLOADS[name]))) == normal(value)
            else:
                with pytest.raises(InvalidMessage):
                    conversion.decode(value, PAYLOADS[name])


def is_dropped(member: Member) -> bool:
    """Whether a member may be dropped where its type is wrong."""
    return member.default is not attrs.NOTHING and not (member.wire.strict or member.wire.required)


def is_tolerated(name: str, member: str, value: Any) -> bool:
    """Whether a value is read although the schema forbids it. Each has its reason."""
    cls = PAYLOADS[name]
    known = {each.name: each for each in members(cls)}.get(member)
    return (
        # Many peers write null for what they could leave out.
        (value is None and known is not None and (known.default is None or is_dropped(known)))
        # What is optional in a result, or describes something, is dropped where its type is wrong (CONT-04).
        or (known is not None and is_dropped(known) and issubclass(cls, ResultPayload | Description))
        # Numbers out of range are the sender's to avoid (CONT-04).
        or (isinstance(value, int | float) and not isinstance(value, bool) and member.endswith(("riority", "ttlMs")))
        # Lists live on without their bad items (P8).
        or (isinstance(value, list) and known is not None and known.attribute == cls.ITEMWISE)
        # schema.json says integer where the TypeScript source says number.
        or (value == 1.5 and member in {"ttl", "pollInterval"})
        # A form with a field of an unknown kind can still be shown (ELIC-05).
        or (member == "properties" and isinstance(value, dict))
    )


@pytest.mark.parametrize("letter", list(LETTERS))
def test_methods_match_the_schema(letter: str) -> None:
    revision, schema = LETTERS[letter], schema_of(LETTERS[letter])
    found = set()
    for union, direction, kind in (
        ("ClientRequest", "to the server", Kind.REQUEST),
        ("ServerRequest", "to the client", Kind.REQUEST),
        ("ClientNotification", "to the server", Kind.NOTIFICATION),
        ("ServerNotification", "to the client", Kind.NOTIFICATION),
    ):
        definition = schema.definitions.get(union, {"anyOf": []})
        for choice in definition.get("anyOf", [definition]):
            found.add((schema.resolve(choice)["properties"]["method"]["const"], direction, kind))
    ours = set()
    for method in METHODS.values():
        is_of_extension = method.name == "notifications/tasks" or "io.modelcontextprotocol/skills" in method.capability
        if method.exists_in(revision) and not is_of_extension:
            to = method.direction_in(revision)
            both = (Direction.TO_SERVER, Direction.TO_CLIENT)
            ours |= {(method.name, one.value, method.kind) for one in (both if to is Direction.BOTH else (to,))}
    assert ours == found


def test_embedded_requests_match_the_schema() -> None:
    schema = schema_of(REVISIONS[-1])
    choices = schema.definitions["InputRequest"]["anyOf"]
    found = {schema.resolve(choice)["properties"]["method"]["const"] for choice in choices}
    assert {method.name for method in METHODS.values() if method.embedded} == found


def test_fractional_numbers_in_forms_are_accepted() -> None:
    """``ElicitResult.content`` is a number in the TypeScript source, and an integer in what was made from it."""
    value = {"action": "accept", "content": {"height": 1.85}}
    for letter in FACTS["ElicitResult"]["revisions"]:
        conversion = codec(LETTERS[letter])
        assert conversion.encode(conversion.decode(value, mcpio.types.ElicitResult)) == value
        assert not schema_of(LETTERS[letter]).valid(definition_of("ElicitResult", letter), value)
