"""Tool arguments on a command line: ``key=value`` words, converted as the tool's schema asks.

A value is parsed as JSON if the schema accepts the result, and taken as text otherwise: ``limit=5`` is a number for a
tool that wants a number and the text ``5`` for one that wants text. ``key:=value`` is always JSON. Only types and
alternatives of the schema are considered; the server validates the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from mcpio.cli.exit_status import Exit, Failure, did_you_mean
from mcpio.framing import json


class Argument(NamedTuple):
    """One argument of the command line."""

    name: str
    text: str
    is_json: bool


@attrs.frozen
class Prepared:
    """Arguments ready to send."""

    arguments: dict[str, Any]
    notes: tuple[str, ...]
    """Possible mistakes, for the user to judge."""


def read_words(words: Iterable[str]) -> list[Argument]:
    """Return the arguments that the words give.

    Raises Failure for a word that is not an argument or not valid text, and for a name given twice.
    """
    arguments: dict[str, Argument] = {}
    for word in words:
        name, equals, text = encodable(word).partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":") if is_json else name
        if not equals or not name:
            raise Failure(Exit.USAGE, f"an argument must be key=value or key:=json, not {word!r}")
        if name in arguments:
            raise Failure(Exit.USAGE, f"{name!r} is given twice: write an array as JSON, such as {name}='[1, 2]'")
        if is_json:
            _parse(name, text)
        arguments[name] = Argument(name, text, is_json)
    return list(arguments.values())


def encodable(word: str) -> str:
    """Return ``word``. Raises Failure if it holds undecodable bytes (as surrogates), which JSON cannot express."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise Failure(
            Exit.USAGE, f"an argument must be text in the encoding of this environment, not {word!r}"
        ) from error
    return word


def prepare(schema: Mapping[str, Any], words: Sequence[Argument], *, of: str) -> Prepared:
    """Convert arguments by the schema of ``of``. Raises Failure with every fault, not only the first."""
    members = _members(schema)
    arguments: dict[str, Any] = {}
    faults, notes = [], []
    for name, text, is_json in words:
        member = members.get(name)
        if member is None:
            other = schema.get("additionalProperties")
            if other is False:
                faults.append(f"{name}: no such argument.{did_you_mean(name, members)}")
                continue
            if other is None and "patternProperties" not in schema:
                notes.append(f"note: {of} does not describe an argument {name!r}.{did_you_mean(name, members)}")
            member = other if isinstance(other, Mapping) else {}
        value = _parse(name, text) if is_json else _read(text, member, schema)
        if value is _UNFIT:
            faults.append(f"{name}: expected {_expected(name, member, schema)}, got {text!r}")
        else:
            arguments[name] = value
    given_names = {each.name for each in words}
    faults += [f"{name}: missing" for name in _required(schema) if name not in given_names]
    if faults:
        takes = signature(schema) or "no arguments"
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise Failure(Exit.BAD_ARGUMENTS, f"bad arguments for {of!r}:{lines}\n  it takes: {takes}")
    return Prepared(arguments, tuple(notes))


def signature(schema: Mapping[str, Any]) -> str:
    """Return the arguments of a tool, such as ``query=string [limit=integer]``."""
    required = _required(schema)
    members = _members(schema)
    order = [*(name for name in members if name in required), *(name for name in members if name not in required)]
    return " ".join(signature_part(name, _words(members[name], schema), name in required) for name in order)


def signature_part(name: str, value: str, required: bool) -> str:
    """Return one argument of a signature."""
    return f"{name}={value}" if required else f"[{name}={value}]"


# Converting values

_UNFIT: Any = object()


def _parse(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JsonError as error:
        raise Failure(Exit.USAGE, f"{name}:= must be JSON, not {text!r:.100}: {error.reason}") from error


def _read(text: str, member: Any, root: Mapping[str, Any]) -> Any:
    """Return the first interpretation of the text that fits the schema, or ``_UNFIT``."""
    for value in _readings(text):
        if _fits(value, member, root):
            return value
    return _UNFIT


def _readings(text: str) -> Iterator[Any]:
    try:
        value = json.loads(text.lower() if text.lower() in {"true", "false", "null"} else text)
    except json.JsonError:
        pass
    else:
        # Quoted text keeps its quotes: the shell has removed its own already.
        if not isinstance(value, str):
            yield value
    yield text


# Matching a schema. A server sends it, so recursion and total work are bounded.

_DEPTH = 32
"""Depth of references and alternatives beyond which a schema counts as accepting anything."""

_LOOKS = 2000
"""Total number of subschemas visited, likewise: a self-referencing schema can have exponentially many."""


def _fits(value: Any, schema: Any, root: Mapping[str, Any], depth: int = 0, looks: Iterator[int] | None = None) -> bool:
    """Whether a schema accepts a value, judged by types and alternatives; True when in doubt."""
    if not isinstance(schema, Mapping):
        return schema is not False
    looks = looks or iter(range(_LOOKS))
    if depth > _DEPTH or next(looks, None) is None:
        return True
    followed = _follow(schema, root)
    if followed is not None and not _fits(value, followed, root, depth + 1, looks):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_same(value, choice) for choice in choices):
        return False
    types = _types(schema)
    if types and not _is_one_of(value, types):
        return False
    if not all(_fits(value, part, root, depth + 1, looks) for part in _parts(schema, "allOf")):
        return False
    return all(
        any(_fits(value, part, root, depth + 1, looks) for part in parts)
        for parts in (_parts(schema, "anyOf"), _parts(schema, "oneOf"))
        if parts
    )


def _follow(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return the target of a ``$ref`` within the schema, or ``None`` if it does not exist."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            return None
        target = target[name]
    return target


def _types(schema: Mapping[str, Any]) -> list[str]:
    declared = schema.get("type")
    names = declared if isinstance(declared, list) else [declared]
    return [name for name in names if isinstance(name, str)]


def _is_one_of(value: Any, types: list[str]) -> bool:
    kind = _TYPE_NAMES[type(value)]
    return kind in types or (kind == "integer" and "number" in types)


_TYPE_NAMES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _same(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal; ``true`` and 1 are not, though Python says so."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _parts(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    parts = schema.get(keyword)
    return parts if isinstance(parts, list) else []


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _required(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


# Describing a schema

_SHOWN_CHOICES = 6


def _expected(name: str, member: Any, root: Mapping[str, Any]) -> str:
    words = _words(member, root)
    kinds = {*words.split("|")} - {"null"}
    if kinds == {"array"}:
        return f"an array as JSON, such as {name}='[1, 2]'"
    if kinds == {"object"}:
        return f"""an object as JSON, such as {name}='{{"a": 1}}'"""
    return words


def _words(schema: Any, root: Mapping[str, Any], depth: int = 0, looks: Iterator[int] | None = None) -> str:
    """Describe the values that a schema accepts: ``integer``, ``red|green``, ``string|null``."""
    looks = looks or iter(range(_LOOKS))
    if not isinstance(schema, Mapping) or depth > _DEPTH or next(looks, None) is None:
        return "any"
    followed = _follow(schema, root)
    if followed is not None:
        return _words(followed, root, depth + 1, looks)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and choices:
        shown = [each if isinstance(each, str) else json.dumps(each).decode() for each in choices[:_SHOWN_CHOICES]]
        return "|".join([*shown, "..."] if len(choices) > _SHOWN_CHOICES else shown)
    if types := _types(schema):
        return "|".join(types)
    alternatives = _parts(schema, "anyOf") or _parts(schema, "oneOf") or _parts(schema, "allOf")[:1]
    return "|".join(dict.fromkeys(_words(each, root, depth + 1, looks) for each in alternatives)) or "any"
