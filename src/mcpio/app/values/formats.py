"""The formats of texts that a schema may name, and that are checked: those that a form may have (ELIC-05)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from mcpio.app.values.faults import expected

__all__ = ["FORMATS", "check_format"]


def check_format(name: str, text: str) -> None:
    """Return when a text is of a format; a `Fault` when it is not. Formats that are not known check nothing."""
    check = FORMATS.get(name)
    if check is not None:
        check(text)


def _by_pattern(what: str, pattern: str) -> Callable[[Any], None]:
    fits = re.compile(pattern).fullmatch

    def check(text: Any) -> None:
        if fits(text) is None:
            raise expected(what, text)

    return check


def _by_class(name: str) -> Callable[[Any], None]:
    def check(text: Any) -> None:
        # What reads the annotation of the same class knows the format best.
        import datetime as dt

        from mcpio.app.values.scalars import scalar_for

        scalar: Any = scalar_for(getattr(dt, name))
        scalar.read(text)

    return check


FORMATS: Final[dict[str, Callable[[Any], None]]] = {
    # Whether mail arrives is known when it has arrived; more than this would refuse addresses that work.
    "email": _by_pattern("an e-mail address", r"[^@\s]+@[^@\s]+"),
    # RFC 3986, section 3: a scheme, and no spaces.
    "uri": _by_pattern("a URI such as https://example.com", r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "date": _by_class("date"),
    "date-time": _by_class("datetime"),
}
