"""Common names for the differences between POSIX and Windows; the only module that chooses between them."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from mcpio.trio._stdio.windows import open_input, open_output, start_child
else:
    from mcpio.trio._stdio.posix import open_input, open_output, start_child

__all__ = ["open_input", "open_output", "start_child"]
