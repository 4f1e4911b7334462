"""A client: one call for each method, typed results, and callbacks for what a server may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from mcpio import types  # what belongs to one feature is loaded when a call needs it
from mcpio.app.context import RequestScope
from mcpio.app.pagination import PageGuard
from mcpio.app.runtime import Driver
from mcpio.app.session import Handler, ProgressCallback, Session, Waiter
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Default
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.errors import ConnectFailed, ErrorCode, RequestError
from mcpio.events import Initialized, NotificationReceived, Peer, RequestReceived, ResponseReceived
from mcpio.types.lifecycle import (
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    PingRequest,
    RootsCapability,
    SamplingCapability,
)
from mcpio.types.tools import CallToolRequest, CallToolResult, ListToolsRequest, ListToolsResult, Tool

if TYPE_CHECKING:
    from mcpio.types.completion import CompleteResult, PromptReference, ResourceTemplateReference
    from mcpio.types.elicitation import ElicitRequest, ElicitResult
    from mcpio.types.logging import LoggingLevel, LoggingMessageNotification
    from mcpio.types.prompts import GetPromptResult, ListPromptsResult, Prompt
    from mcpio.types.resources import (
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
    )
    from mcpio.types.roots import ListRootsRequest, ListRootsResult, Root
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = ["CallOptions", "Client", "ClientOptions", "client_connection"]

Sampler: TypeAlias = (
    "Callable[[RequestScope, CreateMessageRequest], CreateMessageResult | Awaitable[CreateMessageResult]]"
)
Elicitor: TypeAlias = "Callable[[RequestScope, ElicitRequest], ElicitResult | Awaitable[ElicitResult]]"
Rooter: TypeAlias = "Callable[[], Iterable[Root]]"


class ClientOptions(TypedDict, total=False):
    """What a client may be given, by every function that makes one. Whatever is given is declared to the server."""

    info: Implementation
    """Who the client says it is."""
    sampling: Sampler
    """Answers ``sampling/createMessage``: a model's message, or ``RequestError(-1, …)`` when the user says no."""
    elicitation: Elicitor
    """Answers ``elicitation/create``: what the user filled in, or that they would not."""
    roots: Iterable[Root] | Rooter
    """Answers ``roots/list``."""
    on_log: Callable[[LoggingMessageNotification], None]
    """Hears of the server's log messages."""
    on_notification: Callable[[Any], None]
    """Hears of all other notifications, typed."""
    capabilities: ClientCapabilities
    """Replaces what would be declared."""
    options: Options
    """Revisions, limits and timeouts."""


class CallOptions(TypedDict, total=False):
    """What every call of a client takes beside its arguments."""

    timeout: Timeout | float | Default | None
    """Seconds, or a ``Timeout``; ``None`` waits for ever."""
    on_progress: ProgressCallback
    """Hears of progress: takes progress, total and message."""


def client_connection(**options: Unpack[ClientOptions]) -> ClientConnection:
    """Return the engine for a client that is given these options."""
    declared = options.get("capabilities")
    if declared is None:
        declared = ClientCapabilities(
            sampling=SamplingCapability() if "sampling" in options else None,
            elicitation=ElicitationCapability() if "elicitation" in options else None,
            roots=RootsCapability(list_changed=True) if "roots" in options else None,
        )
    info = options.get("info") or Implementation("mcpio", "0")
    return ClientConnection(info, declared, options=options.get("options"))


class Client(Session):
    """A server, as the client sees it. Every call raises as ``Session.request`` does.

    Cancelling a call, in whatever way the event loop has, cancels the request at the server.
    """

    connection: ClientConnection

    def __init__(self, connection: ClientConnection, driver: Driver, **options: Unpack[ClientOptions]) -> None:
        """Drivers make clients: see ``mcpio.trio``."""
        super().__init__(connection, driver)
        self._on_log = options.get("on_log")
        self._on_notification = options.get("on_notification")
        self._handlers: dict[str, Handler] = {}
        if "sampling" in options:
            self._handlers["sampling/createMessage"] = options["sampling"]
        if "elicitation" in options:
            self._handlers["elicitation/create"] = options["elicitation"]
        if "roots" in options:
            self._handlers["roots/list"] = _roots_handler(options["roots"])

    @property
    def server(self) -> Peer:
        """Who the server says it is, what it offers, and its instructions: untrusted text."""
        peer = self.connection.peer
        if peer is None:
            raise ConnectFailed("the handshake has not been done")
        return peer

    async def initialize(self) -> None:
        """Open the conversation. Drivers have done it. Raises ``ConnectFailed``; the cause says why."""
        waiter = Waiter(self.driver.runtime.one_shot(), None)
        self.connection.send_initialize(now=self.driver.now(), cookie=waiter)
        self.driver.wake()
        outcome = await waiter.outcome.wait()
        if not isinstance(outcome, ResponseReceived):
            raise ConnectFailed(f"the handshake failed: {outcome.error}") from outcome.error

    # Tools

    async def list_tools(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListToolsResult:
        """Return one page of the server's tools; without ``cursor`` the first."""
        result: ListToolsResult = await self.request(ListToolsRequest(cursor), **call)
        return result

    async def tools(self, **call: Unpack[CallOptions]) -> AsyncIterator[Tool]:
        """Give all tools, page by page as they are asked for."""
        async for page in _pages("tools/list", partial(self.list_tools, **call)):
            for item in page.tools:
                yield item

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **call: Unpack[CallOptions],
    ) -> CallToolResult:
        """Call a tool. A failure of the tool's own comes back as a result with ``is_error``."""
        request = CallToolRequest(name, arguments) if meta is None else CallToolRequest(name, arguments, meta=meta)
        result: CallToolResult = await self.request(request, **call)
        return result

    # Resources

    async def list_resources(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListResourcesResult:
        """Return one page of the server's resources."""
        result: ListResourcesResult = await self.request(types.ListResourcesRequest(cursor), **call)
        return result

    async def resources(self, **call: Unpack[CallOptions]) -> AsyncIterator[Resource]:
        """Give all resources, page by page."""
        async for page in _pages("resources/list", partial(self.list_resources, **call)):
            for item in page.resources:
                yield item

    async def list_resource_templates(
        self, cursor: str | None = None, **call: Unpack[CallOptions]
    ) -> ListResourceTemplatesResult:
        """Return one page of the server's resource templates."""
        result: ListResourceTemplatesResult = await self.request(types.ListResourceTemplatesRequest(cursor), **call)
        return result

    async def resource_templates(self, **call: Unpack[CallOptions]) -> AsyncIterator[ResourceTemplate]:
        """Give all resource templates, page by page."""
        async for page in _pages("resources/templates/list", partial(self.list_resource_templates, **call)):
            for item in page.resource_templates:
                yield item

    async def read_resource(self, uri: str, **call: Unpack[CallOptions]) -> ReadResourceResult:
        """Read a resource."""
        result: ReadResourceResult = await self.request(types.ReadResourceRequest(uri), **call)
        return result

    async def subscribe_resource(self, uri: str, **call: Unpack[CallOptions]) -> None:
        """Ask to hear of changes of a resource: they come to ``on_notification``."""
        await self.request(types.SubscribeRequest(uri), **call)

    async def unsubscribe_resource(self, uri: str, **call: Unpack[CallOptions]) -> None:
        """Ask to hear no more of changes of a resource."""
        await self.request(types.UnsubscribeRequest(uri), **call)

    # Prompts and completion

    async def list_prompts(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListPromptsResult:
        """Return one page of the server's prompts."""
        result: ListPromptsResult = await self.request(types.ListPromptsRequest(cursor), **call)
        return result

    async def prompts(self, **call: Unpack[CallOptions]) -> AsyncIterator[Prompt]:
        """Give all prompts, page by page."""
        async for page in _pages("prompts/list", partial(self.list_prompts, **call)):
            for item in page.prompts:
                yield item

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **call: Unpack[CallOptions]
    ) -> GetPromptResult:
        """Have a prompt filled in. Values of arguments are text (PROM-03)."""
        result: GetPromptResult = await self.request(types.GetPromptRequest(name, arguments), **call)
        return result

    async def complete(
        self,
        reference: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        *,
        chosen: Mapping[str, str] | None = None,
        **call: Unpack[CallOptions],
    ) -> CompleteResult:
        """Ask for values that begin like ``value``; ``chosen`` are the other arguments so far."""
        context = None if chosen is None else types.CompletionContext(chosen)
        request = types.CompleteRequest(reference, types.CompletionArgument(argument, value), context)
        result: CompleteResult = await self.request(request, **call)
        return result

    # The rest

    async def ping(self, **call: Unpack[CallOptions]) -> None:
        """Return when the server has answered."""
        await self.request(PingRequest(), **call)

    async def set_log_level(self, level: LoggingLevel, **call: Unpack[CallOptions]) -> None:
        """Ask for log messages of this level and graver ones: they come to ``on_log``."""
        await self.request(types.SetLevelRequest(level), **call)

    def notify_roots_changed(self) -> None:
        """Tell the server that the roots changed (ROOT-03)."""
        self.notify(types.RootsListChangedNotification())

    # Events

    def _handler_for(self, event: RequestReceived) -> Handler:
        handler = self._handlers.get(event.raw["method"])
        if handler is None:
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {event.raw['method']:.100}")
        return handler

    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        if isinstance(event, Initialized):
            return
        is_log = event.raw["method"] == "notifications/message" and self._on_log is not None
        callback = self._on_log if is_log else self._on_notification
        if callback is None:
            return
        try:
            callback(event.notification)
        except Exception as error:
            self.driver.report(f"the callback for {event.raw['method']} failed", error)


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_Page)


async def _pages(method: str, fetch: Callable[[str | None], Awaitable[P]]) -> AsyncIterator[P]:
    """Give the pages of a list, one when the one before is used up."""
    guard, cursor = PageGuard(method), None
    while True:
        page = await fetch(cursor)
        yield page
        cursor = guard.follow(page.next_cursor)
        if cursor is None:
            return


def _roots_handler(roots: Iterable[Root] | Rooter) -> Handler:
    def list_roots(_: RequestScope, __: ListRootsRequest) -> ListRootsResult:
        return types.ListRootsResult(tuple(roots() if callable(roots) else roots))

    return list_roots
