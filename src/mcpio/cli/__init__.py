"""The command ``mcpio``: serve a server, and use any server from a shell.

``mcpio --help`` lists the commands and the exit statuses. Each command is a module of this package, imported when it is
used.
"""

from mcpio.cli.command_line import main

__all__ = ["main"]
