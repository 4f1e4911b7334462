"""The parts of the docs that are made from the library: tables, drawings, and programs shown on a page.

They stand in the pages, so that a forge shows them too. A comment in front of each says what it is made from. Programs
keep the format that they have as files:

    <!-- made from: attributes mcpio.engine.limits.Limits -->
    <!-- fmt: off -->
    <!-- not run: examples/echo_server.py, which a test of its own runs -->

Run as a program this brings all of them up to date; a test says when that is due.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import figures
from gauge_svg import draw_gauge
from http_ladders import draw_http_ladders
from ladder_svg import draw_ladder
from layers_svg import draw_layers
from login_ladder import draw_login
from opening import opening_rows
from path_of_a_call import draw_path
from promise_tables import model_rows, promise_rows, world_rows
from requirement_tables import left_out_rows, rule_rows
from revision_tables import member_rows, method_rows
from state_diagrams import diagram_rows, drawing
from timeline_svg import draw_timeline

from mcpio.testing import read_script

__all__ = ["DOCS", "ROOT", "brought_up_to_date", "drawings", "main", "pages"]

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

_TABLE = re.compile(r"^(<!-- made from: (?P<word>[\w-]+) ?(?P<words>.*) -->)\n\n(?:\|.*\n)*", re.MULTILINE)
_PROGRAM = re.compile(
    r"^(<!-- not run: (?P<file>examples/[\w/.]+)(?: (?P<part>[\w.]+))?, which a test of its own runs -->)\n"
    r"```(?P<language>\w+)\n.*?^```$",
    re.MULTILINE | re.DOTALL,
)


def pages() -> list[Path]:
    """Return the pages, in order."""
    return [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]


def brought_up_to_date(text: str) -> str:
    """Return the text of a page with its generated parts made anew."""
    text = _TABLE.sub(lambda found: f"{found[1]}\n\n{_table(found['word'], found['words'])}", text)
    return _PROGRAM.sub(lambda found: f"{found[1]}\n```{found['language']}\n{_program(found)}```", text)


def drawings() -> Iterator[tuple[Path, str]]:
    """Yield the file and the text of each drawing: tables of states, conversations, the layers."""
    for page in pages():
        for words in re.findall(r"^<!-- made from: states (.+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE):
            if words != "AUTHORIZATION_TABLE BOTH":  # its arrows would cross: the table says it better
                yield DOCS / "_static" / f"{words.lower().replace(' ', '-')}.svg", drawing(*words.split())
    for script in sorted((DOCS / "conversations").glob("*.txt")):
        title = script.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        yield DOCS / "_static" / f"conversation-{script.stem}.svg", draw_ladder(read_script(script), title)
    for name, ladder in draw_http_ladders():
        yield DOCS / "_static" / f"http-{name}.svg", ladder
    yield DOCS / "_static" / "path-of-a-call.svg", draw_path()
    yield DOCS / "_static" / "limits.svg", draw_gauge()
    yield DOCS / "_static" / "login.svg", draw_login()
    yield DOCS / "_static" / "layers.svg", draw_layers()
    yield DOCS / "_static" / "revisions.svg", draw_timeline()
    for name, plot in figures.draw_plots():
        yield DOCS / "_static" / f"benchmark-{name}.svg", plot


def main() -> None:
    """Bring every page and drawing up to date."""
    for page in pages():
        page.write_text(brought_up_to_date(page.read_text(encoding="utf-8")), encoding="utf-8")
    for file, text in drawings():
        file.write_text(text, encoding="utf-8")


# Tables


def _table(word: str, words: str) -> str:
    title, rows_of = _TABLES[word]
    head, *rows = [*([title] if title else []), *rows_of(words)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---"] * len(head), *map(_escaped, rows)])


def _escaped(cells: Sequence[str]) -> list[str]:
    return [" ".join(cell.split()).replace("|", "\\|") for cell in cells]


def _attributes(words: str) -> Iterator[list[str]]:
    module, _, name = words.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    said = _attribute_docs(cls)
    for attribute in attrs.fields(cls):
        default = "" if attribute.default is attrs.NOTHING else _plain(attribute.default)
        yield [f"`{attribute.name}`", default, _without_rules(said.get(attribute.name, "").replace("``", "`"))]


def _limits(words: str) -> Iterator[list[str]]:
    """Yield the rows of limits: what lies beyond each is a column, and bytes are in units that people think in."""
    for name, default, said in _attributes(words):
        meaning, _, beyond = said.partition(" Beyond")
        number = default.replace(",", "")
        is_size = ("_bytes" in name or name == "`high_water`") and number.isdecimal() and int(number) % 2**20 == 0
        beyond = beyond.removeprefix(":").strip().replace("Beyond: ", "Beyond it: ")
        shown = f"{int(number) >> 20:,} MiB" if is_size else default
        yield [name, shown, _without_rules(meaning), _without_rules(beyond[:1].upper() + beyond[1:])]


def _without_rules(said: str) -> str:
    """Return a text without the ids of rules, whose key is another page."""
    return re.sub(r"\s+\([A-Z]+-\d+(?:, [A-Z]+-\d+)*\)", "", said)


def _attribute_docs(cls: type) -> dict[str, str]:
    """Return the strings under the attributes of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node, below in pairwise(body.body):
        match node, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = text
            case _:
                pass
    return found


def _plain(value: Any) -> str:
    """Return a default as one would write it, and no longer than a table's cell likes."""
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]  # its stub declares a function
        return f"{value.factory.__name__}()"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, tuple | frozenset):
        return ", ".join(map(str, value)) or "none"
    if attrs.has(type(value)) and value == type(value)():
        return f"{type(value).__name__}()"
    return str(value)


_TABLES: Final[dict[str, tuple[list[str] | None, Callable[[str], Iterator[list[str]]]]]] = {
    "about-the-figures": (["", ""], figures.about_rows),
    "attributes": (["Name", "Default", "Meaning"], _attributes),
    "figures": (None, figures.figure_rows),
    "limits": (["Name", "Default", "Meaning", "Beyond it"], _limits),
    "members-by-revision": (
        ["Class", "Member", "Revisions", "To a peer without it"],
        lambda words: member_rows(),
    ),
    "missed-targets": (["Benchmark", "What", "Against", "Times as good", "Target"], figures.missed_rows),
    "methods-by-revision": (["Method", "To", "Revisions"], lambda words: method_rows()),
    "models": (["Machine", "Pairs of a state and an input"], lambda words: model_rows()),
    "opening": (["Outcome", "On a channel", "Over HTTP"], lambda words: opening_rows()),
    "promises": (
        ["Promise", "Tests passed", "Breakages caught", "Worlds check"],
        lambda words: promise_rows(),
    ),
    "requirements-left-out": (["Rule", "What it says", "Why it is not kept"], lambda words: left_out_rows()),
    "requirements": (["Rule", "What it says", "Here"], rule_rows),
    "slower": (["Benchmark", "Load", "Who", "How much"], figures.slower_rows),
    "speed": (None, figures.speed_rows),
    "states": (["When this happens", "in", "the next state is"], lambda words: diagram_rows(*words.split())),
    "worlds": (["All promises", ""], lambda words: world_rows()),
}
"""The head of each kind of table, ``None`` where it depends on the words of the comment, and its rows for these."""


# Programs


def _program(found: re.Match[str]) -> str:
    """Return the text of an example, or of one class or function in it."""
    source = (DOCS / found["file"]).read_text(encoding="utf-8")
    if found["part"] is None:
        return source
    node: Any = ast.parse(source)
    for name in found["part"].split("."):
        (node,) = [each for each in node.body if getattr(each, "name", None) == name]
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return textwrap.dedent("".join(source.splitlines(keepends=True)[first - 1 : node.end_lineno]))


if __name__ == "__main__":
    main()
