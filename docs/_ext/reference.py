"""The directives ``public-names`` and ``attributes``, and what makes the names in annotations links.

    ```{public-names} mcpio.errors
    ```

documents every name in the module's ``__all__`` under the module it is imported from, whatever it is and wherever it is
defined, so a public name cannot be missing. The library's modules listed in ``public_modules`` (in ``conf.py``) must
each be on some page: a build without one warns.

    ```{attributes} mcpio.engine.limits.Limits
    ```

lists the attributes of a class with their defaults and what is said about them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import attrs
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from tables import Cell, plain_table

logger = logging.getLogger(__name__)


class PublicNames(SphinxDirective):
    """Documents every public name of a module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return what autodoc makes of the names."""
        name = self.arguments[0]
        module = importlib.import_module(name)
        self.env.note_dependency(str(module.__file__))
        documented: set[str] = getattr(self.env, "documented_modules", set())
        self.env.documented_modules = documented | {name}  # type: ignore[attr-defined]  # ours, kept with the build
        lines = ["```{eval-rst}", f".. module:: {name}", ""]
        for public in module.__all__:
            lines += entry(name, public, getattr(module, public))
        source = StringList([*lines, "```"], source=f"<public names of {name}>")
        container = nodes.container()
        self.state.nested_parse(source, self.content_offset, container)
        return container.children


def entry(module: str, name: str, value: Any) -> list[str]:
    """Return the lines of reStructuredText that document one name."""
    if inspect.ismodule(value):
        return [f"* ``{module}.{name}``", ""]
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
        bases = [] if value.__bases__ == (object,) else ["   :show-inheritance:"]
        return [f".. auto{kind}:: {module}.{name}", "   :members:", "   :undoc-members:", *bases, ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {module}.{name}", ""]
    return [f".. autodata:: {defining_module(module, name)}.{name}", "   :no-value:", ""]


def defining_module(module: str, name: str) -> str:
    """Return where a constant or an alias is assigned, which is where its docstring stands."""
    candidates = [other for other in sys.modules if other.split(".")[0] == "mcpio" and _assigns(other, name)]
    return min(candidates, key=len, default=module)


def _assigns(module: str, name: str) -> bool:
    try:
        analyzer = ModuleAnalyzer.for_module(module)
        analyzer.analyze()
    except Exception:  # Whatever has no source to read assigns nothing.
        return False
    return ("", name) in analyzer.attr_docs or ("", name) in analyzer.annotations


class Attributes(SphinxDirective):
    """Lists the attributes of a class."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        module, _, name = self.arguments[0].rpartition(".")
        cls = getattr(importlib.import_module(module), name)
        return [plain_table(["Name", "Default", "Meaning"], self._rows(cls))]

    def _rows(self, cls: type[Any]) -> Iterator[list[Cell]]:
        analyzer = ModuleAnalyzer.for_module(cls.__module__)
        analyzer.analyze()
        for attribute in attrs.fields(cls):
            said = " ".join(analyzer.attr_docs.get((cls.__name__, attribute.name), []))
            default = "" if attribute.default is attrs.NOTHING else _plain(attribute.default)
            parsed, messages = self.state.inline_text(said, self.lineno)
            yield [[nodes.literal(text=attribute.name)], default, [*parsed, *messages]]


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def link_short_names(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Resolve a name in an annotation, or accept that of a class elsewhere.

    Annotations have names as their module imports them: ``Revision``, ``Mapping``. Ours are found by their last part.
    The rest belong to the standard library or to a dependency, whose inventories only the network has, and stay
    plain. What an author writes as a reference must exist.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    if "refwarn" in node:
        return content if _exists_elsewhere(target) else None
    last = target.rpartition(".")[2]
    objects = env.domains.python_domain.objects
    known = sorted((name for name in objects if name.rpartition(".")[2] == last), key=len)
    if not known:
        return content
    found = objects[known[0]]
    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, content, known[0])


def _exists_elsewhere(target: str) -> bool:
    module, _, name = target.rpartition(".")
    if not module or target.split(".", maxsplit=1)[0] == "mcpio":
        return False
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def check_public_modules(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public modules that no page documents."""
    for module in sorted(set(app.config.public_modules) - getattr(env, "documented_modules", set())):
        logger.warning("no page documents the public names of %s", module)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives and the checks."""
    app.add_config_value("public_modules", [], "env", types=frozenset({list}))
    app.add_directive("public-names", PublicNames)
    app.add_directive("attributes", Attributes)
    app.connect("missing-reference", link_short_names)
    app.connect("env-check-consistency", check_public_modules)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
