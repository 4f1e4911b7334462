"""A cache of skills on disk, for hosts: what was read of servers' skills is there after a restart."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from mcpio._checks import required
from mcpio.app.client_skills import MAX_SKILL_BYTES

__all__ = ["FolderSkillCache"]

PREFIX: Final = "tmp"
"""How the names of files begin that are not whole yet. No digest does."""
ABANDONED_AFTER: Final = 3600.0
"""Seconds after which a file that is not whole is taken for that of a process that was killed."""


class FolderSkillCache:
    """Keeps files of skills in a folder, those of each server apart. A ``SkillCache`` for ``Client.skills``.

    Files are named by their digest and hashed at each use, so one that somebody changed is not used. No whole file is
    ever removed: delete the folder to empty the cache.
    """

    def __init__(
        self, folder: str | os.PathLike[str], server: str, *, searched: Iterable[str | os.PathLike[str]] = ()
    ) -> None:
        """Create the folder, for this user alone, if it does not exist.

        Args:
            folder: Where to keep the files.
            server: The host's own label of the server, never what the server calls itself.
            searched: The folders in which the host looks for skills of its own.

        Raises:
            ValueError: The label is empty, or ``folder`` is within a folder that is searched for skills: what a server
                sent would become a skill of the user's.
            PermissionError: Others may write to the folder.
            OSError: It cannot be created.

        """
        if not required("server", server, str):
            raise ValueError("server must be the host's label of the server, not empty")
        root = os.path.realpath(folder)
        for other in map(os.path.realpath, searched):
            if os.path.commonpath([root, other]) == other:
                raise ValueError(f"{root!r:.200} is within {other!r:.200}, which is searched for skills")
        os.makedirs(root, mode=0o700, exist_ok=True)
        if os.name == "posix" and stat.S_IMODE(os.stat(root).st_mode) & 0o022:
            raise PermissionError(f"others may write to {root!r:.200}: chmod go-w it")
        label = re.sub(r"[^A-Za-z0-9-]+", "-", server)[:40].strip("-") or "server"
        self._folder = os.path.join(root, f"{label}-{hashlib.sha256(server.encode()).hexdigest()[:16]}")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._remove_temporaries()

    def get(self, digest: str) -> bytes | None:
        """Return what is kept under a digest, or ``None``."""
        with suppress(OSError), open(self._path(digest), "rb") as file:
            return file.read(MAX_SKILL_BYTES + 1)
        return None

    def put(self, digest: str, data: bytes) -> None:
        """Keep a file. One that cannot be written is not kept."""
        with suppress(OSError):
            handle, path = tempfile.mkstemp(prefix=PREFIX, dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(path, self._path(digest))
            except BaseException:
                with suppress(OSError):  # it was renamed already
                    os.unlink(path)
                raise

    def _remove_temporaries(self) -> None:
        """Remove the files that processes which were killed have left half written."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                # A young one may be that of another process, which is writing it.
                if _TEMPORARY.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > ABANDONED_AFTER:
                    with suppress(OSError):  # another process has removed it
                        os.unlink(entry.path)

    def _path(self, digest: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"a digest must be sha256: and 64 hexadecimal digits, not {digest!r:.100}")
        return os.path.join(self._folder, digest.removeprefix("sha256:"))


_TEMPORARY: Final = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
