"""Resources and their templates."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

from mcpio import types  # the types of resources are loaded when there is one
from mcpio.app.contracts import CacheHint, HandlerScope, InputRequired
from mcpio.app.registry.base import InLoop, Mounted, RegisteredFunction, Registry, json_text
from mcpio.app.runtime import when_ready
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.revisions import REV_2026_07_28
from mcpio.types.content import BlobResourceContents, TextResourceContents

if TYPE_CHECKING:
    from mcpio.types.features import ReadResourceRequest, ReadResourceResult, Resource, ResourceTemplate


# --------------------------------------------------------------------------------------------------------- uri template
# URI templates (RFC 6570, all four levels): expansion, and matching of URIs.
# The RFC does not define matching. Ours takes time in proportion to the URI's length, whatever the template.

MAX_URI: Final = 65_536
"""The longest URI, in characters, that is matched; longer ones match no template."""


class UriTemplateError(ValueError):
    """A text is not a URI template, or the template cannot be matched unambiguously."""


class UriTemplate:
    """One template, such as ``notes://{id}``, ``file:///{+path}`` or ``search://{?q,lang}``.

    ``variables`` are the names in it, in order. Raises UriTemplateError if the text is not a template.
    """

    __slots__ = ("_matcher", "_parts", "template", "variables")

    def __init__(self, template: str) -> None:
        self.template: str = template
        self._parts = tuple(_parsed(template))
        names = (variable.name for part in self._parts if isinstance(part, _Expression) for variable in part.variables)
        self.variables: tuple[str, ...] = tuple(dict.fromkeys(names))
        self._matcher: _Matcher | None = None

    def __repr__(self) -> str:
        return f"UriTemplate({self.template!r})"

    def expand(self, variables: Mapping[str, Any]) -> str:
        """Return the URI for values: str, numbers, bool, lists of them, and mappings to them.

        Missing values, ``None``, and empty lists and mappings are omitted (RFC 6570, section 3.2.1). Raises
        UriTemplateError if a prefix (``{name:3}``) is applied to a list or a mapping.
        """
        return "".join(part if isinstance(part, str) else part.expanded(variables) for part in self._parts)

    def check_matching(self) -> None:
        """Raise UriTemplateError if ``match`` cannot tell the values of the template apart."""
        self._ready()

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """Return the decoded values in a URI, or ``None`` if the template does not match.

        The whole URI is matched as it is written. ``{name}`` matches one or more characters other than ``/?#``;
        ``{+name}`` one or more of any, but no ``?`` where a ``{?name}`` follows and no ``#`` where a ``{#name}`` does;
        the earlier of two expressions takes as much as possible. An expression with an operator (``{/name}``,
        ``{.name}``, ``{;name}``, ``{?name}``, ``{&name}``, ``{#name}``) may be absent, and so are its names in the
        result. Parameters of ``{?a,b}`` may come in any order. ``{name*}`` gives a list of str,
        others one str. Decoded values may contain any character, ``/`` included: check them before using them as paths.
        """
        if len(uri) > MAX_URI:
            return None
        return self._ready().match(uri)

    def _ready(self) -> _Matcher:
        if self._matcher is None:
            self._matcher = _Matcher(self._parts)
        return self._matcher


# Parsing and expansion


class _Operator:
    """An operator (RFC 6570, appendix A): how values are joined, named and encoded."""

    __slots__ = ("empty", "first", "named", "reserved", "separator")

    def __init__(self, first: str, separator: str, *, named: bool = False, empty: str = "", reserved: bool = False):
        self.first = first
        self.separator = separator
        self.named = named
        self.empty = empty
        self.reserved = reserved


_OPERATORS: Final = {
    "": _Operator("", ","),
    "+": _Operator("", ",", reserved=True),
    "#": _Operator("#", ",", reserved=True),
    ".": _Operator(".", "."),
    "/": _Operator("/", "/"),
    ";": _Operator(";", ";", named=True),
    "?": _Operator("?", "&", named=True, empty="="),
    "&": _Operator("&", "&", named=True, empty="="),
}


class _Variable:
    __slots__ = ("explode", "length", "name")

    def __init__(self, name: str, length: int | None, *, explode: bool) -> None:
        self.name = name
        self.length = length
        self.explode = explode


class _Expression:
    """One expression in braces."""

    __slots__ = ("mark", "operator", "variables")

    def __init__(self, mark: str, variables: list[_Variable]) -> None:
        self.mark = mark
        self.operator = _OPERATORS[mark]
        self.variables = variables

    def expanded(self, values: Mapping[str, Any]) -> str:
        found = [
            text
            for variable in self.variables
            if (value := values.get(variable.name)) is not None
            for text in self._texts(variable, value)
        ]
        return self.operator.first + self.operator.separator.join(found) if found else ""

    def _texts(self, variable: _Variable, value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            pairs = [(self._quoted(str(key)), self._quoted(_text(item))) for key, item in value.items()]
            if variable.explode:
                yield from (f"{key}={item}" for key, item in pairs)
            elif pairs:
                yield self._one(variable, ",".join(f"{key},{item}" for key, item in pairs))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            items = [self._quoted(_text(item)) for item in value]
            if variable.explode:
                yield from (self._one(variable, item) for item in items)
            elif items:
                yield self._one(variable, ",".join(items))
        else:
            yield self._one(variable, self._quoted(_text(value)[: variable.length]))
            return
        if variable.length is not None:
            raise UriTemplateError(f"{{{variable.name}:{variable.length}}} takes a prefix, and the value is no text")

    def _one(self, variable: _Variable, text: str) -> str:
        if not self.operator.named:
            return text
        return f"{variable.name}={text}" if text else variable.name + self.operator.empty

    def _quoted(self, text: str) -> str:
        if not self.operator.reserved:
            return _encoded(_NOT_UNRESERVED, text)
        return _encoded(_NOT_RESERVED, text)


# RFC 3986, sections 2.2 and 2.3. With reserved characters allowed, percent-encoded ones are kept too.
_NOT_UNRESERVED: Final = re.compile(r"[^A-Za-z0-9._~-]+")
_NOT_RESERVED: Final = re.compile(r"(?:[^A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]|%(?![0-9A-Fa-f]{2}))+")


def _encoded(unsafe: re.Pattern[str], text: str) -> str:
    return unsafe.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


_NAME: Final = re.compile(r"(?:\w|%[0-9A-Fa-f]{2})(?:\.?(?:\w|%[0-9A-Fa-f]{2}))*", re.ASCII)
_LENGTH: Final = re.compile(r"[1-9][0-9]{0,3}")
# RFC 6570, section 2.1, with non-ASCII characters allowed.
_NOT_LITERAL: Final = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")


def _parsed(template: str) -> Iterator[str | _Expression]:
    position = 0
    while position < len(template):
        opening = template.find("{", position)
        literal = template[position : opening if opening >= 0 else len(template)]
        if (wrong := _NOT_LITERAL.search(literal)) is not None:
            raise UriTemplateError(f"{template!r}: {wrong[0]!r} cannot stand outside braces")
        if literal:
            yield _encoded(_NOT_RESERVED, literal)
        if opening < 0:
            return
        closing = template.find("}", opening)
        if closing < 0:
            raise UriTemplateError(f"{template!r}: a brace is not closed")
        yield _expression(template, template[opening + 1 : closing])
        position = closing + 1


def _expression(template: str, text: str) -> _Expression:
    mark = text[:1] if text[:1] in _OPERATORS else ""
    return _Expression(mark, [_variable(template, each) for each in text[len(mark) :].split(",")])


def _variable(template: str, text: str) -> _Variable:
    name, colon, length = text.partition(":")
    explode = not colon and name.endswith("*")
    name = name[:-1] if explode else name
    if not _NAME.fullmatch(name) or (colon and not _LENGTH.fullmatch(length)):
        raise UriTemplateError(f"{template!r}: {text!r} is not a variable")
    return _Variable(name, int(length) if colon else None, explode=explode)


# Matching

_Bounds: TypeAlias = list[tuple[int, int]]
"""Where the range of each expression begins and ends."""


class _Span:
    """The range of a URI that one or more expressions match.

    ``marks`` are the characters that it may begin with, empty if it has none and is never absent; ``stops`` end it.
    """

    __slots__ = ("find_stop", "marks", "operator", "stops", "variables")

    def __init__(self, expression: _Expression) -> None:
        self.operator = expression.operator
        self.variables = {variable.name: variable for variable in expression.variables}
        self.marks = expression.mark if expression.mark != "+" else ""
        several = len(expression.variables) > 1 or expression.variables[0].explode
        stops = {"+": "", "#": "", "?": "#", "&": "#", "/": "?#" if several else "/?#"}.get(expression.mark, "/?#")
        self.stop_at(stops)

    def stop_at(self, stops: str) -> None:
        """End the range at these characters."""
        self.stops = stops
        self.find_stop = re.compile(f"[{stops}]" if stops else "(?!)").search

    def values(self, text: str) -> dict[str, str | list[str]] | None:
        """Return the decoded values in the matched text, or ``None`` if they do not fit."""
        if not text:
            return {}
        content = text[1:] if self.marks else text
        if len(self.variables) == 1 and not self.operator.named and "%" not in content:
            (only,) = self.variables.values()
            if only.explode:
                return {only.name: content.split(self.operator.separator)}
        found: dict[str, str] = {}
        lists: dict[str, list[str]] = {}
        for name, value in self._named(content) if self.operator.named else self._in_order(content):
            variable = self.variables.get(name)
            decoded = _decoded(value)
            if variable is None or decoded is None:
                return None
            if variable.explode:
                lists.setdefault(name, []).append(decoded)
            elif name in found or (variable.length is not None and len(decoded) > variable.length):
                return None
            else:
                found[name] = decoded
        return {**found, **lists}

    def _named(self, content: str) -> Iterator[tuple[str, str]]:
        for pair in content.split(self.operator.separator) if content else ():
            name, _, value = pair.partition("=")
            yield name, value

    def _in_order(self, content: str) -> Iterator[tuple[str, str]]:
        variables = list(self.variables.values())
        if len(variables) == 1 and not variables[0].explode:
            yield variables[0].name, content
            return
        for index, item in enumerate(content.split(self.operator.separator)):
            # Items beyond the variables belong to the last, which accepts them only as a list.
            yield variables[min(index, len(variables) - 1)].name, item


class _Matcher:
    """Finds the range of each expression: by a quick way where the template has one, and otherwise by sweeps."""

    __slots__ = ("_bounds", "_pieces")

    def __init__(self, parts: Sequence[str | _Expression]) -> None:
        self._bounds: Callable[[str], _Bounds | None]
        self._pieces: list[str | _Span] = []
        names: set[str] = set()
        for part in parts:
            if isinstance(part, str):
                self._pieces.append(part)
                continue
            for variable in part.variables:
                if variable.name in names:
                    raise UriTemplateError(f"{variable.name!r} stands twice in the template, so it has no one value")
                names.add(variable.name)
            self._add(part)
        later = ""
        for piece in reversed(self._pieces):
            if isinstance(piece, _Span):
                if not piece.marks and not piece.stops:
                    # Else the path would take the query and the fragment too.
                    piece.stop_at(later)
                later += "".join(mark for mark in piece.marks if mark in "?#" and mark not in later)
        self._bounds = _quick_way(self._pieces) or self._bounds_by_sweeps

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        # Rejects most URIs of other templates at once.
        if self._pieces and isinstance(self._pieces[0], str) and not uri.startswith(self._pieces[0]):
            return None
        bounds = self._bounds(uri)
        if bounds is None:
            return None
        found: dict[str, str | list[str]] = {}
        spans = (piece for piece in self._pieces if not isinstance(piece, str))
        for span, (start, end) in zip(spans, bounds, strict=True):
            values = span.values(uri[start:end])
            if values is None:
                return None
            found |= values
        return found

    def _bounds_by_sweeps(self, uri: str) -> _Bounds | None:
        fits = self._fits(uri)
        if not fits[0][0]:
            return None
        bounds: _Bounds = []
        position = 0
        for index, piece in enumerate(self._pieces):
            if isinstance(piece, str):
                position += len(piece)
                continue
            end = _end_of(piece, uri, position, fits[index + 1])
            bounds.append((position, end))
            position = end
        return bounds

    def _add(self, expression: _Expression) -> None:
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, _Span):
            if expression.mark == "&" and last.marks in ("?", "&", "?&"):
                # ``{?a}{&b}`` is one query, whose parameters may come in any order.
                last.variables |= {variable.name: variable for variable in expression.variables}
                last.marks = "?&" if "?" in last.marks else "&"
                return
            if expression.mark == last.marks == ";":
                # So are the parameters of ``{;a}{;b}``: the first expression would take those of both, and not fit.
                last.variables |= {variable.name: variable for variable in expression.variables}
                return
            if expression.mark in ("", "+") and not last.marks:
                raise UriTemplateError(f"nothing stands between the values of {', '.join(last.variables)} and the next")
        self._pieces.append(_Span(expression))

    def _fits(self, uri: str) -> list[bytearray]:
        """Return for each piece, and for the end, the positions from which the rest of the template matches.

        Computed from the end, in one sweep for each piece: there is no backtracking.
        """
        after = bytearray(len(uri) + 1)
        after[-1] = 1
        fits = [after]
        for piece in reversed(self._pieces):
            after = _sweep_text(piece, uri, after) if isinstance(piece, str) else _sweep_span(piece, uri, after)
            fits.append(after)
        return fits[::-1]


_Way: TypeAlias = Callable[[str], _Bounds | None]


def _quick_way(pieces: list[str | _Span]) -> _Way | None:
    """Return a way to find the ranges in a single pass of compiled code; ``None`` where there is none."""
    if _is_widest_first(pieces):
        return partial(_bounds_from_the_end, pieces)
    pattern = _forward_pattern(pieces)
    if pattern is not None:
        return partial(_bounds_by, pattern)
    # Often a query and a fragment are all that may be absent.
    found = (index for index, piece in enumerate(pieces) if not isinstance(piece, str) and piece.marks)
    first = next(found, len(pieces))
    path, rest = pieces[:first], pieces[first:]
    ends = all(not _IN_REST.search(piece) if isinstance(piece, str) else piece.stops for piece in path)
    begins = all(not isinstance(piece, str) and set(piece.marks) <= {"?", "#"} for piece in rest)
    pattern = _forward_pattern(rest)
    if ends and begins and pattern is not None and _is_widest_first(path):
        return partial(_bounds_of_both, path, pattern)
    return None


_IN_REST: Final = re.compile("[?#]")


def _bounds_of_both(path: list[str | _Span], rest: re.Pattern[str], uri: str) -> _Bounds | None:
    found = _IN_REST.search(uri)
    end = len(uri) if found is None else found.start()
    before, after = _bounds_from_the_end(path, uri[:end]), rest.fullmatch(uri, end)
    if before is None or after is None:
        return None
    return before + [after.span(group) for group in range(1, rest.groups + 1)]


def _is_widest_first(pieces: list[str | _Span]) -> bool:
    """Whether no expression may be absent, and each takes all that a later one takes."""
    spans = [piece for piece in pieces if not isinstance(piece, str)]
    nested = all(set(span.stops) <= set(later.stops) for span, later in pairwise(spans))
    return nested and not any(span.marks for span in spans)


def _bounds_from_the_end(pieces: list[str | _Span], uri: str) -> _Bounds | None:
    """Return the ranges of expressions that are widest first. Between them are texts.

    From the end, each text is looked for at its last place, which leaves the most to the expressions before it.
    """
    bounds: _Bounds = []
    end = len(uri)
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if isinstance(piece, str):
            if index == len(pieces) - 1:
                if not uri.endswith(piece):
                    return None
                end -= len(piece)
            continue
        before: Any = pieces[index - 1] if index else ""
        start = len(before) if index < 2 else uri.rfind(before, 0, end - 1) + len(before)
        if start < len(before) or start >= end or piece.find_stop(uri, start, end):
            return None
        bounds.append((start, end))
        end = start - len(before)
    return bounds[::-1] if end == 0 else None


def _forward_pattern(pieces: Sequence[str | _Span]) -> re.Pattern[str] | None:
    """Return a pattern that never goes back, with a group for each range; ``None`` where the next character is no clue.

    It is one where a range can only end at its first stop: nothing that may follow begins with what the range takes.
    """
    found = ""
    for index, piece in enumerate(pieces):
        if isinstance(piece, str):
            found += re.escape(piece)
            continue
        if not all(_is_told_apart(piece, follower) for follower in _followers(pieces, index)):
            return None
        content = f"[^{piece.stops}]" if piece.stops else "."
        found += f"((?:[{piece.marks}]{content}*+)?+)" if piece.marks else f"({content}++)"
    return re.compile(found, re.DOTALL)


def _followers(pieces: Sequence[str | _Span], index: int) -> Iterator[str | _Span]:
    """Yield the pieces of which one comes after a range: up to the first that is never absent."""
    for piece in pieces[index + 1 :]:
        yield piece
        if isinstance(piece, str) or not piece.marks:
            return


def _is_told_apart(span: _Span, follower: str | _Span) -> bool:
    if isinstance(follower, str):
        return follower[0] in span.stops and follower[0] not in span.marks
    if not follower.marks:
        return False
    if set(follower.marks) & set(span.marks):
        return False
    # What may be absent, and takes nothing that the range does not, is left nothing.
    return set(follower.marks) <= set(span.stops) or set(span.stops) <= set(follower.stops)


def _bounds_by(pattern: re.Pattern[str], uri: str) -> _Bounds | None:
    found = pattern.fullmatch(uri)
    return None if found is None else [found.span(group) for group in range(1, pattern.groups + 1)]


def _sweep_text(text: str, uri: str, after: bytearray) -> bytearray:
    here = bytearray(len(uri) + 1)
    position = uri.find(text)
    while position >= 0:
        here[position] = after[position + len(text)]
        position = uri.find(text, position + 1)
    return here


def _sweep_span(span: _Span, uri: str, after: bytearray) -> bytearray:
    marks, stops = span.marks, span.stops
    size = len(uri)
    here = bytearray(size + 1)
    # The nearest position at or after the current one where the rest matches, and where the range has to stop.
    fitting = size + 1
    stopping = size
    for position in range(size, -1, -1):
        # A range begins after its mark; without one it has at least one character.
        starts = position < size and (uri[position] in marks if marks else uri[position] not in stops)
        if starts and fitting <= stopping:
            here[position] = 1
        if after[position]:
            fitting = position
            if marks:
                here[position] = 1
        if position < size and uri[position] in stops:
            stopping = position
    return here


def _end_of(span: _Span, uri: str, start: int, after: bytearray) -> int:
    """Return the last possible end of a range that begins here."""
    if span.marks and (start == len(uri) or uri[start] not in span.marks):
        return start
    found = [uri.find(stop, start + 1) for stop in span.stops]
    limit = min((position for position in found if position >= 0), default=len(uri))
    end = after.rfind(1, start + 1, limit + 1)
    return end if end >= 0 else start


def _decoded(text: str) -> str | None:
    """Return a text percent-decoded, or ``None`` if that is not UTF-8."""
    if "%" not in text:
        return text
    if _BROKEN.search(text):
        return None
    try:
        return _TRIPLETS.sub(lambda found: bytes.fromhex(found[0].replace(b"%", b"").decode()), text.encode()).decode()
    except UnicodeError:
        return None


_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRIPLETS: Final = re.compile(rb"(?:%[0-9A-Fa-f]{2})++")


# ------------------------------------------------------------------------------------------------------------ resources
# Resources: contents that clients read, at one URI or at all URIs that match a template.


class FunctionResource:
    """A resource at one URI, and its function."""

    __slots__ = ("cache", "description", "enabled", "endpoint", "mount")

    endpoint: RegisteredFunction
    """The function."""
    description: Resource
    """The description that clients get."""
    enabled: bool
    """Whether it is offered at the moment. Change it by ``server.resources.static.enable`` and ``disable``."""
    mount: Mounted | None
    """The mounted server that it belongs to; ``None`` for one of the server's own."""
    cache: CacheHint
    """How long clients may keep the contents."""

    def __init__(self, endpoint: RegisteredFunction, description: Resource, cache: CacheHint) -> None:
        self.endpoint = endpoint
        self.cache = cache
        self.description = description
        self.enabled = True
        self.mount = None


class FunctionTemplate:
    """The resources at all URIs that match a template, and their function."""

    __slots__ = ("cache", "completions", "description", "enabled", "endpoint", "mount", "template")

    endpoint: RegisteredFunction
    """The function."""
    description: ResourceTemplate
    """The description that clients get."""
    template: UriTemplate
    """The template that URIs are matched with."""
    completions: dict[str, RegisteredFunction]
    """The functions that suggest values, by variable."""
    enabled: bool
    """Whether it is offered at the moment. Change it by ``server.resources.templates.enable`` and ``disable``."""
    mount: Mounted | None
    """The mounted server that it belongs to; ``None`` for one of the server's own."""
    cache: CacheHint
    """How long clients may keep the contents."""

    def __init__(
        self, endpoint: RegisteredFunction, description: ResourceTemplate, template: UriTemplate, cache: CacheHint
    ) -> None:
        self.endpoint = endpoint
        self.cache = cache
        self.description = description
        self.template = template
        self.completions = {}
        self.enabled = True
        self.mount = None


class Resources:
    """The resources of a server, and its resource templates."""

    static: Registry[FunctionResource]
    """The resources, by URI."""
    templates: Registry[FunctionTemplate]
    """The templates, by their text."""

    def __init__(self, changed: Callable[[], None], *in_loop: InLoop) -> None:
        self.static = Registry("resource", changed, *in_loop)
        self.templates = Registry("resource template", changed, *in_loop)

    def __len__(self) -> int:
        return len(self.static) + len(self.templates)

    @property
    def edition(self) -> int:
        """How many resources and templates were added and removed."""
        return self.static.edition + self.templates.edition

    def changed(self) -> None:
        """Notify the clients that the lists have changed: see ``Registry.changed``."""
        self.static.changed()

    def find(
        self, uri: str, scope: HandlerScope | None = None
    ) -> tuple[FunctionResource | FunctionTemplate, Mapping[str, str | list[str]]] | None:
        """Return the entry that reads a URI, and the values of the template's variables; ``None`` without one.

        A resource at exactly that URI comes first, then the matching template that was registered first. URIs are
        compared as they are written (RES-12). A ``file:`` URI with ``..`` is not read (RES-10). With ``scope``, only
        what that request may see is found.
        """
        resource = self.static.find(uri, scope)
        if resource is not None:
            return resource, {}
        if len(uri) > MAX_URI or _climbs(uri):
            return None
        for entry in self.templates:
            values = entry.template.match(uri)
            if values is not None and (scope is None or entry.endpoint.is_visible(scope)):
                return entry, values
        return None

    def check_reachable(self, template: UriTemplate) -> None:
        """Raise ValueError for a template of which an earlier one takes every URI."""
        samples = [template.expand(dict.fromkeys(template.variables, text)) for text in _SAMPLES]
        for entry in self.templates:
            if entry.template.template == template.template or entry.endpoint.visible is not None:
                continue  # the registry refuses the same one twice; one that is hidden from some leaves them the next
            if all(entry.template.match(uri) is not None for uri in samples):
                raise ValueError(
                    f"{template.template}: never read, since {entry.template.template} was registered before it and "
                    "takes the same URIs; register the narrower one first"
                )

    def read(self, scope: HandlerScope, request: ReadResourceRequest) -> Any:
        """Serve ``resources/read``."""
        uri = request.uri
        found = self.find(uri, scope)
        if found is None:
            raise not_found(scope, uri)
        entry, values = found
        if entry.mount is not None:
            return entry.mount.serve(scope, request)
        try:
            keywords = entry.endpoint.binder.bind_text(values)
        except InvalidMessage as error:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Invalid URI {uri:.200}: {error}", {"uri": uri}) from error
        mime_type, hints = entry.description.mime_type, entry.cache.members
        ui = entry.description.meta.get("ui")
        meta = {} if ui is None else {"meta": {"ui": ui}}  # of a view, which has it on its content too (APP-02)

        def result(value: Any) -> ReadResourceResult | InputRequired:
            if value is None:
                raise not_found(scope, uri)
            return _result(value, uri, mime_type, hints, meta)

        return when_ready(entry.endpoint.call(scope, keywords), result)


def not_found(scope: HandlerScope, uri: str) -> RequestError:
    """Return the error for an unknown URI, in the peer's revision (RES-05)."""
    modern = scope.peer.revision >= REV_2026_07_28
    code = ErrorCode.INVALID_PARAMS if modern else ErrorCode.RESOURCE_NOT_FOUND
    return RequestError(code, f"Resource not found: {uri:.200}", {"uri": uri})


def _climbs(uri: str) -> bool:
    """Whether a ``file:`` URI contains ``..``, in any encoding."""
    scheme, _, path = uri.partition(":")
    return scheme.lower() == "file" and ".." in unquote(path).replace("\\", "/").split("/")


def _result(
    value: Any, uri: str, mime_type: str | None, hints: Mapping[str, Any], meta: dict[str, Any]
) -> ReadResourceResult | InputRequired:
    if isinstance(value, types.ReadResourceResult | InputRequired):
        return value
    items = value if isinstance(value, list | tuple) and _are_contents(value) else (value,)
    return types.ReadResourceResult(tuple(_contents(item, uri, mime_type, meta) for item in items), **hints)


def _are_contents(items: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(item, TextResourceContents | BlobResourceContents | bytes) for item in items)


def _contents(
    value: Any, uri: str, mime_type: str | None, meta: dict[str, Any]
) -> TextResourceContents | BlobResourceContents:
    """Return contents as they are, str and bytes as contents of the URI, and other values as JSON."""
    if isinstance(value, TextResourceContents | BlobResourceContents):
        return value
    if isinstance(value, str):
        return TextResourceContents(uri, str.__str__(value), mime_type, **meta)
    if isinstance(value, bytes | bytearray | memoryview):
        return BlobResourceContents(uri, base64.b64encode(value).decode(), mime_type, **meta)
    return TextResourceContents(uri, json_text(value), mime_type or "application/json", **meta)


_SAMPLES = ("a", "a" * 200, "a/b")
"""Values of variables, with which a template that another one covers shows: long ones, and those with a slash."""
