"""The names of members of ``_meta``: which are well-formed, and which are reserved for the protocol.

Only keys of one's own are checked, before they are sent (META-07). What comes in is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, Revision

__all__ = ["fault_in_key", "fault_in_meta", "is_reserved"]

_LABEL = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?", re.ASCII)
_RESERVED = frozenset({"mcp", "modelcontextprotocol"})


def fault_in_meta(meta: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the first ill-formed key, or ``None`` when all keys are well-formed."""
    for key in meta:
        fault = fault_in_key(key)
        if fault is not None:
            return f"{key!r:.100} is no key for _meta: {fault}"
    return None


def fault_in_key(key: object) -> str | None:
    """Return what is wrong with a key, or ``None`` when it is well-formed: ``name`` or ``prefix/name``.

    A prefix is dot-separated labels, each a letter, then letters, digits and hyphens, a hyphen never last (META-02).
    A name is empty, or letters, digits, ``-``, ``_`` and ``.``, beginning and ending with a letter or digit (META-03).
    """
    if not isinstance(key, str):
        return "it is not a string"
    prefix, slash, name = key.rpartition("/")
    for label in prefix.split(".") if slash else ():
        if not _LABEL.fullmatch(label):
            return f"{label!r:.100} is no label of a prefix"
    return None if _NAME.fullmatch(name) else f"{name!r:.100} is no name"


def is_reserved(key: str, revision: Revision | None = None) -> bool:
    """Whether a well-formed key has a prefix that is reserved for the protocol, so that nobody else should use it.

    From 2025-11-25 on it is one whose second label is ``mcp`` or ``modelcontextprotocol`` (META-04), in 2025-06-18 one
    whose last label but one is (META-05); earlier revisions reserve nothing. ``None`` asks for any of them.
    """
    prefix, slash, _ = key.rpartition("/")
    labels = prefix.split(".")
    if not slash or len(labels) < 2:
        return False
    first_shape = labels[-2] in _RESERVED and (revision is None or revision is REV_2025_06_18)
    second_shape = labels[1] in _RESERVED and (revision is None or revision >= REV_2025_11_25)
    return first_shape or second_shape
