"""The names of this library that public signatures have and that no public module exports: ``signature-names``.

The directive documents each of them, by the module that defines it. A program may name them in its own annotations.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from reference import attribute_docs, imports, text_of
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["names_in_signatures", "setup"]


class SignatureNames(SphinxDirective):
    """Documents what public signatures name beside the public names."""

    def run(self) -> list[nodes.Node]:
        """Return an entry for each name."""
        lines = ["```{eval-rst}"]
        module = None
        for home, name, value in names_in_signatures(self.config.public_modules):
            if home != module:
                lines += [f".. py:currentmodule:: {home}", ""]
                module = home
            lines += _entry(home, name, value)
        container = nodes.container()
        self.state.nested_parse(
            StringList([*lines, "```"], source="<names in signatures>"), self.content_offset, container
        )
        return container.children


def names_in_signatures(public_modules: Iterable[str]) -> list[tuple[str, str, Any]]:
    """Return what is named in public signatures and is no public name: where it is defined, its name, and what it is.

    The fields of option types count as signatures. Private names and variables of types are left out.
    """
    modules = [importlib.import_module(name) for name in public_modules]
    public = {name for module in modules for name in module.__all__}
    todo = [getattr(module, name) for module in modules for name in module.__all__]
    found: dict[tuple[str, str], Any] = {}
    while todo:
        for home, annotation in _annotations(todo.pop()):
            for name in _names(annotation):
                if name in public or name.startswith("_") or (at := _defined(home, name)) is None or at in found:
                    continue
                found[at] = value = getattr(importlib.import_module(at[0]), at[1])
                if typing.is_typeddict(value):
                    todo.append(value)
    return [(home, name, value) for (home, name), value in sorted(found.items())]


def _annotations(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the annotations of a function or a class, each with the module that it stands in."""
    function: Any
    if inspect.isclass(value):
        if value.__module__.startswith("mcpio."):
            for name, annotation in vars(value).get("__annotations__", {}).items():
                if not name.startswith("_"):
                    yield value.__module__, getattr(annotation, "__forward_arg__", str(annotation))
        for name, member in vars(value).items():
            if not name.startswith("_") or name == "__init__":
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                yield from _annotations(function) if isinstance(function, FunctionType) else ()
    elif callable(value) and isinstance(value := inspect.unwrap(value), FunctionType):
        for annotation in value.__annotations__.values():
            yield value.__module__, str(annotation)


def _names(annotation: str) -> set[str]:
    try:
        tree = ast.parse(annotation, mode="eval")
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _defined(module: str, name: str) -> tuple[str, str] | None:
    """Return where a name in a module is defined, if that is in this library."""
    while module.startswith("mcpio") and name in imports(module):
        module, name = imports(module)[name]
    value = getattr(importlib.import_module(module), name, None) if module.startswith("mcpio") else None
    if value is None or isinstance(value, typing.TypeVar | ModuleType):
        return None
    return (value.__module__ if inspect.isclass(value) else module), name


def _entry(home: str, name: str, value: Any) -> list[str]:
    if not inspect.isclass(value):
        said = attribute_docs(home).get(("", name)) or [f"An alias of ``{re.sub(r'[a-z_]+[.]', '', str(value))}``."]
        return [f".. py:data:: {name}", "", *(f"   {line}" for line in said), ""]
    lines = [
        f".. py:class:: {name}",
        "",
        *(f"   {line}" for line in (inspect.getdoc(value) or "").partition("\n\n")[0].splitlines()),
        "",
    ]
    if typing.is_typeddict(value):
        for field in value.__annotations__:
            said = (text_of(home, f"{name}.{field}") or "").splitlines()
            lines += [f"   .. py:attribute:: {field}", "", *(f"      {line}" for line in said), ""]
    return lines


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("signature-names", SignatureNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
