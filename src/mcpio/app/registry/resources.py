"""Resources and their templates."""

from __future__ import annotations

import base64
import re
from binascii import a2b_qp
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from mcpio import types  # the types of resources are loaded when there is one
from mcpio.app.contracts import CacheHint, InputRequired
from mcpio.app.registry.base import Edition, Entry, InLoop, RegisteredFunction, Registry, json_text
from mcpio.app.runtime import when_ready
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.revisions import REV_2026_07_28
from mcpio.types.content import BlobResourceContents, TextResourceContents

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope
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

    def is_shorter(self, value: str) -> bool:
        """Whether a value is longer than the prefix that the variable takes."""
        return self.length is not None and len(value) > self.length


class _Expression:
    """One expression in braces."""

    __slots__ = ("mark", "operator", "variables")

    def __init__(self, mark: str, variables: list[_Variable]) -> None:
        self.mark = mark
        self.operator = _OPERATORS[mark]
        self.variables = variables

    def expanded(self, values: Mapping[str, Any]) -> str:
        texts = [
            text
            for variable in self.variables
            if (value := values.get(variable.name)) is not None
            for text in self._texts(variable, value)
        ]
        return self.operator.first + self.operator.separator.join(texts) if texts else ""

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
    return unsafe.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)


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


class _Span:
    """The range of a URI that one or more expressions match.

    ``marks`` are the characters that it may begin with, empty if it has none and is never absent; ``stops`` end it.
    """

    __slots__ = ("find_stop", "is_mark", "marks", "may_take", "operator", "variables")

    def __init__(self, expression: _Expression) -> None:
        self.operator = expression.operator
        self.variables = {variable.name: variable for variable in expression.variables}
        self.accept_marks(expression.mark if expression.mark != "+" else "")
        several = len(expression.variables) > 1 or expression.variables[0].explode
        stops = {"+": "", "#": "", "?": "#", "&": "#", "/": "?#" if several else "/?#"}.get(expression.mark, "/?#")
        self.stop_at(stops)

    def accept_marks(self, marks: str) -> None:
        """Begin the range with one of these characters."""
        self.marks = marks
        self.is_mark = _digits(marks)

    def stop_at(self, stops: str) -> None:
        """End the range at these characters."""
        self.find_stop = re.compile(f"[{stops}]" if stops else "(?!)").search
        self.may_take = _digits(stops, inside="0", outside="1")

    def fits(self, uri: _Positions, after: int) -> int:
        """Return the positions from which this range and the rest match, for those from which the rest does."""
        taken = uri.of_characters(self.may_take)
        last = after << 1 & taken
        # Adding carries each bit of ``last`` through the run of ``taken`` before it: from all of these the range can
        # reach its end without a stop in between.
        inside = ((last + taken) ^ taken | last) & taken
        if not self.marks:
            return inside
        return after | ((after | inside) << 1 & uri.of_characters(self.is_mark))

    def end(self, uri: str, start: int, after: int) -> int:
        """Return the last end of a range that begins at ``start``; ``start`` if it is absent."""
        if self.marks and uri[start : start + 1] not in tuple(self.marks):
            return start
        stop = self.find_stop(uri, start + 1)
        rest = len(uri) - (stop.start() if stop else len(uri))
        ends = after >> rest
        last = len(uri) - rest - ((ends & -ends).bit_length() - 1)
        return last if ends and last > start else start

    def values(self, text: str) -> dict[str, str | list[str]] | None:
        """Return the decoded values in the matched text, or ``None`` if they do not fit."""
        if not text:
            return {}
        content = text[1:] if self.marks else text
        return self._named(content) if self.operator.named else self._in_order(content)

    def _named(self, content: str) -> dict[str, str | list[str]] | None:
        separator, variables = self.operator.separator, self.variables
        pairs = [pair.partition("=") for pair in content.split(separator)] if content else []
        decoded = _decoded_items(separator.join([value for _, _, value in pairs]), separator)
        named: dict[str, str | list[str]] = {}
        if decoded is None:
            return None
        lists: dict[str, list[str]] = {name: [] for name, variable in variables.items() if variable.explode}
        for (name, _, _), value in zip(pairs, decoded, strict=False):
            if name in lists:
                lists[name].append(value)
            elif name in named or name not in variables or variables[name].is_shorter(value):
                return None
            else:
                named[name] = value
        return named | {name: values for name, values in lists.items() if values}

    def _in_order(self, content: str) -> dict[str, str | list[str]] | None:
        variables = list(self.variables.values())
        last = variables[-1]
        separator = self.operator.separator if len(variables) > 1 or last.explode else None
        items = _decoded_items(content, separator)
        # Items beyond the variables belong to the last, which accepts them only as a list.
        if items is None or (len(items) > len(variables) and not last.explode):
            return None
        values: dict[str, str | list[str]] = {}
        for variable, item in zip(variables, items, strict=False):
            if variable.is_shorter(item):
                return None
            values[variable.name] = [item] if variable.explode else item
        if len(items) > len(variables):
            values[last.name] = items[len(variables) - 1 :]
        return values


class _Text:
    """A text of the template whose first character comes once in it, so that two places of it never overlap."""

    __slots__ = ("data", "mask")

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        self.mask = b"\xff" + b"\xfe" * (len(text) - 1)

    def fits(self, uri: _Positions, after: int) -> int:
        """Return the positions from which this text and the rest match, for those from which the rest does."""
        return after << len(self.data) & uri.of_text(self.data, self.mask)


class _Positions:
    """Sets of positions in a URI, each an integer: its lowest bit is the end, the next the last character, and so on.

    Compiled code works on whole sets, so a match takes as many steps of Python for a long URI as for a short one.
    """

    __slots__ = ("_cache", "_uri")

    def __init__(self, uri: str) -> None:
        # One byte for each character: of one that is not ASCII the first, which is no mark, no stop and in no text.
        self._uri = uri.encode("utf-8", "surrogatepass").translate(None, _CONTINUATION)
        self._cache: dict[bytes, int] = {}

    def of_characters(self, digits: bytes) -> int:
        """Return where the characters are for which a table of ``_digits`` has a one."""
        if digits not in self._cache:
            self._cache[digits] = int(self._uri.translate(digits) + b"0", 2)
        return self._cache[digits]

    def of_text(self, text: bytes, mask: bytes) -> int:
        """Return where a text begins."""
        return int(self._uri.replace(text, mask).translate(_MASKED) + b"0", 2)


_CONTINUATION: Final = bytes(range(0x80, 0xC0))


def _digits(characters: str, *, inside: str = "1", outside: str = "0") -> bytes:
    """Return a table that translates some characters to one digit and all others to another."""
    return bytes(ord(inside if chr(code) in characters else outside) for code in range(256))


# No byte of UTF-8 is 255.
_MASKED: Final = _digits("\xff")


class _Matcher:
    """Finds the range of each expression.

    From the end of the template, the positions are computed from which the rest of it matches, all at once for each
    piece; then from the front each expression takes as much as it can. There is no backtracking.
    """

    __slots__ = ("_first", "_pieces")

    def __init__(self, parts: Sequence[str | _Expression]) -> None:
        self._first = parts[0] if parts and isinstance(parts[0], str) else ""
        self._pieces: list[_Text | _Span] = []
        names: set[str] = set()
        for part in parts:
            if isinstance(part, str):
                self._pieces += map(_Text, _not_overlapping(part))
                continue
            for variable in part.variables:
                if variable.name in names:
                    raise UriTemplateError(f"{variable.name!r} stands twice in the template, so it has no one value")
                names.add(variable.name)
            self._add(part)
        later = ""
        for piece in reversed(self._pieces):
            if isinstance(piece, _Span):
                if piece.operator is _OPERATORS["+"]:
                    # Else the path would take the query and the fragment too.
                    piece.stop_at(later)
                later += "".join(mark for mark in piece.marks if mark in "?#" and mark not in later)

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        # Rejects most URIs of other templates at once.
        if not uri.startswith(self._first):
            return None
        positions = _Positions(uri)
        after = 1
        afters = []
        for piece in reversed(self._pieces):
            afters.append(after)
            after = piece.fits(positions, after)
        if not after >> len(uri):
            return None
        matched: dict[str, str | list[str]] = {}
        position = 0
        for piece in self._pieces:
            after = afters.pop()
            if isinstance(piece, _Text):
                position += len(piece.data)
                continue
            end = piece.end(uri, position, after)
            values = piece.values(uri[position:end])
            if values is None:
                return None
            matched |= values
            position = end
        return matched

    def _add(self, expression: _Expression) -> None:
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, _Span):
            if expression.mark == "&" and last.marks in ("?", "&", "?&"):
                # ``{?a}{&b}`` is one query, whose parameters may come in any order.
                last.variables |= {variable.name: variable for variable in expression.variables}
                last.accept_marks("?&" if "?" in last.marks else "&")
                return
            if expression.mark == last.marks == ";":
                # So are the parameters of ``{;a}{;b}``: the first expression would take those of both, and not fit.
                last.variables |= {variable.name: variable for variable in expression.variables}
                return
            if expression.mark in ("", "+") and not last.marks:
                raise UriTemplateError(f"nothing stands between the values of {', '.join(last.variables)} and the next")
        self._pieces.append(_Span(expression))


def _not_overlapping(text: str) -> Iterator[str]:
    """Yield the parts of a text, each of which begins where the first character of the one before comes again."""
    start = 0
    while start < len(text):
        end = text.find(text[start], start + 1)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end


def _decoded_items(text: str, separator: str | None) -> list[str] | None:
    """Return the items of a text, each percent-decoded, or ``None`` if one is not UTF-8."""
    if "%" not in text:
        return [text] if separator is None else text.split(separator)
    if _BROKEN.search(text):
        return None
    try:
        data = text.encode()
        if separator is not None:
            data = data.replace(separator.encode(), b"\xff")
        # Quoted-printable is percent-encoding with another sign, and decoded by compiled code.
        data = a2b_qp(data.replace(b"=", b"=3D").replace(b"%", b"="))
        return [item.decode() for item in data.split(b"\xff")]
    except UnicodeError:
        return None


# No byte of UTF-8 is 255: so it can separate items, and what would be decoded to it is not UTF-8.
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%[Ff]{2}")


# ------------------------------------------------------------------------------------------------------------ resources
# Resources: contents that clients read, at one URI or at all URIs that match a template.


class FunctionResource(Entry):
    """A resource at one URI, and its function."""

    __slots__ = ("cache",)

    description: Resource
    cache: CacheHint
    """How long clients may keep the contents."""

    def __init__(self, endpoint: RegisteredFunction, description: Resource, cache: CacheHint) -> None:
        super().__init__(endpoint, description)
        self.cache = cache


class FunctionTemplate(Entry):
    """The resources at all URIs that match a template, and their function."""

    __slots__ = ("cache", "completions", "template")

    description: ResourceTemplate
    template: UriTemplate
    """The template that URIs are matched with."""
    completions: dict[str, RegisteredFunction]
    """The functions that suggest values, by variable."""
    cache: CacheHint
    """How long clients may keep the contents."""

    def __init__(
        self, endpoint: RegisteredFunction, description: ResourceTemplate, template: UriTemplate, cache: CacheHint
    ) -> None:
        super().__init__(endpoint, description)
        self.cache = cache
        self.template = template
        self.completions = {}


class Resources:
    """The resources of a server, and its resource templates."""

    static: Registry[FunctionResource]
    """The resources, by URI."""
    templates: Registry[FunctionTemplate]
    """The templates, by their text."""

    def __init__(self, changed: Callable[[], None], in_loop: InLoop, edition: Edition) -> None:
        self.static = Registry("resource", changed, in_loop, edition)
        self.templates = Registry("resource template", changed, in_loop, edition)

    def __len__(self) -> int:
        return len(self.static) + len(self.templates)

    def changed(self) -> None:
        """Notify the clients that the lists have changed: see ``Registry.changed``."""
        self.static.changed()

    def find(
        self, uri: str, scope: RequestScope | None = None
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

    def read(self, scope: RequestScope, request: ReadResourceRequest) -> Any:
        """Serve ``resources/read``."""
        uri = request.uri
        match = self.find(uri, scope)
        if match is None:
            raise not_found(scope, uri)
        entry, values = match
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


def not_found(scope: RequestScope, uri: str) -> RequestError:
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
