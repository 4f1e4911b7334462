"""Changes of a server's lists and resources, passed from their origin to the clients that listen for them.

A ``Changed`` goes to a bus (``Changes``), which may reach other processes, and from the bus to the listeners in each
process: sessions, and the ``subscriptions/listen`` requests of stateless clients (SUB-13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

import attrs

from mcpio import types  # what belongs to one feature is loaded when it changes
from mcpio.errors import ErrorCode, InvalidMessage, RequestError

if TYPE_CHECKING:
    from mcpio.app.runtime import Driver
    from mcpio.app.subscriptions import Subscription
    from mcpio.engine.limits import Limits

__all__ = [
    "LISTS",
    "SLICE",
    "Audience",
    "ChangeKind",
    "Changed",
    "Changes",
    "Listener",
    "LocalChanges",
    "resource_topic",
]

ChangeKind: TypeAlias = Literal["tools", "prompts", "resources", "updated", "anything"]
"""The list that changed, ``"updated"`` for the contents of one resource, or ``"anything"`` from a bus that may have
lost changes: clients are then notified of everything that they listen for."""


LISTS: Final = "lists"
"""The topic of those who want to know of every list."""


def resource_topic(uri: str) -> Hashable:
    """Return the topic of those who want to know of one resource."""
    return ("updated", uri)


@attrs.frozen
class Changed:
    """A change of a server's lists or resources.

    A plain value: ``to_json`` and ``from_json`` are for a bus between processes.
    """

    kind: ChangeKind
    """The list, or the resources, that changed."""
    uri: str | None = None
    """The resource that was updated; ``None`` for other kinds."""
    within: tuple[str, ...] = ()
    """Resources that contain it: their subscribers want to know too."""

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain JSON."""
        return attrs.asdict(
            self, value_serializer=lambda _, __, value: list(value) if isinstance(value, tuple) else value
        )

    @staticmethod
    def from_json(value: Any) -> Changed:
        """Return what ``to_json`` made. Raises InvalidMessage for anything else."""
        members = value if isinstance(value, Mapping) else {}
        kind: Any = members.get("kind")
        uri, within = members.get("uri"), members.get("within", [])
        if kind not in get_args(ChangeKind) or isinstance(uri, str) != (kind == "updated"):
            raise InvalidMessage(
                "change", f"expected the kind of a change, and a URI with 'updated' only, got {value!r:.100}"
            )
        if not isinstance(within, list) or not all(isinstance(each, str) for each in within):
            raise InvalidMessage("change.within", f"expected a list of URIs, got {within!r:.100}")
        return Changed(kind, uri, tuple(within))

    @property
    def topics(self) -> tuple[Hashable, ...]:
        """The topics to which listeners for this change have subscribed."""
        if self.uri is None:
            return (self.kind, LISTS)
        return tuple(map(resource_topic, (self.uri, *self.within)))

    def notification(self) -> Any:
        """Return the notification for clients."""
        if self.uri is not None:
            return types.ResourceUpdatedNotification(self.uri)
        notification: type[Any] = getattr(types, _LIST_CHANGED[self.kind])
        return notification()


_LIST_CHANGED: Final[dict[ChangeKind, str]] = {
    "tools": "ToolListChangedNotification",
    "prompts": "PromptListChangedNotification",
    "resources": "ResourceListChangedNotification",
}


class Changes(Protocol):
    """The bus that changes pass. One that several processes share gives each change to all of them, this one included.

    Both methods are called in the event loop's thread, and do not wait: a bus that sends over a network queues what is
    published, and may leave out a change that waits there already.
    """

    def publish(self, change: Changed) -> None:
        """Publish a change to all subscribers, in this process and in others, now or soon."""

    def subscribe(self, callback: Callable[[Changed], None]) -> Callable[[], None]:
        """Call a function with each change, in the event loop's thread. Returns what ends that."""


class LocalChanges:
    """The bus of one process. Its subscribers are called at once, by ``publish``."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Changed], None]] = []

    def publish(self, change: Changed) -> None:
        """Publish a change to all subscribers."""
        for callback in tuple(self._callbacks):
            callback(change)

    def subscribe(self, callback: Callable[[Changed], None]) -> Callable[[], None]:
        """Call a function with each change; return a function that ends this, any number of times."""
        self._callbacks.append(callback)

        def end() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return end


class Listener(Protocol):
    """Someone that notifications of changes go to."""

    @property
    def driver(self) -> Driver:
        """The driver that carries the notifications."""

    def hear(self, notification: Any) -> bool:
        """Send a notification to the client, without waiting; return whether that was possible."""


SLICE: Final = 100
"""Listeners to notify in one turn of the event loop: about a millisecond of work."""


class Audience:
    """The listeners of one process, by topic, with the notifications that they have not received yet."""

    __slots__ = ("_by_topic", "_listens", "_pending", "_stateless")

    def __init__(self) -> None:
        self._by_topic: dict[Hashable, dict[Listener, None]] = {}
        self._pending: dict[Hashable, dict[Listener, None]] = {}
        self._listens: Counter[Hashable] = Counter()
        self._stateless: dict[Subscription, None] = {}

    def enter(self, listener: Subscription, account: Hashable, limits: Limits) -> None:
        """Count a ``subscriptions/listen`` of a client, until it leaves. Raises RequestError beyond the limits."""
        for reason, count, limit in (
            ("this client listens too often at once", self._listens.get(account, 0), limits.listeners),
            ("too many clients listen", len(self._stateless), limits.total_listeners),
        ):
            if count >= limit:
                data = {"reason": reason, "limit": limit}
                raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
        self._listens[account] += 1
        self._stateless[listener] = None

    def leave(self, listener: Subscription, account: Hashable) -> None:
        """Count one less."""
        self._listens[account] -= 1
        del self._stateless[listener]
        if not self._listens[account]:
            del self._listens[account]

    def finish(self, driver: Driver) -> None:
        """Answer the ``subscriptions/listen`` requests that a driver carries."""
        for listener in tuple(self._stateless):
            if listener.driver is driver:
                listener.finish()

    def add(self, listener: Listener, topics: Iterable[Hashable]) -> None:
        """Subscribe a listener to some topics."""
        for topic in topics:
            self._by_topic.setdefault(topic, {})[listener] = None

    def remove(self, listener: Listener, topics: Iterable[Hashable]) -> None:
        """Unsubscribe a listener from some topics. Does nothing for topics that it is not subscribed to."""
        for topic in topics:
            listeners = self._by_topic.get(topic)
            if listeners is not None:
                listeners.pop(listener, None)
                if not listeners:
                    del self._by_topic[topic]

    def everything(self) -> list[Changed]:
        """Return a change for each list, and for each resource that has a listener."""
        uris = [topic[1] for topic in self._by_topic if isinstance(topic, tuple)]
        return [*map(Changed, _LIST_CHANGED), *(Changed("updated", uri) for uri in uris)]

    def tell(self, topics: tuple[Hashable, ...], notification: Any) -> int:
        """Send a notification to the listeners of any of the topics, each of them once.

        The first ``SLICE`` get it now, the others in later turns of the event loop, so that a change beside thousands
        of sessions does not hold up their requests. Returns how many got it or will be tried.
        """
        wanted: dict[Listener, None] = {}
        for topic in topics:
            wanted.update(self._by_topic.get(topic, {}))
        if len(wanted) <= SLICE and topics not in self._pending:
            return sum([listener.hear(notification) for listener in wanted])
        waiting = self._pending.get(topics)
        if waiting is None:
            waiting = self._pending[topics] = wanted
            count = self._tell_some(topics, notification)
            return count + len(waiting)
        # Those that still wait come first: changes that follow each other quickly must not starve the last ones.
        waiting.update(wanted)
        return len(wanted)

    def _tell_some(self, topics: tuple[Hashable, ...], notification: Any) -> int:
        waiting = self._pending[topics]
        count = 0
        for listener in tuple(waiting)[:SLICE]:
            del waiting[listener]
            count += listener.hear(notification)
        if waiting:
            next(iter(waiting)).driver.runtime.call_soon(lambda: self._tell_more(topics, notification))
        else:
            del self._pending[topics]
        return count

    def _tell_more(self, topics: tuple[Hashable, ...], notification: Any) -> None:
        self._tell_some(topics, notification)
