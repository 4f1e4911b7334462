"""The directive ``public-names``, texts for what has no docstring, and links for the names in annotations.

    ```{public-names} mcpio.errors
    ```

documents every name in the module's ``__all__`` under the module it is imported from, whatever it is, so a public name
cannot be missing. Names that are defined elsewhere come in groups, by the module that defines them. Classes have the
members of their private bases too. The library's modules listed in ``public_modules`` (in ``conf.py``) must each be on
some page: a build without one warns. ``:from: mcpio.engine`` leaves out what is defined anywhere else, and
``:first: Server Client`` begins with these names and their groups.
"""

from __future__ import annotations

import ast
import builtins
import enum
import importlib
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from field_texts import field_text
from sphinx import addnodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

logger = logging.getLogger(__name__)


class PublicNames(SphinxDirective):
    """Documents every public name of a module."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Callable[[str], Any]] | None] = {
        "from": directives.unchanged_required,
        "first": lambda names: directives.unchanged_required(names).split(),
    }

    def run(self) -> list[nodes.Node]:
        """Return what autodoc makes of the names."""
        name = self.arguments[0]
        module = importlib.import_module(name)
        self.env.note_dependency(str(module.__file__))
        documented = documented_in(self.env)
        self.env.documented_modules = documented | {name}  # type: ignore[attr-defined]  # ours, kept with the build
        groups: dict[str, list[str]] = {}
        known = homes(module)
        for public in self._in_order(known):
            home = known[public]
            if home.startswith(self.options.get("from", "")):
                groups.setdefault(home, []).extend(entry(name, public, getattr(module, public), home))
        lines = ["```{eval-rst}", f".. {'py:currentmodule' if name in documented else 'module'}:: {name}", ""]
        for home in sorted(groups, key=lambda home: home != name):
            lines += ([] if home == name else [f".. rubric:: {title(home)}", ""]) + groups[home]
        source = StringList([*lines, "```"], source=f"<public names of {name}>")
        container = nodes.container()
        self.state.nested_parse(source, self.content_offset, container)
        return container.children

    def _in_order(self, names: Iterable[str]) -> list[str]:
        first: list[str] = self.options.get("first", [])
        if missing := set(first).difference(names):
            raise self.error(f"not public: {', '.join(sorted(missing))}")
        return [*first, *(name for name in names if name not in first)]


def homes(module: ModuleType) -> dict[str, str]:
    """Return where each public name of a module is defined: name -> module."""
    values = {public: getattr(module, public) for public in module.__all__}
    return {
        public: value.__module__
        if inspect.isroutine(value) or inspect.isclass(value)
        else assigned_in(module.__name__, public)
        for public, value in values.items()
    }


def entry(module: str, name: str, value: Any, home: str) -> list[str]:
    """Return the lines of reStructuredText that document one name, which ``home`` defines."""
    if inspect.ismodule(value):
        return [f"* ``{module}.{name}``", ""]
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
        # What the drivers of both loops share is in the inventory once, as a name of mcpio.trio.
        again = ["   :no-index:"] if module == "mcpio.asyncio" and home.startswith("mcpio._drivers.") else []
        return [f".. auto{kind}:: {module}.{name}", "   :members:", "   :undoc-members:", *again, *_bases(value), ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {module}.{name}", ""]
    said = attribute_docs(home).get(("", name)) or [_alias(value), ""]
    # Not module.name: Sphinx puts the current module in front.
    return [f".. py:data:: {name}", "", *(f"   {line}" for line in said), ""]


def _bases(cls: type) -> list[str]:
    """Return the options that say what a class inherits: its bases, or their members where the bases are internal."""
    internal = ("mcpio.engine.", "mcpio.app.", "mcpio.trio.")
    if any(base.__module__.startswith(internal) for base in cls.__mro__[1:]):
        return [] if issubclass(cls, enum.Enum) else ["   :inherited-members:"]
    return [] if cls.__bases__ in ((object,), (typing.Generic,)) else ["   :show-inheritance:"]


def _alias(value: Any) -> str:
    if typing.get_origin(value) is typing.Literal:
        return "One of " + ", ".join(f"``{choice!r}``" for choice in typing.get_args(value)) + "."
    if typing.get_origin(value) is not None:
        return f"An alias of ``{re.sub(r'[a-z_]+[.]', '', str(value))}``."
    return f"The value ``{value!r}``."


def title(module: str) -> str:
    """Return what a module says it is about, in its docstring's first words."""
    said = (importlib.import_module(module).__doc__ or module).strip().partition("\n")[0]
    return said.partition(":")[0].rstrip(".")


def assigned_in(module: str, name: str) -> str:
    """Return the module that a name of a module was imported from, through others, where its docstring stands."""
    while module.startswith("mcpio") and name in (imported := imports(module)):
        module, name = imported[name]
    return module


@cache
def imports(module: str) -> dict[str, tuple[str, str]]:
    """Return what a module imports by name, for a type checker too: name -> (module, name there)."""
    file = importlib.import_module(module).__file__
    tree = ast.parse(Path(file or "").read_text(encoding="utf-8"))
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                names = importlib.import_module(node.module).__all__ if each.name == "*" else [each.name]
                found |= {(each.asname or name): (node.module, name) for name in names}
    return found


@cache
def attribute_docs(module: str) -> dict[tuple[str, str], list[str]]:
    """Return the docstrings under the attributes of a module: (class or "", name) -> lines."""
    analyzer = ModuleAnalyzer.for_module(module)
    analyzer.analyze()
    return analyzer.attr_docs


def plain_defaults(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write defaults in a signature as in code, and no signature for a protocol."""
    if getattr(value, "_is_protocol", False):
        return "", returns
    plain = signature and re.sub(r"<(Absent|Revision)[. ]([\w-]+)(: '\w+')?>", r"\2", signature)
    written = defaults_as_written(value)
    plain = plain and re.sub(r"<function [\w.<>]*<lambda>>|<object object>", lambda _: next(written), plain)
    plain = plain and re.sub(r"<function (\w+)[^>]*>", r"\1", plain)
    return plain and plain.replace("mappingproxy({})", "{}"), returns


def defaults_as_written(value: Any) -> Iterator[str]:
    """Yield the lambdas, and the names of bare objects, among the defaults of a function's or a class's parameters."""
    for parameter in inspect.signature(value).parameters.values():
        default = parameter.default
        if type(default) is object:
            yield next(name for name, each in vars(sys.modules[value.__module__]).items() if each is default)
        elif inspect.isfunction(default) and default.__name__ == "<lambda>":
            code = default.__code__
            nodes = ast.walk(ast.parse(Path(code.co_filename).read_text(encoding="utf-8")))
            (found,) = (node for node in nodes if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno)
            yield ast.unparse(found)


def keep_colons(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str], written: dict[str, list[str]]
) -> None:
    """Undo what napoleon makes of an attribute's text: it takes the words before a first colon for a type.

    Called before napoleon, and after it, with the same ``written``.
    """
    if what not in ("attribute", "data", "property"):
        return
    if name not in written:
        written[name] = lines.copy()
    else:
        lines[:] = GoogleDocstring(written.pop(name), app.config, app, "method", name, value, options).lines()


def add_field_texts(app: Sphinx, doctree: nodes.document) -> None:
    """Add a text to each field and enum member that has none, and warn of names without any text."""
    for node in doctree.findall(addnodes.desc):
        if node["domain"] != "py":
            continue
        signature, content = node[0], node[-1]
        assert isinstance(signature, nodes.Element)
        assert isinstance(content, nodes.Element)
        if content.astext().strip() or not signature.get("ids"):
            continue
        text = text_of(signature["module"], signature["fullname"])
        if text is None:
            logger.warning("%s.%s has no text", signature["module"], signature["fullname"], location=node)
        else:
            content += nodes.paragraph("", "", *_inline(text))


def text_of(module: str, name: str) -> str | None:
    """Return what can be said about a name without a docstring: what a base says, or ``field_texts``."""
    owner, _, member = name.rpartition(".")
    cls = getattr(importlib.import_module(module), owner, None)
    if not inspect.isclass(cls):
        return None
    for base in _ancestors(cls):
        said = " ".join(attribute_docs(base.__module__).get((base.__name__, member), [])).strip()
        said = (
            said or inspect.getdoc(vars(base).get(member) if inspect.isroutine(vars(base).get(member)) else None) or ""
        )
        if said:
            return said
    return field_text(cls, member)


def _ancestors(cls: type) -> Iterator[type]:
    """Yield a class and its bases, those of a TypedDict too, which forgets them."""
    yield from (base for base in cls.__mro__ if base.__module__.startswith("mcpio."))
    if typing.is_typeddict(cls):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(body, ast.ClassDef)
        for base in body.bases:
            found = vars(sys.modules[cls.__module__]).get(ast.unparse(base))
            if inspect.isclass(found):
                yield from _ancestors(found)


def _inline(text: str) -> Iterator[nodes.Node]:
    """Yield the nodes of a text whose only markup is double backquotes."""
    for number, part in enumerate(text.split("``")):
        yield nodes.literal(text=part) if number % 2 else nodes.Text(part)


def keep_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Leave the names of builtins in annotations plain: ``type`` is never one of the many members of that name."""
    for node in list(doctree.findall(pending_xref)):
        if node.get("refdomain") == "py" and "refwarn" not in node and hasattr(builtins, node["reftarget"]):
            node.replace_self(nodes.Text(node["reftarget"]))


def collect_short_names(app: Sphinx, env: BuildEnvironment, shortest: dict[str, str]) -> None:
    """Find for the last part of each name the shortest name that ends so."""
    shortest.clear()
    for name in env.domains.python_domain.objects:
        last = name.rpartition(".")[2]
        if len(name) < len(shortest.setdefault(last, name)):
            shortest[last] = name


def link_short_names(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement, shortest: dict[str, str]
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
    name = shortest.get(target.rpartition(".")[2])
    if name is None:
        return content
    found = env.domains.python_domain.objects[name]
    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, content, name)


def _exists_elsewhere(target: str) -> bool:
    """Tell whether a dotted name is another library's, or that of a private base class, which has no page."""
    module, _, name = target.rpartition(".")
    if not module or (target.startswith("mcpio.") and "._" not in target):
        return False
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def check_inventory(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of names that are doubled, as in ``mcpio.types.mcpio.types.ABSENT``: no link finds them."""
    for name in env.domains.python_domain.objects:
        if name.count("mcpio.") > 1:
            logger.warning("%s is a doubled name", name)


def merge_modules(app: Sphinx, env: BuildEnvironment, pages: list[str], other: BuildEnvironment) -> None:
    """Add the modules of pages that another process has read."""
    env.documented_modules = documented_in(env) | documented_in(other)  # type: ignore[attr-defined]  # as in PublicNames


def documented_in(env: BuildEnvironment) -> set[str]:
    """Return the modules whose public names the pages have that were read."""
    modules: set[str] = getattr(env, "documented_modules", set())
    return modules


def check_public_modules(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public modules that no page documents."""
    for module in sorted(set(app.config.public_modules) - documented_in(env)):
        logger.warning("no page documents the public names of %s", module)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives and the checks."""
    app.add_config_value("public_modules", [], "env", types=frozenset({list}))
    app.add_directive("public-names", PublicNames)
    app.connect("env-merge-info", merge_modules)
    app.connect("autodoc-process-signature", plain_defaults)
    written: dict[str, list[str]] = {}
    for priority in (400, 600):  # napoleon has 500
        app.connect("autodoc-process-docstring", partial(keep_colons, written=written), priority)
    app.connect("doctree-read", add_field_texts)
    app.connect("doctree-read", keep_builtins)
    shortest: dict[str, str] = {}
    app.connect("env-check-consistency", partial(collect_short_names, shortest=shortest))
    app.connect("missing-reference", partial(link_short_names, shortest=shortest))
    app.connect("env-check-consistency", check_public_modules)
    app.connect("env-check-consistency", check_inventory)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
