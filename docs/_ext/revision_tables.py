"""Rows of tables with what each revision of the protocol has.

They are read off the library itself: the rows of ``mcpio.methods`` and the members of the classes in ``mcpio.types``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import attrs

import mcpio.types
from mcpio.methods import METHODS, Direction, Method
from mcpio.revisions import REVISIONS, Revision

EXTENSION = "extensions.io.modelcontextprotocol/"
RECEIVERS = {Direction.TO_SERVER: "server", Direction.TO_CLIENT: "client", Direction.BOTH: "either"}


def method_rows() -> Iterator[list[str]]:
    """Yield a row for each method: name, receiver with the capability that it needs, and revisions that have it."""
    for method in METHODS.values():
        capability = ".".join(map(wire_name, method.capability)).removeprefix(EXTENSION)
        receiver = RECEIVERS[method.direction]
        yield [f"`{method.name}`", f"{receiver}, `{capability}`" if capability else receiver, _presence(method)]


def _presence(method: Method) -> str:
    said = span(method.since, method.until)
    if method.embedded:
        said += ", then a value inside a result"
    if method.stateless is not None:
        said += f", only to the {RECEIVERS[method.stateless]} in {REVISIONS[-1]}"
    return said


def span(since: Revision, until: Revision) -> str:
    """Return the words for a range of revisions."""
    if since is until:
        return f"{since} only"
    if since is REVISIONS[0]:
        return "all" if until is REVISIONS[-1] else f"until {until}"
    return f"since {since}" if until is REVISIONS[-1] else f"{since} to {until}"


def payload_classes() -> Iterator[type[Any]]:
    """Yield the payload classes, module by module, each where it is defined."""
    for found in pkgutil.iter_modules(mcpio.types.__path__):
        module = importlib.import_module(f"mcpio.types.{found.name}")
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and hasattr(value, "SINCE") and value.__module__ == module.__name__:
                yield value


def member_rows() -> Iterator[list[str]]:
    """Yield a row for each class and member that not all revisions have."""
    for cls in payload_classes():
        if _is_partial(cls.SINCE, cls.UNTIL):
            yield [f"`{cls.__name__}`", "", span(cls.SINCE, cls.UNTIL), ""]
        for attribute in attrs.fields(cls):
            wire = attribute.metadata.get("wire")
            if wire is not None and not attribute.inherited and _is_partial(wire.since, wire.until):
                name = wire.name or wire_name(attribute.name)
                fate = "refused" if wire.essential else "left out"
                member = f"`{name}`"
                yield [f"`{cls.__name__}`", member, span(wire.since, wire.until), fate]


def _is_partial(since: Revision, until: Revision) -> bool:
    return since > REVISIONS[0] or until < REVISIONS[-1]


def wire_name(attribute: str) -> str:
    """Return the name on the wire of an attribute that does not name its own."""
    first, *rest = attribute.split("_")
    return first + "".join(word.capitalize() for word in rest)
