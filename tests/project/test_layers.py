"""The layers hold: what a module imports lies below it, and below the drivers nothing reaches for the system.

The order of the rows and the list of forbidden modules stand once, in pyproject.toml, for the import linter. This test
reads the same lists and adds what the linter cannot see: names resolved on first use, modules named by strings, calls
that ask for the present, builtins that do input or output, and ``await`` where nothing may wait.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from circles import CirclesAtRunTime
from importlinter.configuration import configure
from tree import modules, settings

CONTRACTS = settings()["tool"]["importlinter"]["contracts"]
ROWS = [
    [name.strip(" ()") for name in row.split("|")]
    for contract in CONTRACTS
    if contract["type"] == "layers"
    for row in reversed(contract["layers"])
]
FORBIDDEN = {
    name for contract in CONTRACTS if contract["type"] == "forbidden" for name in contract["forbidden_modules"]
}
PURE = {name for row in ROWS[: [r[0] for r in ROWS].index("app") + 1] for name in row}
UNWAITING = PURE - {"app"}
KNOWN = modules()

PRESENT = {"now", "utcnow", "today"}
"""What a class of ``datetime`` answers from the system's clock."""
OUTSIDE = {"open", "print", "input", "breakpoint"}
"""Builtins that do input or output."""
STREAMS = {"stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__"}


def rank(module: str) -> float:
    """Return how high a module stands. The package itself has names of app and of all below, so it stands on app."""
    parts = module.split(".")
    if len(parts) == 1:
        return next(i for i, row in enumerate(ROWS) if "app" in row) + 0.5
    return next(i for i, row in enumerate(ROWS) if parts[1] in row)


def may_import(module: str, other: str) -> bool:
    """Tell whether the rows allow ``module`` to import ``other``: the same top-level part, or one below."""
    return module.split(".")[:2] == other.split(".")[:2] or rank(other) < rank(module)


def imports(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield every module that the source names in an import, wherever it stands, or as a string to import later."""
    tree = ast.parse(source)
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute("." * node.level + (node.module or ""), package)
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in KNOWN else base
    yield from _named_in_calls(tree)
    if _imports_by_name(tree):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from _named(node.value, package)


def _named_in_calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))


def _absolute(name: str, package: str) -> str:
    dots = len(name) - len(name.lstrip("."))
    if not dots:
        return name
    base = package.split(".")[: len(package.split(".")) - dots + 1]
    return ".".join([*base, *filter(None, [name.lstrip(".")])])


def _imports_by_name(tree: ast.Module) -> bool:
    lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return lazy or bool({"import_module", "__import__", "find_spec"} & (names | attributes))


def _named(text: str, package: str) -> Iterator[str]:
    """Yield the modules of ours that a string such as ``tools:Tool``, ``.tools`` or ``mcpio.codec`` may name."""
    name = text.partition(":")[0]
    if not re.fullmatch(r"\.*[A-Za-z_]\w*(\.\w+)*", name):
        return
    for candidate in (_absolute(name, package), f"{package}.{name}", f"mcpio.{name}", f"mcpio.types.{name}"):
        if candidate in KNOWN and candidate != "mcpio":
            yield candidate


def impurities(source: str) -> Iterator[str]:
    """Yield, with its line, what asks for the present or does input or output without an import of its own."""
    tree = ast.parse(source)
    clocks = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.name == "datetime" or getattr(node, "module", None) == "datetime"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root = ast.unparse(node.value).split(".")[0]
            if (node.attr in PRESENT and root in clocks) or (node.attr in STREAMS and root == "sys"):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OUTSIDE:
            yield f"line {node.lineno}: {node.func.id}()"


def waits(source: str) -> list[int]:
    """Return the lines that define something asynchronous or wait for it."""
    asynchronous = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, asynchronous)]


def _top(module: str) -> str:
    return module.split(".")[1] if "." in module else "mcpio"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", KNOWN)
def test_a_module_imports_only_from_below(module: str) -> None:
    found = set(imports(_read(KNOWN[module]), module, is_package=KNOWN[module].name == "__init__.py"))
    ours = {name for name in found if name.split(".")[0] == "mcpio"}
    assert not {name for name in ours if not may_import(module, name)}


@pytest.mark.parametrize("module", [name for name in KNOWN if _top(name) in PURE | {"mcpio"}])
def test_modules_below_the_drivers_do_not_touch_the_system(module: str) -> None:
    source = _read(KNOWN[module])
    found = set(imports(source, module, is_package=KNOWN[module].name == "__init__.py"))
    assert not {name for name in found if name.split(".")[0] in FORBIDDEN}
    assert not list(impurities(source))


@pytest.mark.parametrize("module", [name for name in KNOWN if _top(name) in UNWAITING])
def test_the_machines_do_not_wait(module: str) -> None:
    assert not waits(_read(KNOWN[module]))


def test_every_module_has_a_row() -> None:
    placed = {name for row in ROWS for name in row}
    assert {_top(module) for module in KNOWN} - {"mcpio"} <= placed


def test_linter_checks_every_part_below_the_drivers() -> None:
    looked_at = {
        name.removeprefix("mcpio.")
        for contract in CONTRACTS
        if contract["type"] == "forbidden"
        for name in contract["source_modules"]
    }
    assert looked_at >= {_top(module) for module in KNOWN if _top(module) in PURE}


def test_linter_checks_every_package_for_circles() -> None:
    (checked,) = (contract["ancestors"] for contract in CONTRACTS if contract["type"] == "circles_at_run_time")
    assert set(checked) == {module for module in KNOWN if KNOWN[module].name == "__init__.py"}
    assert not settings()["tool"]["importlinter"]["exclude_type_checking_imports"]


@pytest.mark.parametrize(
    ("back", "kept"),
    [
        ("", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.later import B", True),
        ("from planted.later import B", False),
        ("def f():\n    from planted.later import B", False),
    ],
)
def test_only_imports_that_run_close_a_circle(
    back: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    for name, source in (("__init__", ""), ("earlier", back), ("later", "from planted import earlier")):
        (package / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    configure()
    contract = CirclesAtRunTime("", {"root_packages": ["planted"]}, {"ancestors": ["planted"]})
    assert contract.check(grimp.build_graph("planted", cache_dir=None), verbose=False).kept is kept


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import mcpio.app.server", {"mcpio.app.server"}),
        ("from mcpio import errors", {"mcpio.errors"}),
        ("from mcpio import SomeName", {"mcpio"}),
        ("from .. import errors", {"mcpio.errors"}),
        ("from ..engine import table", {"mcpio.engine.table"}),
        ("from .table import TABLE", {"mcpio.engine.table"}),
        ("def f():\n    import trio", {"trio"}),
        ("if TYPE_CHECKING:\n    from mcpio.codec import Codec", {"mcpio.codec"}),
        ("def __getattr__(name): return load({'a': '.limits'})", {"mcpio.engine.limits"}),
        ("from importlib import import_module\nx = import_module('mcpio.codec')", {"importlib", "mcpio.codec"}),
        ("x = __import__('socket')", {"socket"}),
        ("x = 'mcpio.codec'", set()),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, found: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mcpio.errors", "mcpio.engine.table", "mcpio.engine.limits", "mcpio.codec"):
        monkeypatch.setitem(KNOWN, name, Path())
    assert set(imports(source, "mcpio.engine.client", is_package=False)) == found


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "import datetime as d\nclock = d.date.today",
        "import sys\nsys.stdout.write('x')",
        "print('x')",
        "open('x')",
    ],
)
def test_impurities_are_found(source: str) -> None:
    assert len(list(impurities(source))) == 1


def test_harmless_lookalikes_are_not_reported() -> None:
    assert not list(impurities("from datetime import datetime\ndatetime.fromisoformat(x)\nself.now\nstream.open()"))


def test_the_rows_are_ordered() -> None:
    assert may_import("mcpio.codec", "mcpio.errors")
    assert may_import("mcpio.engine.client", "mcpio.engine.table")
    assert may_import("mcpio.trio", "mcpio")
    assert may_import("mcpio", "mcpio.app")
    assert not may_import("mcpio.errors", "mcpio.revisions")
    assert not may_import("mcpio.engine.client", "mcpio.app.server")
    assert not may_import("mcpio.engine.client", "mcpio")
    assert not may_import("mcpio.app.server", "mcpio")
    assert not may_import("mcpio", "mcpio.trio")
