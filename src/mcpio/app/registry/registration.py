"""Registration: how a function becomes a tool, a resource or a prompt."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, get_args

from mcpio import types  # the types of a feature are loaded when it is used
from mcpio._checks import check_options, checked, chosen, is_count
from mcpio.app.contracts import CacheHint, Scopes, checked_scopes
from mcpio.app.registry.base import RegisteredFunction, result_encoder
from mcpio.app.registry.prompts import FunctionPrompt, prompt_arguments
from mcpio.app.registry.resources import FunctionResource, FunctionTemplate, UriTemplate
from mcpio.app.registry.tools import FunctionTool
from mcpio.app.runtime import checked_callback
from mcpio.app.schema.signature import Binder
from mcpio.app.schema.validation import MAX_STEPS, OWN_STEPS, Validator
from mcpio.errors import InvalidMessage
from mcpio.framing import json
from mcpio.revisions import REVISIONS
from mcpio.types._fields import Payload
from mcpio.types.content import Annotations, Icon
from mcpio.types.features import TaskSupport, Tool, ToolAnnotations, ToolExecution

if TYPE_CHECKING:
    from mcpio.http.model import ParamHeader

__all__ = [
    "PromptOptions",
    "RegistrationOptions",
    "ResourceOptions",
    "ToolOptions",
    "checked_uri",
    "listed",
    "make_prompt",
    "make_resource",
    "make_template",
    "make_tool",
]

P = TypeVar("P", bound=Payload)


class AccessOptions(TypedDict, total=False):
    """The options that say for whom something is offered. ``None`` is the same as not given."""

    scopes: Scopes | None
    """The scopes that the token of a request needs: one, several, or a plain function of the typed request that returns
    several. A server with scopes is served only with authorization."""
    hide: bool
    """Whether to list the entry only for clients whose tokens have the scopes. Others may still call it; the error
    names the scopes."""
    visible: Callable[[Any], bool] | None
    """Whether it exists for a request: a plain function of the ``Context``. Where it returns False, it is not listed,
    and not found either."""


class RegistrationOptions(AccessOptions, total=False):
    """The options of everything that a server offers. ``None`` is the same as not given."""

    name: str | None
    """The protocol's name for it; by default the function's name."""
    title: str | None
    """Its name for people."""
    description: str | None
    """The description for clients; by default the function's docstring before its first section."""
    icons: tuple[Icon, ...] | None
    """Pictures of it."""
    meta: Mapping[str, Any] | None
    """Its ``_meta``."""
    blocking: bool
    """Run the plain function in a thread. Otherwise it runs in the event loop's thread, and must be quick."""


class ToolOptions(RegistrationOptions, total=False):
    """The options of ``Server.tool``."""

    annotations: ToolAnnotations | None
    """Hints about the tool's effects."""
    input_schema: Mapping[str, Any] | None
    """Replaces the schema of the parameters' annotations. Arguments are checked against both."""
    output_schema: Mapping[str, Any] | None
    """Replaces the schema of the result's annotation. Results are checked against it."""
    returns: Any
    """The type of the results, in place of the function's return annotation."""
    structured: bool
    """Whether an annotated result is sent as structured content too. True by default."""
    task_support: TaskSupport | None
    """Whether a call may (``"optional"``) or must (``"required"``) run as a task; by default it must not."""
    resume: bool
    """Whether a task that was interrupted, as by the end of the process, calls the function again with the same
    arguments: see ``Context.task.is_resumed``. Otherwise the task fails."""
    immediate_response: str | None
    """A text for the model when a task has begun."""
    becomes_task: bool
    """Whether a stateless client's call begins as a plain one, until the function awaits ``Context.become_task``."""
    view: str | None
    """The URI of the view that hosts show with the tool: see ``Server.view``."""
    visibility: Collection[str] | None
    """Who may call the tool in a host that shows views: ``"model"``, ``"app"`` for views of this server, or both, as by
    default. Other clients have no views, and list it for the model."""


class ResourceOptions(RegistrationOptions, total=False):
    """The options of ``Server.resource``."""

    mime_type: str | None
    """The MIME type of the contents; for a template, of all that it gives."""
    size: int | None
    """The size in bytes of a resource at one URI."""
    annotations: Annotations | None
    """The audience and the priority."""
    cache: CacheHint | None
    """How long clients of the stateless era may keep the contents; by default not at all."""


class PromptOptions(RegistrationOptions, total=False):
    """The options of ``Server.prompt``."""


def make_tool(function: Any, options: ToolOptions, *, context: type, level: int) -> FunctionTool:
    """Return the tool of a function. ``level`` is the ``stacklevel`` of warnings, for the author's line.

    Raises TypeError or ValueError, with advice, if the function cannot be a tool.
    """
    endpoint = _endpoint(function, options, ToolOptions, context)
    binder = endpoint.binder
    name = options.get("name") or endpoint.name
    if not _TOOL_NAME.fullmatch(name):
        text = f"the tool name {name!r} may be refused: use 1 to 128 of the characters A-Z a-z 0-9 _ - ."
        warnings.warn(text, stacklevel=level)
    takes, gives = options.get("input_schema"), options.get("output_schema")
    annotation = _result_annotation(binder, options)
    encoder = result_encoder(annotation, where=f"{binder.name}(), the result")
    shown = Tool(
        name,
        binder.input_schema if takes is None else takes,
        _description(endpoint, options),
        title=options.get("title"),
        output_schema=encoder.output_schema if gives is None else gives,
        annotations=options.get("annotations"),
        icons=options.get("icons") or (),
        execution=_execution(options),
        **_meta_of_tool(binder.name, options),
    )
    accepts = None if takes is None else _validator(takes, "input_schema", "arguments", MAX_STEPS)
    if takes is not None:
        _check_fit(takes, binder)
    checks = None if gives is None else _validator(gives, "output_schema", "result", OWN_STEPS)
    shown = _sayable(shown, options)
    return FunctionTool(
        endpoint,
        shown,
        encoder=encoder,
        param_headers=_param_headers(shown, endpoint),
        accepts=accepts,
        gives=checks,
        resumes=options.get("resume", False),
        immediate_response=checked("immediate_response", options.get("immediate_response"), str),
        becomes_task=options.get("becomes_task", False),
    )


def _result_annotation(binder: Binder, options: ToolOptions) -> Any:
    """Return the type of the results; ``Any`` if they have no type to convert by."""
    is_structured = options.get("output_schema") is None and options.get("structured", True)
    returns = options.get("returns")
    if returns is None:
        return binder.return_annotation if is_structured else Any
    if not is_structured:
        raise TypeError(f"{binder.name}(): returns= is the type of structured results; leave the other option out")
    return returns


def _param_headers(tool: Tool, endpoint: RegisteredFunction) -> tuple[ParamHeader, ...]:
    """Return the arguments that header fields repeat over HTTP. Raises ValueError for what clients reject."""
    if b'"x-mcp-header":' not in json.dumps(tool.input_schema):
        return ()
    from mcpio.http.model import param_headers  # few tools have any

    try:
        return param_headers(tool.input_schema)
    except ValueError as error:
        raise ValueError(f"{endpoint.binder.name}(), input schema: {error}") from None


def make_resource(uri: str, function: Any, options: ResourceOptions, *, context: type) -> FunctionResource:
    """Return the resource of a function. Raises TypeError, with advice, if it cannot be one."""
    endpoint = _resource_endpoint(function, options, (), context)
    size = options.get("size")
    if size is not None and not is_count(size):
        raise ValueError(f"{uri:.100}: size must be a number of bytes, 0 or more, not {size!r:.100}")
    shown = types.Resource(uri, size=size, **_resource_members(endpoint, options))
    return FunctionResource(endpoint, _sayable(shown, options), _cache_hint(options))


def make_template(template: UriTemplate, function: Any, options: ResourceOptions, *, context: type) -> FunctionTemplate:
    """Return the resource template of a function. Raises TypeError, with advice, if it cannot be one."""
    if options.get("size") is not None:
        raise TypeError(f"{template.template}: size must be left out: each resource has its own")
    endpoint = _resource_endpoint(function, options, template.variables, context)
    shown = types.ResourceTemplate(template.template, **_resource_members(endpoint, options))
    return FunctionTemplate(endpoint, _sayable(shown, options), template, _cache_hint(options))


def _cache_hint(options: ResourceOptions) -> CacheHint:
    return chosen("cache", options.get("cache"), CacheHint)


def make_prompt(function: Any, options: PromptOptions, *, context: type) -> FunctionPrompt:
    """Return the prompt of a function. Raises TypeError, with advice, if it cannot be one."""
    endpoint = _endpoint(function, options, PromptOptions, context)
    shown = types.Prompt(
        options.get("name") or endpoint.name,
        _description(endpoint, options),
        prompt_arguments(endpoint),
        title=options.get("title"),
        icons=options.get("icons") or (),
        **_meta(options),
    )
    return FunctionPrompt(endpoint, _sayable(shown, options))


def checked_uri(uri: Any) -> UriTemplate:
    """Return a URI as the template that matches it. Raises ValueError if it is invalid or ambiguous."""
    if not isinstance(uri, str):
        raise TypeError(f'uri must be a str, as in @server.resource("scheme://{{variable}}"), not {uri!r:.100}')
    if not _SCHEME.match(uri):
        raise ValueError(f"uri must begin with a scheme, as in notes://today, not {uri!r:.100}")
    template = UriTemplate(uri)
    template.check_matching()
    return template


_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|\{")


def _endpoint(function: Any, options: RegistrationOptions, allowed: type, context: type) -> RegisteredFunction:
    check_options(options, allowed.__annotations__)
    if checked("name", options.get("name"), str) == "":
        raise ValueError("name must not be empty: leave it out to take that of the function")
    endpoint = RegisteredFunction(function, blocking=options.get("blocking", False), context=context)
    restrict(endpoint, options)
    return endpoint


def restrict(endpoint: RegisteredFunction, options: AccessOptions) -> None:
    """Offer a function only to some. Raises TypeError or ValueError for a wrong option."""
    scopes = options.get("scopes")
    if scopes is not None:
        endpoint.scopes = checked_scopes(scopes)
    if options.get("hide", False):
        if endpoint.scopes is None or callable(endpoint.scopes):
            raise ValueError("hide= needs scopes= that do not depend on the request")
        endpoint.hides = True
    endpoint.visible = checked_callback("visible", options.get("visible"), "(ctx)")


def _resource_endpoint(
    function: Any, options: ResourceOptions, variables: tuple[str, ...], context: type
) -> RegisteredFunction:
    """Return the function of a resource. Its parameters must be the variables of the URI."""
    endpoint = _endpoint(function, options, ResourceOptions, context)
    name, parameters = endpoint.binder.name, endpoint.binder.parameters
    for parameter in parameters:
        if parameter.name not in variables and parameter.required:
            raise TypeError(f"{name}(): the URI has no variable {parameter.name!r}")
    for variable in variables:
        if variable not in [parameter.name for parameter in parameters]:
            raise TypeError(f"{name}(): no parameter takes the variable {variable!r} of the URI")
    return endpoint


def _resource_members(endpoint: RegisteredFunction, options: ResourceOptions) -> dict[str, Any]:
    return {
        "name": options.get("name") or endpoint.name,
        "title": options.get("title"),
        "description": _description(endpoint, options),
        "mime_type": options.get("mime_type"),
        "annotations": options.get("annotations"),
        "icons": options.get("icons") or (),
        **_meta(options),
    }


def _description(endpoint: RegisteredFunction, options: RegistrationOptions) -> str | None:
    description = options.get("description")
    return endpoint.binder.description if description is None else description


def _execution(options: ToolOptions) -> ToolExecution | None:
    support = options.get("task_support")
    if support not in (None, *get_args(TaskSupport)):
        raise ValueError(f"task_support must be 'forbidden', 'optional' or 'required', not {support!r:.100}")
    for name in ("resume", "immediate_response", "becomes_task"):
        if options.get(name) and support in (None, "forbidden"):
            raise TypeError(f"{name} must be given with task_support='optional' or 'required', not {support!r}")
    return None if support is None else ToolExecution(support)


def _sayable(shown: P, options: Mapping[str, Any]) -> P:
    """Return a description. Raises ValueError if it cannot be encoded, which would break the whole list later."""
    try:
        # Without the codec, whose import costs more than most servers need.
        members = {member: getattr(shown, member, None) for member in _FROM_AUTHORS}
        json.dumps({name: dict(value) if isinstance(value, Mapping) else value for name, value in members.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"clients cannot be told of it: {error}") from error
    if options.get("icons") or options.get("annotations"):
        from mcpio.codec import codec

        try:
            codec(REVISIONS[-1]).encode(shown)
        except InvalidMessage as error:
            raise ValueError(f"clients cannot be told of it: {error}") from error
    return shown


_FROM_AUTHORS = ("name", "title", "description", "mime_type", "input_schema", "output_schema", "meta")
"""The members that may have anything inside: texts, whose characters must have a form in UTF-8, and mappings."""


def _meta(options: RegistrationOptions) -> dict[str, Any]:
    meta = options.get("meta")
    return {} if meta is None else {"meta": meta}


def _meta_of_tool(name: str, options: ToolOptions) -> dict[str, Any]:
    """Return the ``_meta`` of a tool, with its view (APP-03)."""
    view, visibility = options.get("view"), options.get("visibility")
    if view is None and visibility is None:
        return _meta(options)
    meta: Mapping[str, Any] = options.get("meta") or {}
    if "ui" in meta:
        raise ValueError(f"{name}(): give either view= and visibility=, or the member ui of meta=")
    ui: dict[str, Any] = {}
    if view is not None:
        if not str(view).startswith("ui://"):
            raise ValueError(f"{name}(): view must be the URI of a view, such as ui://clock, not {view!r:.100}")
        ui["resourceUri"] = view
    if visibility is not None:
        callers = listed("visibility", visibility)
        if not callers or not all(each in ("model", "app") for each in callers):
            raise ValueError(f"{name}(): visibility must be 'model', 'app' or both, not {visibility!r:.100}")
        ui["visibility"] = list(dict.fromkeys(callers))
    return {"meta": {**meta, "ui": ui}}


def listed(option: str, value: Any) -> tuple[Any, ...]:
    """Return the items of an option that takes several; a str is refused, as a list of its letters."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{option} must be a list, not {value!r:.100}")
    return tuple(value)


def _check_fit(schema: Mapping[str, Any], binder: Binder) -> None:
    """Raise TypeError for a schema with properties that the function does not take, or without required ones."""
    described = schema.get("properties")
    if not isinstance(described, Mapping):
        return
    taken = {parameter.name: parameter.required for parameter in binder.parameters}
    is_closed = binder.input_schema.get("additionalProperties") is False  # unless it takes **others
    for name in described:
        if name not in taken and is_closed:
            raise TypeError(f"{binder.name}(): input_schema has the property {name!r:.100}, which no parameter takes")
    if not _COMPOSING.isdisjoint(schema):
        return  # properties may be described elsewhere
    for name, required in taken.items():
        if required and name not in described:
            raise TypeError(f"{binder.name}(): input_schema lacks the property {name!r}, which the function needs")


_COMPOSING = frozenset(
    ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"]
)


def _validator(schema: Mapping[str, Any], option: str, root: str, max_steps: int) -> Callable[[Any], None]:
    check = partial(Validator(schema, max_steps=max_steps).validate, root=root)
    if option == "input_schema" and schema.get("type") != "object":
        raise ValueError(f'{option} must have "type": "object" at its root, not {schema.get("type")!r:.60}')
    return check
