# ruff: noqa: SLF001 - scopes and sessions have methods for one another that programs have no use for
"""Scopes: a handler's view of its request, for both roles, and for requests that became tasks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload

from mcpio._checks import is_amount
from mcpio.app.contracts import AskOptions, ProgressCallback, RunningTask
from mcpio.app.reporting import is_connection_end
from mcpio.engine.limits import DEFAULT, Default
from mcpio.engine.table import Phase
from mcpio.errors import InvalidMessage, LocalProtocolError, RequestError
from mcpio.events import IncomingId, RequestContext, RequestReceived
from mcpio.methods import official_name, why_no_input
from mcpio.revisions import Era

if TYPE_CHECKING:
    from mcpio.app.asking import ElicitAnswer, Form, RootList, UrlElicitations
    from mcpio.app.rounds import Flow
    from mcpio.app.runtime import Runtime
    from mcpio.app.server_session import ServerSession
    from mcpio.app.session import Session
    from mcpio.app.tasks.receiver import TaskRun
    from mcpio.auth.grant import Grant
    from mcpio.engine.limits import Timeout
    from mcpio.types.asking import (
        CreateMessageRequest,
        CreateMessageResult,
        ElicitFormRequest,
        ElicitResult,
        ElicitURLRequest,
        Root,
    )
    from mcpio.types.features import LoggingLevel

__all__ = ["AskOptions", "Context", "MountedContext", "RequestScope", "TaskContext", "TaskScope"]

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")


class RequestScope:
    """One request of the peer while it is served. Its plain calls do not wait, so any function can use them."""

    __slots__ = ("_event", "_from_peer", "_given_up", "_in_loop", "_session")

    def __init__(self, session: Session, event: RequestReceived) -> None:
        self._session = session
        self._event = event
        # For a handler in a thread: the scope in the loop's thread that this one is a copy of.
        self._in_loop: RequestScope | None = None
        # The errors that the peer answered with: a handler that lets one pass does not mean it as its own answer.
        self._from_peer: tuple[RequestError, ...] = ()
        self._given_up = False

    @property
    def id(self) -> IncomingId:
        """The id of the request on this side: the value for ``related_to``."""
        return self._event.id

    @property
    def method(self) -> str:
        """The method of the request."""
        return official_name(self._event.request, self._event.raw["method"])

    @property
    def session(self) -> Session:
        """The session that the request came in."""
        return self._session

    @property
    def account(self) -> Hashable:
        """The key that the work of the request is counted under: that of its principal, or of its session or call."""
        return self._session.account_of(self._event)

    @property
    def thread_account(self) -> Hashable:
        """The key that the threads of the request are counted under."""
        return self._session.thread_account_of(self._event)

    def now(self) -> float:
        """Return the time in seconds, on the session's clock."""
        return self._session.driver.now()

    @property
    def cancelled(self) -> bool:
        """Whether the peer cancelled the request, or the connection ended. The answer will not be read."""
        return self._given_up if self._in_loop is None else self._in_loop.cancelled

    @property
    def raw(self) -> Mapping[str, Any]:
        """The whole message, as it came."""
        return self._event.raw

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's ``_meta``, as it came."""
        params = self._event.raw.get("params")
        meta = params.get("_meta") if isinstance(params, Mapping) else None
        return meta if isinstance(meta, Mapping) else {}

    @property
    def peer(self) -> RequestContext:
        """The requester: its identity, its revision, and the capabilities that it declared."""
        return self._event.context

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of the work. ``progress`` must increase; ``total`` is its final value.

        Does nothing if the peer did not ask for progress, or no longer wants the answer, or the value does not
        increase. Raises LocalProtocolError if a value is not a number, or the message not a str.
        """
        self.run_in_loop(lambda: self._session._send_progress(self._event.id, progress, total, message))

    async def sleep(self, seconds: float) -> None:
        """Sleep for some seconds, on any event loop. With 0 or less, let other tasks run.

        Raises RuntimeError in a handler that runs in a thread: use ``time.sleep`` there.
        """
        if self._in_loop is not None:
            raise RuntimeError("a handler that runs in a thread must wait with time.sleep, not with Context.sleep")
        await self._runtime.sleep(seconds)

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread, as soon as this peer may have one (``Limits.peer_threads``).

        Cancelling the wait abandons the thread, which counts until the function returns.
        """
        session = self._session
        return await session.thread_pool.run(session.driver.runtime, self.thread_account, function)

    def run_in_loop(self, function: Callable[[], T]) -> T:
        """Run a plain function in the event loop's thread, and return its result.

        A handler in a thread (``blocking=True``) must not touch the session itself; with this it can. Raises
        NoBackChannel if the loop has ended.
        """
        return self._runtime.from_thread(function)

    @property
    def _runtime(self) -> Runtime:
        """The event loop that the handler runs in."""
        return self._session.driver.runtime

    @property
    def task(self) -> RunningTask | None:
        """The task that the request became; ``None`` for a request that is not a task."""
        return None

    # For sessions, tasks and registries

    def _abandon(self) -> None:
        """Record that the peer no longer wants the answer."""
        self._given_up = True

    def _is_from_peer(self, error: BaseException) -> bool:
        """Whether the peer answered one of the handler's own requests with this very error."""
        return any(error is recorded for recorded in self._from_peer)

    def _for_thread(self) -> Self:
        """Return a copy for a handler in a thread: its calls go through the loop's thread."""
        other = copy(self)
        other._in_loop = self
        return other

    def _report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator, unless the connection merely ended."""
        if error is None or not is_connection_end(error, self._session.connection):
            self._session._report(message, error)


class Context(RequestScope):
    """The scope of a tool, resource, prompt or completion. A parameter annotated with it is filled in.

    A handler asks its client in the same way in both eras: ``await ctx.elicit(...)``, ``ctx.sample(...)``,
    ``ctx.roots()``. A stateless client is asked by the result of its call, so there the handler is **run again from its
    beginning** with each round of answers; ``once`` and ``flow_id`` are for effects that must not happen again.
    """

    __slots__ = ("_flow", "_has_asked")

    _session: ServerSession

    def __init__(self, session: ServerSession, event: RequestReceived) -> None:
        # As the base class does, without its call: each request of a client makes one.
        self._session = session
        self._event = event
        self._in_loop = None
        self._from_peer = ()
        self._given_up = False
        self._flow: Flow | None = None
        # Whether a request was sent to the client on behalf of the handler.
        self._has_asked = False

    if not TYPE_CHECKING:  # to type checkers, every misspelt attribute would exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, which says what to use where other libraries have the name."""
            from mcpio.app.foreign_names import OF_CONTEXTS, no_attribute

            raise no_attribute(self, name, OF_CONTEXTS)

    @property
    def session(self) -> ServerSession:
        """The session that the request came in."""
        return self._session

    @property
    def grant(self) -> Grant | None:
        """The grant of the request's token: its sender and scopes; ``None`` without authorization by tokens."""
        from mcpio.app.contracts import grant_of

        return grant_of(self.peer.principal)

    @property
    def shows_views(self) -> bool:
        """Whether the client declared that it shows views (APP-01). Others get the tool's result alone."""
        from mcpio.app.views import shows_views

        return shows_views(self.peer.capabilities)

    def require_scopes(self, *scopes: str) -> None:
        """Raise InsufficientScope unless the token of the request has all of these scopes.

        For what depends on more than the request, such as the owner of a record. Call it before the first progress
        report, log message or long wait: over HTTP the status can tell the client only as long as nothing was sent.
        """
        from mcpio.app.contracts import require_scopes

        require_scopes(self.peer.principal, frozenset(scopes))

    @property
    def state(self) -> Any:
        """The value that the server's ``lifespan`` yielded; ``None`` without one."""
        return self._session.state

    def interrupt_stream(self, retry: float | None = None) -> bool:
        """End the HTTP exchange that waits for this request's answer; the client reconnects for it (HTTP-19).

        For long work, where an open connection costs more than a new one. ``retry`` is the time in seconds after which
        the client is to reconnect. Returns False if nothing was done: other transports have no exchanges, and clients
        of revisions before 2025-11-25 do not reconnect. Raises ValueError if ``retry`` is not a number of 0 or more.
        """
        if retry is not None and not is_amount(retry):
            raise ValueError(f"retry must be a number of seconds, 0 or more, not {retry!r:.60}")
        interrupt = getattr(self._session.driver, "interrupt", None)
        return interrupt is not None and self.run_in_loop(lambda: interrupt(self.peer.via, retry))

    def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client: a value that JSON can express, or else its ``repr``.

        Dropped below the level that the client asked for. After the answer, as in the ``finally`` of a handler that is
        being cancelled, it is sent over HTTP on the session's general stream, and dropped where there is none. A
        stateless client gets what is at or above the level that its request names, before the answer; by default
        nothing. Raises ValueError if the level is unknown.
        """
        self.run_in_loop(lambda: self._log(level, data, logger))

    def _log(self, level: LoggingLevel, data: Any, logger: str | None) -> None:
        if self._is_stateless:
            self._session.log_statelessly(level, data, logger, self._event)
        else:
            self._session.log(level, data, logger, related_to=self._event.id)

    def debug(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``debug``."""
        self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``info``."""
        self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``warning``."""
        self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``error``."""
        self.log("error", data, logger)

    def sample(
        self, request: CreateMessageRequest, **options: Unpack[AskOptions]
    ) -> Coroutine[Any, Any, CreateMessageResult]:
        """Ask the client's model for a message.

        Raises as ``Session.request`` does, SamplingRejected if the user refuses, LocalProtocolError if the client did
        not declare what the request needs (see ``ctx.peer.capabilities``), and InvalidMessage if the model uses tools
        against ``tool_choice`` (SAMP-08).
        """
        request = _sampling_request(request)
        return self._ask(options, request, partial(_checked_message, request))

    def sample_with_tools(
        self,
        request: CreateMessageRequest,
        functions: Iterable[Callable[..., Any]],
        *,
        rounds: int = 10,
        **options: Unpack[AskOptions],
    ) -> Coroutine[Any, Any, CreateMessageResult]:
        """Ask the client's model, and call these functions for it until it has an answer.

        The functions are such as ``Server.tool`` takes; they need not be tools of the server. An exception of theirs is
        told to the model. After ``rounds`` rounds the model is asked to answer without them (SAMP-15). Raises as
        ``sample`` does, and TypeError and ValueError as ``Server.tool`` does.
        """
        from mcpio.app.asking import sample_with_tools

        tools = self._own_server.make_tools(functions)
        remember = self.once if self._is_stateless else None
        return sample_with_tools(self, _sampling_request(request), tools, rounds, options, remember)

    @overload
    def elicit(
        self, request: ElicitFormRequest | ElicitURLRequest, /, **options: Unpack[AskOptions]
    ) -> Coroutine[Any, Any, ElicitResult]: ...

    @overload
    def elicit(
        self, message: str, form: type[T] | Form[T], /, **options: Unpack[AskOptions]
    ) -> Coroutine[Any, Any, ElicitAnswer[T]]: ...

    def elicit(self, request: Any, form: Any = None, /, **options: Unpack[AskOptions]) -> Coroutine[Any, Any, Any]:
        """Ask the client's user to fill in a form; never ask for secrets (ELIC-13).

        With a message and a class (or a ``Form``), the form follows from the class, and the answer is ``Accepted`` with
        a value of it, ``Declined`` or ``Cancelled``; handle all three (ELIC-11). With a request of your own, the answer
        is the plain result. Accepted content fits the form, or InvalidMessage is raised (ELIC-12).

        Raises LocalProtocolError if the client did not declare forms (see ``ctx.peer.capabilities``), or its revision
        cannot express them, and TypeError if the class cannot be a form.
        """
        from mcpio.app.asking import ask_by_form, ask_user

        ask, revision = partial(self._ask, options), self.peer.revision
        if form is None:
            return ask_user(request, ask, self._url_elicitations, revision)
        return ask_by_form(request, form, ask, revision)

    def elicit_url(
        self,
        message: str,
        url: str | Callable[[str], str],
        *,
        elicitation_id: str | None = None,
        **options: Unpack[AskOptions],
    ) -> Coroutine[Any, Any, ElicitAnswer[str]]:
        """Ask the client's user to visit a web address, for data that must not pass through the client (ELIC-14).

        ``url`` is the address, or a function that makes it from the elicitation's id, which is random by default; for a
        stateless client it is the same in all rounds of the call, as long as ``message``, or ``key=``, is.
        ``Accepted`` has the id, and means only that the user agreed to go (ELIC-15); when they are done,
        ``Server.notify_elicitation_complete`` tells the client. Stateless clients cannot be told: they call again, and
        your own records say whether the user is done (MRTR-15).

        Another person may open the address: compare their login with ``ctx.peer.principal`` (ELIC-20). Raises
        LocalProtocolError if the client did not declare ``elicitation.url``, and ValueError if ``url`` is not a web
        address.
        """
        from mcpio.app.asking import ask_by_url

        id = elicitation_id
        if id is None:
            # Stateless, the id must be the same in all rounds. An address that does not depend on it needs none.
            drawn = self._is_stateless and callable(url)
            id = self._drawn_id(options.get("key") or message) if drawn else self._runtime.entropy(16).hex()
        return ask_by_url(message, url, id, partial(self._ask, options), self._url_elicitations)

    def _drawn_id(self, name: str) -> str:
        """Return an unguessable id for one of the call's elicitations, the same in all rounds."""
        from hashlib import sha256

        # Not the flow's id itself: being done at one address would count for the next one too.
        return sha256(f"{self.flow_id} {name}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def roots(self, **options: Unpack[AskOptions]) -> Coroutine[Any, Any, tuple[Root, ...]]:
        """Return the client's roots. Raises LocalProtocolError if the client did not declare roots.

        A client that reports changes is asked once, and again after each change (ROOT-06); a stateless client is asked
        in each call. Roots say what the user wants looked at; they are not access control. ``root_of`` compares paths
        with them.
        """
        from mcpio.types.asking import ListRootsRequest

        root_list = self._root_list
        if root_list is None:
            return self._ask(options, ListRootsRequest(), lambda result: result.roots)
        if root_list.current is not None:
            return _at_once(root_list.current)
        return root_list.fill(self._ask(options, ListRootsRequest(), _as_it_is))

    @overload
    async def together(self, a: Coroutine[Any, Any, T], b: Coroutine[Any, Any, T1], /) -> tuple[T, T1]: ...

    @overload
    async def together(
        self, a: Coroutine[Any, Any, T], b: Coroutine[Any, Any, T1], c: Coroutine[Any, Any, T2], /
    ) -> tuple[T, T1, T2]: ...

    @overload
    async def together(
        self,
        a: Coroutine[Any, Any, T],
        b: Coroutine[Any, Any, T1],
        c: Coroutine[Any, Any, T2],
        d: Coroutine[Any, Any, T3],
        /,
    ) -> tuple[T, T1, T2, T3]: ...

    @overload
    async def together(self, *questions: Coroutine[Any, Any, T]) -> tuple[T, ...]: ...

    async def together(self, *questions: Coroutine[Any, Any, Any]) -> tuple[Any, ...]:
        """Ask several questions at once, on any event loop, and return the answers in their order.

        ``seat, pays = await ctx.together(ctx.elicit("Seat?", Seat), ctx.elicit("Pay?", Payment))``: one round for the
        client, where questions one after the other are two. The first failure cancels the others, and is raised.
        """
        from mcpio.app.rounds import gather, one_by_one

        # A task waits for its answers in both eras.
        by_leaving = self._is_stateless and self.task is None
        return await (one_by_one(questions) if by_leaving else gather(self._runtime, questions))

    @overload
    async def once(self, key: str, function: Callable[[], Coroutine[Any, Any, T]], *, secret: bool = False) -> T: ...

    @overload
    async def once(self, key: str, function: Callable[[], T], *, secret: bool = False) -> T: ...

    async def once(self, key: str, function: Callable[[], Any], *, secret: bool = False) -> Any:
        """Call a function, plain or async, and return its result, which is remembered in all rounds of this call.

        For effects before a question: ``quote = await ctx.once("quote", lambda: shop.reserve(city, ctx.flow_id))``. The
        result must be JSON, or of a type that makes JSON; it is read back by the function's return annotation, and is
        plain JSON without one. It travels through the client, who can read it unless the server's ``RequestStates``
        encrypt; with ``secret``, ValueError is raised where they do not.

        The function may run **more than once** all the same: a client can send its first request again. Use ``flow_id``
        as a key that makes the second run harmless.
        """
        if secret and self._is_stateless and not self._session.server.states.conceals:
            raise ValueError(
                "once(secret=True) needs RequestStates with a sealer that encrypts: mcpio.seals.AeadSealer"
            )
        return await self._own_flow.once(key, function)

    @property
    def flow_id(self) -> str:
        """A random id that is the same in all rounds of this call: an idempotency key, say."""
        flow = self._own_flow
        return self.run_in_loop(lambda: flow.id)

    @property
    def answers(self) -> Mapping[str, Any]:
        """The client's answers to the ``InputRequired`` that the handler returned before, by name.

        Each is an ``ElicitResult``, a ``CreateMessageResult`` or a ``ListRootsResult``. **The client is not trusted**:
        a stateless one may answer without having been asked, or leave an answer out. Check contents with
        ``check_content``, and return ``InputRequired`` again for what is missing.
        """
        return self._own_flow.answers

    @property
    def request_state(self) -> bytes | None:
        """The state of the ``InputRequired`` that the handler returned before; ``None`` in the first pass."""
        return self._own_flow.state

    async def become_task(self) -> None:
        """Continue as a task, by running the handler again, if the client is stateless and no task runs yet.

        For tools with ``becomes_task=True``. What was asked before is answered by the same answers, so ask first, then
        call this, then work. For clients with a session, and in a task, it does nothing.

        Raises CapabilityMissing if the client takes no tasks, and RuntimeError if the handler is not such a tool.
        """
        from mcpio.app.rounds import Leave
        from mcpio.app.tasks.receiver import check_takes_tasks

        if self._is_stateless:
            check_takes_tasks(self.peer.capabilities)
            if not self._own_flow.may_become_task:
                raise RuntimeError("become_task() needs a tool that is registered with becomes_task=True")
            self._own_flow.check_open()
            self._own_flow.becomes_task = True
            raise Leave

    @property
    def _is_stateless(self) -> bool:
        return self._event.context.era is Era.STATELESS

    @property
    def _own_flow(self) -> Flow:
        scope = self if self._in_loop is None else self._in_loop
        assert isinstance(scope, Context)
        if scope._flow is None:
            from mcpio.app.rounds import Flow

            scope._flow = Flow(self._runtime)
            if self._is_stateless:
                scope._flow.closed_because = why_no_input(self.method)
        return scope._flow

    @property
    def _own_server(self) -> Any:
        """The server that the handler is registered with."""
        return self._session.server

    @property
    def _url_elicitations(self) -> UrlElicitations | None:
        """The elicitations whose completion can be notified to the client; ``None`` for a stateless client."""
        return None if self._is_stateless else self._session._known_url_elicitations()

    @property
    def _root_list(self) -> RootList | None:
        """The cached roots of the client; ``None`` where they are asked for in each call."""
        return None if self._is_stateless else self._session._known_roots()

    def _ask(self, options: AskOptions, request: Any, read: Callable[[Any], T]) -> Coroutine[Any, Any, T]:
        """Ask the client, and return what ``read`` makes of its result."""
        if self._in_loop is not None:
            raise RuntimeError("a handler that runs in a thread cannot wait for the client: make it async")
        return self._put_question(options, request, read)

    async def _put_question(self, options: AskOptions, request: Any, read: Callable[[Any], T]) -> T:
        client: Any = self.peer.capabilities
        key = options.get("key")
        if self._is_stateless:
            from mcpio.app.rounds import checked_question

            checked_question(request, client)
            return await self._own_flow.ask(request, read, key)
        if key is not None:
            self._own_flow.key_of(request, key)
        timeout, on_progress = options.get("timeout", DEFAULT), options.get("on_progress")
        try:
            result = await self._answer_to(request, options.get("task"), timeout, on_progress)
        except LocalProtocolError as error:
            from mcpio.app.rounds import check_declared

            check_declared(request, client, str(error))
            raise
        return read(result)

    async def _answer_to(
        self,
        request: Any,
        task: bool | float | None,
        timeout: Timeout | float | Default | None,
        on_progress: ProgressCallback | None,
    ) -> Any:
        """Send a request to the client, and remember an error that it answers with."""
        self._has_asked = True
        send = self._session._sender(task)
        try:
            return await send(request, timeout=timeout, on_progress=on_progress, related_to=self._event.id)
        except RequestError as error:
            self._from_peer = (*self._from_peer, error)
            raise

    # For its rounds: see ``mcpio.app.rounds``

    @property
    def _was_answered(self) -> bool:
        """Whether the client was asked something for this request, and answered."""
        return self._has_asked or (self._flow is not None and bool(self._flow.answers))

    def _put(self, request: Any) -> Coroutine[Any, Any, Any]:
        """Send a question to a client with which a handshake was made, and return the plain result."""
        return self.elicit(request) if hasattr(request, "mode") else self._ask({}, request, _as_it_is)


class _InTask(RequestScope):
    """Changes for a request that became a task: the work outlives the request, and perhaps the session."""

    __slots__ = ()

    _task: TaskRun

    @property
    def task(self) -> RunningTask:
        """The task that the request became."""
        return self._task

    def now(self) -> float:
        """Return the time in seconds, on the clock of the host where the task runs."""
        return self._task.host.now()

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of the work. See ``RequestScope.progress``."""
        self.run_in_loop(lambda: self._task.report_progress(progress, total, message))

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread. See ``RequestScope.run_in_thread``."""
        return await self._task.run_in_thread(function)

    @property
    def _runtime(self) -> Runtime:
        return self._task.host.runtime

    def _report(self, message: str, error: BaseException | None) -> None:
        self._task.report(message, error)


class TaskScope(_InTask):
    """The scope of a request that a client serves as a task."""

    __slots__ = ("_task",)

    def __init__(self, task: TaskRun, session: Any, event: RequestReceived) -> None:
        super().__init__(session, event)
        self._task = task


class TaskContext(_InTask, Context):
    """The context of a tool that runs as a task."""

    __slots__ = ("_server", "_task")

    def __init__(self, task: TaskRun, session: Any, event: RequestReceived, *, server: Any) -> None:
        """``server`` is the one whose tool runs: a task that was resumed may be without a session."""
        Context.__init__(self, session, event)
        self._task = task
        self._server = server

    @property
    def state(self) -> Any:
        """The value that the ``lifespan`` around the work yielded."""
        return self._task.state

    def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client, if the session that began the task is open. See ``Context.log``."""
        self.run_in_loop(lambda: self._log(level, data, logger))

    def _log(self, level: LoggingLevel, data: Any, logger: str | None) -> None:
        session: Any = self._task.session
        if session is not None and session.connection.phase not in _ENDING:
            session.log(level, data, logger, meta=self._task.related)

    async def become_task(self) -> None:
        """Do nothing, because the request is a task already."""

    @property
    def _own_server(self) -> Any:
        return self._server

    # Without a session the task asks where its result is waited for, and remembers nothing of that client.

    @property
    def _url_elicitations(self) -> UrlElicitations | None:
        return None if self._task.session is None else super()._url_elicitations

    @property
    def _root_list(self) -> RootList | None:
        return None if self._task.session is None else super()._root_list

    async def _put_question(self, options: AskOptions, request: Any, read: Callable[[Any], T]) -> T:
        if not self._is_stateless:
            return await super()._put_question(options, request, read)
        from mcpio.app.rounds import checked_question, read_answer

        question = checked_question(request, self.peer.capabilities)  # type: ignore[arg-type]  # a server's peer
        flow = self._own_flow
        key = flow.key_of(request, options.get("key"))
        recalled = flow.recall(key, request, read)
        while recalled is None:
            answer = await self._task.put_question(key, question)
            try:
                recalled = (read(read_answer(answer, request)),)
            except InvalidMessage:
                continue  # a malformed answer is asked for again, under a new key
        return recalled[0]

    async def _answer_to(self, request: Any, task: Any, timeout: Any, on_progress: Any) -> Any:
        def sender(session: Any) -> Callable[..., Any]:
            send: Callable[..., Any] = session._sender(task)
            return send

        try:
            return await self._task.ask(sender, request, timeout=timeout, on_progress=on_progress)
        except RequestError as error:
            self._from_peer = (*self._from_peer, error)
            raise


class MountedContext(Context):
    """The context of a request that a mounted server answers: the state is that of the mounted server."""

    __slots__ = ("_outer", "_server")

    def __init__(self, outer: Context, server: Any) -> None:
        """``outer`` is the context of the same request for the server that ``server`` is mounted in."""
        super().__init__(outer._session, outer._event)
        self._outer = outer
        self._server = server

    @property
    def cancelled(self) -> bool:
        """Whether the client cancelled the request, or the connection ended."""
        return self._outer.cancelled

    @property
    def state(self) -> Any:
        """The value that the ``lifespan`` of the mounted server yielded; ``None`` without one."""
        if self._server.lifespan is None:
            return None
        states = self._session.mounted_states
        if self._server not in states:
            raise RuntimeError(
                f"the lifespan of {self._server.info.name!r} was not entered: mount a server before serving begins"
            )
        return states[self._server]

    async def become_task(self) -> None:
        """Do nothing, because tools of a mounted server do not run as tasks."""

    @property
    def _own_server(self) -> Any:
        return self._server

    @property
    def _own_flow(self) -> Flow:
        return self._outer._own_flow

    async def _answer_to(self, request: Any, task: Any, timeout: Any, on_progress: Any) -> Any:
        return await self._outer._answer_to(request, task, timeout, on_progress)

    @property
    def _was_answered(self) -> bool:
        return self._outer._was_answered

    def _is_from_peer(self, error: BaseException) -> bool:
        return self._outer._is_from_peer(error)


_ENDING: Final = (Phase.CLOSING, Phase.CLOSED)


def _sampling_request(request: Any) -> CreateMessageRequest:
    """Return the request, or raise a TypeError that shows how to make one."""
    from mcpio.types.asking import CreateMessageRequest

    if isinstance(request, CreateMessageRequest):
        return request
    text = f"{request[:40]!r}" if isinstance(request, str) else "..."
    raise TypeError(
        f"request must be a CreateMessageRequest, not {request!r:.60}: "
        f'CreateMessageRequest((SamplingMessage("user", TextContent({text})),), max_tokens=500)'
    )


def _checked_message(request: CreateMessageRequest, result: CreateMessageResult) -> CreateMessageResult:
    from mcpio.app.asking import fault_in_sampled

    fault = fault_in_sampled(result, request)
    if fault is not None:
        raise InvalidMessage("result.content", fault)
    return result


async def _at_once(value: T) -> T:
    return value


def _as_it_is(result: T) -> T:
    return result
