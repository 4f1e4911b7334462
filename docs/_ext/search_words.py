"""Entries of the general index, which are also what the search looks at first.

A comment names the words under which readers look for the text that follows it::

    <!-- search: rate limit, throttle -->
"""

from __future__ import annotations

import re
from typing import Final

from sphinx.application import Sphinx

__all__ = ["with_entries"]

_COMMENT: Final = re.compile(r"^<!-- search: (.+) -->$", re.MULTILINE)


def with_entries(text: str) -> str:
    """Return the text of a page with a directive in place of each such comment."""
    # The search puts only main entries, which "!" marks, before the pages that contain the words.
    return _COMMENT.sub(lambda found: f"```{{index}} ! {found[1].replace(', ', ', ! ')}\n```", text)


def add_entries(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make index entries of the comments of a page."""
    source[0] = with_entries(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the entries."""
    app.connect("source-read", add_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
