"""Resources: contents that clients read, at one URI or at all URIs that match a template."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mcpio import types  # the types of resources are loaded when there is one
from mcpio.app.awaitables import when_ready
from mcpio.app.cache_hints import CacheHint
from mcpio.app.contracts import HandlerScope
from mcpio.app.input_required import InputRequired
from mcpio.app.registry.base import InLoop, Mounted, Registry
from mcpio.app.registry.content import json_text
from mcpio.app.registry.function import RegisteredFunction
from mcpio.app.registry.uri_template import MAX_URI, UriTemplate
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.revisions import REV_2026_07_28
from mcpio.types.content import BlobResourceContents, TextResourceContents

if TYPE_CHECKING:
    from mcpio.types.resources import ReadResourceRequest, ReadResourceResult, Resource, ResourceTemplate

__all__ = ["FunctionResource", "FunctionTemplate", "Resources", "not_found"]


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

        def result(value: Any) -> ReadResourceResult | InputRequired:
            if value is None:
                raise not_found(scope, uri)
            return _result(value, uri, mime_type, hints)

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
    value: Any, uri: str, mime_type: str | None, hints: Mapping[str, Any]
) -> ReadResourceResult | InputRequired:
    if isinstance(value, types.ReadResourceResult | InputRequired):
        return value
    items = value if isinstance(value, list | tuple) and _are_contents(value) else (value,)
    return types.ReadResourceResult(tuple(_contents(item, uri, mime_type) for item in items), **hints)


def _are_contents(items: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(item, TextResourceContents | BlobResourceContents | bytes) for item in items)


def _contents(value: Any, uri: str, mime_type: str | None) -> TextResourceContents | BlobResourceContents:
    """Return contents as they are, str and bytes as contents of the URI, and other values as JSON."""
    if isinstance(value, TextResourceContents | BlobResourceContents):
        return value
    if isinstance(value, str):
        return TextResourceContents(uri, str.__str__(value), mime_type)
    if isinstance(value, bytes | bytearray | memoryview):
        return BlobResourceContents(uri, base64.b64encode(value).decode(), mime_type)
    return TextResourceContents(uri, json_text(value), mime_type or "application/json")


_SAMPLES = ("a", "a" * 200, "a/b")
"""Values of variables, with which a template that another one covers shows: long ones, and those with a slash."""
