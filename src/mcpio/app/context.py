"""What a handler sees of the request that it serves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack, overload

from mcpio.app.reporting import is_only_the_end
from mcpio.engine.connection import DEFAULT, Default
from mcpio.errors import InvalidMessage, RequestError
from mcpio.events import IncomingId, RequestContext, RequestReceived
from mcpio.methods import official_name

if TYPE_CHECKING:
    from mcpio.app.elicitation import ElicitAnswer
    from mcpio.app.forms import Form
    from mcpio.app.runtime import Runtime
    from mcpio.app.server_session import ServerSession
    from mcpio.app.session import ProgressCallback, Session
    from mcpio.app.tasks.running import RunningTask
    from mcpio.engine.limits import Timeout
    from mcpio.types.elicitation import ElicitFormRequest, ElicitResult, ElicitURLRequest
    from mcpio.types.logging import LoggingLevel
    from mcpio.types.roots import Root
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = ["AskOptions", "Context", "RequestScope"]

T = TypeVar("T")


class AskOptions(TypedDict, total=False):
    """What every question of a handler to its client takes beside the question."""

    key: str | None
    """Names the question where a handler is run again with the answers, as in the stateless era; without it, the order
    of the questions does. In a handshake session nothing hangs on it: the answer comes while the handler waits."""
    timeout: Timeout | float | Default | None
    """Seconds, or a ``Timeout``; ``None`` waits for ever. People think longer than the default allows."""
    on_progress: ProgressCallback | None
    """Hears of progress: takes progress, total and message."""
    task: bool | float | None
    """Whether the client answers by a task (2025-11-25), which is waited for all the same: where it takes long, the
    client can tell how it goes. A number is for how many seconds it is asked to keep the task. ``LocalProtocolError``
    when the client did not declare that it does that; the roots are never a task."""


class RequestScope:
    """One request of the peer's, while it is served. Its plain calls do not wait: any function can use them."""

    __slots__ = ("_event", "_from_peer", "_given_up", "_in_loop", "_session")

    def __init__(self, session: Session, event: RequestReceived) -> None:
        self._session = session
        self._event = event
        self._in_loop: RequestScope | None = None
        self._from_peer: tuple[RequestError, ...] = ()
        self._given_up = False

    @property
    def id(self) -> IncomingId:
        """The request's name on this side: what ``related_to`` takes."""
        return self._event.id

    @property
    def method(self) -> str:
        """The request's method."""
        return official_name(self._event.request, self._event.raw["method"])

    @property
    def session(self) -> Session:
        """The session that the request came in."""
        return self._session

    def now(self) -> float:
        """Return the time, in seconds on the clock of whatever carries the session."""
        return self._session.driver.now()

    @property
    def cancelled(self) -> bool:
        """Whether the peer gave the request up, or the connection ended. Nobody will read the answer."""
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
        """Who asks, in which revision, and what it declared."""
        return self._event.context

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is. ``progress`` must increase; ``total`` is its value at the end.

        Does nothing when the peer did not ask for progress, or no longer wants an answer; what does not increase is
        left out. ``LocalProtocolError`` for what is no number, and a message that is no text.
        """
        self.run_in_loop(lambda: self._session.send_progress(self._event.id, progress, total, message))

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds, on whichever event loop the server runs. With 0 or less, others get a turn.

        ``RuntimeError`` in a handler that runs in a thread, which can use ``time.sleep``.
        """
        if self._in_loop is not None:
            raise RuntimeError("a handler that runs in a thread waits by time.sleep")
        await self._runtime.sleep(seconds)

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread, once there is one for this peer (``Limits.peer_threads``).

        Cancelling the wait abandons the thread, which counts until the function returns.
        """
        session = self._session
        return await session.thread_pool.run(session.driver.runtime, session.account, function)

    def run_in_loop(self, function: Callable[[], T]) -> T:
        """Run a plain function in the loop's thread, and return what it returns.

        For handlers that run in a thread (``blocking=True``) and want something of the session or the server that is
        not here: only the loop's thread may touch those. ``NoBackChannel`` when the loop has ended.
        """
        return self._runtime.from_thread(function) if self._in_loop is not None else function()

    @property
    def _runtime(self) -> Runtime:
        """The event loop that the handler runs in."""
        return self._session.driver.runtime

    def in_thread(self) -> Self:
        """Return the same for a function that runs in a thread: its calls go through the loop's."""
        other = copy(self)
        other._in_loop = self  # noqa: SLF001  # a copy of this very object
        return other

    @property
    def task(self) -> RunningTask | None:
        """The task that the request became, which its work can describe; ``None`` where it is no task."""
        return None

    def report(self, message: str, error: BaseException | None) -> None:
        """Tell the operator what failed, unless it is just that the connection ends."""
        if error is None or not is_only_the_end(error, self._session.connection):
            self._session.report(message, error)

    def give_up(self) -> None:
        """Note that nobody wants the answer any more."""
        self._given_up = True

    def has_from_peer(self, error: Exception) -> bool:
        """Whether the peer answered a question of the handler's with this error: it is not meant for the peer."""
        return any(error is known for known in self._from_peer)


class Context(RequestScope):
    """What a tool, resource, prompt or completion sees of its request: a parameter annotated with it is filled in."""

    __slots__ = ()

    _session: ServerSession

    @property
    def session(self) -> ServerSession:
        """The session that the request came in."""
        return self._session

    @property
    def state(self) -> Any:
        """What the server's ``lifespan`` gave; ``None`` without one."""
        return self._session.state

    def interrupt_stream(self, retry: float | None = None) -> bool:
        """Over HTTP, end the exchange that waits for this request's answer; the client comes back for the answer.

        For work that takes long, where a connection held open costs more than one that is opened again (HTTP-19).
        ``retry`` is how many seconds the client is to wait. Returns whether it was done: other transports have no
        exchanges, and clients of revisions before 2025-11-25 do not come back.
        """
        interrupt = getattr(self._session.driver, "interrupt", None)
        return interrupt is not None and self.run_in_loop(lambda: interrupt(self.peer.via, retry))

    def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client: any value that JSON can say, or else its ``repr``.

        When the request is over, as in the ``finally`` of a handler that is being cancelled, it is sent all the same:
        over HTTP to the session's general stream, and without a session not at all. Left out below the level that the
        client asked for. ``ValueError`` for a level that there is not.
        """
        self.run_in_loop(lambda: self._session.log(level, data, logger, related_to=self._event.id))

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
        """Ask the client's model. Errors are those of ``Session.request``; ``SamplingRejected`` when the user says no.

        ``LocalProtocolError`` when the client did not declare what it takes: see ``ctx.peer.capabilities``.
        ``InvalidMessage`` when the model uses tools that it was not given, or none where it must (SAMP-08).
        """
        return _sampled(self._ask(_sampling_request(request), options), request)

    def sample_with_tools(
        self,
        request: CreateMessageRequest,
        functions: Iterable[Callable[..., Any]],
        *,
        rounds: int = 10,
        **options: Unpack[AskOptions],
    ) -> Coroutine[Any, Any, CreateMessageResult]:
        """Ask the client's model, and do what it wants done with these functions until it has an answer.

        The functions are what ``Server.tool`` takes, and need not be the server's tools. The model learns of what
        they raise. After ``rounds`` rounds of them it is asked for its answer without (SAMP-15). Otherwise as
        ``sample``; ``TypeError`` and ``ValueError`` are those of ``Server.tool``.
        """
        from mcpio.app.sampling import sample_with_tools

        return sample_with_tools(self, _sampling_request(request), functions, rounds, options)

    @overload
    def elicit(
        self, request: ElicitFormRequest | ElicitURLRequest, /, **options: Unpack[AskOptions]
    ) -> Coroutine[Any, Any, ElicitResult]: ...

    @overload
    def elicit(
        self, message: str, form: type[T] | Form[T], /, **options: Unpack[AskOptions]
    ) -> Coroutine[Any, Any, ElicitAnswer[T]]: ...

    def elicit(self, request: Any, form: Any = None, /, **options: Unpack[AskOptions]) -> Coroutine[Any, Any, Any]:
        """Ask the client's user to fill in a form, never for secrets (ELIC-13).

        With a message and a class (or a ``Form``), the class says what the form has, and the answer is ``Accepted``
        with a value of the class, ``Declined`` or ``Cancelled``; with a request of your own, it is the plain result.
        All three actions call for different handling (ELIC-11). What is accepted fits the form, or
        ``InvalidMessage`` is raised (ELIC-12).

        ``LocalProtocolError`` when the client did not declare what it takes (see ``ctx.peer.capabilities``), or speaks
        a revision without such fields. ``TypeError`` says why a class is no form.
        """
        from mcpio.app.elicitation import ask_by_form, ask_user

        ask, revision = partial(self._ask, options=options), self.peer.revision
        if form is None:
            return ask_user(request, ask, self._session, revision)
        return ask_by_form(request, form, ask, revision)

    def elicit_url(
        self,
        message: str,
        url: str | Callable[[str], str],
        *,
        elicitation_id: str | None = None,
        **options: Unpack[AskOptions],
    ) -> Coroutine[Any, Any, ElicitAnswer[str]]:
        """Ask the client's user to visit a web address, for what must not pass through the client (ELIC-14).

        ``url`` is the address, or a function that makes it from the elicitation's id: without ``elicitation_id``, one
        that nobody can guess. ``Accepted`` has the id, and means that the user agreed to go, no more (ELIC-15); when
        they are done there, ``Server.notify_elicitation_complete`` says so to the client.

        Whoever opens the address may be somebody else: compare their login with ``ctx.peer.principal`` (ELIC-20).
        ``LocalProtocolError`` when the client did not declare ``elicitation.url``, ``ValueError`` for no web address.
        """
        from mcpio.app.elicitation import ask_by_url

        id = elicitation_id or self._session.driver.runtime.entropy(16).hex()
        return ask_by_url(message, url, id, partial(self._ask, options=options), self._session)

    def roots(self, **options: Unpack[AskOptions]) -> Coroutine[Any, Any, tuple[Root, ...]]:
        """Return the client's roots. ``LocalProtocolError`` when the client did not declare any.

        A client that tells of changes is asked once, and again after each of them (ROOT-06). The roots are what the
        user wants looked at, no access control; ``root_of`` compares paths with them.
        """
        from mcpio.types.roots import ListRootsRequest

        known = self._session.root_list
        if known is None:
            return _roots_of(self._ask(ListRootsRequest(), options))
        if known.current is not None:
            return _at_once(known.current)
        return known.fill(self._ask(ListRootsRequest(), options))

    def _ask(self, request: Any, options: AskOptions) -> Coroutine[Any, Any, Any]:
        if self._in_loop is not None:
            raise RuntimeError("a handler that runs in a thread cannot wait for the client: make it async")
        way = partial(_way_to, options.get("task"))
        return self._answer_to(way, request, options.get("timeout", DEFAULT), options.get("on_progress"))

    async def _answer_to(
        self,
        way: Callable[[Session], Callable[..., Coroutine[Any, Any, Any]]],
        request: Any,
        timeout: Timeout | float | Default | None,
        on_progress: ProgressCallback | None,
    ) -> Any:
        """Ask by what ``way`` gives for a session, and note an error that the peer answers with."""
        send = way(self._session)
        try:
            return await send(request, timeout=timeout, on_progress=on_progress, related_to=self._event.id)
        except RequestError as error:
            self._from_peer = (*self._from_peer, error)
            raise


def _way_to(task: bool | float | None, session: Session) -> Callable[..., Coroutine[Any, Any, Any]]:
    return session.sender(task)


def _sampling_request(request: Any) -> CreateMessageRequest:
    """Return what the client's model is asked with. ``TypeError`` for anything else, text included."""
    from mcpio.types.sampling import CreateMessageRequest

    if isinstance(request, CreateMessageRequest):
        return request
    text = f"{request[:40]!r}" if isinstance(request, str) else "..."
    raise TypeError(
        f"request takes a CreateMessageRequest, not {request!r:.60}: "
        f'CreateMessageRequest((SamplingMessage("user", TextContent({text})),), max_tokens=500)'
    )


async def _sampled(asked: Coroutine[Any, Any, Any], request: CreateMessageRequest) -> CreateMessageResult:
    from mcpio.app.sampling import fault_in_sampled

    result: CreateMessageResult = await asked
    fault = fault_in_sampled(result, request)
    if fault is not None:
        raise InvalidMessage("result.content", fault)
    return result


async def _at_once(value: T) -> T:
    return value


async def _roots_of(result: Coroutine[Any, Any, Any]) -> tuple[Root, ...]:
    roots: tuple[Root, ...] = (await result).roots
    return roots
