"""The frontmatter of skills: YAML that JSON can hold, read within bounds and without conversions (SKILL-02)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from mcpio._extras import extra

__all__ = [
    "MAX_FRONTMATTER",
    "FrontmatterFault",
    "differing_members",
    "frontmatter_of",
    "frontmatter_text",
    "is_skill_name",
    "line_of",
    "yaml_package",
]

MAX_FRONTMATTER: Final = 64 << 10
"""Bytes of the longest frontmatter that is read."""
MAX_DEPTH: Final = 32
"""How deep mappings and lists in it may nest."""
MAX_NODES: Final = 2000
"""How many names and values it may have: PyYAML takes a tenth of a millisecond for each."""
MAX_DESCRIPTION: Final = 1024
"""Characters of the longest description."""
MAX_COMPATIBILITY: Final = 500
"""Characters of the longest ``compatibility``."""
SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every reader of JSON keeps exactly."""


class FrontmatterFault(ValueError):
    """The frontmatter of a skill is missing or wrong."""

    line: int
    """The line of the file, counted from 1."""
    reason: str
    """A description of the fault."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def frontmatter_of(data: bytes, directory: str | None = None) -> dict[str, Any]:
    """Return the frontmatter of a ``SKILL.md``, as plain JSON.

    Raises FrontmatterFault if there is none, or if it is anything but plain YAML of JSON's values: anchors, aliases,
    tags, repeated and merged keys, and values such as ``.nan`` are faults. A date is the text that it is written as.
    Also if ``name``, ``description``, ``compatibility`` or ``metadata`` breaks the rules of Agent Skills, or if the
    name is not that of ``directory``. Raises ImportError without PyYAML.
    """
    yaml, node = _parse(_between_the_marks(data))
    members: dict[str, Any] = _plain(yaml, node, _scalar)
    name, description = members.get("name"), members.get("description")
    if not isinstance(name, str) or not is_skill_name(name):
        fault = "is missing" if name is None else f"is {name!r:.80}"
        raise FrontmatterFault(
            line_of(data, "name"),
            f"name {fault}: it has 1 to 64 of a-z, 0-9 and single hyphens, which neither begin nor end it",
        )
    if directory is not None and name != directory:
        reason = f"name {name!r} is not that of the directory, {directory!r:.100}: rename one of them"
        raise FrontmatterFault(line_of(data, "name"), reason)
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        fault = "is missing" if description is None else "is not a text of 1 to 1024 characters"
        raise FrontmatterFault(line_of(data, "description"), f"description {fault}")
    _check_optional(yaml, node, members)
    return members


def differing_members(data: bytes, announced: Mapping[str, Any]) -> list[str]:
    """Return the members in which the frontmatter of a ``SKILL.md`` differs from what a server said it is (SKILL-22).

    YAML 1.1 and 1.2 read a few words differently, such as ``yes``: the server may have read them in either way. Raises
    FrontmatterFault if there is no frontmatter that can be read.
    """
    yaml, node = _parse(_between_the_marks(data))
    members, members_1_1 = _plain(yaml, node, _scalar), _plain(yaml, node, _scalar_1_1)
    return [
        name
        for name in dict.fromkeys([*members, *announced])
        if name not in members
        or name not in announced
        or not (_is_same(members[name], announced[name]) or _is_same(members_1_1[name], announced[name]))
    ]


def _check_optional(yaml: Any, node: Any, members: Mapping[str, Any]) -> None:
    """Check the members that a skill may have. There are hosts that refuse a whole list for one that is wrong."""
    for key, value in node.value:
        member = members[key.value]
        if key.value == "compatibility" and not (isinstance(member, str) and 1 <= len(member) <= MAX_COMPATIBILITY):
            reason = f"compatibility is not a text of 1 to {MAX_COMPATIBILITY} characters"
            raise FrontmatterFault(_line(key), reason)
        if key.value == "metadata":
            if not isinstance(value, yaml.MappingNode):
                raise FrontmatterFault(_line(key), "metadata is not a mapping of names to texts")
            for name, _ in value.value:
                if not isinstance(member[name.value], str):
                    raise FrontmatterFault(_line(name), f"{name.value:.60} of metadata is not a text: quote its value")


def _is_same(one: Any, other: Any) -> bool:
    """Compare JSON values: true is not 1."""
    if isinstance(one, dict) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def frontmatter_text(members: Mapping[str, Any]) -> str:
    """Return the frontmatter with some members, marks included, as the beginning of a ``SKILL.md``.

    Raises FrontmatterFault for members that ``frontmatter_of`` would not return unchanged.
    """
    text = f"---\n{yaml_package().safe_dump(dict(members), allow_unicode=True, sort_keys=False)}---\n"
    if frontmatter_of(text.encode()) != dict(members):
        raise FrontmatterFault(1, "the frontmatter has values that JSON cannot hold")
    return text


def is_skill_name(name: str) -> bool:
    """Return whether a text can be the name of a skill."""
    return len(name) <= 64 and _NAME.fullmatch(name) is not None


_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def _between_the_marks(data: bytes) -> str:
    """Return what is between the two lines ``---``, with an empty line for the first, so that lines keep numbers."""
    first, _, rest = data.partition(b"\n")
    if first.rstrip(b"\r\t ") != b"---":
        raise FrontmatterFault(1, "the file does not begin with the line ---, which begins the frontmatter")
    end = _END.search(rest[: MAX_FRONTMATTER + 8])
    if end is None:
        limit = f" within {MAX_FRONTMATTER} bytes" if len(rest) > MAX_FRONTMATTER else ""
        raise FrontmatterFault(1, f"no second line --- ends the frontmatter{limit}")
    inside = rest[: end.start()]
    try:
        return "\n" + inside.decode()
    except UnicodeDecodeError as error:
        line = 2 + inside[: error.start].count(b"\n")
        raise FrontmatterFault(line, "the frontmatter is not UTF-8") from None


_END: Final = re.compile(rb"^---[ \t]*\r?$", re.MULTILINE)


def line_of(data: bytes, key: str) -> int:
    """Return the line of a member of the frontmatter, 1 without it."""
    match = re.search(rb"^" + key.encode() + rb"[ \t]*:", data[:MAX_FRONTMATTER], re.MULTILINE)
    return 1 if match is None else 1 + data[: match.start()].count(b"\n")


def _parse(text: str) -> tuple[Any, Any]:
    """Return the package, and the node of the mapping."""
    yaml = yaml_package()
    try:
        _check_events(yaml, text)
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FrontmatterFault(1 if mark is None else mark.line + 1, f"invalid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = 1 + text[: error.position].count("\n")
        raise FrontmatterFault(line, "the frontmatter has a character that YAML forbids") from None
    if not isinstance(node, yaml.MappingNode):
        raise FrontmatterFault(
            1 if node is None else _line(node), "the frontmatter is not a mapping of names to values"
        )
    return yaml, node


def _check_events(yaml: Any, text: str) -> None:
    """Refuse anchors, aliases, tags and depth before nodes are made, since events need no memory for them."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, yaml.SafeLoader)):
        line = event.start_mark.line + 1
        if count > MAX_NODES:
            raise FrontmatterFault(line, f"there are more than {MAX_NODES:,} names and values")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise FrontmatterFault(line, "anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise FrontmatterFault(line, f"the tag {event.tag!r:.60} is not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise FrontmatterFault(line, f"values nest deeper than {MAX_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _plain(yaml: Any, node: Any, scalar: Callable[[Any], Any]) -> Any:
    """Return the JSON value of a node. Bounded in depth by ``_check_events``."""
    if isinstance(node, yaml.SequenceNode):
        return [_plain(yaml, each, scalar) for each in node.value]
    if isinstance(node, yaml.MappingNode):
        members: dict[str, Any] = {}
        for key, value in node.value:
            name = _plain(yaml, key, _scalar)
            if not isinstance(name, str) or name == "<<":
                raise FrontmatterFault(_line(key), f"the key {name!r:.60} is not a text, and JSON has no other keys")
            if name in members:
                raise FrontmatterFault(_line(key), f"the key {name!r:.60} is there twice")
            members[name] = _plain(yaml, value, scalar)
        return members
    return scalar(node)


def _scalar(node: Any) -> Any:
    """Return the value of a scalar: the JSON schema of YAML 1.2 for plain ones, and a text for everything else."""
    text: str = node.value
    if _SURROGATE.search(text):
        raise FrontmatterFault(_line(node), "half of a surrogate pair is no character; write the character itself")
    if node.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        number = int(text) if len(text) < 20 else SAFE_INTEGER + 1
        if abs(number) > SAFE_INTEGER:
            raise FrontmatterFault(_line(node), f"the number {text:.30} is too large for JSON; quote it to have a text")
        return number
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if _NOT_FINITE.fullmatch(text) or _FLOAT.fullmatch(text):
        raise FrontmatterFault(_line(node), f"JSON has no number {text:.30}; quote it to have a text")
    return text


def _scalar_1_1(node: Any) -> Any:
    """Return the value of a scalar as YAML 1.1 reads it, dates excepted."""
    loader = yaml_package().SafeLoader("")
    construct = getattr(loader, _CONSTRUCTORS.get(node.tag, ""), None)
    try:
        return _scalar(node) if construct is None else construct(node)
    except (ValueError, OverflowError):  # "0x_" and, of numbers in base 60, those that no float can hold
        return _scalar(node)


_CONSTRUCTORS: Final = {
    f"tag:yaml.org,2002:{kind}": f"construct_yaml_{kind}" for kind in ("str", "bool", "int", "float", "null")
}
_WORDS: Final[Mapping[str, Any]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def _line(node: Any) -> int:
    line: int = node.start_mark.line + 1
    return line


@cache
def yaml_package() -> Any:
    """Return PyYAML. Raises ImportError without the extra."""
    with extra("skills", "a skill"):
        import yaml
    return yaml
