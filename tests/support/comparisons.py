"""Tables that set the calls of another library beside ours: whether what they name exists."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tree import ROOT

from mcpio import CallToolResult, Client, Context, Server

__all__ = ["AFTER", "BEFORE", "OURS", "Row", "faults", "loaded", "rows"]

BEFORE = ROOT / "tests" / "interop" / "fastmcp_programs"
"""Programs for fastmcp."""
AFTER = ROOT / "docs" / "examples" / "from_fastmcp"
"""The same programs here."""

FREE = {*"fbsxmX", "City", "Form", "asyncio", "config", "env", "other", "parameters", "target", "text", "trio"}
"""Names that stand for the reader's own."""


class Row(NamedTuple):
    """One row: what a user of the other library writes, and what they write here."""

    theirs: str
    ours: str


def loaded(path: Path) -> Any:
    """Return a program as a module."""
    spec = importlib.util.spec_from_file_location(f"compared_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(page: Path) -> list[Row]:
    """Return the rows of the tables of a page whose first two cells are code."""
    found = re.findall(r"^\| `(.+?)` \| `(.+?)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [Row(*each) for each in found]


def faults(code: str, names: Mapping[str, Any]) -> list[str]:
    """Return the names, attributes and keyword arguments in code that do not exist. ``names`` are what it may use."""
    return list(_faults(ast.parse(code.removeprefix("@")), names))


def _faults(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id not in FREE
            and node.id not in names
        ):
            yield f"there is no {node.id}"
        if isinstance(node, ast.Attribute):
            owner = _object(node.value, names)
            if owner is not None and not _has(owner, node.attr):
                yield f"{ast.unparse(node.value)} has no {node.attr}"
        if isinstance(node, ast.Call) and node.keywords and (called := _object(node.func, names)) is not None:
            taken = _keywords(called)
            yield from (
                f"{ast.unparse(node.func)}() takes no {each.arg}=" for each in node.keywords if each.arg not in taken
            )


def _object(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _object(node.value, names)) is not None:
        return getattr(owner, node.attr, None)
    return None


def _has(owner: Any, name: str) -> bool:
    fields = getattr(owner, "__dataclass_fields__", None) or getattr(owner, "model_fields", None) or {}
    return (
        hasattr(owner, name)
        or name in fields
        or any(name in vars(each).get("__annotations__", {}) for each in _mro(owner))
    )


def _mro(owner: Any) -> tuple[type, ...]:
    return owner.__mro__ if isinstance(owner, type) else ()


def _keywords(called: Any) -> set[str | None]:
    """Return the keyword arguments of a function, with those of a TypedDict after ``**``."""
    fields = getattr(called, "model_fields", None)
    if fields is not None:
        return {*fields, *(field.alias for field in fields.values())}
    taken: set[str | None] = set()
    for parameter in inspect.signature(called).parameters.values():
        taken.add(parameter.name)
        if parameter.kind is parameter.VAR_KEYWORD:
            taken |= _options(called, str(parameter.annotation))
    return taken


def _options(called: Any, annotation: str) -> set[str]:
    module = vars(sys.modules[inspect.unwrap(called).__module__])
    kind = module.get(annotation.removeprefix("Unpack[").removesuffix("]"))
    return set() if kind is None else set(kind.__annotations__)


def _ours() -> dict[str, Any]:
    import mcpio
    import mcpio.app
    import mcpio.asgi
    import mcpio.http
    import mcpio.trio
    import mcpio.types

    found: dict[str, Any] = {}
    for package in (mcpio.types, mcpio.http, mcpio.asgi, mcpio.trio, mcpio.app, mcpio):
        found.update({name: getattr(package, name) for name in package.__all__})
    return found | {"server": Server, "ctx": Context, "client": Client, "result": CallToolResult}


OURS = _ours()
"""What code of our side may name: everything public, and the usual names of objects."""
