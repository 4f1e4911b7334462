"""``mcpio serve --reload``: serve a program that is started again when a Python file changes; its clients stay."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import trio

from mcpio.app.server import Server
from mcpio.cli.targets import SERVE, serving
from mcpio.trio import open_stdio, proxy
from mcpio.types.features import Implementation

INTERVAL: Final = 0.5
"""Seconds between two looks at the files."""

MAX_FILES: Final = 5000
MAX_FOLDERS: Final = 2000
"""How many files are watched, in how many folders; a folder with more is probably not one's own."""

SKIPPED: Final = {"__pycache__", "node_modules", "site-packages"}
"""Folders to skip, in addition to hidden ones."""


def reloading_server(reference: str | None, skills: Sequence[str] = ()) -> Server:
    """Return a server that has ``mcpio serve REFERENCE`` answer, and replaces that process when its files change.

    ``skills`` are the folders of ``--skills``, whose files count too. Without ``reference`` only they are served.
    """
    folder = None
    command: tuple[str, ...] = SERVE
    if reference is not None:
        module_name, colon, name = reference.rpartition(":")
        path = module_name if colon and name.isidentifier() else reference
        folder = os.path.dirname(os.path.abspath(path)) if path.endswith(".py") else os.getcwd()
        command = serving(reference)
    for each in skills:
        command += ("--skills", each)
    # The child's standard error is ours: what it prints, and why it does not start, is seen at once.
    opener = partial(open_stdio, command, inherit_env=True, stderr="inherit")
    server = proxy(opener, watch=Sources(folder, skills).changed)
    server.info = Implementation(os.path.basename(reference or skills[0]), "0")  # until the child has told its own
    return server


class Sources:
    """The Python files below a folder, and all files below the folders of skills."""

    def __init__(self, folder: str | None, skills: Sequence[str] = ()) -> None:
        self._folder = folder
        self._skills = skills
        self._seen = self._look()

    async def changed(self) -> None:
        """Wait until a file is changed, created or deleted, and then until changes stop."""
        while True:
            await trio.sleep(INTERVAL)
            current = self._look()
            if current == self._seen:
                continue
            name = self._difference(current)
            while True:
                # An editor may write several files, and each in parts.
                self._seen = current
                await trio.sleep(INTERVAL)
                current = self._look()
                if current == self._seen:
                    break
            print(f"mcpio: {name} changed: starting the server again", file=sys.stderr)
            return

    def _difference(self, current: Mapping[str, tuple[int, int]]) -> str:
        """Return the name of a file that differs."""
        changed = sorted(
            path for path in current.keys() | self._seen.keys() if current.get(path) != self._seen.get(path)
        )
        return os.path.relpath(changed[0], self._folder or self._skills[0])

    def _look(self) -> dict[str, tuple[int, int]]:
        """Return the time of change and the size of each file."""
        stamps: dict[str, tuple[int, int]] = {}
        for path in self._paths():
            try:
                status = os.stat(path)
            except OSError:
                continue  # gone, or a broken link
            stamps[path] = (status.st_mtime_ns, status.st_size)
            if len(stamps) == MAX_FILES:
                break
        return stamps

    def _paths(self) -> Iterator[str]:
        if self._folder is not None:
            yield from _files_below(self._folder, ".py")
        for folder in self._skills:
            yield from _files_below(folder, "")


def _files_below(root: str, ending: str) -> Iterator[str]:
    """Yield the paths of the files whose names end so."""
    for folder, folders, files in islice(os.walk(root), MAX_FOLDERS):
        # A virtual environment is no source of one's own.
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".")
            and each not in SKIPPED
            and not os.path.exists(os.path.join(folder, each, "pyvenv.cfg"))
        )
        for file in sorted(files):
            if file.endswith(ending):
                yield os.path.join(folder, file)
