"""Parsing of docstrings: the description of a function, and of each parameter.

Three styles are understood: sections with a colon (``Args:``, Google's), underlined sections (``Parameters`` over
``----------``, NumPy's), and fields (``:param name:``, Sphinx's). Anything else is text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["Docstring", "parse_docstring"]


class Docstring:
    """A parsed docstring.

    ``description`` is the text before the first section, and ``summary`` its first paragraph on one line; ``None`` if
    there is none. ``parameters`` maps parameter names to their descriptions, each on one line.
    """

    __slots__ = ("description", "parameters", "summary")

    def __init__(self, description: str | None, parameters: dict[str, str]) -> None:
        self.description: str | None = description
        self.summary: str | None = _one_line(description.split("\n\n", 1)[0]) if description else None
        self.parameters: dict[str, str] = parameters


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring. Any text is accepted; one that is not understood is a description."""
    lines = inspect.cleandoc(text).split("\n") if text else []
    first, *others = _sections(lines)
    parameters: dict[str, str] = {}
    for section in others:
        for name, description in section.entries():
            if description:
                parameters.setdefault(name, description)
    return Docstring("\n".join(first.body).strip() or None, parameters)


class _Section:
    """Lines of a docstring: free text, a titled section in one of the styles, or one field."""

    __slots__ = ("body", "style", "title")

    def __init__(self, style: str, title: str = "") -> None:
        self.style = style
        self.title = title
        self.body: list[str] = []

    def ends_at(self, line: str) -> bool:
        """Whether a line that starts no section ends this one: Google's and Sphinx's are indented."""
        return self.style in ("google", "sphinx") and line[:1].strip() != ""

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yield (parameter, description)."""
        if self.style == "sphinx":
            if found := _FIELD.match("\n".join(self.body)):
                yield found[1], _one_line(found[2])
        elif self.title in _PARAMETERS:
            head = _GOOGLE_HEAD if self.style == "google" else _NUMPY_HEAD
            for entry in self._indented():
                if found := head.match(entry):
                    for name in found[1].split(","):
                        yield name.strip().lstrip("*"), _one_line(found[2])

    def _indented(self) -> Iterator[str]:
        """Yield the lines at the section's margin, each with the deeper lines after it."""
        margin = min((_indent(line) for line in self.body if line.strip()), default=0)
        entry: list[str] = []
        for line in self.body:
            if line.strip() and _indent(line) == margin and entry:
                yield "\n".join(entry)
                entry = []
            entry.append(line.strip())
        yield "\n".join(entry)


# fmt: off
_PARAMETERS: Final = frozenset([
    "args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters",
    "attributes", "fields", "members",
])
_TITLES: Final = _PARAMETERS | frozenset([
    "example", "examples", "note", "notes", "raises", "references", "return", "returns", "see also",
    "warning", "warnings", "yield", "yields",
])
# fmt: on
# "name (type): text" and, with more lines, "name, name : type".
_GOOGLE_HEAD: Final = re.compile(r"(\*{0,2}\w+) *(?:\(.*?\))? *:(.*)", re.DOTALL)
_NUMPY_HEAD: Final = re.compile(r"(\*{0,2}\w+(?: *, *\*{0,2}\w+)*)(?: *:[^\n]*)?(?:\n(.*))?$", re.DOTALL)
_FIELD: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|ivar|var|cvar) +(?:[^:\n]* )?\*{0,2}(\w+) *:(.*)", re.DOTALL
)
_ANY_FIELD: Final = re.compile(r":[a-zA-Z]+(?: [^:]*)?:")


def _sections(lines: list[str]) -> Iterator[_Section]:
    """Yield the parts of a docstring in order. The first is free text, perhaps empty."""
    section = _Section("text")
    index = 0
    while index < len(lines):
        line = lines[index]
        started = _start(line, lines[index + 1] if index + 1 < len(lines) else "")
        if started is None and section.ends_at(line):
            started = _Section("text")
        if started is not None:
            yield section
            section = started
        if section.style in ("text", "sphinx") or started is None:
            section.body.append(line)
        index += 2 if started is not None and started.style == "numpy" else 1
    yield section


def _start(line: str, following: str) -> _Section | None:
    """Return the section that a line starts, or ``None``."""
    if _ANY_FIELD.match(line):
        return _Section("sphinx")
    words = line.rstrip().lower()
    if words in _TITLES and len(following) >= 3 and not following.strip("-= "):
        return _Section("numpy", words)
    if words.endswith(":") and words[:-1] in _TITLES:
        return _Section("google", words[:-1])
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
