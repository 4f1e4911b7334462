"""What the descriptions of tools and views say of views: who may call what, and what a browser is to allow."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from mcpio.app.views import DOMAINS, PERMISSIONS, is_origin
from mcpio.errors import InvalidMessage
from mcpio.types.base import VIEW_MIME_TYPE, VIEWS_EXTENSION
from mcpio.types.content import TextResourceContents
from mcpio.types.features import ReadResourceResult, Tool

EXTENSIONS: Final[Mapping[str, Any]] = {VIEWS_EXTENSION: {"mimeTypes": [VIEW_MIME_TYPE]}}
"""What the client of a host declares: ``ClientCapabilities(extensions=EXTENSIONS)`` (APP-01)."""


def view_uri_of(tool: Tool) -> str | None:
    """Return the URI of a tool's view, or ``None``. The deprecated ``ui/resourceUri`` counts too (APP-03)."""
    uri = _ui(tool.meta).get("resourceUri", tool.meta.get("ui/resourceUri"))
    return uri if isinstance(uri, str) and uri.startswith("ui://") else None


def visibility_of(tool: Tool) -> frozenset[str]:
    """Return who may call a tool: ``"model"``, ``"app"``, or both, as without a word of it (APP-03)."""
    visibility = _ui(tool.meta).get("visibility")
    if visibility is None:
        return frozenset(("model", "app"))
    return (
        frozenset(each for each in visibility if each in ("model", "app"))
        if isinstance(visibility, list)
        else frozenset()
    )


def tools_for_model(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Return the tools that a model may be told of (APP-13)."""
    return tuple(tool for tool in tools if "model" in visibility_of(tool))


def html_of(result: ReadResourceResult) -> tuple[str, Mapping[str, Any]]:
    """Return the page of a view, and its ``_meta``. Raises InvalidMessage for contents that are no view (APP-02)."""
    if len(result.contents) != 1:
        raise InvalidMessage("contents", f"expected one page, got {len(result.contents)}")
    contents = result.contents[0]
    if contents.mime_type != VIEW_MIME_TYPE:
        raise InvalidMessage("contents[0].mimeType", f"expected {VIEW_MIME_TYPE}, got {contents.mime_type!r:.100}")
    if isinstance(contents, TextResourceContents):
        return contents.text, contents.meta
    try:
        return base64.b64decode(contents.blob).decode(), contents.meta
    except ValueError as error:
        raise InvalidMessage("contents[0].blob", f"expected UTF-8 text: {error}") from None


def csp_of(meta: Mapping[str, Any]) -> str:
    """Return the content security policy for a view with this ``_meta``: what it declares, and nothing more (APP-15).

    What is not an origin is left out, so no declaration can end a directive or begin another.
    """
    declared = _ui(meta).get("csp")
    origins = {option: "".join(f" {origin}" for origin in _origins(declared, name)) for option, name in DOMAINS.items()}
    resources = origins["resources"]
    directives = {
        "default-src": "'none'",
        "script-src": f"'self' 'unsafe-inline'{resources}",
        "style-src": f"'self' 'unsafe-inline'{resources}",
        "img-src": f"'self' data:{resources}",
        "font-src": f"'self'{resources}" if resources else "",
        "media-src": f"'self' data:{resources}",
        "connect-src": origins["connect"].strip() or "'none'",
        "frame-src": origins["frames"].strip() or "'none'",
        "base-uri": origins["bases"].strip() or "'self'",
        "object-src": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in directives.items() if sources)


def allow_of(meta: Mapping[str, Any], granted: Collection[str]) -> str:
    """Return the ``allow`` attribute of a view's frames: the permissions that it declares and the host grants."""
    declared = _ui(meta).get("permissions")
    names = [each for each in PERMISSIONS if isinstance(declared, Mapping) and each in declared and each in granted]
    return "; ".join("clipboard-write *" if name == "clipboardWrite" else f"{name} *" for name in names)


def _ui(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    ui = meta.get("ui")
    return ui if isinstance(ui, Mapping) else {}


def _origins(declared: Any, name: str) -> list[str]:
    origins = declared.get(name) if isinstance(declared, Mapping) else None
    return [each for each in origins[:_MOST_ORIGINS] if is_origin(each)] if isinstance(origins, list | tuple) else []


_MOST_ORIGINS: Final = 50
"""How many origins of a kind count: a header has a length that servers and browsers accept."""
