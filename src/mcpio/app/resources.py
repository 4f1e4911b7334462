"""Resources: what a server lets the client read, one by one or by a template of their URIs."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from mcpio.app.context import Context
from mcpio.app.endpoint import Endpoint, settle
from mcpio.app.plain import to_json
from mcpio.app.registry import Registry
from mcpio.app.uri_template import UriTemplate
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.framing import json
from mcpio.revisions import REV_2026_07_28
from mcpio.types.content import BlobResourceContents, TextResourceContents
from mcpio.types.resources import ReadResourceRequest, ReadResourceResult, Resource, ResourceTemplate

__all__ = ["FunctionResource", "FunctionTemplate", "Resources"]


class FunctionResource:
    """A resource at one URI, and the function that reads it."""

    __slots__ = ("description", "enabled", "endpoint")

    def __init__(self, endpoint: Endpoint, description: Resource) -> None:
        self.endpoint = endpoint
        self.description = description
        self.enabled = True


class FunctionTemplate:
    """Resources at every URI that fits a template, and the function that reads them."""

    __slots__ = ("description", "enabled", "endpoint", "template")

    def __init__(self, endpoint: Endpoint, description: ResourceTemplate, template: UriTemplate) -> None:
        self.endpoint = endpoint
        self.description = description
        self.enabled = True
        self.template = template


class Resources:
    """The resources of a server, and its templates."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.static: Registry[FunctionResource] = Registry("resource", changed)
        self.templates: Registry[FunctionTemplate] = Registry("resource template", changed)

    def __len__(self) -> int:
        return len(self.static) + len(self.templates)

    def find(self, uri: str) -> tuple[FunctionResource | FunctionTemplate, Mapping[str, str | list[str]]] | None:
        """Return what reads a URI, and the values of the template's variables: a resource of just that URI first."""
        resource = self.static.find(uri)
        if resource is not None:
            return resource, {}
        for entry in self.templates:
            values = entry.template.match(uri)
            if values is not None:
                return entry, values
        return None

    def read(self, scope: Context, request: ReadResourceRequest) -> Any:
        """Serve ``resources/read``."""
        uri = request.uri
        found = self.find(uri)
        if found is None:
            raise not_found(scope, uri)
        entry, values = found
        mime_type = entry.description.mime_type
        try:
            value = entry.endpoint.call_with_text(scope, values)
        except InvalidMessage as error:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Invalid URI {uri:.200}: {error}", {"uri": uri}) from error
        return settle(value, lambda result: _result(result, uri, mime_type))


def not_found(scope: Context, uri: str) -> RequestError:
    """Return the error for a URI that nobody serves, in the peer's revision (RES-05)."""
    modern = scope.peer.revision >= REV_2026_07_28
    code = ErrorCode.INVALID_PARAMS if modern else ErrorCode.RESOURCE_NOT_FOUND
    return RequestError(code, f"Resource not found: {uri:.200}", {"uri": uri})


def _result(value: Any, uri: str, mime_type: str | None) -> ReadResourceResult:
    if isinstance(value, ReadResourceResult):
        return value
    items = value if isinstance(value, list | tuple) and _is_contents(value) else (value,)
    return ReadResourceResult(tuple(_contents(item, uri, mime_type) for item in items))


def _is_contents(items: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(item, TextResourceContents | BlobResourceContents | bytes) for item in items)


def _contents(value: Any, uri: str, mime_type: str | None) -> TextResourceContents | BlobResourceContents:
    """Return contents as they are, text and bytes as contents of the URI, and anything else as JSON."""
    if isinstance(value, TextResourceContents | BlobResourceContents):
        return value
    if isinstance(value, str):
        return TextResourceContents(uri, value, mime_type)
    if isinstance(value, bytes | bytearray | memoryview):
        return BlobResourceContents(uri, base64.b64encode(value).decode(), mime_type)
    return TextResourceContents(uri, json.dumps(to_json(value)).decode(), mime_type or "application/json")
