"""The client: one call for each method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack, overload

import attrs

from mcpio import types  # the types of a feature are loaded when the server uses it
from mcpio._checks import called, checked, chosen, is_count, required
from mcpio.app.context import RequestScope, TaskScope
from mcpio.app.contracts import CallNext, Handler, Middleware, ProgressCallback
from mcpio.app.pagination import Items, json_size
from mcpio.app.runtime import Driver, checked_callback, when_ready
from mcpio.app.session import Session, Waiter
from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.engine.options import Options
from mcpio.engine.payloads import method_to_send
from mcpio.engine.table import Phase
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    RequestError,
)
from mcpio.events import (
    ConnectionClosed,
    Initialized,
    Negotiated,
    NotificationReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
    SubscriptionAcknowledged,
    SubscriptionNotified,
)
from mcpio.methods import Kind, official_name
from mcpio.revisions import STATELESS_REVISIONS, Era
from mcpio.types.base import TASKS_EXTENSION
from mcpio.types.features import (
    CONVERSIONS,
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    PingRequest,
    RootsCapability,
    SamplingCapability,
    Tool,
)

if TYPE_CHECKING:
    from mcpio.app.caching import CachingLayer, ResultCache
    from mcpio.app.client_inputs import Round
    from mcpio.app.client_skills import Skill, SkillCache
    from mcpio.app.client_tools import CheckResults, ResultChecks, ToolCache, ToolHeaders
    from mcpio.app.listening import Listening, ManagedListening, SessionChanges
    from mcpio.app.reconnection import SessionReconnector
    from mcpio.app.tasks.receiver import TaskOptions, TaskReceiver
    from mcpio.backoff import Backoff
    from mcpio.events import IncomingId
    from mcpio.http.model import ParamHeader
    from mcpio.revisions import Revision
    from mcpio.types.asking import (
        CreateMessageRequest,
        CreateMessageResult,
        ElicitationCompleteNotification,
        ElicitFormRequest,
        ElicitResult,
        ElicitSchema,
        ElicitURLRequest,
        ListRootsResult,
        Root,
    )
    from mcpio.types.features import (
        CompleteResult,
        DiscoverResult,
        GetPromptResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        LoggingLevel,
        LoggingMessageNotification,
        Prompt,
        PromptReference,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        ResourceTemplateReference,
    )
    from mcpio.types.tasks import ClientTasksCapability


# ------------------------------------------------------------------------------------------------------ client handlers
# The client's handlers of its server's requests: they call the program's callbacks, and check the answers.
# The engine refuses requests that the client did not declare, before a handler is called.

Sampler: TypeAlias = (
    "Callable[[RequestScope, CreateMessageRequest], CreateMessageResult | Awaitable[CreateMessageResult]]"
)
"""Takes the scope of the request and the typed request, and returns the model's message."""
Elicitor: TypeAlias = (
    "Callable[[RequestScope, ElicitFormRequest | ElicitURLRequest], ElicitResult | Awaitable[ElicitResult]]"
)
"""Takes the scope of the request and the typed request, and returns the user's answer."""
RootsProvider: TypeAlias = "Callable[[], Iterable[Root] | Awaitable[Iterable[Root]]]"
"""Returns the current roots."""


def sampling_handler(sample: Sampler) -> Handler:
    """Return the handler of ``sampling/createMessage``. It checks the model's message (SAMP-08)."""

    def create_message(scope: RequestScope, request: CreateMessageRequest) -> Any:
        return when_ready(sample(scope, request), lambda result: _check_sampled(result, request))

    return create_message


def elicitation_handler(elicit: Elicitor, visited: Callable[[str], object]) -> Handler:
    """Return the handler of ``elicitation/create``.

    An accepted form gets the defaults of missing fields (ELIC-09), as far as they fit, and is only sent if it fits
    (ELIC-12). ``visited`` is called with the id of each elicitation at a web address before the user is asked.
    """

    def ask_user(scope: RequestScope, request: Any) -> Any:
        # In the stateless era it has no id: the server itself finds out when the user is done (MRTR-15).
        if isinstance(request, types.ElicitURLRequest) and request.elicitation_id is not None:
            visited(request.elicitation_id)
        return when_ready(elicit(scope, request), lambda result: _check_elicited(result, request))

    return ask_user


def roots_handler(roots: Collection[Root] | RootsProvider) -> Handler:
    """Return the handler of ``roots/list``. Raises ValueError or TypeError for a list of invalid roots."""
    if callable(roots):
        current = called("roots", roots, "()")
        return lambda _, __: when_ready(current(), _roots_result)
    if not isinstance(roots, Collection):
        raise TypeError(f"roots must be a list, or a function that returns one, not {roots!r:.100}")
    result = _roots_result(roots)
    return lambda _, __: result


def _check_sampled(result: Any, request: CreateMessageRequest) -> Any:
    from mcpio.app.asking import fault_in_sampled

    fault = fault_in_sampled(result, request) if isinstance(result, types.CreateMessageResult) else None
    if fault is not None:
        raise ValueError(f"the answer to sampling/createMessage: {fault}")
    return result


def _check_elicited(result: Any, request: Any) -> Any:
    if not isinstance(result, types.ElicitResult):
        return result  # the engine reports what is wrong with it
    from mcpio.app.asking import check_content, defaults_of, fault_in_elicited

    fault = fault_in_elicited(result, request)
    if fault is not None:
        raise ValueError(f"the answer to elicitation/create: {fault}")
    if result.action != "accept" or request.mode != "form":
        return result
    form, entered = request.requested_schema, result.content or {}
    # Some servers have defaults that their own forms refuse, such as no text for an address: the user did not enter it.
    fitting = {
        name: value for name, value in defaults_of(form).items() if name not in entered and _fits(form, name, value)
    }
    content = {**fitting, **entered}
    try:
        check_content(form, content)
    except InvalidMessage as error:
        raise ValueError(f"the answer to elicitation/create: {error}") from None
    return attrs.evolve(result, content=content)


def _fits(form: ElicitSchema, name: str, value: Any) -> bool:
    from mcpio.app.asking import check_content

    try:
        check_content(types.ElicitSchema({name: form.properties[name]}), {name: value})
    except InvalidMessage:
        return False
    return True


def _roots_result(roots: Iterable[Root]) -> ListRootsResult:
    """Return the result for roots. Raises ValueError if one is not a ``file://`` URI (ROOT-02)."""
    from mcpio.types.asking import fault_in_root

    root_list = tuple(roots)
    for root in root_list:
        if not isinstance(root, types.Root):
            raise TypeError(f"roots must be Root objects, not {root!r:.100}")
        if (fault := fault_in_root(root.uri)) is not None:
            raise ValueError(f"roots: the URI {fault}")
    return types.ListRootsResult(root_list)


# --------------------------------------------------------------------------------------------------------------- client
# A client: one call for each method, typed results, and callbacks that answer the server's requests.


T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """The options of every function that makes a client. ``None`` is the same as not given.

    The callbacks that answer the server's requests are declared to it as capabilities. They are quick plain functions,
    or async ones; an async one is cancelled when the server cancels its request.
    """

    info: Implementation | None
    """The name and version of the client program."""
    sampling: Sampler | None
    """Answers ``sampling/createMessage`` with a message of the model, of ``max_tokens`` at most (SAMP-14), or raises
    ``SamplingRejected`` if the user refuses. The user should see the request and the message before they are used."""
    elicitation: Elicitor | None
    """Answers ``elicitation/create`` with the user's input or refusal. The server may ask for forms only, unless
    ``capabilities`` declare ``elicitation.url``."""
    roots: Collection[Root] | RootsProvider | None
    """Answers ``roots/list``: the roots, or a function that returns them."""
    on_log: Callable[[LoggingMessageNotification], None] | None
    """Called with each log message of the server. A plain function, called without waiting."""
    on_notification: Callable[[Any], None] | None
    """Called with each other notification, typed; without ``on_log`` with log messages too. A plain function."""
    tasks: TaskOptions | None
    """Lets the server ask for messages and forms as tasks, and fetch the results later (2025-11-25)."""
    tasks_extension: bool
    """Whether a stateless server may answer calls of tools by tasks, which this client then follows: true by default.
    Without it, tools that must be tasks cannot be called."""
    capabilities: ClientCapabilities | None
    """Declared as they are, such as ``sampling`` with ``tools``; members left out follow from the other options."""
    check_results: CheckResults | None
    """Compares structured results of tools with their output schemas (TOOL-14): ``"raise"`` raises ``InvalidMessage``
    for a result that breaks its schema, ``"report"`` reports it to the operator. Needs the package jsonschema, and
    lists the server's tools before the first call."""
    middleware: Iterable[Middleware] | None
    """Middleware around the client's own requests, the outermost first: see ``mcpio.app.middleware``."""
    handler_middleware: Iterable[Middleware] | None
    """Middleware around the requests of the server, the outermost first."""
    retry: Backoff | None
    """When to retry read-only requests, and those with ``retry=True``: inside of all ``middleware``.
    ``mcpio.app.Retry`` has more options."""
    era: Literal["auto", "stateless", "handshake"] | None
    """Whether to find out if the server needs a handshake, or to speak one era only. Without it, ``options`` decide;
    with it, their revisions are completed with those of the era."""
    rounds: int | None
    """How often a request is sent again with answers to a stateless server's questions, 10 by default; then the call
    raises TooManyRounds."""
    shared_cache: ResultCache | None
    """Keeps the results that a stateless server calls public, for several clients of that server. Every client caches
    what says how long it stays fresh; without this option for itself alone."""
    options: Options | None
    """Revisions, limits and timeouts."""


class CallOptions(TypedDict, total=False):
    """The options of every call of a client."""

    timeout: Timeout | float | Default | None
    """Seconds, or a ``Timeout``; ``None`` waits without limit."""
    on_progress: ProgressCallback | None
    """Called with progress, total and message. A plain function, called without waiting."""
    meta: Mapping[str, Any] | None
    """The request's ``_meta``."""
    retry: bool | None
    """Whether a client with ``retry=`` may repeat the request after an error. ``None`` repeats read-only requests."""
    fresh: bool | None
    """Whether to ask the server even if an earlier result is still fresh."""


_Layers: TypeAlias = tuple[Callable[..., Any], ...]
"""The functions that a request passes through, outermost first: each is called as ``(call, request, call_next=…)``."""


class OutgoingCall:
    """One request that a client sends, as its middleware sees it."""

    __slots__ = ("fresh", "method", "retry", "rounds", "session")

    method: str
    """The method of the request."""
    session: Client
    """The client that sends it."""
    retry: bool | None
    """Whether the caller allows it to be sent again; ``None`` if the caller did not say."""
    fresh: bool | None
    """Whether the caller wants no cached result."""
    rounds: int | None
    """How often it may be sent again with answers; ``None`` if the caller did not say."""

    def __init__(
        self, method: str, session: Client, retry: bool | None, fresh: bool | None = None, rounds: int | None = None
    ) -> None:
        self.method = method
        self.session = session
        self.retry = retry
        self.fresh = fresh
        self.rounds = rounds

    def now(self) -> float:
        """Return the time in seconds, on the session's clock."""
        return self.session.driver.now()


_NO_DRIVER: Final[Any] = object()
_HOW_TO_GET_ONE: Final = (
    "a Client is made by a driver: to talk to a Server object use `async with memory_client(server) as client`, to a "
    "program open_stdio([...]), to a URL open_http(url) or open_websocket(url), to a socket open_tcp(host, port) or "
    "open_unix(path), all of mcpio.trio and of mcpio.asyncio"
)


def client_connection(**options: Unpack[ClientOptions]) -> ClientConnection:
    """Return the engine of a client with these options, before a transport is opened.

    Raises TypeError or ValueError for an invalid option, and ImportError if an option needs a package that is not
    installed.
    """
    checked_callback("on_log", options.get("on_log"), "(message)")
    checked_callback("on_notification", options.get("on_notification"), "(notification)")
    for name, handler in (("sampling", options.get("sampling")), ("elicitation", options.get("elicitation"))):
        if handler is not None:
            called(name, handler, "(scope, request)")
    roots = options.get("roots")
    if roots is not None:
        roots_handler(roots)
    _result_checks(options.get("check_results"), str)
    _middleware_of(options)
    _check_stateless_options(options)
    given_options = {name for name, value in options.items() if value is not None}
    declared = chosen("capabilities", options.get("capabilities"), ClientCapabilities)
    capabilities = attrs.evolve(
        declared,
        sampling=declared.sampling or (SamplingCapability() if "sampling" in given_options else None),
        elicitation=declared.elicitation or (ElicitationCapability() if "elicitation" in given_options else None),
        roots=declared.roots or (RootsCapability(list_changed=True) if "roots" in given_options else None),
        tasks=declared.tasks or _tasks_capability(options.get("tasks"), given_options),
    )
    info = checked("info", options.get("info"), Implementation) or Implementation("mcpio", "0")
    engine_options = _engine_options(options)
    if required("tasks_extension", options.get("tasks_extension", True), bool) and _is_stateless(engine_options):
        capabilities = attrs.evolve(capabilities, extensions={TASKS_EXTENSION: {}, **(declared.extensions or {})})
    return ClientConnection(info, capabilities, options=engine_options)


def _is_stateless(options: Options | None) -> bool:
    """Return whether a client with these options may speak a revision without sessions."""
    chosen_options = options or Options()
    return chosen_options.era != "handshake" and bool(chosen_options.stateless_revisions)


def _engine_options(options: ClientOptions) -> Options | None:
    era, engine_options = options.get("era"), checked("options", options.get("options"), Options)
    if era is None:
        return engine_options
    chosen_options = engine_options or Options()
    revisions = chosen_options.revisions
    if era != "handshake" and not chosen_options.stateless_revisions:
        revisions = (*revisions, *STATELESS_REVISIONS)
    return attrs.evolve(chosen_options, revisions=revisions, era=era)


def _tasks_capability(options: TaskOptions | None, given_options: set[str]) -> ClientTasksCapability | None:
    if options is None:
        return None
    from mcpio.app.tasks.receiver import TaskOptions, client_tasks_capability

    options = required("tasks", options, TaskOptions)
    return client_tasks_capability(
        options, sampling="sampling" in given_options, elicitation="elicitation" in given_options
    )


def _middleware_of(options: ClientOptions) -> tuple[tuple[Middleware, ...], ...]:
    """Return the middleware of the client's own requests, the layer that retries them, and that of the server's."""
    own, served, policy = options.get("middleware"), options.get("handler_middleware"), options.get("retry")
    if own is None and served is None and policy is None:
        return (), (), ()
    from mcpio.app.middleware import checked_middleware

    retry: tuple[Middleware, ...] = ()
    if policy is not None:
        from mcpio.app.middleware.policies import Retry
        from mcpio.backoff import Backoff

        retry = (Retry(required("retry", policy, Backoff)),)
    return checked_middleware(own or ()), retry, checked_middleware(served or ())


def _check_stateless_options(options: ClientOptions) -> None:
    rounds, cache = options.get("rounds"), options.get("shared_cache")
    if rounds is not None and not is_count(rounds, 1):
        raise ValueError(f"rounds must be an integer of 1 or more, not {rounds!r:.60}; for one call request(rounds=0)")
    if cache is not None:
        from mcpio.app.caching import ResultCache

        checked("shared_cache", cache, ResultCache)


def _result_checks(policy: CheckResults | None, report: Callable[[str], object]) -> ResultChecks | None:
    if policy is None:
        return None
    from mcpio.app.client_tools import ResultChecks

    return ResultChecks(policy, report)


class Client(Session):
    """A server, as its client sees it. Every call raises as ``Session.request`` does.

    Cancelling a call cancels the request at the server.
    """

    connection: ClientConnection

    def __init__(
        self, connection: ClientConnection, driver: Driver = _NO_DRIVER, **options: Unpack[ClientOptions]
    ) -> None:
        """Made by drivers: see ``mcpio.trio``. Raises TypeError or ValueError for an invalid option."""
        unchecked: Any = connection
        if driver is _NO_DRIVER or not isinstance(unchecked, ClientConnection):
            raise TypeError(_HOW_TO_GET_ONE)
        super().__init__(connection, driver, RequestScope)
        self._on_log = options.get("on_log")
        self._on_notification = options.get("on_notification")
        sampling, elicitation, roots = options.get("sampling"), options.get("elicitation"), options.get("roots")
        self._handlers: dict[str, Handler] = {}
        self._tool_cache: ToolCache | None = None
        # Set by drivers: what opens the next session after one that was lost, inside of all middleware.
        self._reconnector: SessionReconnector | None = None
        own, self._retry, self._handler_middleware = _middleware_of(options)
        self._middleware: _Layers = tuple(partial(_pass_through, layer) for layer in own)
        self._layers: _Layers = (*self._middleware, *self._retry)
        self._layers_of: Mapping[str, _Layers] = {}  # of methods that have others
        self._rounds, self._shared_cache = options.get("rounds"), options.get("shared_cache")
        self._cache: CachingLayer | None = None
        self._changes: SessionChanges | None = None
        self._tool_headers: ToolHeaders | None = None
        self._skill_cache: SkillCache | None = None
        self._listening: ManagedListening | None = None
        # The rounds of questions whose callbacks run, which the end of the connection ends.
        self._answering: set[Round] = set()
        # What ``_layers`` are made for: the layers of the two eras differ.
        self._settled: Revision | None = None
        self._result_checks = _result_checks(options.get("check_results"), self._report_fault)
        if sampling is not None:
            self._handlers["sampling/createMessage"] = sampling_handler(sampling)
        if elicitation is not None:
            handler = elicitation_handler(elicitation, lambda id: self._known_url_elicitations().begin(id))
            self._handlers["elicitation/create"] = handler
        if roots is not None:
            self._handlers["roots/list"] = roots_handler(roots)
        self._receiver: TaskReceiver | None = None
        tasks = options.get("tasks")
        if tasks is not None:
            from mcpio.app.tasks.receiver import ClientTasks

            self._receiver = ClientTasks(tasks, self.thread_pool, self._handlers, self._wrapped_in_task, TaskScope)
            self._handlers.update(self._receiver.handlers)
            self._receiver.attach(driver, None, self)

    if not TYPE_CHECKING:  # to type checkers, every misspelt attribute would exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, which says what to use where other libraries have the name."""
            from mcpio.app.foreign_names import OF_CLIENTS, no_attribute

            raise no_attribute(self, name, OF_CLIENTS)

    @property
    def server(self) -> Peer:
        """The server's name, capabilities and instructions: untrusted text.

        Raises LocalProtocolError before the handshake.
        """
        peer = self.connection.peer
        if peer is None:
            raise LocalProtocolError("the handshake has not been done: await initialize() first")
        return peer

    async def initialize(self) -> None:
        """Find out the era of the server, and perform the handshake if it needs one. Drivers do this.

        Raises ConnectFailed, with the error as its cause.
        """
        waiter = Waiter(self.driver.runtime.one_shot(), None)
        self.connection.negotiate(now=self.driver.now(), cookie=waiter)
        self.driver.wake()
        outcome = await waiter.outcome.wait()
        if isinstance(outcome, Negotiated):
            if self.era is Era.STATELESS:
                self._begin_stateless(outcome)
            return
        error = self._opening_failed(outcome.error)
        raise error if self._explain is None else await self._explain(error)

    def _opening_failed(self, failure: McpError) -> Exception:
        """Return the error for an opening that failed."""
        is_of_probe = isinstance(failure, ConnectFailed) and failure.era_probe
        if isinstance(failure, AuthorizationRequired) or _has_no_connection(failure):
            prefix = ""  # the message says it all
        elif not self.connection.is_stateless:
            prefix = "the handshake failed: "
        else:
            prefix = "" if isinstance(failure, ConnectFailed) else "the server could not be asked for its revisions: "
        error = ConnectFailed(f"{prefix}{failure}", era_probe=is_of_probe)
        error.__cause__ = failure
        return error

    @property
    def era(self) -> Era | None:
        """The era that the opening settled, ``None`` before that: with the handshake, or stateless."""
        return self.connection.era

    async def discover(self, **call: Unpack[CallOptions]) -> DiscoverResult:
        """Return a stateless server's description: its revisions, capabilities and instructions.

        As long as the server allows, it is the one of the opening; ``fresh=True`` asks the server in any case.
        Raises LocalProtocolError for a server of the handshake era: it said so in the handshake (``client.server``).
        """
        result: DiscoverResult = await self._call(types.DiscoverRequest(), call)
        return result

    # Tools

    async def list_tools(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListToolsResult:
        """Return one page of the server's tools; without ``cursor`` the first."""
        cache = self._known_tools()
        version = cache.version
        result: ListToolsResult = await self._call(ListToolsRequest(cursor), call)
        cache.learn(result.tools, version, is_first=cursor is None)
        return result

    def tools(self, **call: Unpack[CallOptions]) -> Items[Tool]:
        """Iterate over all tools; pages are requested as needed."""
        return self._items("tools/list", partial(self.list_tools, **call), lambda page: page.tools)

    async def tool(self, name: str) -> Tool | None:
        """Return a tool as the server describes it now, or ``None`` if the server does not list it.

        What ``list_tools`` and ``tools`` showed is cached too, until the server reports a change. If the server does
        not report changes, the list is requested again when the name is not in it, and from a stateless server
        whenever the last one is not fresh any more.
        """
        cache = self._known_tools()
        if self.era is Era.STATELESS and not self._hears_of_tools():
            cache.forget()
        return await cache.tool(name)

    def _known_tools(self) -> ToolCache:
        if self._tool_cache is None:
            from mcpio.app.client_tools import ToolCache

            self._tool_cache = ToolCache(self.driver.runtime, self.tools, self._hears_of_tools, self._size_of)
        return self._tool_cache

    def _hears_of_tools(self) -> bool:
        """Return whether the server reports changes of its list of tools."""
        if self.era is Era.STATELESS:
            return self._listening is not None and self._listening.reports_list("tools")
        offered: Any = self.server.capabilities
        is_heard = self._changes is None or self._changes.is_heard
        return is_heard and offered.tools is not None and offered.tools.list_changed is True

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: None = None,
        task: bool | float | None = None,
        **call: Unpack[CallOptions],
    ) -> CallToolResult: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[T],
        task: bool | float | None = None,
        **call: Unpack[CallOptions],
    ) -> T: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: object,
        task: bool | float | None = None,
        **call: Unpack[CallOptions],
    ) -> Any: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        task: bool | float | None = None,
        **call: Unpack[CallOptions],
    ) -> Any:
        """Call a tool. A failure of the tool itself is a result with ``is_error``.

        With ``returns=City`` the value is returned as that type, and a failure raises ToolError: see
        ``CallToolResult.into``. Raises TypeError for a type that JSON cannot express, and calls nothing then.

        With ``task=True`` the call runs as a task, and this waits for its result; a number is the time in seconds that
        the server is asked to keep the task. By default only a tool that must be a task is called as one (TASK-06).
        Raises LocalProtocolError if ``task`` asks for a task that the tool, or the server, does not support.
        """
        if task is not None and not isinstance(task, int | float):
            raise TypeError(f"task must be a bool, or the number of seconds to keep the task, not {task!r:.60}")
        if returns is not None:
            _check_returns(returns)  # now: the effects of a call cannot be undone
        request = CallToolRequest(name, arguments)
        checks = self._result_checks
        tool = None if checks is None else await self._known_tools().tool(name)
        listed_tool = None if self._tool_cache is None or task is not None else self._tool_cache.at_hand(name)
        result: Any = None
        refusal: RequestError | CallToolResult | None = None
        is_plain = task is False or (task is None and (listed_tool is None or listed_tool.execution is None))
        if is_plain:
            try:
                result = await self._call(request, call)
            except RequestError as error:
                if error.code != ErrorCode.METHOD_NOT_FOUND or task is False:
                    raise
                refusal = error
            else:
                # Servers on the official TypeScript SDK refuse a plain call by such a result, not by an error.
                if result.is_error and task is None and listed_tool is None and self._offers_tasks():
                    refusal = result
        if refusal is not None or not is_plain:
            from mcpio.app.tasks.requester import call_as_task

            result = await call_as_task(self, request, task, call, refusal)
        if checks is not None and tool is not None and checks.fault(tool, result) is not None:
            # The tool may have changed since it was listed.
            self._note_change(None, "notifications/tools/list_changed")
            checks.check(await self._known_tools().tool(name), result)
        return result if returns is None else result.into(returns)

    def _offers_tasks(self) -> bool:
        offered: Any = self.server.capabilities
        return offered.tasks is not None

    async def _fault_in_task(self, request: Any) -> str | None:
        from mcpio.app.tasks.requester import fault_in_task

        return await fault_in_task(self, request)

    # Resources

    async def list_resources(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListResourcesResult:
        """Return one page of the server's resources."""
        result: ListResourcesResult = await self._call(types.ListResourcesRequest(cursor), call)
        return result

    def resources(self, **call: Unpack[CallOptions]) -> Items[Resource]:
        """Iterate over all resources; pages are requested as needed."""
        return self._items("resources/list", partial(self.list_resources, **call), lambda page: page.resources)

    async def list_resource_templates(
        self, cursor: str | None = None, **call: Unpack[CallOptions]
    ) -> ListResourceTemplatesResult:
        """Return one page of the server's resource templates."""
        result: ListResourceTemplatesResult = await self._call(types.ListResourceTemplatesRequest(cursor), call)
        return result

    def resource_templates(self, **call: Unpack[CallOptions]) -> Items[ResourceTemplate]:
        """Iterate over all resource templates; pages are requested as needed."""
        fetch = partial(self.list_resource_templates, **call)
        return self._items("resources/templates/list", fetch, lambda page: page.resource_templates)

    async def read_resource(self, uri: str, **call: Unpack[CallOptions]) -> ReadResourceResult:
        """Read a resource."""
        result: ReadResourceResult = await self._call(types.ReadResourceRequest(uri), call)
        return result

    async def subscribe_resource(self, uri: str, **call: Unpack[CallOptions]) -> None:
        """Subscribe to changes of a resource: they come to ``on_notification``.

        A stateless server is asked by the one ``subscriptions/listen`` of the client, without the options of the call.
        """
        if self.era is Era.STATELESS:
            await self._managed().subscribe(uri)
            return
        await self._known_changes().subscribe_program(uri, partial(self._call, types.SubscribeRequest(uri), call))

    async def unsubscribe_resource(self, uri: str, **call: Unpack[CallOptions]) -> None:
        """End the subscription to a resource."""
        if self.era is Era.STATELESS:
            await self._managed().unsubscribe(uri)
            return
        await self._known_changes().unsubscribe_program(uri, partial(self._call, types.UnsubscribeRequest(uri), call))

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Collection[str] = (),
        keep: bool = False,
    ) -> Listening:
        """Return an async context manager that listens for changes, and iterates over them.

        ``async with client.listen(tools=True, uris=["file:///a"]) as changes: async for change in changes: ...`` It
        yields the notifications that the server sends. Entering it raises McpError if the server refuses to listen, or
        the connection is lost.

        Args:
            tools: Changes of the list of tools.
            prompts: Changes of the list of prompts.
            resources: Changes of the list of resources.
            uris: Changes of the contents of these resources.
            keep: Listen again when the connection was lost or the server ended it, and yield ``Missed`` then.

        Raises:
            ValueError: Nothing is listened for.

        """
        from mcpio.app.listening import Listening, wanted_changes

        wanted = wanted_changes(tools=tools, prompts=prompts, resources=resources, uris=uris)
        return Listening(self, wanted, keep=keep)

    # Skills

    def skills(self, *, cache: SkillCache | None = None, **call: Unpack[CallOptions]) -> Items[Skill]:
        """Iterate over the skills that the server lists; pages are requested as needed, and nothing else is.

        ``cache`` keeps the files that will be read; the default keeps some in memory for this client. Raises
        LocalProtocolError for a server without skills.
        """
        from mcpio.app.client_skills import list_skills

        skill_cache = self._cache_of_skills(cache)
        return self._items(
            "skills/list", lambda cursor: list_skills(self, skill_cache, cursor, call), lambda page: page.skills
        )

    async def skill(self, uri: str, *, cache: SkillCache | None = None, **call: Unpack[CallOptions]) -> Skill:
        """Return a skill as the server describes it now, listed or not, by the URI of its ``SKILL.md``.

        Raises RequestError (-32602) if the server has no such skill, InvalidMessage if its entry breaks the rules, and
        otherwise as ``skills``.
        """
        from mcpio.app.client_skills import get_skill

        return await get_skill(self, self._cache_of_skills(cache), uri, call)

    def directory(self, uri: str, **call: Unpack[CallOptions]) -> Items[Resource]:
        """Iterate over the entries of a directory of a skill. A ``Skill`` that you hold gains no files by it."""
        from mcpio.app.client_skills import directory_page

        fetch = partial(directory_page, self, uri, call)
        return self._items("resources/directory/read", fetch, lambda page: page.resources)

    def _cache_of_skills(self, cache: SkillCache | None) -> SkillCache:
        if cache is not None:
            return cache
        if self._skill_cache is None:
            from mcpio.app.client_skills import MemorySkillCache

            self._skill_cache = MemorySkillCache()
        return self._skill_cache

    # Prompts and completion

    async def list_prompts(self, cursor: str | None = None, **call: Unpack[CallOptions]) -> ListPromptsResult:
        """Return one page of the server's prompts."""
        result: ListPromptsResult = await self._call(types.ListPromptsRequest(cursor), call)
        return result

    def prompts(self, **call: Unpack[CallOptions]) -> Items[Prompt]:
        """Iterate over all prompts; pages are requested as needed."""
        return self._items("prompts/list", partial(self.list_prompts, **call), lambda page: page.prompts)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **call: Unpack[CallOptions]
    ) -> GetPromptResult:
        """Return the messages of a prompt. Argument values are text (PROM-03)."""
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
        """Return suggestions for an argument that begins with ``value``, given the ``chosen`` others (COMP-03)."""
        context = None if chosen is None else types.CompletionContext(chosen)
        request = types.CompleteRequest(reference, types.CompletionArgument(argument, value), context)
        result: CompleteResult = await self._call(request, call)
        return result

    # The rest

    async def batch(self, messages: Iterable[Any], *, timeout: Timeout | float | Default | None = DEFAULT) -> list[Any]:
        """Send requests and notifications as one JSON-RPC batch (2025-03-26 only), and wait for all outcomes.

        Returns an outcome for each, in order: the typed result, or the error of the request (not raised); ``None`` for
        a notification. ``timeout`` holds for each of them. Middleware does not see the requests. Raises
        LocalProtocolError, and sends nothing, if one of them must not be sent or the session has no batches.
        """
        from mcpio.engine.dialect import BatchItem
        from mcpio.engine.payloads import is_notification

        self.check_open()
        one_shot = self.driver.runtime.one_shot
        payloads = list(messages)
        waiters = [None if is_notification(each) else Waiter(one_shot(), None) for each in payloads]
        items = [BatchItem(each, timeout, waiter) for each, waiter in zip(payloads, waiters, strict=True)]
        ids = self.connection.send_batch(items, now=self.driver.now())
        self.driver.wake()
        try:
            return [None if waiter is None else _outcome(await waiter.outcome.wait()) for waiter in waiters]
        except BaseException:
            # The wait was cancelled. Event loops have different exceptions for that, so all are caught.
            for id in ids:
                if id is not None:
                    self.connection.cancel_request(id, "the caller gave up")
            self.driver.wake()
            raise

    async def ping(self, **call: Unpack[CallOptions]) -> None:
        """Send a ping and wait for the answer.

        Raises LocalProtocolError for a stateless server, which has none: use ``discover(fresh=True)``.
        """
        if self.era is Era.STATELESS:
            raise LocalProtocolError("stateless servers have no ping: await client.discover(fresh=True)")
        await self._call(PingRequest(), call)

    async def set_log_level(self, level: LoggingLevel, **call: Unpack[CallOptions]) -> None:
        """Request log messages of this level and more severe ones: they come to ``on_log`` (LOG-03).

        A stateless server hears it with each later request, and sends those of that request only.
        """
        if self.era is Era.STATELESS:
            self.connection.log_level = level
            return
        await self._call(types.SetLevelRequest(level), call)

    def notify_roots_changed(self) -> None:
        """Notify the server that the roots changed (ROOT-03). Raises as ``notify`` does.

        Does nothing for a stateless server, which asks for them whenever it needs them.
        """
        if self.era is not Era.STATELESS:
            self.notify(types.RootsListChangedNotification())

    def set_roots(self, roots: Collection[Root] | RootsProvider) -> None:
        """Replace the roots, and tell the server if this client declared that it would.

        Before the handshake nothing is sent: the server will ask.

        Raises as ``notify`` does, LocalProtocolError if the client was made without ``roots``, and ValueError or
        TypeError for invalid roots. The roots are unchanged then.
        """
        handler = roots_handler(roots)
        declared = self.connection.capabilities.roots
        begins = self.connection.phase in (Phase.NEW, Phase.INITIALIZING)
        if declared is None and self.era is Era.STATELESS:
            raise LocalProtocolError("this client was made without roots=, so its server never asks for them")
        if declared is None or (declared.list_changed and not begins):
            self.notify_roots_changed()
        self._handlers["roots/list"] = handler

    async def wait_for_elicitation(self, id: str) -> None:
        """Wait until the server reports that an elicitation at a web address is complete (ELIC-16).

        Servers need not report it, so let the user retry or give up. Raises LocalProtocolError if the server never
        named the id, ConnectionLost if the connection ends first, and NoBackChannel if it has ended before.
        """
        elicitations = self._url_elicitations
        if elicitations is None or id not in elicitations:
            raise LocalProtocolError(f"the server never named the elicitation {id!r:.100}")
        if not elicitations.is_done(id):
            self.check_open()
            await elicitations.wait_for(id, self.driver.runtime.one_shot())

    def _items(self, method: str, fetch: Callable[..., Any], items: Callable[[Any], tuple[T, ...]]) -> Items[T]:
        return Items(method, fetch, items, self._report_fault, lambda page: self._size_of(getattr(page, "sent", page)))

    def _size_of(self, payload: Any) -> int:
        return json_size(self.connection, payload)

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
        fresh: bool | None = None,
        rounds: int | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Send a request through the client's middleware, and return its typed result. See ``Session.request``.

        ``retry`` and ``fresh`` are as in ``CallOptions``. ``rounds`` is how often the request may be sent again with
        answers to what a stateless server asks; with 0 an ``InputRequiredResult`` is returned to the caller. A call
        that a stateless server answers by a task is followed to its end, within ``timeout`` once more. Raises
        ValueError if ``rounds`` is not an integer of 0 or more.
        """
        if rounds is not None and not is_count(rounds):
            raise ValueError(f"rounds must be an integer of 0 or more, not {rounds!r:.60}")
        call_options: Any = {"timeout": timeout, "on_progress": on_progress, "related_to": related_to}
        call_options |= {"retry": retry, "fresh": fresh, "rounds": rounds}
        if self.connection.revision is not self._settled:
            self._settle_layers()
        if self._cache is not None and request.__class__ is CallToolRequest:
            return self._send_to_the_end(request, **call_options)
        return self._send(request, **call_options)

    async def _send_to_the_end(
        self,
        request: CallToolRequest,
        *,
        timeout: Timeout | float | None | Default,
        related_to: IncomingId | None,
        **call_options: Any,
    ) -> Any:
        """Call a tool, and follow the task by which a stateless server may answer; both have ``timeout``."""
        answer = await self._send(request, timeout=timeout, related_to=related_to, **call_options)
        if isinstance(answer, CallToolResult):
            return answer
        from mcpio.app.tasks.requester import to_the_end

        return await to_the_end(self._watch_tasks, request, answer, timeout=timeout, related_to=related_to)

    def _request_task(self, request: Any, **options: Any) -> Coroutine[Any, Any, Any]:
        """Send a request as ``request`` does, and return a ``CreatedTask`` as it is."""
        self._settle_layers()
        return self._send(request, **options)

    async def _send(
        self,
        request: Any,
        *,
        retry: bool | None = None,
        fresh: bool | None = None,
        rounds: int | None = None,
        **options: Any,
    ) -> Any:
        """Send a request through the layers."""
        send: Callable[[Any], Coroutine[Any, Any, Any]] = partial(super().request, **options)
        if self._reconnector is not None:
            send = partial(self._reconnector.send, send, timeout=options.get("timeout", DEFAULT))
        if not self._layers:
            return await send(request)
        method = method_to_send(request, Kind.REQUEST)
        name = request.method if method is None else method.name
        call = OutgoingCall(name, self, retry, fresh, rounds)
        for layer in reversed(self._layers_of.get(name, self._layers)):
            send = partial(layer, call, call_next=send)
        return await send(request)

    def _settle_layers(self) -> None:
        """Choose the layers around requests by the era that the opening settled."""
        revision = self.connection.revision
        if revision is self._settled or revision is None:
            return  # while the next session opens, requests wait for one like the last
        self._settled = revision
        if revision.era is Era.HANDSHAKE:
            self._layers, self._layers_of, self._cache = (*self._middleware, *self._retry), {}, None
            return
        from mcpio.app.caching import CACHEABLE, CachingLayer
        from mcpio.app.client_inputs import ROUNDS, send_in_rounds

        self._cache = CachingLayer(self._shared_cache)
        rounds = partial(send_in_rounds, ROUNDS if self._rounds is None else self._rounds)
        headers: _Layers = ()
        if self.connection.over_http:
            from mcpio.app.client_tools import ToolHeaders

            self._tool_headers = ToolHeaders()
            headers = (self._tool_headers,)
        self._layers = (*self._middleware, rounds, *self._retry, *headers)
        self._layers_of = dict.fromkeys(CACHEABLE, (*self._layers, self._cache))

    def _call(self, request: Any, call: CallOptions) -> Coroutine[Any, Any, Any]:
        if not call:
            return self.request(request)
        options: Any = {**call}
        if not options.keys() <= _CALL_OPTIONS:
            raise _no_option(min(options.keys() - _CALL_OPTIONS))
        for name in ("retry", "fresh"):
            if options.get(name) not in (None, True, False):
                raise TypeError(f"{name} must be a bool, not {options[name]!r:.60}")
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
        if not layers:
            return handler
        from mcpio.app.middleware import wrapped

        return wrapped(handler, layers)

    def _unexpected(self, event: RequestReceived) -> RequestError:
        # The server's handler asked, and its author must not look for the failure there.
        text = f"Internal error: the client's handler of {event.raw['method']} failed"
        return RequestError(ErrorCode.INTERNAL_ERROR, text)

    def _task_receiver(self) -> TaskReceiver | None:
        return self._receiver

    def _handle_end(self, event: ConnectionClosed) -> None:
        super()._handle_end(event)
        for answering in self._answering:
            answering.lose(ConnectionLost(f"the connection ended ({event.reason.value})"))
        if self._changes is not None:
            self._changes.lose()
        if self._receiver is not None:
            self._receiver.detach(self.driver)

    def _finish_url_elicitation(self, notification: ElicitationCompleteNotification) -> bool:
        return self._url_elicitations is not None and self._url_elicitations.finish(notification.elicitation_id)

    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        if isinstance(event, Initialized):
            return
        method = official_name(event.notification, event.raw["method"])
        self._note_change(event.notification, method)
        if self._changes is not None:
            self._changes.hear(event.notification)
        if method == "notifications/elicitation/complete" and not self._finish_url_elicitation(event.notification):
            return  # unknown ids, and repeated reports, are ignored (ELIC-16)
        is_log = method == "notifications/message" and self._on_log is not None
        callback = self._on_log if is_log else self._on_notification
        if callback is not None:
            self._call_back(f"the callback for {method}", callback, event.notification)

    def _begin_stateless(self, outcome: Negotiated) -> None:
        """Store the description of a stateless server, and listen for changes if the program wants notifications."""
        if self._on_log is not None and self.connection.log_level is None:
            # As in a session, whose server sends all messages until it is told a level.
            self.connection.log_level = "debug"
        if outcome.raw["result"].get("ttlMs"):  # few servers say so
            self._settle_layers()
            cache: Any = self._cache
            cache.keep(types.DiscoverRequest(), "server/discover", outcome.raw["result"], self.driver.now())
        if self._on_notification is not None:
            self.driver.runtime.spawn(self._managed().start())

    def _managed(self) -> ManagedListening:
        """Return the listening for ``on_notification`` and for subscriptions at a stateless server."""
        if self._listening is None:
            from mcpio.app.listening import ManagedListening

            self._listening = ManagedListening(self, has_callback=self._on_notification is not None)
        return self._listening

    def _handle_subscription(self, event: SubscriptionAcknowledged | SubscriptionNotified) -> None:
        source = event.cookie.outcome
        if isinstance(event, SubscriptionAcknowledged):
            for kind in ("tools", "prompts", "resources"):
                is_heard_of = self._listening is not None and self._listening.reports_list(kind)
                if getattr(event.honoured, f"{kind}_list_changed") and not is_heard_of:
                    # No notification told of a change between the last list and this.
                    self._note_change(None, f"notifications/{kind}/list_changed")
            source.acknowledge(event.honoured)
            return
        self._note_change(event.notification, event.raw["method"])
        if self._task_watch is not None:
            self._task_watch.tell(event.notification)
        source.hear(event.notification)

    def _note_change(self, notification: Any, method: str) -> None:
        """Drop cached data of a list or resource that changed."""
        if method == "notifications/tools/list_changed":
            self._forget_tools()
        if self._cache is not None:
            self._cache.hear(notification, method)

    def _wrapped_in_task(self, handler: Handler) -> Handler:
        from mcpio.app.middleware import wrapped

        return wrapped(handler, self._handler_middleware)

    # For drivers, listeners and reconnection

    def _request_directly(self, request: Any) -> Coroutine[Any, Any, Any]:
        """Send a request past middleware and reconnection, and return its typed result."""
        return super().request(request)

    def _param_headers(self, name: str) -> tuple[ParamHeader, ...]:
        """Return the arguments of a tool that HTTP header fields repeat, as far as they are known."""
        return () if self._tool_headers is None else self._tool_headers.of(name)

    def _known_changes(self) -> SessionChanges:
        """Return the listeners of all parts of the program, in the handshake era."""
        if self._changes is None:
            from mcpio.app.listening import SessionChanges

            self._changes = SessionChanges(self)
        return self._changes

    def _note_stream(self, failure: McpError | None) -> None:
        """Record that the transport lost the stream that brings changes; ``None``: it is open, or the server has none.

        A server without one may report changes beside its answers.
        """
        if failure is not None:
            self._miss_changes()
            self._known_changes().lose_stream(failure)
        elif self._changes is not None and not self._changes.is_heard:
            self._miss_changes()
            self._changes.regain_stream()

    def _restored_subscription(self, uri: str) -> None:
        """Record that the current session was told of a subscription."""
        if self._changes is not None:
            self._changes.restored(uri)

    def _deliver(self, change: Any) -> None:
        """Call the program's callback for notifications."""
        if self._on_notification is not None:
            self._call_back("the callback for changes", self._on_notification, change)

    def _miss_changes(self) -> None:
        """Drop cached data that may have changed while no listener was active."""
        self._forget_tools()
        if self._cache is not None:
            self._cache.clear()

    def _doubt_tasks(self) -> None:
        """Have the tasks that are waited for asked for anew: changes may have been missed, or are not reported."""
        if self._task_watch is not None:
            self._task_watch.doubt()

    def _needs_task(self, id: str) -> bool:
        """Whether the program still has a handle on a task."""
        return self._task_watch is not None and self._task_watch.has_handles(id)

    def _lose_session(self) -> None:
        """Forget what belonged to a session that was lost: the next server may be another process."""
        self._miss_changes()
        self._tool_cache = None  # the next server may not report changes
        if self._changes is not None:
            self._changes.lose()

    def _forget_tools(self) -> None:
        """Request the list of tools again when it is next needed: it may have changed."""
        if self._tool_cache is not None:
            self._tool_cache.forget()


def _pass_through(layer: Middleware, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
    """Send a request through a layer of the program's, which may have other names for its arguments."""
    return layer(call, request, call_next)


def _has_no_connection(failure: McpError) -> bool:
    """Whether the transport could not connect: the cause is no fault of the protocol's."""
    cause = failure.__cause__
    return isinstance(failure, ConnectFailed) and cause is not None and not isinstance(cause, McpError)


def _outcome(event: Any) -> Any:
    return event.result if isinstance(event, ResponseReceived) else event.error


_CALL_OPTIONS: Final = frozenset(CallOptions.__annotations__)


def _result_into(result: CallToolResult, kind: Any) -> Any:
    from mcpio.app.client_tools import result_into

    return result_into(result, kind)


CONVERSIONS.append(_result_into)


def _check_returns(kind: Any) -> None:
    from mcpio.app.client_tools import check_type

    check_type(kind)


def _no_option(name: str) -> TypeError:
    names = ", ".join(sorted(_CALL_OPTIONS))
    return TypeError(
        f"unknown option {name!r}; the options are {names}. Arguments go in one mapping: {{{name!r}: ...}}"
    )
