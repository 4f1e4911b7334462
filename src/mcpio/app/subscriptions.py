# ruff: noqa: SLF001 - the library uses sessions from inside
"""Serves ``subscriptions/listen``: notifies a stateless client of changes while its request runs (SUB-01)."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from mcpio.app.changes import resource_topic
from mcpio.auth.grant import Grant
from mcpio.errors import ErrorCode, InsufficientScope, LocalProtocolError, NoBackChannel, RequestError
from mcpio.methods import declares
from mcpio.types.base import TASKS_EXTENSION
from mcpio.types.features import (
    SubscribeRequest,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
)

if TYPE_CHECKING:
    from mcpio.app.runtime import Driver, OneShot
    from mcpio.app.server import Server
    from mcpio.app.tasks.receiver import ToolTasks
    from mcpio.engine.limits import Limits
    from mcpio.types.features import ServerCapabilities

__all__ = ["Subscription", "honoured_of", "serve_listen"]


def serve_listen(
    scope: Any, request: SubscriptionsListenRequest, server: Server
) -> Coroutine[Any, Any, SubscriptionsListenResult]:
    """Serve a listen request until the client, the connection or the server ends it, or the client's token expires.

    Raises RequestError beyond ``Limits.listeners``, ``total_listeners``, ``subscriptions`` or ``subscription_bytes``,
    and CapabilityMissing for tasks if the client did not declare their extension (XTASK-11). Resources that the client
    may not see, or for which its token lacks scopes, are not honoured.
    """
    wanted, capabilities = request.notifications, scope.session.connection.capabilities
    # All that it names, known or not, and before anything is looked up: that would hold up the event loop.
    _check_size(wanted, server.options.limits, scope.session.connection.held.subscriptions)
    honoured = honoured_of(wanted, capabilities)
    if wanted.task_ids is not None and server.tasks is not None and declares(capabilities, _TASKS):
        from mcpio.app.tasks.receiver import check_takes_tasks

        check_takes_tasks(scope.peer.capabilities)
        honoured = attrs.evolve(honoured, task_ids=tuple(dict.fromkeys(wanted.task_ids)))
    existing = _Existing(scope, server, honoured.resource_subscriptions)
    if existing.look():
        return _begun(scope, server, existing.added_to(honoured)).run()
    return _listen_in_turns(scope, server, honoured, existing)


async def _listen_in_turns(
    scope: Any, server: Server, honoured: SubscriptionFilter, existing: _Existing
) -> SubscriptionsListenResult:
    """Serve a request that names so much that other tasks get turns while it is looked up."""
    is_last = False
    while not is_last:
        await scope.session.driver.runtime.sleep(0)
        is_last = existing.look()
    return await _begun(scope, server, existing.added_to(honoured)).run()


def _begun(scope: Any, server: Server, honoured: SubscriptionFilter) -> Subscription:
    """Return a subscription that is acknowledged, unless it has tasks to read first."""
    subscription = Subscription(scope, server, honoured)
    if not honoured.task_ids:
        # Later messages on the same connection find the subscription made.
        try:
            subscription.begin()
        except BaseException:
            # Such as an acknowledgement that is too large: nothing runs that would give the place back.
            subscription.end()
            raise
    return subscription


class Subscription:
    """One ``subscriptions/listen`` request that runs.

    Changes of lists and resources are sent at once. Of a task only its id is noted: its state is read and sent once the
    client has read enough of what was sent before, so a client that does not read costs one entry for each task.
    """

    __slots__ = (
        "_account",
        "_changed",
        "_held",
        "_honoured",
        "_is_begun",
        "_is_over",
        "_scope",
        "_server",
        "_signal",
        "_size",
        "driver",
    )

    driver: Driver
    """The driver that carries its notifications."""

    def __init__(self, scope: Any, server: Server, honoured: SubscriptionFilter) -> None:
        """Take a place among the listeners, until ``run`` has ended. Raises RequestError beyond the limits."""
        limits, session = server.options.limits, scope.session
        self.driver = session.driver
        self._scope = scope
        self._server = server
        self._honoured = honoured
        self._held = session.connection.held_for(scope.id)
        self._size = _check_size(honoured, limits, self._held.subscriptions)
        self._account: Hashable = scope.account
        self._changed: dict[str, None] = {}
        self._signal: OneShot | None = None
        self._is_begun = False
        self._is_over = False
        server.audience.enter(self, self._account, limits)
        self._held.subscriptions += self._size

    def begin(self) -> None:
        """Acknowledge the request: nothing that happens from here on is missed (SUB-02)."""
        connection = self._scope.session.connection
        if not connection.is_acknowledged(self._scope.id):  # as one from a snapshot was
            connection.acknowledge(self._scope.id, self._honoured)
        self.driver.wake()
        self._server.audience.add(self, _topics_of(self._honoured))
        self._is_begun = True

    def hear(self, notification: Any) -> bool:
        """Send a notification; return whether that was possible.

        A change that still waits for the client to read is not sent twice.
        """
        connection, id = self._scope.session.connection, self._scope.id
        if not connection.is_pending(id):
            return False  # it has ended, and its handler is about to stop
        try:
            connection.send_notification(notification, related_to=id)
        except (LocalProtocolError, NoBackChannel):
            return False
        self.driver.wake()
        return True

    def note_task(self, id: str) -> None:
        """Record that a task has changed."""
        self._changed[id] = None
        self._wake()

    def finish(self) -> None:
        """Have ``run`` return: the client's token has expired, or the server is about to end. It may listen again."""
        self._is_over = True
        self._wake()

    async def run(self) -> SubscriptionsListenResult:
        """Tell the client of changes until the subscription is cancelled, ends with its connection, or is finished.

        One in which nothing is honoured ends at once.
        """
        runtime, timer = self.driver.runtime, None
        expires_at = _expiry_of(self._scope.peer.principal)
        try:
            if expires_at is not None:
                # Some tokens are accepted a little longer: such a client must not come back without a pause.
                remaining = min(max(expires_at - runtime.wall_clock(), SHORTEST), LONGEST)
                timer = runtime.call_later(remaining, self.finish)
            if not self._is_begun:
                await self._begin_with_tasks()
            # Nothing could follow: the client would only keep a request open.
            while not (self._is_over or self._honoured.is_empty):
                if self._changed:
                    await self._tell_next_task()
                else:
                    self._signal = runtime.one_shot()
                    await self._signal.wait()
            return SubscriptionsListenResult()
        finally:
            if timer is not None:
                timer.cancel()
            self.end()

    def end(self) -> None:
        """Give back the place among the listeners. Call it once; ``run`` does."""
        audience = self._server.audience
        audience.leave(self, self._account)
        audience.remove(self, _topics_of(self._honoured))
        if self._honoured.task_ids:
            self._tasks.unwatch(self._honoured.task_ids, self.note_task)
        self._held.subscriptions -= self._size

    # Inside

    async def _begin_with_tasks(self) -> None:
        """Acknowledge the request with those tasks that the client has (XTASK-14), and report their present states.

        So it misses nothing that a task became between its creation and now. Raises RequestError while the tasks cannot
        be read.
        """
        ids = []
        for count, id in enumerate(self._honoured.task_ids or (), 1):
            if count % _TASKS_AT_ONCE == 0:
                await self.driver.runtime.sleep(0)  # reading a task that is in memory does not wait
            try:
                await self._tasks.look(self._scope, id)
            except RequestError as error:
                if error.is_retryable():
                    raise
                continue
            ids.append(id)
        self._honoured = attrs.evolve(self._honoured, task_ids=tuple(ids))
        self.begin()
        self._tasks.watch(ids, self.note_task)
        self._changed.update(dict.fromkeys(ids))

    async def _tell_next_task(self) -> None:
        await self._scope.session._wait_until_read(self._scope.id)
        id = next(iter(self._changed))
        del self._changed[id]
        try:
            look = await self._tasks.look(self._scope, id)
        except RequestError as error:
            if error.is_retryable():  # it cannot be read now
                self.driver.runtime.call_later(AGAIN, partial(self.note_task, id))
            return  # otherwise its time is over: there is no state to report
        from mcpio.app.tasks.receiver import task_notification

        self.hear(task_notification(look))

    @property
    def _tasks(self) -> ToolTasks:
        return cast("ToolTasks", self._server.tasks)

    def _wake(self) -> None:
        if self._signal is not None:
            self._signal.set(None)


def _may_watch(server: Server, scope: Any, uri: str) -> bool:
    """Whether a resource exists for a client, and its token has the scopes that a subscription needs (AUTH-34)."""
    if server.resources.find(uri, scope) is None:
        return False
    if server.scope_rules is not None:
        try:
            server.scope_rules.check("resources/subscribe", SubscribeRequest(uri), scope.peer.principal, lambda: scope)
        except InsufficientScope:
            return False
    return True


class _Existing:
    """Those of the resources that a request names which exist for its client, looked up in steps of bounded work."""

    def __init__(self, scope: Any, server: Server, uris: tuple[str, ...] | None) -> None:
        self._scope = scope
        self._server = server
        self._is_wanted = uris is not None
        self._left = iter(uris or ())
        self._uris: list[str] = []

    def look(self) -> bool:
        """Look some of them up; return whether these were the last ones."""
        work, templates = 0, len(self._server.resources.templates)
        for uri in self._left:
            if _may_watch(self._server, self._scope, uri):
                self._uris.append(uri)
            work += _LOOK + len(uri) * templates
            if work > _WORK_AT_ONCE:
                return False
        return True

    def added_to(self, honoured: SubscriptionFilter) -> SubscriptionFilter:
        """Return the filter with the resources that exist."""
        return attrs.evolve(honoured, resource_subscriptions=tuple(self._uris) if self._is_wanted else None)


def honoured_of(wanted: SubscriptionFilter, capabilities: ServerCapabilities) -> SubscriptionFilter:
    """Return the part of a filter that this server honours, with resources that may not exist (SUB-03)."""

    def of_list(feature: str) -> bool | None:
        is_wanted = getattr(wanted, f"{feature}_list_changed")
        return True if is_wanted and declares(capabilities, (feature, "list_changed")) else None

    uris = None
    if wanted.resource_subscriptions is not None and declares(capabilities, ("resources", "subscribe")):
        uris = tuple(dict.fromkeys(wanted.resource_subscriptions))
    return SubscriptionFilter(of_list("tools"), of_list("prompts"), of_list("resources"), uris)


def _topics_of(honoured: SubscriptionFilter) -> list[Hashable]:
    kinds = ("tools", "prompts", "resources")
    lists = [kind for kind in kinds if getattr(honoured, f"{kind}_list_changed")]
    return [*lists, *map(resource_topic, honoured.resource_subscriptions or ())]


def _check_size(honoured: SubscriptionFilter, limits: Limits, bytes_before: int) -> int:
    """Return the bytes that a subscription holds. Raises RequestError if they are too many."""
    names = {*(honoured.resource_subscriptions or ()), *(honoured.task_ids or ())}
    _check_count(len(names), limits)
    size = _COST + sum(sys.getsizeof(name) + _COST for name in names)
    if bytes_before + size > limits.subscription_bytes:
        data = {"reason": "the subscriptions take too much memory", "limit": limits.subscription_bytes}
        raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
    return size


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.subscriptions:
        data = {"reason": "too many subscriptions", "limit": limits.subscriptions}
        raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)


def _expiry_of(principal: Any) -> float | None:
    return principal.expires_at if isinstance(principal, Grant) else None


AGAIN: Final = 1.0
"""Seconds until a task that could not be read is read again."""
SHORTEST: Final = 1.0
"""The least seconds that a subscription lasts, also with a token that has expired."""
LONGEST: Final = 86400.0
"""The most seconds after which a subscription with a token that expires ends: event loops take no timer for ages."""
_LOOK: Final = 500
"""Work to look a resource up, beside one for each character that is matched against each template."""
_WORK_AT_ONCE: Final = 500_000
"""Work of this kind between two turns of the event loop: some milliseconds."""
_TASKS_AT_ONCE: Final = 100
"""How many tasks are read between two turns of the event loop."""
_TASKS: Final = ("extensions", TASKS_EXTENSION)
_COST: Final = 128
"""Bytes that a subscription, and each of its resources and tasks, costs beside the name."""
