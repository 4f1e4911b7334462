# ruff: noqa: SLF001 - the library uses clients from inside
"""Listening for changes of a server: its lists, and the contents of its resources, in either era."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

import attrs

from mcpio.app.runtime import BroadcastEvent, Turns
from mcpio.app.session import Waiter
from mcpio.engine.limits import DEFAULT
from mcpio.engine.table import Phase
from mcpio.errors import (
    ConnectionLost,
    ErrorCode,
    McpError,
    NoBackChannel,
    RemoteProtocolError,
    RequestCancelled,
    RequestError,
    RequestTimeout,
)
from mcpio.events import RequestFailed, ResponseReceived
from mcpio.methods import declares
from mcpio.revisions import Era
from mcpio.types.base import TASKS_EXTENSION
from mcpio.types.features import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SubscribeRequest,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    ToolListChangedNotification,
    UnsubscribeRequest,
)

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.runtime import OneShot, Spawned
    from mcpio.events import OutgoingId

__all__ = [
    "MOST_CHANGES",
    "Change",
    "HandshakeSource",
    "Listening",
    "ManagedListening",
    "Missed",
    "SessionChanges",
    "StatelessSource",
    "wanted_changes",
]


@attrs.frozen
class Missed:
    """Changes may have been missed: fetch again what matters (SUB-09)."""


Change: TypeAlias = (
    ToolListChangedNotification
    | PromptListChangedNotification
    | ResourceListChangedNotification
    | ResourceUpdatedNotification
    | Missed
)
"""An item that a ``Listening`` yields."""

Ended: TypeAlias = Literal["graceful", "lost", "here"]

MOST_CHANGES: Final = 1000
"""How many changes wait for the program. Equal ones count once; further ones become one ``Missed``."""

_MEMBERS: Final = {
    ToolListChangedNotification: ("tools_list_changed", ("tools", "list_changed")),
    PromptListChangedNotification: ("prompts_list_changed", ("prompts", "list_changed")),
    ResourceListChangedNotification: ("resources_list_changed", ("resources", "list_changed")),
}
"""By notification: the member of a filter that asks for it, and the capability of servers that send it."""


def wanted_changes(*, tools: bool, prompts: bool, resources: bool, uris: Collection[str]) -> SubscriptionFilter:
    """Return the filter for some changes. Raises ValueError for none, and TypeError for ``uris`` of the wrong type."""
    if isinstance(uris, str) or not all(isinstance(uri, str) for uri in uris):
        raise TypeError(f"uris must be a collection of URIs, not {uris!r:.100}")
    if not (tools or prompts or resources or uris):
        raise ValueError(
            "listen() must have something to report: tools=True, prompts=True, resources=True or uris=[...]"
        )
    return SubscriptionFilter(
        tools_list_changed=tools or None,
        prompts_list_changed=prompts or None,
        resources_list_changed=resources or None,
        resource_subscriptions=tuple(dict.fromkeys(uris)) or None,
    )


def _is_offered(wanted: SubscriptionFilter, capabilities: Any) -> bool:
    """Return whether a server declares any of the changes."""
    lists = any(
        getattr(wanted, member) and declares(capabilities, capability) for member, capability in _MEMBERS.values()
    )
    resources = wanted.resource_subscriptions and declares(capabilities, ("resources", "subscribe"))
    return lists or bool(resources) or bool(wanted.task_ids and declares(capabilities, ("extensions", TASKS_EXTENSION)))


Send: TypeAlias = "Callable[[], Awaitable[Any]]"


class Source(Protocol):
    """The source of changes, in one era."""

    async def open(self) -> SubscriptionFilter:
        """Start, and return the part of the filter that the server honours. Raises McpError."""

    def close(self) -> None:
        """Stop, without waiting. Does nothing if it has not started, or has ended."""


class Listening(AsyncIterator[Change]):
    """Changes of a server, in the order in which they were reported; a change that still waits is not repeated.

    An async context manager: ``async with client.listen(tools=True) as changes: async for change in changes: ...``. The
    iteration ends when the server ends it, the connection is lost, or the block is left: ``ended`` tells which.
    """

    honoured: SubscriptionFilter
    """The part of the filter that the server agreed to report (SUB-04). It reports nothing else."""
    ended: Ended | None
    """How it ended: ``"graceful"`` by the server, also at once where a stateless one reports nothing of it; ``"lost"``
    with the connection, ``"here"`` by ``close`` or the end of the block; ``None`` until then."""

    def __init__(self, client: Client, wanted: SubscriptionFilter, *, keep: bool = False) -> None:
        """For ``Client.listen``."""
        self.wanted = wanted
        self.honoured = SubscriptionFilter()
        self.ended = None
        self._client = client
        self._keep = keep
        self._is_open = False
        self._lost_early: Ended | None = None
        self._source: Source | None = None
        self._waiting: dict[Hashable, Change] = {}
        self._consumer: OneShot | None = None
        self._renewal: Spawned | None = None

    async def __aenter__(self) -> Self:
        if self._source is not None:
            raise RuntimeError("this is in use: call listen() again for a second one")
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Listening:
        return self

    async def __anext__(self) -> Change:
        while not self._waiting:
            if self.ended is not None:
                raise StopAsyncIteration
            if self._consumer is not None:
                raise RuntimeError("another task iterates over these changes")
            self._consumer = self._client.driver.runtime.one_shot()
            try:
                await self._consumer.wait()
            finally:
                self._consumer = None
        return self._waiting.pop(next(iter(self._waiting)))

    def close(self) -> None:
        """Stop listening, without waiting. Changes that were reported can still be read."""
        self.end("here")

    # For sources, which report what happens

    def hear(self, change: Change) -> None:
        """Queue a change, unless an equal one is queued already."""
        if self.ended is not None:
            return
        key = (type(change), getattr(change, "uri", None))
        self._waiting.setdefault(key, change)
        if len(self._waiting) > MOST_CHANGES:
            self._waiting = {Missed: Missed()}
        self._wake()

    def miss(self) -> None:
        """Record that changes may have been missed."""
        self.hear(Missed())

    def end(self, reason: Ended) -> None:
        """End the iteration. Further calls do nothing."""
        if self.ended is not None:
            return
        self.ended = reason
        if self._source is not None:
            self._source.close()
        if self._renewal is not None:
            self._renewal.cancel()
        self._wake()

    def lose(self, reason: Ended = "lost") -> None:
        """Record that the source broke, or that the server ended it: renew it, or end.

        A server that ends it gracefully may be one of several processes, or about to start again.
        """
        if not self._keep or self._client.connection.phase in (Phase.CLOSING, Phase.CLOSED):
            self.end(reason)
        elif not self._is_open:
            # A source that is lost while it opens needs no renewal: its ``open`` raises, and the renewal that called it
            # tries again. A second renewal would leave a source behind that nothing closes. But one read may bring the
            # acknowledgement and the end, and the task that opens runs after both.
            self._lost_early = reason
        elif self.ended is None:
            self._is_open = False
            self._renewal = self._client.driver.runtime.spawn(self._renew())

    # Inside

    def _wake(self) -> None:
        if self._consumer is not None:
            self._consumer.set(None)

    async def _open(self) -> None:
        reconnector = self._client._reconnector
        while True:
            losses = 0
            if reconnector is not None:
                await reconnector.wait_for_session(SubscriptionsListenRequest(self.wanted), DEFAULT)
                losses = reconnector.losses
            # Not every source sends a request, which would say so.
            self._client.check_open()
            kind = StatelessSource if self._client.era is Era.STATELESS else HandshakeSource
            self._source = source = kind(self._client, self)
            self._lost_early = None
            try:
                self.honoured = await source.open()
            except RequestError as error:
                source.close()
                if reconnector is None or not reconnector.is_followed(error, losses):
                    raise
            except BaseException:
                source.close()
                raise
            else:
                self._is_open = True
                self._note_early_end()
                return

    def _note_early_end(self) -> None:
        if self._lost_early is not None:
            self.lose(self._lost_early)

    async def _renew(self) -> None:
        """Listen again until it works, or the client has ended."""
        client, wait = self._client, SOONEST
        reconnector = client._reconnector
        while True:
            # The first attempt waits too: otherwise a server that accepts each subscription and ends it at once would
            # be asked without a pause.
            await client.driver.runtime.sleep(wait)
            wait = min(LATEST, wait * 2)
            if reconnector is not None:
                await reconnector.wait_for_session(SubscriptionsListenRequest(self.wanted), None)
            if client.connection.phase in (Phase.CLOSING, Phase.CLOSED):
                self.end("lost")
                return
            try:
                await self._open()
            except McpError as error:
                if not _is_final(error):
                    continue
                client.driver.report("the server does not report changes any more", error)
                self.end("lost")
                return
            self.miss()
            return


def _is_final(error: McpError) -> bool:
    """Whether the server refused a subscription for good, and is not asked again.

    Other errors may pass: a lost connection, a server that closes this one, or one that is overloaded or starts again
    (over HTTP status 503).
    """
    return isinstance(error, RequestError) and error.code in _FINAL and not error.is_closing()


_FINAL: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.METHOD_NOT_FOUND, ErrorCode.INVALID_PARAMS)


class HandshakeSource:
    """Changes as a session reports them: unasked for lists, and after ``resources/subscribe`` for resources."""

    def __init__(self, client: Client, listening: Listening) -> None:
        self._client = client
        self._changes = client._known_changes()
        self._listening = listening
        self._wanted = listening.wanted
        self._is_open = self._is_lost = False
        # The resources that the listener hears of, and those of them that it has subscribed to.
        self._uris: set[str] = set()
        self._held: set[str] = set()

    async def open(self) -> SubscriptionFilter:
        """Subscribe to the resources. A URI that the server refuses is left out. Raises McpError."""
        offered, wanted = self._client.server.capabilities, self._wanted
        uris = wanted.resource_subscriptions or () if declares(offered, ("resources", "subscribe")) else ()
        await self._subscribe(uris)
        while self._is_lost:
            # A request that was repeated in the next session succeeds, but earlier subscriptions are gone.
            if self._client._reconnector is None:
                raise ConnectionLost("the session was lost while it subscribed to resources")
            self._is_lost = False
            await self._subscribe(uris)
        self._is_open = True
        lists: dict[str, Any] = {
            member: True
            for member, capability in _MEMBERS.values()
            if getattr(wanted, member) and declares(offered, capability)
        }
        honoured = tuple(uri for uri in uris if uri in self._held)
        return SubscriptionFilter(**lists, resource_subscriptions=honoured or None)

    async def _subscribe(self, uris: Collection[str]) -> None:
        await self._changes.wait_for_stream()
        # Before the first request: the server may report a change before its answer to the subscription is read.
        self._changes.add(self)
        for uri in uris:
            self._uris.add(uri)
            if uri in self._held:
                continue
            try:
                await self._changes.subscribe(uri, partial(self._client.request, SubscribeRequest(uri)))
            except RequestError:
                self._uris.discard(uri)
            else:
                self._held.add(uri)

    def hear(self, notification: Any) -> None:
        """Process a notification of the session."""
        member, _ = _MEMBERS.get(type(notification), ("", ()))
        if member:
            if getattr(self._wanted, member):
                self._listening.hear(notification)
        elif isinstance(notification, ResourceUpdatedNotification) and self._holds(notification.uri):
            self._listening.hear(notification)

    def lose(self) -> None:
        """Record that the session was lost, whose successor does not know the subscriptions, or its stream was."""
        self._is_lost = True
        self.close()
        if self._is_open:
            self._listening.lose()

    def close(self) -> None:
        """Need the resources no longer."""
        self._changes.remove(self)
        subscribed, self._held = self._held, set()
        self._uris.clear()
        for uri in subscribed:
            self._changes.release(uri)

    def _holds(self, uri: str) -> bool:
        # An update may name a part of the resource that was subscribed to.
        return any(uri.startswith(each) for each in self._uris)


class _Resource:
    """A resource that parts of the program need, and whether the server knows of the subscription."""

    __slots__ = ("is_subscribed", "needs", "turns")

    def __init__(self, turns: Turns) -> None:
        self.needs = 0
        """The number of parts of the program that need the resource."""
        self.is_subscribed: bool | None = False
        """Whether the server has a subscription; ``None`` while a request is under way, and after one that failed
        without an answer."""
        self.turns = turns
        """One request at a time, so that none overtakes another."""


class SessionChanges:
    """The source of changes for a client of the handshake era: the parts of a program share one session.

    It counts who needs a resource, and sends the difference: a request when the first one needs it, and when the last
    one needs it no longer.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sources: list[HandshakeSource] = []
        self._resources: dict[str, _Resource] = {}
        self._own: set[str] = set()  # those that the program itself subscribed to; however often, they count once
        # Why the transport receives no changes; None while it does.
        self._failure: McpError | None = None
        self._stream_tried = BroadcastEvent(client.driver.runtime)

    @property
    def is_heard(self) -> bool:
        """Whether the transport receives the changes that the server reports."""
        return self._failure is None

    def add(self, source: HandshakeSource) -> None:
        """Report changes to a source, until it is removed or the session is lost."""
        self._sources.append(source)

    def remove(self, source: HandshakeSource) -> None:
        """Stop reporting to a source. Further calls do nothing."""
        if source in self._sources:
            self._sources.remove(source)

    def needs(self, uri: str) -> bool:
        """Whether changes of a resource are still wanted."""
        return uri in self._resources and self._resources[uri].needs > 0

    async def subscribe(self, uri: str, send: Send) -> None:
        """Need a resource, until ``release``. ``send`` sends the request, if one is due. Raises as ``send`` does."""
        resource = self._resource(uri)
        resource.needs += 1
        try:
            async with resource.turns:
                # Where the session is lost during the request, its successor has to be told too.
                while not resource.is_subscribed:
                    resource.is_subscribed = None
                    try:
                        await send()
                    except (RequestError, NoBackChannel):
                        resource.is_subscribed = False
                        raise
                    if resource.is_subscribed is None:
                        resource.is_subscribed = True
        except BaseException:
            self.release(uri)
            raise

    def release(self, uri: str) -> None:
        """Need a resource no longer, without waiting."""
        resource = self._resources[uri]
        resource.needs -= 1
        if not resource.needs and resource.is_subscribed is not False:
            self._client.driver.runtime.spawn(self._unsubscribe(uri))
        self._forget_unneeded(uri)

    async def subscribe_program(self, uri: str, send: Send) -> None:
        """Subscribe for the program itself, until ``unsubscribe_program``. Raises as ``send`` does."""
        await self.subscribe(uri, send)
        if uri in self._own:
            self.release(uri)
        self._own.add(uri)

    async def unsubscribe_program(self, uri: str, send: Send) -> None:
        """End the program's own subscription; ``send`` sends the request, if one is due. Raises as ``send`` does."""
        resource = self._resource(uri)
        if uri in self._own:
            self._own.discard(uri)
            resource.needs -= 1
        try:
            await self._end(resource, send)
        finally:
            self._forget_unneeded(uri)

    def restored(self, uri: str) -> None:
        """Record that the current session was told of a resource."""
        if uri in self._resources:
            self._resources[uri].is_subscribed = True

    def hear(self, notification: Any) -> None:
        """Report a notification of the session to all sources."""
        for source in self._sources:
            source.hear(notification)

    def lose(self) -> None:
        """Record that the session was lost."""
        for resource in self._resources.values():
            resource.is_subscribed = False
        self.regain_stream()  # the next session has its own stream
        self._lose_sources()

    def lose_stream(self, error: McpError) -> None:
        """Record that the transport gave up the stream that brings changes. The server may still have the session."""
        self._failure = error
        self._stream_tried.notify_all()
        self._lose_sources()

    def regain_stream(self) -> None:
        """Record that the transport receives changes again, or need not."""
        self._failure = None
        self._stream_tried.notify_all()

    async def wait_for_stream(self) -> None:
        """Wait until the transport receives changes. Raises McpError if the server cannot be reached."""
        while not self.is_heard:
            # The transport opens its stream again when the server has answered.
            await self._client.ping()
            await self._wait_for_attempt()

    # Inside

    async def _wait_for_attempt(self) -> None:
        if self.is_heard:
            return
        limit = self._client.connection.options.request_timeout.total
        if not await self._stream_tried.wait(limit):
            raise RequestTimeout("the stream for messages outside of requests", limit or 0.0)
        if self._failure is not None:
            raise ConnectionLost("the server's changes are not received any more") from self._failure
        self._client.check_open()  # the end of the connection wakes too

    def _lose_sources(self) -> None:
        # Each source removes itself from the list.
        for source in tuple(self._sources):
            source.lose()

    def _resource(self, uri: str) -> _Resource:
        resource = self._resources.get(uri)
        if resource is None:
            resource = self._resources[uri] = _Resource(Turns(self._client.driver.runtime))
        return resource

    async def _unsubscribe(self, uri: str) -> None:
        resource = self._resource(uri)
        if resource.is_subscribed is not False:
            with suppress(McpError):
                await self._end(resource, partial(self._client.request, UnsubscribeRequest(uri)))
        self._forget_unneeded(uri)

    async def _end(self, resource: _Resource, send: Send) -> None:
        async with resource.turns:
            if resource.needs:
                return
            resource.is_subscribed = False
            try:
                await send()
            finally:
                # Again: where the session was lost meanwhile, its successor was told of the resource before this.
                resource.is_subscribed = False

    def _forget_unneeded(self, uri: str) -> None:
        resource = self._resources.get(uri)
        if (
            resource is not None
            and not resource.needs
            and resource.is_subscribed is False
            and not resource.turns.is_taken
        ):
            del self._resources[uri]
            if self._client._reconnector is not None:
                self._client._reconnector.forget_subscription(uri)


class StatelessSource:
    """Changes as the answer to one ``subscriptions/listen``: the request runs as long as the subscription."""

    def __init__(self, client: Client, listening: Listening) -> None:
        self._client = client
        self._listening = listening
        self._id: OutgoingId | None = None
        self._opened: OneShot = client.driver.runtime.one_shot()
        self._is_open = False

    async def open(self) -> SubscriptionFilter:
        """Send the request and wait for its acknowledgement, as long as for an answer. Raises McpError."""
        client, runtime = self._client, self._client.driver.runtime
        if not _is_offered(self._listening.wanted, client.server.capabilities):
            self._listening.end("graceful")
            return SubscriptionFilter()
        request = SubscriptionsListenRequest(self._listening.wanted)
        # The outcome of the request comes to ``set``. The request has no timeout, because it stays unanswered as long
        # as the subscription lasts; the timer below limits the wait for the acknowledgement alone.
        cookie = Waiter(self, None)
        self._id = client.connection.send_request(request, now=client.driver.now(), timeout=None, cookie=cookie)
        client.driver.wake()
        limit = client.connection.options.request_timeout.total
        timer = None
        if limit is not None:
            late = RequestTimeout("subscriptions/listen", limit)
            timer = runtime.call_later(limit, lambda: self._opened.set(late))
        try:
            outcome: Any = await self._opened.wait()
        finally:
            if timer is not None:
                timer.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        honoured: SubscriptionFilter = outcome
        if honoured.is_empty:
            # To listen again would bring nothing either.
            self._listening.end("graceful")
        return honoured

    def acknowledge(self, honoured: SubscriptionFilter) -> None:
        """Process the server's acknowledgement (SUB-02)."""
        self._is_open = True
        self._opened.set(honoured)

    def hear(self, notification: Any) -> None:
        """Process a notification of this subscription."""
        self._listening.hear(notification)

    def set(self, event: Any) -> None:
        """Process the outcome of the request: the end of the subscription (SUB-08)."""
        self._id = None
        if not self._is_open:
            unexpected = RemoteProtocolError("subscriptions/listen ended before it was acknowledged")
            self._opened.set(event.error if isinstance(event, RequestFailed) else unexpected)
        elif isinstance(event, ResponseReceived) or isinstance(event.error, RequestCancelled):
            # Servers on channels may say either first (SUB-08).
            self._listening.lose("graceful")
        else:
            self._listening.lose()

    def close(self) -> None:
        """Cancel the request, which ends the subscription (SUB-07)."""
        if self._id is not None:
            id, self._id = self._id, None
            self._client.connection.cancel_request(id, "no longer interested")
            self._client.driver.wake()

    def wait(self) -> Any:
        """Not to be waited for: it is the one-shot of a request whose outcome is ``set``."""
        raise TypeError("the outcome of a subscription is not waited for")


class ManagedListening:
    """The listening of a stateless client for its ``on_notification``, its subscriptions to resources, and its tasks.

    One request at a time carries all of it. When the wishes change, a new one is opened before the old one is closed,
    so nothing is missed.
    """

    def __init__(self, client: Client, *, has_callback: bool) -> None:
        """``has_callback``: the program wants to know of changes of lists too."""
        self._client = client
        offered = client.server.capabilities
        lists: dict[str, Any] = {
            member: True for member, capability in _MEMBERS.values() if has_callback and declares(offered, capability)
        }
        self._lists = SubscriptionFilter(**lists)
        self._uris: dict[str, None] = {}
        self._waiting: Counter[str] = Counter()  # how many wait for the answer whether the server reports a resource
        self._tasks: dict[str, None] = {}
        self._has_tasks = True
        self._current: _Forwarded | None = None
        self._turns = Turns(client.driver.runtime)

    @property
    def honoured(self) -> SubscriptionFilter:
        """The part of the filter that the server honours now."""
        return SubscriptionFilter() if self._current is None else self._current.honoured

    async def start(self) -> None:
        """Start to listen to the lists, if any. A failure is reported."""
        try:
            await self._renew()
        except McpError as error:
            self._client.driver.report("the server does not report changes", error)

    async def subscribe(self, uri: str) -> None:
        """Listen to a resource too. Raises RequestError if the server does not honour it, and other McpErrors."""
        self._waiting[uri] += 1
        try:
            await self._renew()
            if uri not in (self.honoured.resource_subscriptions or ()):
                raise RequestError(ErrorCode.INVALID_PARAMS, f"the server does not report changes of {uri:.200}")
            self._uris[uri] = None
        finally:
            # Others that subscribe to the same resource at this time count too.
            self._waiting -= Counter((uri,))

    async def unsubscribe(self, uri: str) -> None:
        """Listen to a resource no longer."""
        if uri in self._uris:
            del self._uris[uri]
            await self._renew()

    async def follow_task(self, id: str) -> bool:
        """Listen to a task too; return whether the server reports it. A server that reports none is asked once."""
        if not self._has_tasks:
            return False
        # Handles that the program dropped say nothing.
        self._tasks = {each: None for each in self._tasks if self._client._needs_task(each)} | {id: None}
        try:
            await self._renew()
        except McpError as error:
            self._has_tasks = not isinstance(error, RequestError) or error.code != ErrorCode.METHOD_NOT_FOUND
        else:
            self._has_tasks = self.honoured.task_ids is not None or id not in self._tasks
        if not self.reports_task(id):
            self.leave_task(id)
            return False
        return True

    def reports_list(self, kind: str) -> bool:
        """Whether the server reports changes of its ``tools``, ``prompts`` or ``resources`` at present."""
        return self._is_open and getattr(self.honoured, f"{kind}_list_changed") is True

    def reports_task(self, id: str) -> bool:
        """Whether the server reports changes of a task at present."""
        return self._is_open and id in (self.honoured.task_ids or ())

    def leave_task(self, id: str) -> None:
        """Listen to a task no longer: the next request leaves it out, and the present one may end."""
        if id in self._tasks:
            del self._tasks[id]
            if not self._turns.is_taken:
                self._close_idle()

    @property
    def _is_open(self) -> bool:
        return self._current is not None and self._current.ended is None and not self._current.is_lost

    def _wanted(self) -> SubscriptionFilter:
        uris, tasks = tuple(dict.fromkeys((*self._uris, *self._waiting))) or None, tuple(self._tasks) or None
        return attrs.evolve(self._lists, resource_subscriptions=uris, task_ids=tasks)

    def _close_idle(self) -> None:
        """End the request if nothing is wanted any more."""
        if self._current is not None and self._wanted() == SubscriptionFilter():
            self._current.close()
            self._current = None

    async def _renew(self) -> None:
        """Replace the request by one with the current filter. Only one task at a time does so."""
        async with self._turns:
            try:
                newer, wanted = None, self._wanted()
                if self._current is not None and self._current.ended is None and self._current.wanted == wanted:
                    return  # another task asked for it meanwhile
                if wanted != SubscriptionFilter():
                    newer = _Forwarded(self._client, wanted, keep=True)
                    with nullcontext() if self._current is None else self._current.replaced():
                        await newer.__aenter__()
                older, self._current = self._current, newer
                if older is not None:
                    older.close()
            finally:
                self._close_idle()


class _Forwarded(Listening):
    """Changes that go to the client's callback for notifications."""

    is_lost = False
    """Whether the source broke and is not renewed yet."""

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Block that opens a successor: a broken source is renewed only if that fails."""
        renewal = self._renewal if self.is_lost else None
        if renewal is not None:
            renewal.cancel()
        try:
            yield
        except BaseException:
            if renewal is not None:
                self._renewal = self._client.driver.runtime.spawn(self._renew())
            raise

    def hear(self, change: Change) -> None:
        if isinstance(change, Missed):
            self.is_lost = False
            self._client._miss_changes()
            self._client._doubt_tasks()
        else:
            self._client._deliver(change)

    def lose(self, reason: Ended = "lost") -> None:
        was_open = self.ended is None
        super().lose(reason)
        if was_open:  # otherwise its successor is open, and nothing is missed
            self.is_lost = True
            self._client._doubt_tasks()


SOONEST: Final = 0.1
"""Seconds before a lost subscription is renewed, doubled for each failure."""
LATEST: Final = 30.0
"""The most seconds before a lost subscription is renewed."""
