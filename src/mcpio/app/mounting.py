"""Several servers as one: mounted, and gathered behind one client."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from copy import copy
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from mcpio.app.context import Context, MountedContext
from mcpio.app.contracts import MountedStates

if TYPE_CHECKING:
    from mcpio.app.contracts import Handler
    from mcpio.app.registry.base import Registry
    from mcpio.app.server import Server


# ------------------------------------------------------------------------------------------------------------ gathering
# The tools, prompts and resources of many servers behind one client: public names that cannot collide.

T = TypeVar("T")

MAX_NAME: Final = 64
"""The most characters of a public name, as the APIs of models accept."""

MAX_PREFIX: Final = 24
"""Length of a server's part of a public name."""


MOST_COMPARED: Final = 300
"""How many names of a server are compared with one that it does not list."""


@attrs.frozen
class Gathered(Generic[T]):
    """A tool, prompt or resource of one of many servers."""

    name: str
    """The public name, such as ``files__read``; of at most 64 letters, digits, ``_`` and ``-``."""
    server: str
    """The server's name in the configuration."""
    item: T
    """As the server describes it, under the server's own name."""


class PublicNames:
    """Public names for the items of some servers, and the way back.

    A public name is the server's prefix, two underscores, and the item's name. A prefix has no two underscores in a row
    and ends in none, so that no server can claim a name of another's. An item's name that has other characters than
    letters, digits, ``_`` and ``-``, or is too long, is shortened and ends in a digest.
    """

    def __init__(self, servers: Iterable[str]) -> None:
        """``servers`` are all names; their order decides who keeps a prefix that two would get."""
        self._prefixes: dict[str, str] = {}
        self._servers: dict[str, str] = {}
        self._items: dict[str, dict[str, str]] = {}
        for server in servers:
            prefix = self._free_prefix(_prefix(server))
            self._prefixes[server], self._servers[prefix], self._items[server] = prefix, server, {}

    def public(self, server: str, name: str) -> str:
        """Return the public name of a server's item."""
        prefix = self._prefixes[server]
        room = MAX_NAME - len(prefix) - 2
        if len(name) > room or not _PLAIN.fullmatch(name) or _DIGEST.search(name):
            # A plain name that looks like one with a digest gets a digest too, so the two cannot meet.
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_SIZE]
            name = f"{_OTHER.sub('_', name)[: room - _DIGEST_SIZE - 1]}_{digest}"
        return f"{prefix}__{name}"

    def record(self, server: str, names: Iterable[str]) -> None:
        """Record the items that a server lists now."""
        self._items[server] = {self.public(server, name): name for name in names}

    def server_of(self, public: str) -> str:
        """Return the server that a public name belongs to. Raises LookupError for an unknown name."""
        server = self._servers.get(public.partition("__")[0])
        if server is None:
            raise LookupError(f"no server has the prefix of {public!r}; there are {', '.join(self._servers) or 'none'}")
        return server

    def find(self, public: str) -> str | None:
        """Return the server's own name of an item that it has listed, or ``None``."""
        return self._items[self.server_of(public)].get(public)

    def missing(self, public: str) -> LookupError:
        """Return the error for a name that its server does not list."""
        server = self.server_of(public)
        # A server chooses how many names it lists, and a comparison of two that are alike takes half a millisecond.
        names = [] if len(public) > MAX_NAME else list(islice(self._items[server], MOST_COMPARED))
        close = get_close_matches(public, names, n=3, cutoff=0.75)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        return LookupError(f"the server {server!r} lists nothing under the name {public!r}{hint}")

    def _free_prefix(self, wanted: str) -> str:
        prefix, number = wanted, 2
        while prefix in self._servers:
            prefix, number = f"{wanted}-{number}", number + 1
        return prefix


_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST_SIZE: Final = 8
_DIGEST: Final = re.compile(r"_[0-9a-f]{8}\Z")


def _prefix(server: str) -> str:
    return re.sub(r"_{2,}", "_", _OTHER.sub("-", server))[:MAX_PREFIX].strip("-_") or "server"


# ------------------------------------------------------------------------------------------------------------- mounting
# Mounted servers: what one server offers, offered by another too, under a prefix.


S = TypeVar("S", bound="Server")


class Mount:
    """One server as a part of another: its entries are copied into the other's registries, now and later."""

    def __init__(self, parent: Server, server: Server, prefix: str | None) -> None:
        """Raise ValueError for a malformed prefix, and where the two would contain each other."""
        self.parent = parent
        self.server: Any = server
        self.prefix = prefix
        if prefix is not None:
            names = PublicNames([prefix])
            if names.public(prefix, "x") != f"{prefix}__x":
                raise ValueError(
                    f"prefix must have 1 to {MAX_PREFIX} of the characters A-Z a-z 0-9 _ -, must not begin or "
                    f"end with _ or -, and must have no two _ in a row; not {prefix!r:.60}"
                )
            self._public: Callable[[str], str] = partial(names.public, prefix)
        else:
            self._public = str
        if parent in within(server):
            raise ValueError(
                f"the server {server.info.name!r} contains {parent.info.name!r}: it cannot be mounted in it"
            )
        self._mirrors = (
            Mirror(self, server.tools, parent.tools, self._public),
            Mirror(self, server.prompts, parent.prompts, self._public),
            Mirror(self, server.resources.static, parent.resources.static, str),
            Mirror(self, server.resources.templates, parent.resources.templates, str),
            Mirror(self, server.skills.registry, parent.skills.registry, str),
        )

    def begin(self) -> None:
        """Offer everything of the server. Raises as ``Server.mount`` does, before anything is changed."""
        for mirror in self._mirrors:
            for key, entry in mirror.source.entries():
                mirror.check(key, entry)
        for mirror in self._mirrors:
            mirror.begin()

    def end(self) -> None:
        """Remove the mounted server's entries."""
        for mirror in self._mirrors:
            mirror.end()

    def serve(self, key: str, scope: Context, request: Any) -> Any:
        """Pass a request for the entry ``key`` to the mounted server, through its middleware and with its state."""
        server, method = self.server, scope.method
        inner = MountedContext(scope, server)
        if hasattr(request, "ref"):
            request = attrs.evolve(request, ref=_renamed(request.ref, key))
        else:
            request = _renamed(request, key)
        if server.scope_rules is not None:
            server.scope_rules.check(method, request, scope.peer.principal, lambda: inner)
        handlers: dict[str, Handler] = {
            "tools/call": server.tools.call,
            "prompts/get": server.prompts.get,
            "resources/read": server.resources.read,
            "completion/complete": server.completions.complete,
            "skills/get": server.skills.get,
            "resources/directory/read": server.skills.read_directory,
        }
        handler = handlers[method]
        if server.middlewares:
            from mcpio.app.middleware import wrapped

            return wrapped(handler, server.middlewares)(inner, request)
        return handler(inner, request)


class Mirror:
    """Keeps copies of one registry's entries in another."""

    def __init__(
        self, mount: Mount, source: Registry[Any], target: Registry[Any], public: Callable[[str], str]
    ) -> None:
        self.mount = mount
        self.source = source
        self.target = target
        self._public = public

    def begin(self) -> None:
        """Copy all entries, and all that are added later."""
        for key, entry in self.source.entries():
            self.add(key, entry)
        self.source.mirrors += (self,)

    def end(self) -> None:
        """Remove the copies."""
        self.source.mirrors = tuple(each for each in self.source.mirrors if each is not self)
        for key, _ in self.source.entries():
            self.remove(key)

    def check(self, key: str, entry: Any) -> None:
        """Raise ValueError or TypeError if an entry cannot be added there."""
        execution = getattr(entry.description, "execution", None)
        server = self.mount.server.info.name
        if execution is not None and execution.task_support == "required":
            raise TypeError(f"the tool {key!r} of {server!r} only runs as a task, which a mounted server cannot do")
        public = self._public(key)
        taken = self.target.entry(public)
        if taken is not None:
            owner = self.mount.parent.info.name if taken.mount is None else taken.mount.server
            raise ValueError(
                f"the {self.target.noun} {public!r} of {owner!r} and that of {server!r}, which is mounted, would be "
                "one: choose another prefix, name or URI"
            )
        self.target.check_mirrors(public, entry)

    def add(self, key: str, entry: Any) -> None:
        """Add an entry."""
        public = self._public(key)
        copied = copy(entry)
        copied.mount = Origin(self.mount, key)
        changes: dict[str, Any] = {"execution": None} if hasattr(entry.description, "execution") else {}
        if public != key:
            changes["name"] = public
        if changes:
            copied.description = attrs.evolve(entry.description, **changes)
        endpoint = entry.endpoint
        if endpoint.visible is not None:
            copied.endpoint = copy(endpoint)
            copied.endpoint.visible = partial(_is_visible, endpoint, self.mount.server)
        self.mount.parent.heed(endpoint)
        self.target.add(public, copied)

    def remove(self, key: str) -> None:
        """Remove an entry."""
        if self._has_copy(key):
            self.target.remove(self._public(key))

    def enable(self, key: str, enabled: bool) -> None:
        """Enable or disable an entry."""
        if self._has_copy(key):
            self.target.enable(self._public(key), enabled)

    def _has_copy(self, key: str) -> bool:
        # The server that it is mounted in may have removed it before, and offer another of that name.
        entry = self.target.entry(self._public(key))
        return entry is not None and isinstance(entry.mount, Origin) and entry.mount.mount is self.mount

    def changed(self) -> None:
        """Notify the clients that the list has changed."""
        self.target.changed()


class Origin:
    """The origin of an entry that belongs to a mounted server."""

    __slots__ = ("_key", "mount")

    mount: Mount
    """The mount that made the copy."""

    def __init__(self, mount: Mount, key: str) -> None:
        self.mount = mount
        self._key = key

    @property
    def server(self) -> str:
        """The name of the server."""
        return str(self.mount.server.info.name)

    def serve(self, scope: Any, request: Any) -> Any:
        """Pass a request for the entry to the mounted server."""
        return self.mount.serve(self._key, scope, request)


def within(server: S) -> Iterator[S]:
    """Yield a server and all servers that are mounted in it, each once."""
    seen: dict[Any, None] = {}
    waiting: list[Any] = [server]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen[current] = None
            yield current
            waiting += [mount.server for mount in current.mounts]


@asynccontextmanager
async def mounted_lifespan(
    own: Callable[[Any], AbstractAsyncContextManager[Any]] | None, server: Server
) -> AsyncIterator[MountedStates]:
    """Enter a server's own lifespan, and then those of the servers that are mounted in it, each once."""
    async with AsyncExitStack() as stack:
        states: dict[Any, Any] = {}
        state = None if own is None else await stack.enter_async_context(own(server))
        waiting: list[Any] = [server]
        while waiting:
            mounted = waiting.pop()
            # The first mount is entered first, and what is mounted in it before the second.
            waiting += [mount.server for mount in reversed(mounted.mounts)]
            if mounted is server or mounted in states:
                continue
            lifespan = _own_lifespan(mounted)
            entered = None if lifespan is None else await stack.enter_async_context(lifespan(mounted))
            if isinstance(entered, MountedStates):
                states.update(entered.mounted)
                entered = entered.own
            states[mounted] = entered
        yield MountedStates(state, states)


def _own_lifespan(server: Server) -> Callable[[Any], AbstractAsyncContextManager[Any]] | None:
    """Return a server's lifespan without those of the servers that are mounted in it, which may be mounted twice."""
    lifespan = server.lifespan
    if isinstance(lifespan, partial) and lifespan.func is mounted_lifespan:
        own: Callable[[Any], AbstractAsyncContextManager[Any]] | None = lifespan.args[0]
        return own
    return lifespan


def _renamed(part: Any, key: str) -> Any:
    """Return a request or a reference with the server's own name of an entry. URIs are not changed."""
    return attrs.evolve(part, name=key) if hasattr(part, "name") else part


def _is_visible(endpoint: Any, server: Server, scope: Any) -> bool:
    is_visible: bool = endpoint.is_visible(MountedContext(scope, server))
    return is_visible
