# ruff: noqa: SLF001 - a server uses its sessions, and those that it is mounted in, from inside
"""Servers: decorators register tools, resources and prompts; a driver serves them to any number of sessions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, Unpack, overload

import attrs

from mcpio import types  # what belongs to one feature is loaded when a server has it
from mcpio._checks import called, checked, chosen, is_count, required
from mcpio.app.changes import LISTS, Audience, Changed, LocalChanges, resource_topic
from mcpio.app.context import Context, TaskContext
from mcpio.app.contracts import CacheHint, Handler, InputRequired, ScopeRules, hidden_in, own_state
from mcpio.app.pagination import PAGE_SIZE, KeptPages
from mcpio.app.registry.base import Edition, RegisteredFunction
from mcpio.app.registry.prompts import Completions, Prompts
from mcpio.app.registry.registration import (
    PromptOptions,
    ResourceOptions,
    ToolOptions,
    checked_uri,
    make_prompt,
    make_resource,
    make_template,
    make_tool,
)
from mcpio.app.registry.resources import Resources, not_found
from mcpio.app.registry.tools import Tools
from mcpio.app.reporting import Advice, FaultReports
from mcpio.app.runtime import Driver, Runtime, ThreadPool, checked_callback, is_awaitable, is_of_kind
from mcpio.app.server_session import NotificationHandler, ServerSession, StatelessSession, checked_level
from mcpio.engine.limits import Ledger
from mcpio.engine.options import Options
from mcpio.engine.payloads import check_declared
from mcpio.engine.server import ServerConnection
from mcpio.errors import NoBackChannel
from mcpio.methods import METHODS, Direction, Kind, check_method
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.types.content import Icon
from mcpio.types.features import (
    EmptyResult,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    LoggingLevel,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    Tool,
    ToolsCapability,
)

if TYPE_CHECKING:
    from mcpio.app.changes import Changes
    from mcpio.app.contracts import Middleware, Scopes
    from mcpio.app.mounting import Mount
    from mcpio.app.pagination import Page
    from mcpio.app.registry.base import Registry
    from mcpio.app.registry.dependencies import Injector
    from mcpio.app.registry.tools import FunctionTool
    from mcpio.app.rounds import RequestStates
    from mcpio.app.server_session import LogFilter
    from mcpio.app.session import SavedSession
    from mcpio.app.skills import Skills
    from mcpio.app.tasks.receiver import TaskOptions, ToolTasks
    from mcpio.app.views import ViewOptions
    from mcpio.engine.stateless_engine import StatelessEngine
    from mcpio.types.features import (
        ListPromptsRequest,
        ListPromptsResult,
        ListResourcesRequest,
        ListResourcesResult,
        ListResourceTemplatesRequest,
        ListResourceTemplatesResult,
        SetLevelRequest,
        SubscribeRequest,
        SubscriptionsListenRequest,
        UnsubscribeRequest,
    )

__all__ = ["Lifespan", "NotificationHandler", "Server"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Lifespan: TypeAlias = Callable[["Server"], AbstractAsyncContextManager[Any]]
"""Async context manager that is entered while the server is served; its value is ``Context.state``."""


class Server:
    """A server: tools, resources and prompts. One object may serve any number of sessions at once, in one event loop.

    ::

        server = Server("calculator")

        @server.tool
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
    """

    info: Implementation
    """The name and version of the server."""
    instructions: str | None
    """A hint for the client's model."""
    lifespan: Lifespan | None
    """Entered by drivers around the serving."""
    log_level: LoggingLevel | None
    """The least severe level of log messages that a client gets until it sets another."""
    log_filter: LogFilter | None
    """The filter of outgoing log messages."""
    options: Options
    """The revisions, limits and timeouts of its connections."""
    tools: Tools
    """The tools. ``remove``, ``disable`` and ``enable`` take a name, and notify the clients."""
    resources: Resources
    """The resources: ``static`` by URI, ``templates`` by URI template. Changes notify the clients, as with tools."""
    prompts: Prompts
    """The prompts. Changes notify the clients, as with tools."""
    completions: Completions
    """The functions that suggest values for arguments of prompts and templates."""
    handlers: dict[str, Handler]
    """The handler of each method. Takes the ``Context`` and the typed request, and returns the typed result or an
    awaitable of it. A method outside the protocol comes as a ``CustomRequest`` and is answered with a mapping; it is
    served to clients that connect after it was added here."""
    notification_handlers: dict[str, NotificationHandler]
    """The handlers of the clients' notifications, by method."""
    middlewares: tuple[Middleware, ...]
    """The middleware around every request, the outermost first. Add to it by ``middleware``."""
    mounts: tuple[Mount, ...]
    """The servers that are mounted in it: see ``mount``."""
    scope_rules: ScopeRules | None
    """The scopes that requests need; ``None`` for a server that needs none."""
    tasks: ToolTasks | None
    """The tasks; ``None`` until a tool may run as one, or ``tasks=`` is given."""
    ledger: Ledger
    """The memory held for all of its clients, within ``Limits.total_bytes``."""
    fault_reports: FaultReports
    """Reports failures of all sessions to the operator."""
    advice: Advice
    """Reports each piece of advice to the operator once, for all sessions."""
    thread_pool: ThreadPool
    """The threads of blocking handlers of all sessions."""
    changes: Changes
    """The bus for changes of the lists and resources."""
    audience: Audience
    """The listeners of this process: sessions, and subscriptions of stateless clients."""
    _WHY_NOT_MOUNTED: ClassVar[str | None] = None
    undelivered: int
    """The number of broadcasts that did not reach a client: ``ServerSession.undelivered`` of all sessions."""

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        title: str | None = None,
        description: str | None = None,
        icons: tuple[Icon, ...] = (),
        website_url: str | None = None,
        instructions: str | None = None,
        lifespan: Lifespan | None = None,
        log_level: LoggingLevel | None = "info",
        log_filter: LogFilter | None = None,
        page_size: int | None = PAGE_SIZE,
        mask_errors: bool = False,
        capabilities: ServerCapabilities | None = None,
        middleware: Iterable[Middleware] = (),
        tasks: TaskOptions | None = None,
        states: RequestStates | None = None,
        changes: Changes | Literal[False] | None = None,
        cache: CacheHint | None = None,
        options: Options | None = None,
    ) -> None:
        """Describe the server.

        Args:
            name: Its name.
            version: Its version.
            title: Its name for people.
            description: What it is for.
            icons: Pictures of it.
            website_url: Its web site.
            instructions: A hint for the client's model.
            lifespan: Entered by drivers around the serving.
            log_level: The least severe level of log messages that a client gets until it sets another. With None the
                server declares no logging, and what handlers log is dropped.
            log_filter: Called with every outgoing log message. By default values that are named like secrets, or look
                like them, are redacted (``mcpio.app.redact_secrets``).
            page_size: How many entries an answer to a list request has at most, and not more than about 1 MiB of them;
                ``None`` for all. A long answer holds up other clients while it is made.
            mask_errors: Whether to hide the text of a tool's exceptions from clients; ``ToolError`` is always sent.
            capabilities: Declared beside those of what is registered: for what is registered later, and extensions.
            middleware: Middleware around every request, the outermost first.
            tasks: How tasks are kept, for tools with ``task_support``.
            states: How to seal what is carried through stateless clients between the rounds of a call. The default
                seals with a key that only this process has.
            changes: The bus that changes of what is offered pass: one that several processes share tells the clients of
                all of them. The default is a ``LocalChanges``. With False clients are told of no changes, and offered
                none: for a server that stays as it is, whose clients need not listen.
            cache: How long clients of the stateless era may keep lists; by default not at all. Lists that depend on
                scopes or ``visible=`` are never public.
            options: The revisions, limits and timeouts of its connections.

        Raises:
            TypeError: ``log_filter`` is not a plain function, ``lifespan`` does not return an async context manager, or
                another argument is of the wrong type.
            ValueError: ``log_level`` or ``page_size`` is invalid.
            LocalProtocolError: No client could be sent the description or the capabilities.

        """
        self.info = Implementation(
            required("name", name, str),
            required("version", version, str),
            title=title,
            description=description,
            icons=tuple(required("icons", icon, Icon) for icon in icons),
            website_url=website_url,
        )
        self.instructions = checked("instructions", instructions, str)
        self.lifespan = _checked_lifespan(lifespan)
        self.log_level = None if log_level is None else checked_level(log_level)
        self.log_filter = checked_callback("log_filter", log_filter, "(ctx, message)")
        self.options = chosen("options", options, Options)
        self.ledger = Ledger(self.options.limits.total_bytes)
        self.thread_pool = ThreadPool(self.options.limits)
        self.fault_reports = FaultReports()
        self.advice = Advice()
        self._tells_changes = True if changes is not False else None
        self.changes = LocalChanges() if changes is None or changes is False else _checked_changes(changes)
        self.audience = Audience()
        if changes is not False:
            self.changes.subscribe(self._spread)
        self._told = 0
        self._edition = edition = Edition()
        loop = self._in_loop
        self.tools = Tools(lambda: self.changes.publish(Changed("tools")), loop, edition, mask_errors=mask_errors)
        self.resources = Resources(lambda: self.changes.publish(Changed("resources")), loop, edition)
        self.prompts = Prompts(lambda: self.changes.publish(Changed("prompts")), loop, edition)
        self.completions = Completions(self.prompts, self.resources, edition)
        self.handlers = self._own_handlers()
        self.notification_handlers = {}
        self.scope_rules = None
        self.middlewares = ()
        if middleware:
            from mcpio.app.middleware import checked_middleware

            self.middlewares = checked_middleware(middleware)
        self._injector: Injector | None = None
        # Whether what is listed depends on the request.
        self._is_selective = False
        self.mounts = ()
        # The servers that this one is mounted in.
        self._mounted_in: tuple[Server, ...] = ()
        self._enters_mounted = False
        self._pages = KeptPages(chosen("cache", cache, CacheHint).members)
        self._states = states
        if states is not None:
            from mcpio.app.rounds import RequestStates

            required("states", states, RequestStates)
        self.undelivered = 0
        self._declared = chosen("capabilities", capabilities, ServerCapabilities)
        check_declared(self.info, self._declared, ServerCapabilities)
        self._last_declared = self._declared
        self._offered: tuple[int, Options, frozenset[str], tuple[ServerCapabilities, Options]] | None = None
        # The capabilities declared last to clients that are told apart, and to others, with what it was made from.
        self._known_capabilities: dict[bool, tuple[int, Options, ServerCapabilities]] = {}
        self._page_size = _checked_page_size(page_size)
        self._sessions: dict[ServerSession, None] = {}
        self._is_served = False
        self._skills: Skills | None = None
        self.tasks = None
        if tasks is not None:
            self._keep_tasks(tasks)

    if not TYPE_CHECKING:  # to type checkers, every misspelt attribute would exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, which says what to use where other libraries have the name."""
            from mcpio.app.foreign_names import OF_SERVERS, no_attribute

            raise no_attribute(self, name, OF_SERVERS)

    @property
    def states(self) -> RequestStates:
        """How the state of a stateless client's call is sealed between rounds."""
        if self._states is None:
            from mcpio.app.rounds import RequestStates

            self._states = RequestStates()
        return self._states

    @property
    def is_selective(self) -> bool:
        """Whether what is listed depends on the request."""
        return self._is_selective

    @property
    def skills(self) -> Skills:
        """The skills: folders of instructions and files for models (the extension ``io.modelcontextprotocol/skills``).

        Of this server, and of the servers that are mounted in it.
        """
        if self._skills is None:
            from mcpio.app.skills import Skills

            self._skills = Skills(self, self._page_size, self._pages.hints, self._edition)
        return self._skills

    # Registration

    @overload
    def tool(self, function: F, **options: Unpack[ToolOptions]) -> F: ...

    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, **options: Unpack[ToolOptions]) -> Any:
        """Offer a function as a tool: name, description and schemas come from the function.

        ``@server.tool``, ``@server.tool(title="…")`` and ``server.tool(function, name="…")`` are equivalent. Arguments
        are validated before the function runs. A parameter annotated with ``Context`` is filled in. ``ToolError`` tells
        the model what went wrong; so does any other exception, unless errors are masked.

        Raises TypeError or ValueError, with advice, if the function cannot be a tool or its name is taken. Warns about
        a name that some clients refuse (TOOL-04).
        """
        if function is None:
            return partial(self._add_tool, options=options, level=2)
        return self._add_tool(function, options, level=3)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function whose return value is a resource.

        Text and bytes become its contents; ``TextResourceContents``, ``BlobResourceContents`` and lists of them are
        sent as they are; other values are sent as JSON. ``None`` means that the resource does not exist.

        With variables, ``uri`` is a template (RFC 6570), and the function's parameters are its variables. A URI is read
        by the resource with exactly that URI, or else by the template that matches and was registered first. Decoded
        values may contain any character, ``/`` and ``..`` included: check them before they become part of a path.

        Raises as ``tool`` does, and ValueError if ``uri`` is neither a URI nor a template.
        """
        template = checked_uri(uri)

        def register(function: F) -> F:
            self._in_loop(lambda: add(function))
            return function

        def add(function: Callable[..., Any]) -> None:
            if template.variables:
                self.resources.check_reachable(template)
                family = make_template(template, function, options, context=Context)
                self._adopt(family.endpoint)
                self.resources.templates.add(uri, family)
            else:
                entry = make_resource(uri, function, options, context=Context)
                self._adopt(entry.endpoint)
                self.resources.static.add(uri, entry)

        return register

    def view(self, uri: str, source: str | Path | Callable[..., Any], **options: Unpack[ViewOptions]) -> None:
        """Offer a page that hosts show with the tools that name it: ``@server.tool(view="ui://clock")``.

        ``source`` is a file of UTF-8 text, read for each request, or a function that returns the HTML, registered as by
        ``resource``. A browser keeps the view from all origins but those that ``connect=``, ``resources=``, ``frames=``
        and ``bases=`` name. Clients without views get the tool's result alone: see ``Context.shows_views``.

        Raises as ``resource`` does, ValueError for a URI that does not begin with ``ui://``, and for what is not an
        origin or a permission; OSError or UnicodeDecodeError if the file cannot be read, and RuntimeError for a file
        before any driver was imported.
        """
        from mcpio.app.views import make_view

        entry = make_view(uri, source, options, context=Context)

        def add() -> None:
            self._adopt(entry.endpoint)
            self.resources.static.add(uri, entry)

        self._in_loop(add)

    @overload
    def prompt(self, function: F, **options: Unpack[PromptOptions]) -> F: ...

    @overload
    def prompt(self, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, **options: Unpack[PromptOptions]) -> Any:
        """Offer a function as a prompt. It returns text, a content block, a ``PromptMessage``, or a list of them.

        Arguments come as text (PROM-03); parameters of other types than ``str`` parse it as JSON. Otherwise as
        ``tool``.
        """
        if function is None:
            return partial(self._add_prompt, options=options)
        return self._add_prompt(function, options)

    def completion(
        self, argument: str, *, prompt: str | None = None, resource: str | None = None, blocking: bool = False
    ) -> Callable[[F], F]:
        """Suggest values for an argument of a prompt, or of a resource template (named by its URI template).

        The function takes the text so far and, if it has a second parameter, a mapping of the arguments chosen already;
        a parameter annotated with ``Context`` is filled in. It returns suggestions, the best first; beyond 100 they are
        only counted. Register the prompt or template first.

        Raises TypeError or ValueError, with advice, if the prompt or template does not exist, does not have the
        argument, or the function cannot be called like this.
        """
        if (prompt is None) == (resource is None):
            raise TypeError("give either prompt= or resource=")

        def register(function: F) -> F:
            self._in_loop(lambda: add(function))
            return function

        def add(function: Callable[..., Any]) -> None:
            endpoint = RegisteredFunction(function, blocking=blocking, context=Context)
            self._adopt(endpoint)
            if prompt is not None:
                self.completions.add_to_prompt(prompt, argument, endpoint)
            else:
                self.completions.add_to_template(str(resource), argument, endpoint)

        return register

    def require(self, method: str, scopes: Scopes) -> None:
        """Require scopes for every request of a method, in addition to those of the tool, resource or prompt.

        Raises ValueError for a malformed scope, and for a method that is not served, or that the engine answers before
        anything is checked. Register the handler of a custom method first.
        """
        definition = METHODS.get(method)
        is_served = (
            definition is not None
            and definition.kind is Kind.REQUEST
            and definition.direction is not Direction.TO_CLIENT
        )
        if method in _ANSWERED_BY_THE_ENGINE or not (is_served or method in self.handlers):
            check_method(method)
            raise ValueError(f"no handler here gets {method!r:.100}, so scopes for it would protect nothing")
        self._need_scopes().require(method, scopes)

    def middleware(self, function: F) -> F:
        """Add an async function of (ctx, request, call_next) around every request, inside earlier middleware.

        The engine answers some requests itself, such as ``ping``; those do not pass through. A tool call that runs as a
        task passes through twice: as the request, whose result is the task, and as the work, with ``ctx.task`` set.
        ``ctx`` is a ``Context``; see ``mcpio.app.middleware``. Raises TypeError if the function is not async.
        """
        from mcpio.app.middleware import checked_middleware

        self.middlewares += checked_middleware((function,))
        return function

    def make_tools(self, functions: Iterable[Callable[..., Any]]) -> Tools:
        """Return tools that are not offered to clients, such as those for ``Context.sample_with_tools``.

        Raises as ``tool`` does.
        """
        tools = Tools(lambda: None, mask_errors=self.tools.masks_errors)
        for function in functions:
            tool = make_tool(function, {}, context=Context, level=4)
            self._adopt(tool.endpoint)
            tools.add(tool.description.name, tool)
        return tools

    def _add_tool(self, function: F, options: ToolOptions, level: int) -> F:
        tool = make_tool(function, options, context=Context, level=level + 1)

        def add() -> None:
            if tool.description.execution is not None and self.tasks is None:
                self._keep_tasks()
            if self._is_served:
                self._check_view(tool)
            self._adopt(tool.endpoint)
            self.tools.add(tool.description.name, tool)

        self._in_loop(add)
        return function

    def check_views(self) -> None:
        """Raise ValueError if a tool has a view that does not exist: now, and when a tool is added later (APP-03).

        Called by drivers before they serve.
        """
        for tool in self.tools.everything():
            self._check_view(tool)
        self._is_served = True

    def _check_view(self, tool: FunctionTool) -> None:
        if "ui" in tool.description.meta:
            from mcpio.app.views import check_view

            check_view(tool, self.resources)

    def overrides(self, functions: Mapping[Callable[..., Any], Callable[..., Any]]) -> AbstractContextManager[None]:
        """Context manager that replaces functions of dependencies, for tests: ``{open_session: fake_session}``.

        Requests that begin in its block get the others, which may have dependencies of their own. Entering it raises
        ValueError for a function that no handler depends on, and TypeError for what cannot replace one.
        """
        from mcpio.app.mounting import within
        from mcpio.app.registry.dependencies import replacing

        return replacing([each._injects() for each in within(self)], functions)

    def _injects(self) -> Injector:
        if self._injector is None:
            from mcpio.app.registry.dependencies import Injector

            self._injector = Injector(Context)
        return self._injector

    def _adopt(self, endpoint: RegisteredFunction) -> None:
        """Prepare the dependencies and scopes of a function. Raises TypeError for an impossible dependency."""
        if endpoint.binder.dependencies:
            self._injects().inject(endpoint)
        self.heed(endpoint)

    def heed(self, endpoint: RegisteredFunction) -> None:
        """Check requests for the scopes that a function needs. Called by every registration."""
        self._is_selective = self._is_selective or endpoint.hides or endpoint.visible is not None
        if endpoint.scopes is not None:
            self._need_scopes()

    def _entry_of(self, method: str, request: Any) -> Any:
        """Return the entry that a request names, ``None`` without one."""
        match method:
            case "tools/call":
                return self.tools.find(request.name)
            case "prompts/get":
                return self.prompts.find(request.name)
            case "resources/read" | "resources/subscribe":
                entry = self.resources.find(request.uri)
                return None if entry is None else entry[0]
            case "completion/complete":
                reference = request.ref
                if hasattr(reference, "uri"):
                    return self.resources.templates.find(reference.uri)
                return self.prompts.find(reference.name)
            case "skills/get" | "resources/directory/read":
                return None if self._skills is None else self._skills.named(request)
            case _:
                return None

    def _need_scopes(self) -> ScopeRules:
        if self.scope_rules is None:
            self.scope_rules = ScopeRules(self._entry_of)
            for parent in self._mounted_in:
                parent._need_scopes()
        return self.scope_rules

    def _keep_tasks(self, options: TaskOptions | None = None) -> None:
        """Create the receiver of tasks, and attach the sessions that are open already."""
        from mcpio.app.tasks.receiver import TaskOptions, ToolTasks

        call = self.handlers["tools/call"]
        self.tasks = ToolTasks(
            self.tools,
            call,
            partial(self._work, call),
            chosen("tasks", options, TaskOptions),
            page_size=self._page_size,
            thread_pool=self.thread_pool,
            new_context=partial(TaskContext, server=self),
            settle=partial(self.ledger.settle, "tasks"),
        )
        self.handlers.update(self.tasks.handlers)
        self._edition.number += 1
        for session in self.sessions:
            self.tasks.attach(session.driver, session.state, session)

    def _work(self, call: Handler, scope: Context, request: Any) -> Any:
        """Run a call that was started as a task, inside of the middleware."""
        if self.middlewares:
            from mcpio.app.middleware import wrapped

            call = wrapped(call, self.middlewares)
        result = call(scope, request)
        return self._finish_work(call, scope, request, result) if is_awaitable(result) else result

    async def _finish_work(self, call: Handler, scope: Context, request: Any, result: Awaitable[Any]) -> Any:
        value = await result
        if value.__class__ is not InputRequired:
            return value
        from mcpio.app.rounds import run_again_with_answers

        return await run_again_with_answers(scope, value, lambda: call(scope, request))

    def _add_prompt(self, function: F, options: PromptOptions) -> F:
        prompt = make_prompt(function, options, context=Context)

        def add() -> None:
            self._adopt(prompt.endpoint)
            self.prompts.add(prompt.description.name, prompt)

        self._in_loop(add)
        return function

    # Composition

    def mount(self, server: Server, prefix: str | None = None) -> None:
        """Offer what another server offers, now and later, too: its tools and prompts as ``prefix__name``.

        Without a prefix the names stay as they are. URIs always do. Requests pass this server's middleware and then the
        other's, whose ``ctx.state`` is that of its lifespan, entered with this server's. Its notifications of
        changes reach this server's clients. Calls run as tasks only on the other server itself.

        Raises ValueError if a name or a URI would be another's too, with both servers; the same is raised when either
        registers such a one later. ValueError also for a malformed prefix, and for servers that would contain each
        other; TypeError for what cannot be mounted.
        """
        checked = required("server", server, Server)
        if checked._WHY_NOT_MOUNTED is not None:
            raise TypeError(checked._WHY_NOT_MOUNTED)
        if prefix is not None and any(mount.prefix == prefix for mount in self.mounts):
            raise ValueError(f"another server is mounted under the prefix {prefix!r}: choose another, or unmount it")
        self._in_loop(lambda: self._mount(checked, prefix))

    def _mount(self, checked: Server, prefix: str | None) -> None:
        from mcpio.app.mounting import Mount

        mount = Mount(self, checked, prefix)
        mount.begin()
        self.mounts += (mount,)
        checked._mounted_in += (self,)
        if checked.scope_rules is not None:
            self._need_scopes()
        if checked.lifespan is not None:
            self._enter_mounted()

    def unmount(self, server: Server) -> None:
        """Stop offering what another server offers. Raises ValueError if it is not mounted."""
        mounts = [mount for mount in self.mounts if mount.server is server]
        if not mounts:
            raise ValueError(f"the server {server.info.name!r} is not mounted in {self.info.name!r}")
        self._in_loop(lambda: self._unmount(server, mounts))

    def _unmount(self, server: Server, mounts: list[Mount]) -> None:
        for mount in mounts:
            mount.end()
        self.mounts = tuple(mount for mount in self.mounts if mount not in mounts)
        server._mounted_in = tuple(each for each in server._mounted_in if each is not self)

    def _enter_mounted(self) -> None:
        """Enter the lifespans of mounted servers together with this one's."""
        if not self._enters_mounted:
            from mcpio.app.mounting import mounted_lifespan

            self._enters_mounted = True
            self.lifespan = partial(mounted_lifespan, self.lifespan)
        for parent in self._mounted_in:
            parent._enter_mounted()

    # Changes at run time, from any thread: they are made in the loop's

    @property
    def sessions(self) -> tuple[ServerSession, ...]:
        """The sessions that are open now, the oldest first."""
        # The session of stateless requests counts while any of them runs.
        return tuple(each for each in self._sessions if each.is_open)

    def notify_resource_updated(self, uri: str, *, within: str | Iterable[str] = ()) -> int:
        """Notify the subscribers of a resource that it changed; return their number (RES-07).

        ``within`` are resources that contain it: their subscribers are told of ``uri`` too. Where several processes
        share ``changes``, the subscribers of all of them are told, and the number is 0 if that is done later.
        """
        change = Changed("updated", uri, (within,) if isinstance(within, str) else tuple(within))
        return int(self._in_loop(lambda: self._publish(change)))

    def _publish(self, change: Changed) -> int:
        self._told = 0
        self.changes.publish(change)
        return self._told

    def notify_elicitation_complete(self, id: str) -> bool:
        """Notify the client that its user has finished at a web address; return whether this was new (ELIC-16).

        Called by the page at that address, with the id of ``Context.elicit_url``. Does nothing if no open session knows
        the id.
        """
        return bool(self._in_loop(lambda: self._notify_elicitation_complete(id)))

    def _notify_elicitation_complete(self, id: str) -> bool:
        for session in self.sessions:
            if session._has_elicitation(id):
                # Not of a session that is closing, which is not open any more.
                with suppress(NoBackChannel):
                    return session.notify_elicitation_complete(id)
        return False

    def _in_loop(self, function: Callable[[], Any]) -> Any:
        """Call a function in the thread of the loop that serves this server, or one that this one is mounted in."""
        runtime = self._serving_runtime()
        return function() if runtime is None else runtime.from_thread(function)

    def _serving_runtime(self) -> Runtime | None:
        for session in self._sessions:
            return session.driver.runtime
        for parent in self._mounted_in:
            if (runtime := parent._serving_runtime()) is not None:
                return runtime
        return None

    # For drivers

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities to declare to a client that connects now, from the current entries (CAP-03)."""
        return self._capabilities(told_apart=False)

    def _capabilities(self, *, told_apart: bool) -> ServerCapabilities:
        edition, cached = self._edition.number, self._known_capabilities.get(told_apart)
        if cached is None or cached[0] != edition or cached[1] is not self.options:
            capabilities = self._new_capabilities(told_apart=told_apart)
            cached = self._known_capabilities[told_apart] = edition, self.options, capabilities
        return cached[2]

    def _new_capabilities(self, *, told_apart: bool) -> ServerCapabilities:
        declared, list_changed = self._declared, self._tells_changes
        capabilities = attrs.evolve(
            declared,
            tools=declared.tools or (ToolsCapability(list_changed) if len(self.tools) else None),
            resources=declared.resources
            or (ResourcesCapability(list_changed, list_changed) if len(self.resources) or self._has_skills else None),
            prompts=declared.prompts or (PromptsCapability(list_changed) if len(self.prompts) else None),
            completions={} if declared.completions is None and self.completions else declared.completions,
            logging={} if declared.logging is None and self.log_level is not None else declared.logging,
            tasks=declared.tasks or (None if self.tasks is None else self.tasks.capability(told_apart=told_apart)),
            extensions=self._extensions(declared.extensions),
        )
        # Thousands of sessions share one equal object.
        if capabilities != self._last_declared:
            self._last_declared = capabilities
        return self._last_declared

    @property
    def _has_skills(self) -> bool:
        return self._skills is not None and self._skills.is_offered

    def _extensions(self, declared: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the extensions to declare: skills, views, and tasks if stateless clients may be served by them."""
        if any(uri.startswith("ui://") for uri, _ in self.resources.static.entries()):
            from mcpio.types.base import VIEWS_EXTENSION

            declared = {VIEWS_EXTENSION: {}, **(declared or {})}
        if self._has_skills:
            from mcpio.types.base import SKILLS_EXTENSION

            declared = {SKILLS_EXTENSION: {"directoryRead": True}, **(declared or {})}
        if self.tasks is None or REV_2026_07_28 not in self.options.revisions or not self.tasks.takes_calls:
            return declared
        from mcpio.types.base import TASKS_EXTENSION

        return {TASKS_EXTENSION: {}, **(declared or {})}

    def connection(
        self, *, principal: Any = None, alone: bool = False, saved: SavedSession | None = None, now: float = 0.0
    ) -> ServerConnection:
        """Return an engine for one new client, or for one whose session was saved; ``now`` is on its driver's clock.

        ``alone`` says that no other client can reach this server, as over standard input and output: this one may list
        tasks without being authenticated (TASK-35).
        """
        options = self._options_of_handlers()
        if saved is not None:
            return saved.connection(ServerConnection, now, options=options, principal=principal)
        return ServerConnection(
            self.info,
            self._capabilities(told_apart=alone or principal is not None),
            instructions=self.instructions,
            principal=principal,
            options=options,
        )

    def session(self, connection: ServerConnection, driver: Driver, state: Any = None) -> ServerSession:
        """Return the session of a connection, for a driver."""
        session = ServerSession(self, connection, driver, own_state(state), new_scope=Context)
        self.audience.add(session, (LISTS,))
        return self._add_session(session, state)

    def _add_session(self, session: ServerSession, state: Any) -> ServerSession:
        if session.state is not state:
            session.mounted_states = state.mounted
        self._sessions[session] = None
        if self.tasks is not None:
            self.tasks.attach(session.driver, state, session)
        return session

    def _options_of_handlers(self) -> Options:
        """Return the options, with the methods of handlers that are not the protocol's."""
        options = self.options
        custom = self.handlers.keys() - METHODS.keys() - options.custom_methods
        return attrs.evolve(options, custom_methods=options.custom_methods | custom) if custom else options

    def offer(self) -> tuple[ServerCapabilities, Options]:
        """Return what stateless requests are served by now: the same object until something is added or removed."""
        edition, options, names, cached = self._edition.number, self.options, self.handlers.keys(), self._offered
        if cached is None or cached[0] != edition or cached[1] is not options or cached[2] != names:
            offer = self._capabilities(told_apart=False), self._options_of_handlers()
            cached = self._offered = edition, options, frozenset(names), offer
        return cached[3]

    def stateless_session(self, engine: StatelessEngine, driver: Driver, state: Any = None) -> ServerSession:
        """Return the session of all stateless requests of an HTTP server, for its driver."""
        return self._add_session(StatelessSession(self, engine, driver, own_state(state), new_scope=Context), state)

    def forget(self, session: ServerSession) -> None:
        """Remove an ended session from the receivers of broadcasts."""
        self._sessions.pop(session, None)
        self.audience.remove(session, (LISTS, *map(resource_topic, session.subscriptions)))
        if self.tasks is not None:
            self.tasks.detach(session.driver)

    # Handlers

    def _own_handlers(self) -> dict[str, Handler]:
        return {
            "tools/list": self._list_tools,
            "tools/call": self.tools.call,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self.resources.read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": _unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self.prompts.get,
            "completion/complete": self.completions.complete,
            "logging/setLevel": _set_level,
            "subscriptions/listen": self._listen,
        }

    def _list_tools(self, scope: Context, request: ListToolsRequest) -> ListToolsResult:
        page = self.tools.page(request.cursor, self._page_size)
        has_tasks = scope.peer.revision >= REV_2025_11_25
        if not has_tasks:
            # Earlier revisions have no tasks, so a tool that must run as one cannot be called (TASK-06).
            page.items = [tool for tool in page.items if not _must_be_task(tool)]
        hidden = self._hide(scope, self.tools, page)
        return self._page_result(ListToolsResult, (request.cursor, has_tasks, hidden), page)

    def _list_resources(self, scope: Context, request: ListResourcesRequest) -> ListResourcesResult:
        page = self.resources.static.page(request.cursor, self._page_size)
        key = (request.cursor, self._hide(scope, self.resources.static, page))
        return self._page_result(types.ListResourcesResult, key, page)

    def _list_templates(self, scope: Context, request: ListResourceTemplatesRequest) -> ListResourceTemplatesResult:
        page = self.resources.templates.page(request.cursor, self._page_size)
        key = (request.cursor, self._hide(scope, self.resources.templates, page))
        return self._page_result(types.ListResourceTemplatesResult, key, page)

    def _list_prompts(self, scope: Context, request: ListPromptsRequest) -> ListPromptsResult:
        page = self.prompts.page(request.cursor, self._page_size)
        key = (request.cursor, self._hide(scope, self.prompts, page))
        return self._page_result(types.ListPromptsResult, key, page)

    def _page_result(self, make: Callable[..., T], key: Hashable, page: Page[Any]) -> T:
        result: T = self._pages.result(make, key, page, private=self._is_selective or self.scope_rules is not None)
        return result

    def _hide(self, scope: Context, registry: Registry[Any], page: Page[Any]) -> frozenset[int]:
        """Leave out of a page the entries that a request may not see; return the ids of those it may."""
        hidden = hidden_in(registry, scope) if self._is_selective else frozenset[int]()
        if hidden:
            page.items = [each for each in page.items if id(each) not in hidden]
        return hidden

    def _subscribe(self, scope: Context, request: SubscribeRequest) -> EmptyResult:
        if self.resources.find(request.uri, scope) is None:
            raise not_found(scope, request.uri)
        scope.session._subscribe(request.uri)
        return EmptyResult()

    def _listen(self, scope: Context, request: SubscriptionsListenRequest) -> Awaitable[Any]:
        from mcpio.app.subscriptions import serve_listen

        return serve_listen(scope, request, self)

    def _spread(self, change: Changed) -> None:
        """Notify the clients of this process of a change, regardless of its origin."""
        self._told = self._tell(change)

    def _tell(self, change: Changed) -> int:
        changes = self.audience.everything() if change.kind == "anything" else (change,)
        count = sum([self.audience.tell(each.topics, each.notification()) for each in changes])
        # Lists change in the registries of those servers too, which tell their clients themselves.
        for parent in self._mounted_in if change.kind in ("updated", "anything") else ():
            count += parent._tell(change)
        return count


def _must_be_task(tool: Tool) -> bool:
    return tool.execution is not None and tool.execution.task_support == "required"


def _unsubscribe(scope: Context, request: UnsubscribeRequest) -> EmptyResult:
    scope.session._unsubscribe(request.uri)
    return EmptyResult()


def _set_level(scope: Context, request: SetLevelRequest) -> EmptyResult:
    scope.session.log_level = request.level
    return EmptyResult()


def _checked_lifespan(lifespan: Any) -> Lifespan | None:
    """Return the lifespan. Raises TypeError for a function that shows that it returns no context manager."""
    if lifespan is None or (callable(lifespan) and not any(is_of_kind(kind, lifespan) for kind in _NO_MANAGERS)):
        checked_lifespan: Lifespan | None = None if lifespan is None else called("lifespan", lifespan, "(server)")
        return checked_lifespan
    advice = "put @contextlib.asynccontextmanager above a function that yields once"
    raise TypeError(
        f"lifespan must be a function that returns an async context manager, not {lifespan!r:.100}: {advice}"
    )


_NO_MANAGERS: Final = (inspect.isasyncgenfunction, inspect.isgeneratorfunction, inspect.iscoroutinefunction)


def _checked_changes(changes: Any) -> Changes:
    if all(callable(getattr(changes, method, None)) for method in ("publish", "subscribe")):
        bus: Changes = changes
        return bus
    raise TypeError(f"changes must be a bus with publish and subscribe, or False, not {changes!r:.100}")


def _checked_page_size(size: int | None) -> int | None:
    if size is None or is_count(size, 1):
        return size
    raise ValueError(f"page_size must be a whole number of at least 1, or None, not {size!r:.100}")


_ANSWERED_BY_THE_ENGINE: Final = ("initialize", "ping", "server/discover")
