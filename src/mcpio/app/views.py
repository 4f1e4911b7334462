"""Views: pages that a host shows beside a tool: ``io.modelcontextprotocol/ui``, MCP Apps (APP-01 to APP-03)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from mcpio.app.contracts import CacheHint
from mcpio.app.registry.registration import RegistrationOptions, listed, make_resource
from mcpio.app.runtime import OPENERS
from mcpio.types.base import VIEW_MIME_TYPE, VIEWS_EXTENSION

if TYPE_CHECKING:
    from mcpio.app.registry.registration import ResourceOptions
    from mcpio.app.registry.resources import FunctionResource, Resources
    from mcpio.app.registry.tools import FunctionTool

__all__ = ["DOMAINS", "PERMISSIONS", "Permission", "ViewOptions", "check_view", "is_origin", "make_view", "shows_views"]

Permission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
"""The permissions that a view may request from its host."""
PERMISSIONS: Final = get_args(Permission)
DOMAINS: Final = {
    "connect": "connectDomains",
    "resources": "resourceDomains",
    "frames": "frameDomains",
    "bases": "baseUriDomains",
}
"""The protocol's names of the options that take origins."""


class ViewOptions(RegistrationOptions, total=False):
    """The options of ``Server.view``. ``None`` is the same as not given."""

    connect: Collection[str] | None
    """The origins that the view may send requests to, such as ``https://api.example.com``; by default none."""
    resources: Collection[str] | None
    """The origins of its scripts, styles, fonts, pictures and media; by default only what is in the page itself."""
    frames: Collection[str] | None
    """The origins of pages in frames of it."""
    bases: Collection[str] | None
    """The origins that its base address may have."""
    permissions: Collection[Permission] | None
    """The permissions that the view would use if the host grants them."""
    border: bool | None
    """Whether it wants a visible border; ``None`` leaves that to the host."""
    domain: str | None
    """The origin that it wants to be shown at, in the form that the host documents."""
    cache: CacheHint | None
    """How long clients of the stateless era may keep the page; by default not at all."""


def make_view(uri: Any, source: Any, options: ViewOptions, *, context: type) -> FunctionResource:
    """Return the resource of a view. Raises as ``Server.view`` does."""
    if not isinstance(uri, str) or not uri.startswith("ui://") or uri == "ui://" or "{" in uri:
        raise ValueError(
            f"the URI of a view must begin with ui://, as in ui://clock, and must have no variables, not {uri!r:.100}"
        )
    meta: Mapping[str, Any] = options.get("meta") or {}
    if "ui" in meta:
        raise ValueError("meta must not have the member ui: use the options of Server.view")
    members = {**options, "meta": {**meta, "ui": _ui_members(uri, options)}, "mime_type": VIEW_MIME_TYPE}
    members["name"] = options.get("name") or uri.removeprefix("ui://").rstrip("/").rpartition("/")[2] or uri
    for name in (*DOMAINS, "permissions", "border", "domain"):
        members.pop(name, None)
    if isinstance(source, str | PurePath):
        if "view" not in OPENERS:
            raise RuntimeError("no driver can read files yet: import mcpio.trio, mcpio.asyncio or mcpio.asgi before")
        source, members["blocking"] = OPENERS["view"](source), True
    resource_options: ResourceOptions = members  # type: ignore[assignment]  # the others were taken out
    return make_resource(uri, source, resource_options, context=context)


def _ui_members(uri: str, options: ViewOptions) -> dict[str, Any]:
    """Return the view's ``_meta.ui``. Raises TypeError or ValueError for a wrong option."""
    ui: dict[str, Any] = {}
    csp = {}
    for option, name in DOMAINS.items():
        origins = listed(option, options.get(option))
        for origin in origins:
            if not is_origin(origin):
                raise ValueError(
                    f"{uri:.100}: {option} must be origins: a scheme (https, http, wss, ws), a host, perhaps a port, "
                    f"such as https://api.example.com or https://*.example.com, not {origin!r:.100}"
                )
        if origins:
            csp[name] = list(origins)
    if csp:
        ui["csp"] = csp
    permissions = listed("permissions", options.get("permissions"))
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise ValueError(f"{uri:.100}: permissions must be of {', '.join(PERMISSIONS)}, not {permission!r:.100}")
    if permissions:
        ui["permissions"] = {permission: {} for permission in permissions}
    for option, name, kind in (("domain", "domain", str), ("border", "prefersBorder", bool)):
        value = options.get(option)
        if value is not None:
            if not isinstance(value, kind):
                raise TypeError(f"{uri:.100}: {option} must be {kind.__name__}, not {value!r:.100}")
            ui[name] = value
    return ui


def is_origin(value: object) -> bool:
    """Whether a value is an origin that a content security policy can name, perhaps with ``*.`` for all subdomains."""
    return isinstance(value, str) and len(value) <= _MAX_ORIGIN and _ORIGIN.fullmatch(value) is not None


_MAX_ORIGIN: Final = 512
_ORIGIN: Final = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*(?::[0-9]{1,5})?",
    re.ASCII | re.IGNORECASE,
)
"""Nothing that ends a source or a directive of a policy: ``;``, ``,``, spaces, quotes."""


def check_view(tool: FunctionTool, resources: Resources) -> None:
    """Raise ValueError if a tool names a view that is not served (APP-03)."""
    ui = tool.description.meta.get("ui")
    uri = ui.get("resourceUri") if isinstance(ui, Mapping) else None
    if isinstance(uri, str) and resources.static.entry(uri) is None and resources.find(uri) is None:
        raise ValueError(
            f"the tool {tool.description.name!r} has the view {uri!r:.100}, which does not exist: add it by server.view"
        )


def shows_views(capabilities: Any) -> bool:
    """Whether a client's capabilities say that it shows views (APP-01)."""
    extensions = getattr(capabilities, "extensions", None)
    declared = extensions.get(VIEWS_EXTENSION) if isinstance(extensions, Mapping) else None
    types = declared.get("mimeTypes") if isinstance(declared, Mapping) else None
    return isinstance(types, list | tuple) and VIEW_MIME_TYPE in types
