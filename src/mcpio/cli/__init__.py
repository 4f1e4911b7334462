"""The command ``mcpio``: serve a server, and use any server from a shell.

``mcpio --help`` lists the commands and the exit statuses. The module of a command is imported when it is
used.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run a command line, ``sys.argv`` by default, and return the exit status: see ``command_line.main``."""
    try:
        from mcpio.cli import command_line

        return command_line.main(argv)
    except KeyboardInterrupt:
        # The interrupt came during an import; a running command handles signals itself.
        return 128 + 2
