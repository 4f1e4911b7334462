# ruff: noqa: SLF001 - the library uses scopes from inside
"""What tools, resources and prompts share: the function, its entry, its content and its results."""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import attrs

from mcpio.app.pagination import Page, page_of
from mcpio.app.runtime import check_nothing_waits, failure_of, is_of_kind, without_partial
from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.signature import Binder
from mcpio.app.schema.values import Fault, is_payload, plain, to_json
from mcpio.framing import json
from mcpio.types._fields import Payload
from mcpio.types.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope
    from mcpio.app.mounting import Mirror, Origin

# ------------------------------------------------------------------------------------------------------------- function
# A registered function: called in the loop's thread, in another thread, or as a coroutine.


class RegisteredFunction:
    """A function, its signature, and the scopes that calling it needs.

    ``blocking`` runs a plain function in a thread; ``context`` is the class whose parameter is filled in. Raises
    TypeError, with advice, if the function is a generator, cannot be called with named values, or is async and
    ``blocking``.
    """

    __slots__ = ("_blocking", "binder", "function", "hides", "injection", "is_plain", "scopes", "visible")

    is_plain: bool
    """Whether to call the function itself in the loop's thread, with its arguments and nothing else."""

    scopes: frozenset[str] | Callable[[Any], Iterable[str]] | None
    """The scopes that the token of a request needs, or a function of the typed request that returns them."""
    hides: bool
    """Whether to list the entry only for clients that have the scopes."""
    visible: Callable[[Any], bool] | None
    """Decides by a request's scope whether the entry exists for it; ``None`` if it exists for all."""
    injection: Callable[[RequestScope, dict[str, Any]], Any] | None
    """Calls it with its dependencies too; ``None`` for a function without any."""

    def __init__(self, function: Callable[..., Any], *, blocking: bool, context: type) -> None:
        if not callable(function):
            raise TypeError(f"the handler must be a function, not {function!r:.100}: options are given by name")
        if is_of_kind(inspect.isgeneratorfunction, function) or is_of_kind(inspect.isasyncgenfunction, function):
            raise TypeError(f"{_shown(function)} yields: return a list, and report on the way by Context.progress")
        if blocking and is_of_kind(inspect.iscoroutinefunction, function):
            raise TypeError(f"{_shown(function)} is async and does not block: leave blocking=True out")
        self.function: Callable[..., Any] = function
        self.binder: Binder = Binder(function, context=context)
        self._blocking = blocking
        self.is_plain = not blocking and self.binder.context_parameter is None
        self.scopes = None
        self.hides = False
        self.visible = None
        self.injection = None

    @property
    def name(self) -> str:
        """The function's name. Raises TypeError if it has none."""
        name = getattr(self.function, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            raise TypeError(f"{self.function!r:.100} has no name of its own: give name=")
        return name

    def is_visible(self, scope: RequestScope) -> bool:
        """Whether the entry exists for a request. If ``visible`` raises, it does not, and the exception is reported."""
        if self.visible is None:
            return True
        try:
            result = self.visible(scope)
            check_nothing_waits(result)
        except BaseException as error:
            scope._report(f"visible= of {self.binder.name}() failed, so it is hidden", failure_of(error))
            return False
        return bool(result)

    def inject(self, injection: Callable[[RequestScope, dict[str, Any]], Any]) -> None:
        """Call the function by ``injection`` from now on, which takes the scope and the bound arguments."""
        self.injection, self.is_plain = injection, False

    def call(self, scope: RequestScope, keywords: dict[str, Any]) -> Any:
        """Call the function with bound arguments. Returns its result, or an awaitable of it."""
        if self.injection is not None:
            return self.injection(scope, keywords)
        if self.binder.context_parameter is not None:
            keywords[self.binder.context_parameter] = scope._for_thread() if self._blocking else scope
        if self._blocking:
            return scope.run_in_thread(partial(self.function, **keywords))
        return self.function(**keywords)


def _shown(function: Any) -> str:
    function = without_partial(function)
    return f"{getattr(function, '__qualname__', None) or type(function).__qualname__}()"


# ---------------------------------------------------------------------------------------------------------------- paths
# Relative paths from untrusted sources, checked segment by segment (RES-10).


class UnsafePath(ValueError):
    """The path is not a plain relative path."""


class PathClimbs(UnsafePath):
    """The path contains ``..``."""


def path_segments(path: str, *, windows: bool = False) -> tuple[str, ...]:
    """Return the names in a decoded relative path, separated by ``/``; a trailing ``/`` is ignored.

    No name is empty, ``.`` or ``..``, or contains a backslash or a control character. With ``windows``, names with a
    special meaning are refused too: drives, streams, devices, and short names (``GIT~1``). The path may still lead
    through symbolic links. Decode percent-encoding once, before.

    Raises PathClimbs for ``..``, and UnsafePath for other unsafe paths.
    """
    segments = tuple(path.removesuffix("/").split("/")) if path else ()
    if ".." in segments or ".." in path.replace("\\", "/").split("/"):
        raise PathClimbs(f"{path[:200]!r} leads upwards")
    for segment in segments:
        if segment in ("", ".") or _FORBIDDEN.search(segment) or (windows and _ODD_ON_WINDOWS.search(segment)):
            raise UnsafePath(f"{path[:200]!r} is not a plain relative path")
    return segments


_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f\\]")
_ODD_ON_WINDOWS: Final = re.compile(
    r"[<>:\"|?*]|[. ]$|^(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]) *(?:\.|$)"
    r"|^[^.]{1,6}~[0-9]{1,6}(?:\.[^.]{0,3})?$",
    re.IGNORECASE,
)


# ----------------------------------------------------------------------------------------------------------------- base
# Registries: the entries of a server by name, in the order of registration.


class Offered(Protocol):
    """An entry of a registry."""

    @property
    def description(self) -> Any:
        """The typed description that list requests return."""

    @property
    def endpoint(self) -> RegisteredFunction:
        """Its function, and who may see and call it."""

    enabled: bool
    """Whether it is offered at the moment."""
    mount: Origin | None
    """The mounted server that it belongs to; ``None`` for an entry of the server's own."""


T = TypeVar("T", bound=Offered)

InLoop: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Calls a function in the thread of the event loop that serves a registry's server, and returns its result."""


def _at_once(function: Callable[[], Any]) -> Any:
    return function()


class Edition:
    """Counts how often something was added to what a server offers, or removed from it: its registries share one."""

    __slots__ = ("number",)

    number: int
    """The count."""

    def __init__(self) -> None:
        self.number = 0


class Entry:
    """An entry of a registry: a function, and the description of it that clients get."""

    __slots__ = ("description", "enabled", "endpoint", "mount")

    endpoint: RegisteredFunction
    """The function."""
    description: Any
    """The description that clients get."""
    enabled: bool
    """Whether it is offered at the moment. Change it by ``enable`` and ``disable`` of its registry."""
    mount: Origin | None
    """The mounted server that it belongs to; ``None`` for one of the server's own."""

    def __init__(self, endpoint: RegisteredFunction, description: Any) -> None:
        self.endpoint = endpoint
        self.description = description
        self.enabled = True
        self.mount = None


class Registry(Generic[T]):
    """Entries by key. Disabled entries are kept, but neither listed nor found. Any thread may change them."""

    noun: str
    """The noun for an entry in error messages."""
    mirrors: tuple[Mirror, ...]
    """Functions that repeat every change elsewhere."""

    def __init__(
        self, noun: str, changed: Callable[[], None], in_loop: InLoop = _at_once, edition: Edition | None = None
    ) -> None:
        """``noun`` names an entry in errors. ``changed`` is called after every change of the list."""
        self.noun = noun
        self._in_loop = in_loop
        self.mirrors = ()
        self._notify_changed = changed
        self._edition = edition or Edition()
        self._entries: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        # The entries that are offered, with their numbers, until something changes: a page must not cost as much as all
        # of them.
        self._offered: list[tuple[int, T]] | None = None
        self._weights: dict[int, tuple[Any, int]] = {}

    def add(self, key: str, entry: T) -> None:
        """Offer an entry. Raises ValueError if the key is taken."""
        self._in_loop(lambda: self._add(key, entry))

    def _add(self, key: str, entry: T) -> None:
        taken = self._entries.get(key)
        if taken is not None:
            owner = "" if taken.mount is None else f", of the mounted server {taken.mount.server!r}"
            raise ValueError(f"there is a {self.noun} {key!r} already{owner}: remove it first, or choose another name")
        self.check_mirrors(key, entry)
        self._entries[key] = entry
        self._numbers[key] = self._next_number
        self._next_number += 1
        self._edition.number += 1
        for mirror in self.mirrors:
            mirror.add(key, entry)
        if entry.enabled:
            self._changed()

    def remove(self, key: str) -> None:
        """Remove an entry. Raises KeyError for an unknown key."""
        self._in_loop(lambda: self._remove(key))

    def _remove(self, key: str) -> None:
        entry = self._get(key)
        del self._entries[key], self._numbers[key]
        self._edition.number += 1
        for mirror in self.mirrors:
            mirror.remove(key)
        if entry.enabled:
            self._changed()

    def enable(self, key: str, enabled: bool = True) -> None:
        """Enable an entry, or disable it. Raises KeyError for an unknown key."""
        self._in_loop(lambda: self._enable(key, enabled))

    def _enable(self, key: str, enabled: bool) -> None:
        entry = self._get(key)
        if entry.enabled != enabled:
            entry.enabled = enabled
            self._changed()
        for mirror in self.mirrors:
            mirror.enable(key, enabled)

    def disable(self, key: str) -> None:
        """Hide an entry until ``enable``. Raises KeyError for an unknown key."""
        self.enable(key, False)

    def find(self, key: str, scope: RequestScope | None = None) -> T | None:
        """Return the entry that is offered under a key, or ``None``; with ``scope`` as far as that request may see."""
        entry = self._entries.get(key)
        if entry is None or not entry.enabled:
            return None
        if scope is not None and entry.endpoint.visible is not None and not entry.endpoint.is_visible(scope):
            return None
        return entry

    def __contains__(self, key: object) -> bool:
        """Whether an entry is offered under a key."""
        return isinstance(key, str) and self.find(key) is not None

    def __iter__(self) -> Iterator[T]:
        """Iterate over the entries that are offered."""
        return (entry for entry in self._entries.values() if entry.enabled)

    def entry(self, key: str) -> T | None:
        """Return the entry under a key, disabled or not, or ``None``."""
        return self._entries.get(key)

    def entries(self) -> tuple[tuple[str, T], ...]:
        """Return all entries with their keys, disabled ones included."""
        return tuple(self._entries.items())

    def check_mirrors(self, key: str, entry: T) -> None:
        """Raise ValueError or TypeError if an entry cannot be added where this registry is repeated."""
        for mirror in self.mirrors:
            mirror.check(key, entry)

    def everything(self) -> Iterator[T]:
        """Iterate over all entries, disabled ones included."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        """Return the number of all entries, disabled ones included: they show that the feature exists."""
        return len(self._entries)

    def changed(self) -> None:
        """Notify the clients that the list has changed, for example because ``visible=`` now returns something else."""
        self._in_loop(self._tell)

    def _tell(self) -> None:
        self._changed()
        for mirror in self.mirrors:
            mirror.changed()

    def page(self, cursor: str | None, size: int | None) -> Page[Any]:
        """Return the page of descriptions that a list request asks for (PAGE-01)."""
        if self._offered is None:
            self._offered = [(self._numbers[key], entry) for key, entry in self._entries.items() if entry.enabled]
        page = page_of(self.noun, self._offered, cursor, size, self._weigh)
        return Page([entry.description for entry in page.items], page.next_cursor)

    def _weigh(self, entry: T) -> int:
        """Return about how many bytes the description of an entry takes."""
        description = entry.description
        cached = self._weights.get(id(entry))
        if cached is None or cached[0] is not description:
            # About as long as the JSON text, and of any value.
            cached = self._weights[id(entry)] = (description, len(repr(description)))
        return cached[1]

    def _changed(self) -> None:
        self._offered = None
        self._weights.clear()  # some entries may be gone
        self._notify_changed()

    def _get(self, key: str) -> T:
        try:
            return self._entries[key]
        except KeyError:
            raise KeyError(f"there is no {self.noun} {key!r}") from None


# -------------------------------------------------------------------------------------------------------------- content
# Results of functions as content blocks.


def blocks_of(value: Any) -> tuple[Any, ...]:
    """Return the content for a tool's result: blocks as they are, str as text, other values as JSON.

    ``None`` is no content. A list becomes one block for each item if it contains a block, or only str. Raises TypeError
    for other protocol objects, and InvalidMessage for values that JSON cannot express.
    """
    if value is None:
        return ()
    if isinstance(value, list | tuple) and _are_blocks(value):
        return tuple(block for item in value for block in blocks_of(item))
    block = block_of(value)
    return (TextContent(json_text(value)) if block is None else block,)


def checked_text(text: str) -> str:
    """Return a text. Raises ValueError if it has a surrogate, as Python has in names of files that are not UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"a text in the result has a surrogate at character {error.start}, which JSON cannot express"
            ) from None
    return text


def check_texts(block: Any) -> None:
    """Check the texts of a block, and of the resource in it: see ``checked_text``."""
    for member in attrs.fields(type(block)):
        value = getattr(block, member.name)
        if isinstance(value, str):
            checked_text(value)
        elif isinstance(value, _CONTENTS):
            check_texts(value)


def block_of(value: Any) -> Any:
    """Return the block for a str, for resource contents, and for a block itself; ``None`` for other values.

    Raises TypeError for other protocol objects, which cannot be content.
    """
    if isinstance(value, str):
        return TextContent(checked_text(str.__str__(value)))  # a plain str, if it is the member of an enumeration
    if isinstance(value, _BLOCKS):
        check_texts(value)
        return value
    if isinstance(value, _CONTENTS):
        check_texts(value)
        return EmbeddedResource(value)
    if isinstance(value, Payload):
        raise TypeError(f"the result must be text, a content block or plain data, not a {type(value).__name__}")
    return None


def json_text(value: Any) -> str:
    """Return a value as JSON. Raises InvalidMessage with the place of a value that JSON cannot express."""
    return json.dumps(to_json(value)).decode()


_BLOCKS: Final = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, UnknownContent)
_CONTENTS: Final = (TextResourceContents, BlobResourceContents)


def _are_blocks(items: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(item, _BLOCKS + _CONTENTS) for item in items) or (
        bool(items) and all(isinstance(item, str) for item in items)
    )


# -------------------------------------------------------------------------------------------------------------- results
# Results of tools: which are structured, their schema, and their conversion to JSON.


class ResultEncoder:
    """Converts results of one type. ``output_schema`` is ``None`` if they are not structured.

    An object is its own structured content (TOOL-06); ``is_wrapped`` says that another value is sent as the only
    member, ``result``, of one.
    """

    __slots__ = ("_convert", "is_wrapped", "output_schema")

    def __init__(
        self, output_schema: dict[str, Any] | None, convert: Callable[[Any], Any], *, is_wrapped: bool
    ) -> None:
        self.output_schema: dict[str, Any] | None = output_schema
        self.is_wrapped: bool = is_wrapped
        self._convert = convert

    def encode(self, value: Any) -> dict[str, Any] | None:
        """Return the structured content for a result; ``None`` if results are not structured.

        The value is checked against its type, and so against the schema (TOOL-13). Raises InvalidMessage with the
        place; its path starts with ``result``.
        """
        if self.output_schema is None:
            return None
        try:
            converted = self._convert(value)
        except Fault as fault:
            raise fault.as_invalid("result") from fault.__cause__
        except RecursionError:
            raise Fault("nested too deeply, or contains itself").as_invalid("result") from None
        structured: dict[str, Any] = {_WRAPPER: converted} if self.is_wrapped else converted
        return structured


def result_encoder(
    annotation: Any, *, where: str = "the result", namespace: Mapping[str, Any] | None = None
) -> ResultEncoder:
    """Return the encoder for results of a type.

    Text, content blocks, the protocol's own results, ``None`` and unannotated results are not structured. Any other
    type has a schema. Raises TypeError, with ``where``, if JSON cannot express the type.
    """
    if _is_unstructured(annotation):
        return ResultEncoder(None, plain, is_wrapped=False)
    builder = SchemaBuilder(where, output=True, namespace=namespace)
    converter = builder.converter(annotation)
    schema = builder.complete(converter.schema)
    if schema.get("type") == "object":
        return ResultEncoder(schema, converter.convert, is_wrapped=False)
    wrapped = {"type": "object", "properties": {_WRAPPER: converter.schema}, "required": [_WRAPPER]}
    return ResultEncoder(builder.complete(wrapped), converter.convert, is_wrapped=True)


_WRAPPER: Final = "result"
_TEXT: Final = (str, type(None), None, Any, object, inspect.Parameter.empty)
_LISTS: Final = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)


def _is_unstructured(annotation: Any) -> bool:
    """Whether a result is meant for reading: text, content, or anything. A list of text is data."""
    parts = list(_parts(annotation, in_list=False))
    items = [part for part, in_list in parts if in_list]
    return all(part in _TEXT or is_payload(part) for part, _ in parts) and (
        not items or any(is_payload(item) for item in items)
    )


def _parts(annotation: Any, *, in_list: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the types in unions and lists, and whether each is in a list."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _parts(annotation.__origin__, in_list=in_list)
    elif origin is typing.Union or origin is types.UnionType:
        for member in annotation.__args__:
            yield from _parts(member, in_list=in_list)
    elif origin in _LISTS:
        for item in annotation.__args__:
            if item is not ...:
                yield from _parts(item, in_list=True)
    else:
        yield annotation, in_list
