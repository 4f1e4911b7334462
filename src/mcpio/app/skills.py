"""The skills of a server: entries, and the resources that their files are (SKILL-01 to SKILL-11).

Drivers read the folders: this layer touches no files. A folder is read by trees: a tree is a directory with a
``SKILL.md`` and all below it, nested skills included.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, Unpack
from urllib.parse import quote

import attrs

from mcpio._checks import check_options
from mcpio.app.context import Context
from mcpio.app.contracts import CacheHint, InputRequired, hidden_in
from mcpio.app.frontmatter import frontmatter_text, is_skill_name, yaml_package
from mcpio.app.registry.base import Edition, RegisteredFunction, Registry, UnsafePath, path_segments
from mcpio.app.registry.registration import AccessOptions, ResourceOptions, checked_uri, make_resource, restrict
from mcpio.app.registry.resources import FunctionResource, not_found
from mcpio.app.runtime import OPENERS, when_ready
from mcpio.errors import ErrorCode, RequestError
from mcpio.types.content import BlobResourceContents, TextResourceContents
from mcpio.types.features import Resource
from mcpio.types.skills import (
    GetSkillRequest,
    GetSkillResult,
    ListSkillsRequest,
    ListSkillsResult,
    ReadDirectoryRequest,
    ReadDirectoryResult,
    SkillEntry,
)

if TYPE_CHECKING:
    from mcpio.app.mounting import Origin
    from mcpio.app.server import Server

__all__ = ["MOST_IN_PAGE", "FolderScan", "SharedFile", "SkillFault", "SkillFolder", "SkillTree", "Skills"]

F = TypeVar("F", bound=Callable[..., Any])

MOST_IN_PAGE: Final = 50
"""How many skills a page has at most: an entry of 512 files takes 80 KB, and a message 16 MiB."""
_ATTEMPTS: Final = 3
"""How often a file that changes while it is read is read."""


@attrs.frozen
class SkillFault:
    """Why a skill of a folder is not served, or a file of one left out."""

    path: str
    """The file or directory."""
    reason: str
    """The fault, and how to correct it."""
    line: int | None = None
    """The line, counted from 1, where it is in one."""
    is_fatal: bool = True
    """Whether it keeps the skill out; otherwise only the file is left out."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" if self.line else f"{self.path}: {self.reason}"


@attrs.frozen
class SharedFile:
    """A file of a skill, as it was read last."""

    segments: tuple[str, ...]
    """Its path below the folder."""
    digest: str
    """``sha256:`` and the hash of its bytes."""
    resource: Resource
    """Its description."""


@attrs.frozen
class SkillTree:
    """A directory with a ``SKILL.md``, as it was read last. URIs are keys."""

    number: int
    """Rises with each reading of the folder, so that an older reading that ends later is known."""
    skills: Mapping[str, SkillEntry]
    """The skills in it: that of the directory first, then nested ones."""
    files: Mapping[str, SharedFile]
    """The files of its skills."""
    directories: Mapping[str, tuple[Resource, ...]]
    """The direct children of each directory of its skills."""
    faults: tuple[SkillFault, ...]
    names: Mapping[str, tuple[str, int]] = attrs.field(factory=dict)
    """The path of each skill's ``SKILL.md``, and the line of its name."""


@attrs.frozen
class FolderScan:
    """The skills and faults that were found in a folder."""

    trees: Mapping[tuple[str, ...], SkillTree]
    """The trees, by path below the folder."""
    faults: tuple[SkillFault, ...]
    """The faults outside of all trees."""


class SkillFolder(Protocol):
    """A folder of skills. Its methods read files and are called in any thread."""

    def scan(self) -> FolderScan:
        """Read all of the folder, as far as it changed."""

    def read_tree(self, key: tuple[str, ...], distrusted: tuple[str, ...] | None = None) -> SkillTree:
        """Read a tree, as far as it changed; ``distrusted`` is read even if it looks unchanged."""

    def read(self, file: SharedFile) -> tuple[bytes, str] | None:
        """Return the bytes of a file and their digest; ``None`` if there is no such file."""


class _ServedSkill:
    """An entry of the registry of skills. Copies in servers that it is mounted in share the tree."""

    __slots__ = ("_state", "enabled", "endpoint", "mount", "served_tree")

    def __init__(self, entry: SkillEntry, endpoint: RegisteredFunction, served_tree: _ServedTree | None) -> None:
        self._state = [entry]
        self.endpoint = endpoint
        self.served_tree = served_tree
        self.enabled = True
        self.mount: Origin | None = None

    @property
    def description(self) -> SkillEntry:
        return self._state[0]

    def renew(self, entry: SkillEntry) -> None:
        self._state[0] = entry


class _ServedTree:
    """A tree of a folder, and the files of it that are served."""

    __slots__ = ("endpoint", "folder", "key", "skills", "tree")

    endpoint: RegisteredFunction
    """Reads its files, for those who may."""

    def __init__(self, skills: Skills, folder: SkillFolder, key: tuple[str, ...], endpoint: RegisteredFunction) -> None:
        self.skills = skills
        self.endpoint = endpoint
        self.folder = folder
        self.key = key
        self.tree = SkillTree(0, {}, {}, {}, ())


class Skills:
    """The skills of a server: ``server.skills``. In the loop's thread, like everything that changes what is offered."""

    registry: Registry[_ServedSkill]
    """The skills, by the URI of their ``SKILL.md``."""

    def __init__(self, server: Server, page_size: int | None, hints: Mapping[str, Any], edition: Edition) -> None:
        self._server = server
        self._page_size = min(page_size or MOST_IN_PAGE, MOST_IN_PAGE)
        self._given_hints = hints
        self.registry = Registry("skill", self._begin)
        self._folders: dict[SkillFolder, dict[tuple[str, ...], _ServedTree]] = {}
        self._readers: dict[SkillFolder, RegisteredFunction] = {}  # with the access to all of a folder
        self._tree_of_uri: dict[str, _ServedTree] = {}  # by the URI of a file
        self._outside: dict[SkillFolder, tuple[SkillFault, ...]] = {}
        self._taken: dict[_ServedTree, SkillFault] = {}
        self._edition = edition

    @property
    def is_offered(self) -> bool:
        """Whether the server serves skills: it has some, or a folder for them."""
        return bool(len(self.registry) or self._folders)

    @property
    def faults(self) -> tuple[SkillFault, ...]:
        """What keeps skills out, or files of them, as of the last look at the folders."""
        faults = [fault for outside in self._outside.values() for fault in outside]
        for served_trees in self._folders.values():
            for served_tree in served_trees.values():
                faults += served_tree.tree.faults
        return (*faults, *self._taken.values(), *self._shared_names())

    def add_folder(self, folder: Any, prefix: str | None = None, **access: Unpack[AccessOptions]) -> None:
        """Serve every skill in a folder: each directory with a ``SKILL.md``, nested ones too.

        The URI of a skill is ``skill://``, the ``prefix`` (such as ``"acme/billing"``), and its path below the folder.
        A folder with a ``SKILL.md`` of its own is one skill, called like the folder. A skill with a fault is left out
        and reported, and is in ``faults``; the others are served. ``scopes=``, ``hide=`` and ``visible=`` say for whom,
        as for a tool: for the list, the entries and the files. Reads the files at once.

        Raises NotADirectoryError if it is not a directory, ValueError for a malformed prefix or a folder that is served
        already under it, TypeError or ValueError for a wrong option, ImportError without the extra ``skills``, and
        RuntimeError before any driver was imported.
        """
        check_options(access, AccessOptions.__annotations__)
        reader = RegisteredFunction(partial(self._read, uri=""), blocking=False, context=Context)
        reader.binder.name = "skills.add_folder"  # of which a failing visible= is reported
        restrict(reader, access)
        if "skills" not in OPENERS:
            raise RuntimeError("no driver can read files yet: import mcpio.trio, mcpio.asyncio or mcpio.asgi before")
        yaml_package()  # now: at the limit of open files an import would fail later
        opened: SkillFolder = OPENERS["skills"](folder, _checked_prefix(prefix))
        if opened in self._folders:
            raise ValueError(f"the folder {str(folder)!r:.200} is served already, under the same prefix")
        self._readers[opened] = reader
        self._server.heed(reader)
        self._look(opened, opened.scan)
        self._begin()

    def dynamic(
        self, uri: str, *, frontmatter: Mapping[str, Any] | None = None, **options: Unpack[ResourceOptions]
    ) -> Callable[[F], F]:
        """Register a function that returns the text of a ``SKILL.md`` below its frontmatter, on demand.

        The name of the skill is the last directory of ``uri``, the description the function's docstring or
        ``description=``; ``frontmatter`` has further members. Raises as ``Server.resource`` does, ValueError for a URI
        that no skill can have, and ImportError without the extra ``skills``.
        """
        name = _name_in(uri)

        def register(function: F) -> F:
            resource_options: ResourceOptions = {"mime_type": "text/markdown", **options, "name": name}
            entry = make_resource(uri, function, resource_options, context=Context)
            members = {"name": name, "description": entry.description.description or "", **(frontmatter or {})}
            head = frontmatter_text(members)
            self._server._adopt(entry.endpoint)  # noqa: SLF001  skills are a part of the server
            plain = copy(entry.endpoint)
            below = partial(_below, head)
            entry.endpoint.inject(lambda scope, keywords: when_ready(plain.call(scope, keywords), below))
            served = _ServedSkill(SkillEntry(uri, members, "dynamic"), entry.endpoint, None)
            self.registry.check_mirrors(uri, served)
            self._server.resources.static.add(uri, entry)
            self.registry.add(uri, served)
            return function

        return register

    def refresh(self) -> tuple[SkillFault, ...]:
        """Look for what was added to the folders, changed or removed; return ``faults``.

        Subscribers hear of changed files, and listeners of a changed list. Changes of a skill are noticed without this
        when a client asks for it; new skills are not. Reads files: call it where a moment's wait does no harm.
        """
        for folder in tuple(self._folders):
            self._look(folder, folder.scan)
        return self.faults

    # Handlers

    async def list_skills(self, scope: Context, request: ListSkillsRequest) -> ListSkillsResult:
        """Serve ``skills/list`` (SKILL-07)."""
        page = self.registry.page(request.cursor, self._page_size)
        await self._renew(scope, [self.registry.find(entry.uri) for entry in page.items])
        page = self.registry.page(request.cursor, self._page_size)
        if self._is_private:
            hidden = hidden_in(self.registry, scope)
            page.items = [each for each in page.items if id(each) not in hidden]
        return ListSkillsResult(tuple(page.items), page.next_cursor, **self._hints)

    async def get(self, scope: Context, request: GetSkillRequest) -> Any:
        """Serve ``skills/get`` (SKILL-08)."""
        entry = self.registry.find(request.uri, scope)
        if entry is not None and entry.mount is not None:
            result = entry.mount.serve(scope, request)
            return await result
        await self._renew(scope, [entry])
        entry = self.registry.find(request.uri, scope)
        if entry is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown skill: {request.uri:.200}", {"uri": request.uri})
        return GetSkillResult(entry.description)

    async def read_directory(self, scope: Context, request: ReadDirectoryRequest) -> Any:
        """Serve ``resources/directory/read`` (SKILL-09)."""
        uri = request.uri
        entry = self._skill_around(uri, scope)
        if entry is not None and entry.mount is not None:
            result = entry.mount.serve(scope, request)
            return await result
        await self._renew(scope, [entry])
        served_tree = None if entry is None else entry.served_tree
        children = None if served_tree is None else served_tree.tree.directories.get(uri)
        if children is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Not a directory of a skill: {uri:.200}", {"uri": uri})
        if request.cursor is not None:
            raise RequestError(ErrorCode.INVALID_PARAMS, "Invalid cursor", {"cursor": request.cursor[:100]})
        return ReadDirectoryResult(children, **self._hints)

    def named(self, request: GetSkillRequest | ReadDirectoryRequest) -> Any:
        """Return the entry of the skill that a request names, or names a directory of."""
        if isinstance(request, GetSkillRequest):
            return self.registry.find(request.uri)
        return self._skill_around(request.uri)

    def _skill_around(self, uri: str, scope: Context | None = None) -> _ServedSkill | None:
        """Return the outermost skill whose directory a URI is, or is within."""
        scheme, _, path = uri[:_MAX_URI].partition("://")
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            entry = self.registry.find(f"{scheme}://{'/'.join(parts[:count])}/SKILL.md", scope)
            if entry is not None:
                return entry
        return None

    async def _read(self, ctx: Context, uri: str) -> Any:
        """Return the contents of a file whose digest the current entry has (SKILL-11)."""
        for _ in range(_ATTEMPTS):
            served_tree = self._tree_of_uri.get(uri)
            if served_tree is None:
                raise not_found(ctx, uri)
            file = served_tree.tree.files[uri]
            read = await ctx.run_in_thread(partial(served_tree.folder.read, file))
            if read is not None and read[1] == file.digest:
                return _contents(uri, read[0], file.resource.mime_type)
            # Another call may have renewed it in the meantime.
            if self._tree_of_uri.get(uri) is served_tree and served_tree.tree.files[uri] is file:
                tree = await ctx.run_in_thread(partial(served_tree.folder.read_tree, served_tree.key, file.segments))
                self._apply(served_tree, tree)
        raise RequestError(ErrorCode.INTERNAL_ERROR, "The file changes while it is read: try again", {"uri": uri})

    async def _renew(self, scope: Context, entries: Iterable[_ServedSkill | None]) -> None:
        """Read again what changed of the trees of some skills."""
        served_trees = {
            entry.served_tree: None for entry in entries if entry is not None and entry.served_tree is not None
        }
        if not served_trees:
            return

        def read() -> list[tuple[_ServedTree, SkillTree]]:
            return [(served_tree, served_tree.folder.read_tree(served_tree.key)) for served_tree in served_trees]

        for served_tree, tree in await scope.run_in_thread(read):
            served_tree.skills._apply(served_tree, tree)  # noqa: SLF001  of a mounted server, perhaps

    @property
    def _is_private(self) -> bool:
        """Whether results may depend on the client."""
        return self._server.is_selective or self._server.scope_rules is not None

    @property
    def _hints(self) -> Mapping[str, Any]:
        return {**self._given_hints, "cache_scope": "private"} if self._is_private else self._given_hints

    # Served skills

    def _begin(self) -> None:
        """Answer the methods of the extension, from the first skill on. Called after each change of the registry."""
        self._edition.number += 1
        if self.is_offered and "skills/list" not in self._server.handlers:
            self._server.handlers |= {
                "skills/list": self.list_skills,
                "skills/get": self.get,
                "resources/directory/read": self.read_directory,
            }

    def _look(self, folder: SkillFolder, scan: Callable[[], FolderScan]) -> None:
        """Apply what there is in a folder now."""
        scanned = scan()
        served_trees = self._folders.setdefault(folder, {})
        self._outside[folder] = scanned.faults
        for key in [key for key in served_trees if key not in scanned.trees]:
            served_tree = served_trees.pop(key)
            self._apply(served_tree, SkillTree(served_tree.tree.number + 1, {}, {}, {}, ()))
        for key, tree in scanned.trees.items():
            if key not in served_trees:
                served_trees[key] = _ServedTree(self, folder, key, self._readers[folder])
            self._apply(served_trees[key], tree)

    def _apply(self, served_tree: _ServedTree, tree: SkillTree) -> None:
        """Serve a tree as it was read, in place of its earlier version."""
        before = served_tree.tree
        if tree.number <= before.number:
            return
        fault = self._fault_in(served_tree, tree)
        self._taken.pop(served_tree, None)
        if fault is not None:
            self._taken[served_tree] = fault
            tree = SkillTree(tree.number, {}, {}, {}, tree.faults)
        served_tree.tree = tree
        for uri in before.skills.keys() - tree.skills.keys():
            self.registry.remove(uri)
        self._serve_files(served_tree, before.files)
        for uri, entry in tree.skills.items():
            registered = self.registry.entry(uri)
            if registered is None:
                self.registry.add(uri, _ServedSkill(entry, served_tree.endpoint, served_tree))
            else:
                registered.renew(entry)
        for uri in before.files.keys() & tree.files.keys():
            if before.files[uri].digest != tree.files[uri].digest:
                self._server.notify_resource_updated(uri)

    def _serve_files(self, served_tree: _ServedTree, before: Mapping[str, SharedFile]) -> None:
        """Register the files of a tree as resources, in place of those of before."""
        static, files = self._server.resources.static, served_tree.tree.files
        for uri, file in before.items():
            if uri not in files or files[uri].resource != file.resource:
                del self._tree_of_uri[uri]
                if static.entry(uri) is not None:  # the program may have removed it
                    static.remove(uri)
        for uri, file in files.items():
            if uri not in self._tree_of_uri:
                self._tree_of_uri[uri] = served_tree
                static.add(uri, self._resource(served_tree, uri, file))

    def _fault_in(self, served_tree: _ServedTree, tree: SkillTree) -> SkillFault | None:
        """Return why a tree cannot be served: a URI of its files, or of its skills, is that of something else."""
        try:
            for uri, file in tree.files.items():
                if self._tree_of_uri.get(uri) is served_tree:
                    continue
                if self._server.resources.static.entry(uri) is not None:
                    return SkillFault("/".join(file.segments), f"the resource {uri} is served already, by another name")
                self._server.resources.static.check_mirrors(uri, self._resource(served_tree, uri, file))
        except ValueError as error:
            return SkillFault("/".join(served_tree.key) or ".", str(error))
        return None

    def _resource(self, served_tree: _ServedTree, uri: str, file: SharedFile) -> FunctionResource:
        """Return the resource of a file. One signature serves all files of a folder."""
        endpoint = copy(served_tree.endpoint)
        endpoint.function = partial(self._read, uri=uri)
        return FunctionResource(endpoint, file.resource, CacheHint())

    def _shared_names(self) -> Iterator[SkillFault]:
        """Yield a fault for each skill whose name an earlier one has: a host may show only one of them (SKILL-07)."""
        uris: dict[str, str] = {}
        for entry in self.registry:
            uri, name = entry.description.uri, entry.description.frontmatter["name"]
            first_uri = uris.setdefault(name, uri)
            if first_uri != uri:
                path, line = (uri, None) if entry.served_tree is None else entry.served_tree.tree.names[uri]
                yield SkillFault(path, f"the name {name!r} is that of {first_uri} too", line, is_fatal=False)


_MAX_URI: Final = 8192


def _contents(uri: str, data: bytes, mime_type: str | None) -> TextResourceContents | BlobResourceContents:
    """Return bytes as text if the text is the same bytes again, and as a blob otherwise."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return BlobResourceContents(uri, base64.b64encode(data).decode(), mime_type)
    return TextResourceContents(uri, text, mime_type)


def _below(head: str, value: Any) -> Any:
    """Return the text of a dynamic skill with its frontmatter."""
    if value is None or isinstance(value, InputRequired):
        return value
    if not isinstance(value, str):
        raise TypeError(f"the function of a dynamic skill must return a str, not {type(value).__name__}")
    return head + value


def _checked_prefix(prefix: str | None) -> tuple[str, ...]:
    """Return the segments of a prefix. Raises ValueError if it is malformed."""
    if prefix is None:
        return ()
    try:
        segments = path_segments(prefix)
    except (UnsafePath, TypeError, AttributeError):
        segments = ()
    if not segments or any(quote(segment, safe="") != segment for segment in segments):
        raise ValueError(
            f'prefix must be a path of letters, digits and - . _ ~, such as "acme/billing", not {prefix!r:.100}'
        )
    return segments


def _name_in(uri: str) -> str:
    """Return the name of a skill from the URI of its ``SKILL.md``. Raises ValueError if no skill can have it."""
    checked_uri(uri)
    _, separator, path = uri.partition("://")
    *before, name, file = ["", *path.split("/")]
    if not separator or file != "SKILL.md" or not is_skill_name(name) or not all(before[1:]) or "{" in uri:
        raise ValueError(f"uri must be that of a skill, such as skill://reports/daily/SKILL.md, not {uri!r:.100}")
    return name
