"""The skills of a server, as a client uses them: every byte is checked against the entry that is held.

This keeps the rules SKILL-20 to SKILL-27, as far as a library can.

The text of a skill comes from its server and is untrusted. ``allowed-tools`` and hooks in its frontmatter grant
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, unquote

import attrs

from mcpio._checks import is_count
from mcpio.app.frontmatter import FrontmatterFault, differing_members
from mcpio.app.registry.base import UnsafePath, path_segments
from mcpio.errors import InvalidMessage, SkillChanged
from mcpio.framing.json import dumps
from mcpio.types._fields import MalformedItem
from mcpio.types.content import BlobResourceContents, TextResourceContents
from mcpio.types.features import ReadResourceRequest
from mcpio.types.skills import GetSkillRequest, ListSkillsRequest, ListSkillsResult, ReadDirectoryRequest, SkillEntry

if TYPE_CHECKING:
    from mcpio.app.client import CallOptions, Client

__all__ = ["MAX_SKILL_BYTES", "MAX_SKILL_FILES", "MemorySkillCache", "Skill", "SkillCache", "SkillFile", "list_skills"]

MAX_SKILL_FILES: Final = 512
"""How many files of a skill are accepted (SKILL-27)."""
MAX_SKILL_URI: Final = 4096
"""Characters of the longest URI of a skill or of one of its files."""
MAX_SKILL_DEPTH: Final = 32
"""The most names in the path of a file of a skill."""
MAX_SKILL_BYTES: Final = 16 << 20
"""How many bytes of a skill are accepted, all files together (SKILL-27)."""


@attrs.frozen
class SkillFile:
    """A file of a skill, as the entry says that it is."""

    uri: str
    digest: str
    """``sha256:`` and 64 hexadecimal digits."""
    size: int
    """In bytes."""


class SkillCache(Protocol):
    """Keeps files of skills by their digest. What it returns is hashed at each use, so it need not be trusted."""

    def get(self, digest: str) -> bytes | None:
        """Return the cached bytes with a digest, or ``None``. May block: it is called in a thread."""

    def put(self, digest: str, data: bytes) -> None:
        """Keep something. May block, as ``get``."""


class MemorySkillCache:
    """Keeps files of skills in memory; the least recently used leave first."""

    def __init__(self, max_bytes: int = MAX_SKILL_BYTES) -> None:
        """Raise ValueError for a size below 0."""
        if not is_count(max_bytes):
            raise ValueError(f"max_bytes must be a number of bytes, 0 or more, not {max_bytes!r:.60}")
        self._left = max_bytes
        self._files: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes | None:
        """Return the cached bytes with a digest, or ``None``."""
        data = self._files.get(digest)
        if data is not None:
            self._files.move_to_end(digest)
        return data

    def put(self, digest: str, data: bytes) -> None:
        """Keep a file, if it fits at all."""
        if digest not in self._files:
            self._files[digest] = data
            self._left -= len(data)
            while self._left < 0:
                _, dropped = self._files.popitem(last=False)
                self._left += len(dropped)


class Skill:
    """A skill of a server, by the entry that this client holds. Reading it sends requests; nothing is fetched ahead.

    Two skills are the same if they are of one server, in the host's eyes, and have one ``uri``: neither the name nor
    the URI alone says which. What it contains is untrusted: show the user where it comes from.
    """

    uri: str
    """The URI of its ``SKILL.md``."""
    name: str
    """Its name. Another skill, and another server's, may have it too."""
    description: str
    """When to use it."""
    frontmatter: Mapping[str, Any]
    """The whole frontmatter, as the entry has it. ``allowed-tools`` is a wish, and no permission."""
    files: Mapping[str, SkillFile] | None
    """The files by their path in the skill, such as ``examples/email.md``; ``None`` if the content is dynamic."""

    def __init__(self, client: Client, entry: SkillEntry, cache: SkillCache) -> None:
        """Made by ``Client.skills`` and ``Client.skill``. Raises InvalidMessage for an entry that breaks the rules."""
        self.uri = entry.uri
        self.frontmatter = MappingProxyType(dict(entry.frontmatter))
        self.name, self.description = _names_in(entry)
        self.files = _files_in(entry)
        self._client = client
        self._cache = cache

    def __repr__(self) -> str:
        return f"<Skill {self.uri!r}>"

    @property
    def fingerprint(self) -> str | None:
        """A hash over the set of URIs and digests: what an approval of the user binds to (SKILL-26).

        Another set has another one, and needs another approval. ``None`` for dynamic content, which no approval binds.
        """
        if self.files is None:
            return None
        pairs = sorted([file.uri, file.digest] for file in self.files.values())
        return f"sha256:{hashlib.sha256(dumps(pairs)).hexdigest()}"

    async def open(self, **call: Any) -> str:
        """Return the text of ``SKILL.md``, frontmatter included. The options are those of every call of a client.

        Raises SkillChanged if size, digest or frontmatter are not those of the entry: get it again by
        ``Client.skill``, and have it approved again. ImportError without the extra ``skills``. Otherwise raises as
        every call of a client.
        """
        data = await self.read("SKILL.md", **call)
        try:
            differing = differing_members(data, self.frontmatter)
        except FrontmatterFault as fault:
            raise SkillChanged(self.uri, "frontmatter", str(fault)) from fault
        if differing:
            names = ", ".join(map(repr, differing))
            raise SkillChanged(self.uri, "frontmatter", f"{names:.200} in the file differ from the entry")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SkillChanged(self.uri, "content", "SKILL.md is not UTF-8") from error

    async def read(self, path: str, **call: Any) -> bytes:
        """Return the bytes of a file, by its path in the skill.

        Raises SkillChanged for a file that is not in the entry (nothing is requested then), and if size or digest
        differ. The files of dynamic content cannot be checked.
        """
        if self.files is None:
            return await self._fetch(_uri_below(self.uri, path), call)
        file = self.files.get(path)
        if file is None:
            raise SkillChanged(self.uri, "file", f"the entry has no file {path!r:.200}")
        cached = await self._read_cached(file)
        if cached is not None:
            return cached
        data = await self._fetch(file.uri, call)
        _check(file, data)
        await self._in_thread(partial(self._cache.put, file.digest, data))
        return data

    async def _read_cached(self, file: SkillFile) -> bytes | None:
        data = await self._in_thread(partial(self._cache.get, file.digest))
        return data if data is not None and len(data) == file.size and _digest(data) == file.digest else None

    async def _in_thread(self, function: Any) -> Any:
        if isinstance(self._cache, MemorySkillCache):
            return function()
        return await self._client.driver.runtime.to_thread(function)

    async def _fetch(self, uri: str, call: Mapping[str, Any]) -> bytes:
        """Return the bytes at a URI, as the server has them now."""
        options: Any = {**call, "fresh": True}
        result = await self._client._call(ReadResourceRequest(uri), options)  # noqa: SLF001  as below
        if len(result.contents) != 1 or result.contents[0].uri != uri:
            raise SkillChanged(uri, "content", "the answer is not this one file")
        contents = result.contents[0]
        try:
            if isinstance(contents, TextResourceContents):
                return contents.text.encode()
            if isinstance(contents, BlobResourceContents):
                return base64.b64decode(contents.blob, validate=True)
        except ValueError as error:
            raise SkillChanged(uri, "content", f"the content cannot be decoded: {error}") from error
        raise SkillChanged(uri, "content", "the content is neither text nor bytes")


async def list_skills(client: Client, cache: SkillCache, cursor: str | None, call: CallOptions) -> SkillPage:
    """Return a page of skills. Entries that break the rules are set aside with the malformed ones."""
    page: ListSkillsResult = await client._call(ListSkillsRequest(cursor), call)  # noqa: SLF001  a part of the client
    skills = []
    malformed = list(page.malformed)
    aside = {item.index for item in malformed}
    places = [index for index in range(len(page.skills) + len(malformed)) if index not in aside]
    for index, entry in zip(places, page.skills, strict=False):
        try:
            skills.append(Skill(client, entry, cache))
        except InvalidMessage as error:
            malformed.append(MalformedItem(index, {"uri": entry.uri}, str(error)))
        # A page may have 100,000 files, and their paths take seconds.
        await client.driver.runtime.sleep(0)
    return SkillPage(tuple(skills), page.next_cursor, tuple(malformed), page)


async def get_skill(client: Client, cache: SkillCache, uri: str, call: CallOptions) -> Skill:
    """Return the skill at a URI. Raises InvalidMessage if the server's entry breaks the rules, or is another's."""
    result = await client._call(GetSkillRequest(uri), call)  # noqa: SLF001  a part of the client
    if result.skill.uri != uri:
        raise InvalidMessage("skill.uri", f"the server answered with the entry of {result.skill.uri!r:.100}")
    return Skill(client, result.skill, cache)


def directory_page(client: Client, uri: str, call: CallOptions, cursor: str | None) -> Any:
    """Return a page of the entries of a directory."""
    return client._call(ReadDirectoryRequest(uri, cursor), call)  # noqa: SLF001  a part of the client


@attrs.frozen
class SkillPage:
    """Some skills of a server."""

    skills: tuple[Skill, ...]
    next_cursor: str | None
    malformed: tuple[MalformedItem, ...]
    sent: ListSkillsResult
    """The page as the server sent it."""


# The rules for entries


def _names_in(entry: SkillEntry) -> tuple[str, str]:
    scheme, separator, path = entry.uri.partition("://")
    *_, directory, file = ["", *path.rsplit("/", 2)]
    if not (scheme and separator and directory) or file != "SKILL.md" or len(entry.uri) > MAX_SKILL_URI:
        raise InvalidMessage("skill.uri", f"expected the URI of a SKILL.md in a directory, got {entry.uri!r:.100}")
    name, description = entry.frontmatter.get("name"), entry.frontmatter.get("description")
    if not isinstance(name, str) or name != unquote(directory):
        raise InvalidMessage("skill.frontmatter.name", f"expected the name of the directory, got {name!r:.100}")
    if not isinstance(description, str):
        raise InvalidMessage("skill.frontmatter.description", f"expected a text, got {description!r:.100}")
    return name, description


def _files_in(entry: SkillEntry) -> Mapping[str, SkillFile] | None:
    resources = entry.resources
    if resources == "dynamic":
        return None
    if not isinstance(resources, list | tuple) or not 0 < len(resources) <= MAX_SKILL_FILES:
        raise InvalidMessage("skill.resources", f'expected "dynamic" or 1 to {MAX_SKILL_FILES} files')
    root = entry.uri.removesuffix("SKILL.md")
    files: dict[str, SkillFile] = {}
    for index, each in enumerate(resources):
        where = f"skill.resources[{index}]"
        file = _file(each, where)
        path = _path_in(root, file.uri, where)
        if path in files:
            raise InvalidMessage(where, f"the file {path!r:.100} is there twice")
        files[path] = file
    if "SKILL.md" not in files:
        raise InvalidMessage("skill.resources", "SKILL.md is not among the files")
    if sum(file.size for file in files.values()) > MAX_SKILL_BYTES:
        raise InvalidMessage("skill.resources", f"the files have more than {MAX_SKILL_BYTES} bytes")
    return MappingProxyType(files)


def _file(description: Any, where: str) -> SkillFile:
    members = description if isinstance(description, Mapping) else {}
    uri, digest, size = members.get("uri"), members.get("digest"), members.get("size")
    if isinstance(size, float) and size.is_integer():
        size = int(size)  # JSON has one kind of number
    if not isinstance(uri, str) or not isinstance(digest, str) or not isinstance(size, int) or not is_count(size):
        raise InvalidMessage(where, "expected an object with uri, digest and size")
    if not _DIGEST.fullmatch(digest):
        raise InvalidMessage(f"{where}.digest", f"expected sha256: and 64 hexadecimal digits, got {digest!r:.100}")
    return SkillFile(uri, digest, size)


def _path_in(root: str, uri: str, where: str) -> str:
    """Return the decoded path of a file in the skill."""
    if uri.startswith(root) and len(uri) <= MAX_SKILL_URI and uri.count("/", len(root)) < MAX_SKILL_DEPTH:
        try:
            path = unquote(uri.removeprefix(root), errors="strict")
            # An escaped "/" would make another path of it.
            if len(path_segments(path)) == uri.count("/", len(root)) + 1:
                return path
        except ValueError:  # UnsafePath among them
            pass
    raise InvalidMessage(f"{where}.uri", f"expected the URI of a file in {root:.100}, got {uri!r:.100}")


def _uri_below(uri: str, path: str) -> str:
    try:
        segments = path_segments(path)
    except UnsafePath as error:
        raise SkillChanged(uri, "file", str(error)) from error
    return uri.removesuffix("SKILL.md") + "/".join(quote(segment, safe="") for segment in segments)


def _check(file: SkillFile, data: bytes) -> None:
    if len(data) != file.size:
        raise SkillChanged(file.uri, "size", f"it has {len(data)} bytes, and the entry says {file.size}")
    digest = _digest(data)
    if digest != file.digest:
        raise SkillChanged(file.uri, "digest", f"its digest is {digest}, and the entry says {file.digest}")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
