"""A server: what it offers, registered by decorators, and served to any number of sessions by any driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, overload

from mcpio.app.completion import Completions
from mcpio.app.context import Context
from mcpio.app.endpoint import Endpoint
from mcpio.app.prompts import FunctionPrompt, Prompts, prompt_arguments
from mcpio.app.resources import FunctionResource, FunctionTemplate, Resources, not_found
from mcpio.app.results import ResultEncoder, result_encoder
from mcpio.app.runtime import Driver
from mcpio.app.serving import ServerSession
from mcpio.app.session import Handler
from mcpio.app.tools import FunctionTool, Tools
from mcpio.app.uri_template import UriTemplate
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.events import Initialized, NotificationReceived
from mcpio.types.content import Annotations, Icon
from mcpio.types.lifecycle import (
    EmptyResult,
    Implementation,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcpio.types.logging import LoggingLevel, SetLevelRequest
from mcpio.types.prompts import ListPromptsRequest, ListPromptsResult, Prompt, PromptListChangedNotification
from mcpio.types.resources import (
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    Resource,
    ResourceListChangedNotification,
    ResourceTemplate,
    ResourceUpdatedNotification,
    SubscribeRequest,
    UnsubscribeRequest,
)
from mcpio.types.tools import ListToolsRequest, ListToolsResult, Tool, ToolAnnotations, ToolListChangedNotification

__all__ = ["Lifespan", "Server"]

F = TypeVar("F", bound=Callable[..., Any])

Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]
"""Opens what handlers need, around the serving; what it gives is ``Context.state``."""


class Server:
    """What a server offers. The same object may be served by several drivers at once.

    ::

        server = Server("calculator")

        @server.tool
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
    """

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        lifespan: Lifespan | None = None,
        log_level: LoggingLevel = "info",
        page_size: int | None = None,
        mask_errors: bool = False,
        options: Options | None = None,
    ) -> None:
        """Say who the server is.

        ``instructions`` is a hint for the client's model. ``log_level`` is the least level that is sent until a client
        asks for another. ``page_size`` is how many entries one answer to a list request has, ``None`` for all.
        ``mask_errors`` keeps the text of a tool's exceptions from the client; that of ``ToolError`` is always sent.
        """
        self.info = Implementation(name, version, title=title, description=description)
        self.instructions = instructions
        self.lifespan = lifespan
        self.log_level: LoggingLevel = log_level
        self.options = options or Options()
        self.sessions: set[ServerSession] = set()
        self.tools = Tools(lambda: self._broadcast(ToolListChangedNotification()), mask_errors=mask_errors)
        self.resources = Resources(lambda: self._broadcast(ResourceListChangedNotification()))
        self.prompts = Prompts(lambda: self._broadcast(PromptListChangedNotification()))
        self.completions = Completions()
        self.handlers: dict[str, Handler] = {
            "tools/list": self._list_tools,
            "tools/call": self.tools.call,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self.resources.read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self.prompts.get,
            "completion/complete": self._complete,
            "logging/setLevel": _set_level,
        }
        """By method: what serves it. A custom method is served by adding it here before any connection is made."""
        self.notification_handlers: dict[str, Callable[[ServerSession, Any], None]] = {}
        """By method: what hears of a notification, with the session and the typed notification."""
        self._page_size = page_size

    # Registration

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: tuple[Icon, ...] = (),
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        blocking: bool = False,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: F | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: tuple[Icon, ...] = (),
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        blocking: bool = False,
    ) -> F | Callable[[F], F]:
        """Offer a function as a tool: name, description and schemas come from the function.

        A plain function runs in the event loop and must be quick; ``blocking`` runs it in a thread instead. A
        parameter annotated with ``Context`` is filled in. ``input_schema`` and ``output_schema`` replace what the
        annotations say. With ``structured`` off the result has content only, and no schema.
        """

        def register(function: F) -> F:
            endpoint = Endpoint(function, blocking=blocking)
            encoder = result_encoder(endpoint.binder.return_annotation, where=f"{endpoint.binder.name}(), the result")
            if not structured or output_schema is not None:
                encoder = ResultEncoder(None, lambda value: value, is_wrapped=False)
            shown = Tool(
                name or _name_of(function),
                endpoint.binder.input_schema if input_schema is None else input_schema,
                description if description is not None else endpoint.binder.description,
                title=title,
                output_schema=encoder.output_schema if output_schema is None else output_schema,
                annotations=annotations,
                icons=icons,
                **_meta(meta),
            )
            accepts = None if input_schema is None else _validator(input_schema, "arguments")
            gives = None if output_schema is None else _validator(output_schema, "result")
            self.tools.add(shown.name, FunctionTool(endpoint, shown, encoder=encoder, accepts=accepts, gives=gives))
            return function

        return register if function is None else register(function)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | None = None,
        icons: tuple[Icon, ...] = (),
        meta: Mapping[str, Any] | None = None,
        blocking: bool = False,
    ) -> Callable[[F], F]:
        """Offer what a function returns as a resource: text, bytes, contents, or anything that JSON can say.

        With variables in it, ``uri`` is a template (RFC 6570) and the function's parameters are its variables.
        """

        def register(function: F) -> F:
            endpoint = Endpoint(function, blocking=blocking)
            template = UriTemplate(uri)
            common: dict[str, Any] = {
                "title": title,
                "description": description if description is not None else endpoint.binder.description,
                "mime_type": mime_type,
                "annotations": annotations,
                "icons": icons,
                **_meta(meta),
            }
            shown_name = name or _name_of(function)
            _check_variables(endpoint, template)
            if template.variables:
                described = ResourceTemplate(uri, shown_name, **common)
                self.resources.templates.add(uri, FunctionTemplate(endpoint, described, template))
            else:
                self.resources.static.add(
                    uri, FunctionResource(endpoint, Resource(uri, shown_name, size=size, **common))
                )
            return function

        return register

    @overload
    def prompt(self, function: F) -> F: ...

    @overload
    def prompt(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: tuple[Icon, ...] = (),
        meta: Mapping[str, Any] | None = None,
        blocking: bool = False,
    ) -> Callable[[F], F]: ...

    def prompt(
        self,
        function: F | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: tuple[Icon, ...] = (),
        meta: Mapping[str, Any] | None = None,
        blocking: bool = False,
    ) -> F | Callable[[F], F]:
        """Offer a function as a prompt. It returns text, a content block, a ``PromptMessage``, or a list of them."""

        def register(function: F) -> F:
            endpoint = Endpoint(function, blocking=blocking)
            shown = Prompt(
                name or _name_of(function),
                description if description is not None else endpoint.binder.description,
                prompt_arguments(endpoint),
                title=title,
                icons=icons,
                **_meta(meta),
            )
            self.prompts.add(shown.name, FunctionPrompt(endpoint, shown))
            return function

        return register if function is None else register(function)

    def completion(self, argument: str, *, prompt: str | None = None, resource: str | None = None) -> Callable[[F], F]:
        """Suggest values for an argument of a prompt, or of a resource template (named by its URI template).

        The function takes the text so far and a mapping of the other arguments chosen already, and returns texts, best
        first. More than 100 are cut off, and counted.
        """
        if (prompt is None) == (resource is None):
            raise TypeError("give either prompt= or resource=")

        def register(function: F) -> F:
            kind, key = ("prompt", prompt) if prompt is not None else ("resource", resource)
            self.completions.add(kind, str(key), argument, function)
            return function

        return register

    # Changes at run time

    def notify_resource_updated(self, uri: str) -> int:
        """Tell the sessions that subscribed to a resource that it changed; return how many (RES-07)."""
        update = ResourceUpdatedNotification(uri)
        return sum(session.tell(update) for session in self.sessions if uri in (session.subscriptions or ()))

    # For drivers

    @property
    def capabilities(self) -> ServerCapabilities:
        """What is declared to a client that connects now: what has been registered by now (CAP-03)."""
        return ServerCapabilities(
            tools=ToolsCapability(list_changed=True) if len(self.tools) else None,
            resources=ResourcesCapability(subscribe=True, list_changed=True) if len(self.resources) else None,
            prompts=PromptsCapability(list_changed=True) if len(self.prompts) else None,
            completions={} if len(self.completions) else None,
            logging={},
        )

    def connection(self, *, principal: Any = None) -> ServerConnection:
        """Return an engine for one new client."""
        return ServerConnection(
            self.info, self.capabilities, instructions=self.instructions, principal=principal, options=self.options
        )

    def session(self, connection: ServerConnection, driver: Driver, state: Any = None) -> ServerSession:
        """Return the session of a connection, for the driver to call ``process`` of."""
        return ServerSession(self, connection, driver, state)

    def handle_notification(self, session: ServerSession, event: NotificationReceived | Initialized) -> None:
        """Pass a notification of a client to the function that wants to hear of it."""
        handler = self.notification_handlers.get(event.raw["method"])
        if handler is not None:
            try:
                handler(session, event.notification if isinstance(event, NotificationReceived) else None)
            except Exception as error:
                session.driver.report(f"the handler of {event.raw['method']} failed", error)

    # Handlers

    def _list_tools(self, scope: Context, request: ListToolsRequest) -> ListToolsResult:
        page = self.tools.page(request.cursor, self._page_size)
        return ListToolsResult(tuple(page.items), page.next_cursor)

    def _list_resources(self, scope: Context, request: ListResourcesRequest) -> ListResourcesResult:
        page = self.resources.static.page(request.cursor, self._page_size)
        return ListResourcesResult(tuple(page.items), page.next_cursor)

    def _list_templates(self, scope: Context, request: ListResourceTemplatesRequest) -> ListResourceTemplatesResult:
        page = self.resources.templates.page(request.cursor, self._page_size)
        return ListResourceTemplatesResult(tuple(page.items), page.next_cursor)

    def _list_prompts(self, scope: Context, request: ListPromptsRequest) -> ListPromptsResult:
        page = self.prompts.page(request.cursor, self._page_size)
        return ListPromptsResult(tuple(page.items), page.next_cursor)

    def _subscribe(self, scope: Context, request: SubscribeRequest) -> EmptyResult:
        if self.resources.find(request.uri) is None:
            raise not_found(scope, request.uri)
        session = scope.session
        session.subscriptions = {request.uri, *(session.subscriptions or ())}
        return EmptyResult()

    def _unsubscribe(self, scope: Context, request: UnsubscribeRequest) -> EmptyResult:
        session = scope.session
        session.subscriptions = {*(session.subscriptions or ())} - {request.uri}
        return EmptyResult()

    def _complete(self, scope: Context, request: Any) -> Any:
        return self.completions.complete(self._knows, scope, request)

    def _knows(self, kind: str, key: str) -> bool:
        if kind == "prompt":
            return self.prompts.find(key) is not None
        return self.resources.templates.find(key) is not None or self.resources.static.find(key) is not None

    def _broadcast(self, notification: Any) -> None:
        for session in tuple(self.sessions):
            session.tell(notification)


def _set_level(scope: Context, request: SetLevelRequest) -> EmptyResult:
    scope.session.log_level = request.level
    return EmptyResult()


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"{function!r} has no name of its own: give name=")
    return name


def _meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if meta is None else {"meta": meta}


def _validator(schema: Mapping[str, Any], root: str) -> Callable[[Any], None]:
    from mcpio.app.validation import Validator

    return partial(Validator(schema).validate, root=root)


def _check_variables(endpoint: Endpoint, template: UriTemplate) -> None:
    """Raise ``TypeError`` unless the variables of a URI are just what the function takes."""
    variables = set(template.variables)
    for parameter in endpoint.binder.parameters:
        if parameter.name not in variables and parameter.required:
            raise TypeError(f"{endpoint.binder.name}(): the URI has no variable {parameter.name!r}")
    unknown = variables - {parameter.name for parameter in endpoint.binder.parameters}
    if unknown:
        raise TypeError(f"{endpoint.binder.name}(): no parameter takes the variable {sorted(unknown)[0]!r} of the URI")
