"""A client: one call for each method, typed results, and callbacks for what a server may ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import attrs

from mcpio import types  # what belongs to one feature is loaded when a call needs it
from mcpio._checks import checked, chosen
from mcpio.app.client_handlers import (
    Elicitor,
    RootsProvider,
    Sampler,
    elicitation_handler,
    roots_handler,
    sampling_handler,
)
from mcpio.app.pagination import Items
from mcpio.app.runtime import Driver
from mcpio.app.session import Handler, ProgressCallback, Session, Waiter, checked_callback
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import DEFAULT, Default
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ErrorCode, LocalProtocolError, RequestError
from mcpio.events import ConnectionClosed, Initialized, Negotiated, NotificationReceived, Peer, RequestReceived
from mcpio.methods import official_name
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
    from mcpio.app.client_tools import CheckResults, ResultChecks, ToolCache
    from mcpio.app.middleware import Middleware
    from mcpio.app.tasks.receiver import TaskOptions, TaskReceiver
    from mcpio.backoff import Backoff
    from mcpio.events import IncomingId
    from mcpio.types.completion import CompleteResult, PromptReference, ResourceTemplateReference
    from mcpio.types.elicitation import ElicitationCompleteNotification
    from mcpio.types.logging import LoggingLevel, LoggingMessageNotification
    from mcpio.types.prompts import GetPromptResult, ListPromptsResult, Prompt
    from mcpio.types.resources import (
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
    )
    from mcpio.types.roots import Root
    from mcpio.types.tasks import ClientTasksCapability

__all__ = ["CallOptions", "Client", "ClientOptions", "client_connection"]

T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """What a client may be given, by every function that makes one. ``None`` is the same as not given.

    What answers the server's requests is declared to it. It is a plain function, which must be quick, or an async one;
    a server that gives up a request cancels it.
    """

    info: Implementation | None
    """Who the client says it is."""
    sampling: Sampler | None
    """Answers ``sampling/createMessage``: a model's message, of ``max_tokens`` at most (SAMP-14), or
    ``SamplingRejected`` when the user says no. The user should see the request and the message before they go on."""
    elicitation: Elicitor | None
    """Answers ``elicitation/create``: what the user filled in, or that they would not. It is asked for forms only,
    unless ``capabilities`` declare ``elicitation.url``."""
    roots: Collection[Root] | RootsProvider | None
    """Answers ``roots/list``: the roots, or a function that returns them."""
    on_log: Callable[[LoggingMessageNotification], None] | None
    """Hears of the server's log messages. A plain function, called without waiting."""
    on_notification: Callable[[Any], None] | None
    """Hears of all other notifications, typed; without ``on_log`` of log messages too. A plain function."""
    tasks: TaskOptions | None
    """Lets the server ask for messages and forms as tasks, and come back for them (2025-11-25)."""
    capabilities: ClientCapabilities | None
    """Declared as they stand, such as ``sampling`` with ``tools``; what they leave out follows from the rest."""
    check_results: CheckResults | None
    """Compare structured results of tools with their output schemas (TOOL-14): ``"raise"`` raises ``InvalidMessage``
    for one that breaks its schema, ``"report"`` tells the operator. It needs the package jsonschema, and asks the
    server for its list of tools before the first call."""
    middleware: Iterable[Middleware] | None
    """What stands around the client's own requests, the outermost first: see ``mcpio.app.middleware``."""
    handler_middleware: Iterable[Middleware] | None
    """What stands around the requests of the server, the outermost first."""
    retry: Backoff | None
    """When to send requests again that only read, and those whose caller says ``retry=True``: inside of all
    ``middleware``. ``mcpio.app.Retry`` can do more."""
    options: Options | None
    """Revisions, limits and timeouts."""


class CallOptions(TypedDict, total=False):
    """What every call of a client takes beside its arguments."""

    timeout: Timeout | float | Default | None
    """Seconds, or a ``Timeout``; ``None`` waits for ever."""
    on_progress: ProgressCallback | None
    """Hears of progress: takes progress, total and message. A plain function, called without waiting."""
    meta: Mapping[str, Any] | None
    """The request's ``_meta``, for the server to read."""
    retry: bool | None
    """Whether a client with ``retry=`` may send the request again after an error, when that may help. ``None`` for
    requests that only read."""


_NO_DRIVER: Final[Any] = object()
_HOW_TO_GET_ONE: Final = (
    "a Client is made by a driver: to talk to a Server object use `async with memory_client(server) as client`, to a "
    "program open_stdio([...]), to a URL open_http(url) or open_websocket(url), to a socket open_tcp(host, port) or "
    "open_unix(path), all of mcpio.trio; on asyncio use mcpio.asyncio.open_streams(reader, writer)"
)


def client_connection(**options: Unpack[ClientOptions]) -> ClientConnection:
    """Return the engine for a client that is given these options.

    ``TypeError`` and ``ValueError`` for options that cannot be, before anything is opened for them; ``ImportError``
    for one that needs a package which is not installed.
    """
    for name in ("on_log", "on_notification"):
        checked_callback(name, options.get(name))
    roots = options.get("roots")
    if roots is not None:
        roots_handler(roots)
    _result_checks(options.get("check_results"), str)
    _middleware_of(options)
    given = {name for name, value in options.items() if value is not None}
    declared = chosen("capabilities", options.get("capabilities"), ClientCapabilities)
    capabilities = attrs.evolve(
        declared,
        sampling=declared.sampling or (SamplingCapability() if "sampling" in given else None),
        elicitation=declared.elicitation or (ElicitationCapability() if "elicitation" in given else None),
        roots=declared.roots or (RootsCapability(list_changed=True) if "roots" in given else None),
        tasks=declared.tasks or _tasks_capability(options.get("tasks"), given),
    )
    info = checked("info", options.get("info"), Implementation) or Implementation("mcpio", "0")
    return ClientConnection(info, capabilities, options=options.get("options"))


def _tasks_capability(options: TaskOptions | None, given: set[str]) -> ClientTasksCapability | None:
    if options is None:
        return None
    from mcpio.app.tasks.receiver import client_tasks_capability

    return client_tasks_capability(options, sampling="sampling" in given, elicitation="elicitation" in given)


def _middleware_of(options: ClientOptions) -> tuple[tuple[Middleware, ...], tuple[Middleware, ...]]:
    """Return what stands around a client's own requests, and around those of its server."""
    own, served, policy = options.get("middleware"), options.get("handler_middleware"), options.get("retry")
    if own is None and served is None and policy is None:
        return (), ()
    from mcpio.app.middleware import checked_middleware

    layers = checked_middleware(own or ())
    if policy is not None:
        from mcpio.app.middleware.retrying import Retry

        layers += (Retry(policy),)
    return layers, checked_middleware(served or ())


def _result_checks(policy: CheckResults | None, report: Callable[[str], object]) -> ResultChecks | None:
    if policy is None:
        return None
    from mcpio.app.client_tools import ResultChecks

    return ResultChecks(policy, report)


class Client(Session):
    """A server, as the client sees it. Every call raises as ``Session.request`` does.

    Cancelling a call, in whatever way the event loop has, cancels the request at the server.
    """

    connection: ClientConnection

    def __init__(
        self, connection: ClientConnection, driver: Driver = _NO_DRIVER, **options: Unpack[ClientOptions]
    ) -> None:
        """Drivers make clients: see ``mcpio.trio``. ``TypeError`` and ``ValueError`` for options that cannot be."""
        given: Any = connection
        if driver is _NO_DRIVER or not isinstance(given, ClientConnection):
            raise TypeError(_HOW_TO_GET_ONE)
        super().__init__(connection, driver)
        self._on_log = checked_callback("on_log", options.get("on_log"))
        self._on_notification = checked_callback("on_notification", options.get("on_notification"))
        sampling, elicitation, roots = options.get("sampling"), options.get("elicitation"), options.get("roots")
        self._handlers: dict[str, Handler] = {}
        self._tool_cache: ToolCache | None = None
        self._middleware, self._handler_middleware = _middleware_of(options)
        self._result_checks = _result_checks(options.get("check_results"), self._report_fault)
        if sampling is not None:
            self._handlers["sampling/createMessage"] = sampling_handler(sampling)
        if elicitation is not None:
            handler = elicitation_handler(elicitation, self._begin_visit)
            self._handlers["elicitation/create"] = handler
        if roots is not None:
            self._handlers["roots/list"] = roots_handler(roots)
        self._receiver: TaskReceiver | None = None
        tasks = options.get("tasks")
        if tasks is not None:
            from mcpio.app.tasks.receiver import ClientTasks

            self._receiver = ClientTasks(tasks, self.thread_pool, self._handlers, self._handler_middleware)
            self._handlers.update(self._receiver.handlers)
            self._receiver.attach(driver, None, self)

    @property
    def server(self) -> Peer:
        """Who the server says it is, what it offers, and its instructions: untrusted text.

        ``LocalProtocolError`` before the handshake.
        """
        peer = self.connection.peer
        if peer is None:
            raise LocalProtocolError("the handshake has not been done: await initialize() first")
        return peer

    async def initialize(self) -> None:
        """Open the conversation. Drivers have done it. Raises ``ConnectFailed``; the cause says why."""
        waiter = Waiter(self.driver.runtime.one_shot(), None)
        self.connection.send_initialize(now=self.driver.now(), cookie=waiter)
        self.driver.wake()
        outcome = await waiter.outcome.wait()
        if not isinstance(outcome, Negotiated):
            raise ConnectFailed(f"the handshake failed: {outcome.error}") from outcome.error

    # Tools

    async def list_tools(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListToolsResult:
        """Return one page of the server's tools; without ``cursor`` the first."""
        result: ListToolsResult = await self._call(ListToolsRequest(cursor), call)
        return result

    def tools(self, **call: Unpack[CallOptions]) -> Items[Tool]:
        """Give all tools, page by page as they are asked for."""
        return self._items("tools/list", partial(self.list_tools, **call), lambda page: page.tools)

    async def tool(self, name: str) -> Tool | None:
        """Return a tool as the server describes it now, ``None`` for one that it does not list.

        The list is kept, and asked for again after the server says that it changed. Of a server that does not say so,
        it is asked for again when the name is not in it.
        """
        if self._tool_cache is None:
            from mcpio.app.client_tools import ToolCache

            offered: Any = self.server.capabilities
            announced = offered.tools is not None and offered.tools.list_changed is True
            self._tool_cache = ToolCache(self.driver.runtime, self.tools, announced=announced)
        return await self._tool_cache.tool(name)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        task: bool | float | None = None,
        **call: Unpack[CallOptions],
    ) -> CallToolResult:
        """Call a tool. A failure of the tool's own comes back as a result with ``is_error``.

        With ``task=True`` the call runs as a task, whose result is waited for; a number is for how many seconds the
        server is asked to keep it. By default a tool that must be a task is called as one, and no other (TASK-06).
        ``LocalProtocolError`` when a task is asked for of a tool, or a server, that does not do that.
        """
        if not isinstance(task, bool | int | float | None):
            raise TypeError(f"task= takes a bool, or for how many seconds to keep the task, not {task!r:.60}")
        checks = self._result_checks
        tool = None if checks is None else await self.tool(name)
        result: CallToolResult = await self._call_in_its_mode(CallToolRequest(name, arguments), task, call)
        if checks is not None and tool is not None:
            checks.check(tool, result)
        return result

    async def _call_in_its_mode(self, request: CallToolRequest, task: bool | float | None, call: CallOptions) -> Any:
        known = None if self._tool_cache is None or task is not None else self._tool_cache.at_hand(request.name)
        refusal: Any = None
        if task is False or (task is None and (known is None or known.execution is None)):
            try:
                refusal = await self._call(request, {**call})
            except RequestError as error:
                if error.code != ErrorCode.METHOD_NOT_FOUND or task is False:
                    raise
                refusal = error
            else:
                offered: Any = self.server.capabilities
                if not refusal.is_error or task is False or known is not None or offered.tasks is None:
                    return refusal
                # Servers on the official TypeScript SDK refuse like this what they should refuse by an error.
        from mcpio.app.tasks.requester import call_as_task

        return await call_as_task(self, request, task, call, refusal)

    async def _fault_in_task(self, request: Any) -> str | None:
        from mcpio.app.tasks.requester import fault_in_task

        return await fault_in_task(self, request)

    # Resources

    async def list_resources(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListResourcesResult:
        """Return one page of the server's resources."""
        result: ListResourcesResult = await self._call(types.ListResourcesRequest(cursor), call)
        return result

    def resources(self, **call: Unpack[CallOptions]) -> Items[Resource]:
        """Give all resources, page by page."""
        return self._items("resources/list", partial(self.list_resources, **call), lambda page: page.resources)

    async def list_resource_templates(
        self, cursor: str | None = None, **call: Unpack[CallOptions]
    ) -> ListResourceTemplatesResult:
        """Return one page of the server's resource templates."""
        result: ListResourceTemplatesResult = await self._call(types.ListResourceTemplatesRequest(cursor), call)
        return result

    def resource_templates(self, **call: Unpack[CallOptions]) -> Items[ResourceTemplate]:
        """Give all resource templates, page by page."""
        fetch = partial(self.list_resource_templates, **call)
        return self._items("resources/templates/list", fetch, lambda page: page.resource_templates)

    async def read_resource(self, uri: str, **call: Unpack[CallOptions]) -> ReadResourceResult:
        """Read a resource."""
        result: ReadResourceResult = await self._call(types.ReadResourceRequest(uri), call)
        return result

    async def subscribe_resource(self, uri: str, **call: Unpack[CallOptions]) -> None:
        """Ask to hear of changes of a resource: they come to ``on_notification``."""
        await self._call(types.SubscribeRequest(uri), call)

    async def unsubscribe_resource(self, uri: str, **call: Unpack[CallOptions]) -> None:
        """Ask to hear no more of changes of a resource."""
        await self._call(types.UnsubscribeRequest(uri), call)

    # Prompts and completion

    async def list_prompts(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListPromptsResult:
        """Return one page of the server's prompts."""
        result: ListPromptsResult = await self._call(types.ListPromptsRequest(cursor), call)
        return result

    def prompts(self, **call: Unpack[CallOptions]) -> Items[Prompt]:
        """Give all prompts, page by page."""
        return self._items("prompts/list", partial(self.list_prompts, **call), lambda page: page.prompts)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **call: Unpack[CallOptions]
    ) -> GetPromptResult:
        """Have a prompt filled in. Values of arguments are text (PROM-03)."""
        result: GetPromptResult = await self._call(types.GetPromptRequest(name, arguments), call)
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
        """Ask for values that begin like ``value``; ``chosen`` are the other arguments so far (COMP-03)."""
        context = None if chosen is None else types.CompletionContext(chosen)
        request = types.CompleteRequest(reference, types.CompletionArgument(argument, value), context)
        result: CompleteResult = await self._call(request, call)
        return result

    # The rest

    async def batch(self, messages: Iterable[Any], *, timeout: Timeout | float | Default | None = DEFAULT) -> list[Any]:
        """Ask several things in one array, which 2025-03-26 has and no other revision, and wait for all.

        Returns an outcome for each, in order: the typed result, the error that the request failed with (not raised),
        ``None`` for a notification. ``timeout`` is that of each. Middleware does not see the requests. Raises
        ``LocalProtocolError``, and sends nothing, where one of them must not be sent, or the session has no batches.
        """
        from mcpio.app.batching import batch

        return await batch(self, messages, timeout)

    async def ping(self, **call: Unpack[CallOptions]) -> None:
        """Return when the server has answered."""
        await self._call(PingRequest(), call)

    async def set_log_level(self, level: LoggingLevel, **call: Unpack[CallOptions]) -> None:
        """Ask for log messages of this level and graver ones: they come to ``on_log`` (LOG-03)."""
        await self._call(types.SetLevelRequest(level), call)

    def notify_roots_changed(self) -> None:
        """Tell the server that the roots changed (ROOT-03). Raises as ``notify`` does."""
        self.notify(types.RootsListChangedNotification())

    def set_roots(self, roots: Collection[Root] | RootsProvider) -> None:
        """Give the server other roots from now on, and tell it so, unless this client declared that it would not.

        A session that is yet to begin asks for them by itself.

        Raises as ``notify`` does, ``LocalProtocolError`` for a client that was made without ``roots``, ``ValueError``
        and ``TypeError`` for what are no roots; then nothing has changed.
        """
        handler = roots_handler(roots)
        declared = self.connection.capabilities.roots
        begins = self.connection.phase in (Phase.NEW, Phase.INITIALIZING)
        if declared is None or (declared.list_changed and not begins):
            self.notify_roots_changed()
        self._handlers["roots/list"] = handler

    async def wait_for_elicitation(self, id: str) -> None:
        """Return when the server says that what the user was sent to a web address for is done (ELIC-16).

        A server need not say it: let the user try again, or give up. ``LocalProtocolError`` for an id that the server
        never named, ``ConnectionLost`` when the connection ends first, ``NoBackChannel`` when it has ended.
        """
        if self._visits is None or id not in self._visits:
            raise LocalProtocolError(f"the server never named the elicitation {id!r:.100}")
        if not self._visits.is_done(id):
            self.check_open()
            await self._visits.wait_for(id, self.driver.runtime.one_shot())

    def add_innermost(self, layer: Middleware) -> None:
        """Put middleware around requests, inside of all other: for drivers."""
        self._middleware = (*self._middleware, layer)

    def forget_tools(self) -> None:
        """Ask for the list of tools again when it is needed: for drivers that know that it may have changed."""
        if self._tool_cache is not None:
            self._tool_cache.forget()

    def _items(self, method: str, fetch: Callable[..., Any], items: Callable[[Any], tuple[T, ...]]) -> Items[T]:
        return Items(method, fetch, items, self._report_fault)

    def _report_fault(self, text: str) -> None:
        self._peer_faults.report(text)

    def request(
        self,
        request: Any,
        *,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
        retry: bool | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Ask the server and return its typed result, as ``Session.request`` does, through the client's middleware.

        ``retry`` is as in ``CallOptions``.
        """
        send = super().request
        if not self._middleware:
            return send(request, timeout=timeout, on_progress=on_progress, related_to=related_to)
        send = partial(send, timeout=timeout, on_progress=on_progress, related_to=related_to)
        from mcpio.app.middleware import send_through

        return send_through(self._middleware, self, request, retry, send)

    def _call(self, request: Any, call: CallOptions) -> Coroutine[Any, Any, Any]:
        options: Any = call
        if options and not options.keys() <= _CALL_OPTIONS:
            raise _no_option(min(options.keys() - _CALL_OPTIONS))
        if options.get("retry") not in (None, True, False):
            raise TypeError(f"retry= takes a bool, not {options['retry']!r:.60}")
        meta = options.pop("meta", None)
        if meta is not None:
            request = attrs.evolve(request, meta=meta)
        return self.request(request, **options)

    # Events

    def _handler_for(self, event: RequestReceived) -> Handler:
        handler = self._handlers.get(event.raw["method"])
        if handler is None:
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {event.raw['method']:.100}")
        layers = self._handler_middleware
        return self._wrapped(event, handler, layers) if layers else handler

    def _handle_end(self, event: ConnectionClosed) -> None:
        super()._handle_end(event)
        if self._receiver is not None:
            self._receiver.detach(self.driver)

    def _finish_visit(self, notification: ElicitationCompleteNotification) -> bool:
        return self._visits is not None and self._visits.finish(notification.elicitation_id)

    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        if isinstance(event, Initialized):
            return
        method = official_name(event.notification, event.raw["method"])
        if method == "notifications/tools/list_changed":
            self.forget_tools()
        if method == "notifications/elicitation/complete" and not self._finish_visit(event.notification):
            return  # of no matter that is under way (ELIC-16)
        is_log = method == "notifications/message" and self._on_log is not None
        callback = self._on_log if is_log else self._on_notification
        if callback is not None:
            self._call_back(f"the callback for {method}", callback, event.notification)


_CALL_OPTIONS: Final = frozenset(CallOptions.__annotations__)


def _no_option(name: str) -> TypeError:
    known = ", ".join(sorted(_CALL_OPTIONS))
    return TypeError(f"there is no option {name!r}; there are {known}. Arguments go in one mapping: {{{name!r}: ...}}")
