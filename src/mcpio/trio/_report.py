"""What an operator gets to know: a line in the log, where no caller waits for an exception."""

from __future__ import annotations

import logging

__all__ = ["report"]


def report(message: str, error: BaseException | None) -> None:
    """Write to the log, under the name ``mcpio``: a warning, or an error with its traceback."""
    if error is None:
        logging.getLogger("mcpio").warning("%s", message)
    else:
        logging.getLogger("mcpio").error("%s", message, exc_info=error)
