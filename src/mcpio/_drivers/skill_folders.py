"""Folders of skills: found, read and hashed, without following links (SKILL-02 to SKILL-06, SKILL-10)."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import attrs

from mcpio._drivers import report
from mcpio._drivers.file_entries import FileEntry, Linked, mime_type_of, opened_entry
from mcpio._printable import printable
from mcpio.app.frontmatter import FrontmatterFault, frontmatter_of, line_of
from mcpio.app.registry.base import UnsafePath, path_segments
from mcpio.app.skills import FolderScan, SharedFile, SkillFault, SkillTree
from mcpio.types.features import Resource
from mcpio.types.skills import SkillEntry

DIRECTORY: Final = "inode/directory"
"""The MIME type of a directory."""
MAX_FILES: Final = 512
"""How many files a skill has at most (SKILL-06)."""
MAX_BYTES: Final = 16 << 20
"""How many bytes the files of a skill have together at most (SKILL-06)."""
MAX_DEPTH: Final = 32
"""How deep directories are looked for skills and files."""
MAX_ENTRIES: Final = 100_000
"""How many names are looked at in one folder, or in one directory with a skill: what is beyond is not served."""
_SETTLED: Final = 2.0
"""Seconds after which a file's time says that it was not written since: file systems count in steps as long as this."""

Segments = tuple[str, ...]


def open_folder(folder: Any, prefix: Segments) -> FolderOnDisk:
    """Return a folder of skills. Raises NotADirectoryError."""
    root = os.path.realpath(folder)
    if not os.path.isdir(root):
        raise NotADirectoryError(f"{os.fspath(folder)!r} is not a directory")
    return FolderOnDisk(root, os.fspath(folder), prefix)


@attrs.frozen
class _Read:
    """A file as it was read."""

    mark: tuple[int, ...]
    digest: str
    size: int
    frontmatter: dict[str, Any] | FrontmatterFault | None
    """Of a ``SKILL.md``."""
    name_line: int
    """The line of the name in it."""
    is_settled: bool
    """Whether its mark can be trusted."""


@attrs.define
class _Findings:
    """The directories, files and faults that a walk found below a directory."""

    files: dict[Segments, FileEntry] = attrs.field(factory=dict)
    directories: list[Segments] = attrs.field(factory=list)
    faults: list[tuple[Segments, SkillFault]] = attrs.field(factory=list)
    left: int = MAX_ENTRIES


class _Fault(Exception):
    """A skill cannot be served."""

    def __init__(self, at: Segments, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason
        self.line = line


@attrs.frozen
class _Reading:
    """Reads the files of a tree, each at most once, and none that was not written since it was read before."""

    root: str
    entries: dict[Segments, FileEntry]
    before: dict[Segments, _Read]
    now: dict[Segments, _Read]

    def of(self, where: Segments) -> _Read:
        """Return a file as it is. Raises _Fault if it cannot be read."""
        if where not in self.now:
            before = self.before.get(where)
            is_same = before is not None and before.is_settled and before.mark == self.entries[where].mark
            self.now[where] = before if before is not None and is_same else self._read(where)
        return self.now[where]

    def _read(self, where: Segments) -> _Read:
        begin = time.time()
        data = None
        mark: tuple[int, ...] = (0,)
        with suppress(OSError, Linked), opened_entry(self.root, where) as entry:
            mark = entry.mark
            data = entry.read(MAX_BYTES)
        if data is None:
            raise _Fault(where, "cannot be read, or is being written")
        head: dict[str, Any] | FrontmatterFault | None = None
        if where[-1] == "SKILL.md":
            try:
                head = frontmatter_of(data, where[-2] if len(where) > 1 else os.path.basename(self.root))
            except FrontmatterFault as fault:
                head = fault
        line = 0 if head is None else line_of(data, "name")
        return _Read(mark, _digest(data), len(data), head, line, mark[0] / 1e9 < begin - _SETTLED)


class FolderOnDisk:
    """A folder of skills on disk. Equal to another of the same directory and prefix."""

    def __init__(self, root: str, shown: str, prefix: Segments) -> None:
        self._root = root
        self._shown = shown
        self._prefix = prefix
        self._lock = threading.Lock()
        self._number = 0
        self._reads: dict[Segments, dict[Segments, _Read]] = {}  # by tree
        self._is_skill = False
        self._reported: set[SkillFault] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FolderOnDisk) and (self._root, self._prefix) == (other._root, other._prefix)

    def __hash__(self) -> int:
        return hash((self._root, self._prefix))

    def scan(self) -> FolderScan:
        """Read all of the folder, as far as it changed."""
        with self._lock:
            findings = _Findings()
            keys: list[Segments] = []
            with suppress(OSError, Linked), opened_entry(self._root, ()) as directory:
                self._look_for_skills(directory, (), findings, keys)
            self._is_skill = keys == [()]
            trees = {key: self._tree(key) for key in keys}
            faults = tuple(fault for _, fault in findings.faults)
            if not keys:
                faults += (SkillFault(self._shown, "no directory in it has a SKILL.md", is_fatal=False),)
            self._report((*faults, *(fault for tree in trees.values() for fault in tree.faults)))
            return FolderScan(trees, faults)

    def read_tree(self, key: Segments, distrusted: Segments | None = None) -> SkillTree:
        """Read a tree, as far as it changed; ``distrusted`` is read even if it looks unchanged."""
        with self._lock:
            tree = self._tree(key, distrusted)
            self._report(tree.faults)
            return tree

    def read(self, file: SharedFile) -> tuple[bytes, str] | None:
        """Return the bytes of a file and their digest; ``None`` if there is no such file."""
        try:
            with opened_entry(self._root, file.segments) as entry:
                data = None if entry.is_directory else entry.read(MAX_BYTES)
        except (OSError, Linked):
            return None
        return None if data is None else (data, _digest(data))

    # Walking

    def _look_for_skills(self, directory: FileEntry, at: Segments, findings: _Findings, keys: list[Segments]) -> None:
        """Collect the directories that have a ``SKILL.md``, outermost ones only."""
        if "SKILL.md" in directory.names():
            keys.append(at)
            return
        for name in self._names(directory, at, findings):
            below = (*at, name)
            try:
                with directory.entry(name) as entry:
                    if entry.is_directory:
                        self._look_for_skills(entry, below, findings, keys)
            except Linked:
                self._note(findings, below, "a symbolic link, which is not followed", is_fatal=False)
            except OSError as error:
                self._note(findings, below, _reason(error), is_fatal=False)

    def _walk(self, directory: FileEntry, at: Segments, findings: _Findings) -> None:
        """Collect all files and directories of a tree."""
        findings.directories.append(at)
        for name in self._names(directory, at, findings):
            below = (*at, name)
            try:
                with directory.entry(name) as entry:
                    if entry.is_directory:
                        self._walk(entry, below, findings)
                    else:
                        findings.files[below] = entry
            except Linked:
                self._note(findings, below, "a symbolic link: skills with links are not served; put a copy there")
            except OSError as error:
                self._note(findings, below, _reason(error))

    def _names(self, directory: FileEntry, at: Segments, findings: _Findings) -> list[str]:
        """Return the names in a directory that are looked at, sorted."""
        if len(at) > MAX_DEPTH:
            self._note(findings, at, f"a directory deeper than {MAX_DEPTH}")
            return []
        names: list[str] = []
        for name in sorted(directory.names()):
            findings.left -= 1
            if findings.left < 0:
                self._note(findings, at, f"more than {MAX_ENTRIES} names")
                return names
            if name.startswith(".") or name == "__pycache__":
                self._note(findings, (*at, name), "hidden, and so left out", is_fatal=False)
            elif not _is_sayable(name):
                self._note(findings, (*at, name), "a name that no URI can have, and so left out", is_fatal=False)
            else:
                names.append(name)
        return names

    def _note(
        self, findings: _Findings, at: Segments, reason: str, *, line: int | None = None, is_fatal: bool = True
    ) -> None:
        findings.faults.append((at, SkillFault(self._path(at), reason, line, is_fatal)))

    def _path(self, at: Segments) -> str:
        return printable(os.path.join(self._shown, *at))

    # Reading

    def _tree(self, key: Segments, distrusted: Segments | None = None) -> SkillTree:
        self._number += 1
        findings = _Findings()
        with suppress(OSError, Linked), opened_entry(self._root, key) as directory:
            self._walk(directory, key, findings)
        if (*key, "SKILL.md") not in findings.files and not findings.faults:
            self._note(findings, (*key, "SKILL.md"), "is not a file, or was removed")
        before = self._reads.pop(key, {})
        before.pop(distrusted or (), None)
        files_read = self._reads[key] = {}
        files = {at: list[Segments]() for at in findings.directories if (*at, "SKILL.md") in findings.files}
        for where in findings.files:
            for length in range(len(key), len(where)):
                if where[:length] in files:
                    files[where[:length]].append(where)
        incomplete = {at[:length] for at, fault in findings.faults if fault.is_fatal for length in range(len(at) + 1)}
        reading = _Reading(self._root, findings.files, before, files_read)
        skills: dict[str, SkillEntry] = {}
        names: dict[str, tuple[str, int]] = {}
        served: dict[Segments, SharedFile] = {}
        roots: set[Segments] = set()
        for at, mine in files.items():
            if at in incomplete:
                continue
            try:
                head = self._frontmatter(at, mine, reading)
                shared = [self._share(where, reading.of(where)) for where in mine]
            except _Fault as fault:
                # It is none of the skills around.
                findings.faults.append(((), SkillFault(self._path(fault.at), fault.reason, fault.line)))
                continue
            uri = self._uri((*at, "SKILL.md"))
            resources = [{"uri": f.resource.uri, "digest": f.digest, "size": f.resource.size} for f in shared]
            skills[uri] = SkillEntry(uri, head, resources)
            names[uri] = (self._path((*at, "SKILL.md")), reading.of((*at, "SKILL.md")).name_line)
            served.update(zip(mine, shared, strict=True))
            roots.add(at)
        return SkillTree(
            self._number,
            skills,
            {file.resource.uri: file for file in served.values()},
            self._directories(findings, served, roots),
            tuple(fault for _, fault in findings.faults),
            names,
        )

    def _frontmatter(self, at: Segments, files: list[Segments], reading: _Reading) -> dict[str, Any]:
        """Return the frontmatter of the skill in a directory. Raises _Fault if it cannot be served."""
        size = sum(reading.entries[where].size for where in files)
        if len(files) > MAX_FILES or size > MAX_BYTES:
            limits = f"at most {MAX_FILES} files of {MAX_BYTES} bytes together can be served"
            raise _Fault(at, f"the skill has {len(files)} files of {size} bytes: {limits}")
        head = reading.of((*at, "SKILL.md")).frontmatter
        if isinstance(head, dict):
            return head
        assert head is not None
        raise _Fault((*at, "SKILL.md"), head.reason, head.line)

    def _share(self, where: Segments, read: _Read) -> SharedFile:
        """Return a file as it is served. A ``SKILL.md`` has the name and the description of its skill."""
        declared = read.frontmatter if isinstance(read.frontmatter, dict) else {}
        resource = Resource(
            self._uri(where),
            declared.get("name", where[-1]),
            description=declared.get("description"),
            mime_type=mime_type_of(where[-1], "application/octet-stream"),
            size=read.size,
        )
        return SharedFile(where, read.digest, resource)

    def _directories(
        self, findings: _Findings, served: dict[Segments, SharedFile], roots: set[Segments]
    ) -> dict[str, tuple[Resource, ...]]:
        children: dict[Segments, list[Resource]] = {
            at: [] for at in findings.directories if any(at[:length] in roots for length in range(len(at) + 1))
        }
        for at in children:
            if at[:-1] in children and at:
                children[at[:-1]].append(Resource(self._uri(at), at[-1], mime_type=DIRECTORY))
        for at, file in served.items():
            children[at[:-1]].append(file.resource)
        return {self._uri(at): tuple(sorted(of, key=lambda resource: resource.uri)) for at, of in children.items()}

    def _uri(self, at: Segments) -> str:
        inside = at if self._name is None else (self._name, *at)
        return "skill://" + "/".join((*self._prefix, *(quote(segment, safe="") for segment in inside)))

    @property
    def _name(self) -> str | None:
        """The name of the folder, if it is a skill itself."""
        return os.path.basename(self._root) if self._is_skill else None

    def _report(self, faults: Any) -> None:
        """Report the faults that were not reported before."""
        for fault in faults:
            # Bounded: other processes choose the names, and each new one would be a new fault.
            if fault not in self._reported and len(self._reported) < MAX_ENTRIES:
                self._reported.add(fault)
                report(f"skills: {'not served: ' if fault.is_fatal else ''}{fault}", None)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _is_sayable(name: str) -> bool:
    try:
        return bool(path_segments(name, windows=os.name == "nt") and name.encode())
    except (UnicodeEncodeError, UnsafePath):
        return False


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
