"""Standard input and output as the protocol's stream, protected from other output (STDIO-04)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcpio._drivers.stdio.claim import claim_stdio
from mcpio.trio._fd_streams import StdioStream
from mcpio.trio._stdio.platform import open_input, open_output

__all__ = ["stdio_stream"]


@asynccontextmanager
async def stdio_stream() -> AsyncIterator[StdioStream]:
    """Async context manager that yields this process's standard input and output as one stream, for it alone.

    Inside the block, descriptor 0 is the null device, descriptor 1 is a copy of 2, and ``sys.stdout`` is
    ``sys.stderr``: output of ``print``, C code or a child process to standard output appears on standard error. The
    end of the block restores all of that, with one exception: after ``send_eof`` to a pipe or socket there is no
    standard output to restore, and 1 stays a copy of 2.

    No flag of an inherited file is changed. Leaving the block closes the stream. One block at a time in a process.
    """
    with claim_stdio() as claimed:
        stream = StdioStream(
            open_input(claimed.input_fd), open_output(claimed.output_fd), on_eof=claimed.release_output
        )
        try:
            yield stream
        finally:
            stream.close()
