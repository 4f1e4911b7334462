"""The command ``mcpio``: watch a demo, serve a server, and use any stdio server from a shell.

``mcpio --help`` tells the commands and the exit statuses. Each command is a module of this package, imported when it is
asked for.
"""

from mcpio.cli.command_line import main

__all__ = ["main"]
