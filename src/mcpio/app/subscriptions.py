"""``subscriptions/listen``, served: a stateless client is told of changes for as long as its request runs (SUB-01)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, Final, cast

from mcpio.app.changes import Audience, resource_topic
from mcpio.errors import ErrorCode, LocalProtocolError, NoBackChannel, RequestError
from mcpio.methods import declares
from mcpio.types.subscriptions import SubscriptionFilter, SubscriptionsListenRequest, SubscriptionsListenResult

if TYPE_CHECKING:
    from mcpio.app.runtime import Driver
    from mcpio.engine.limits import Limits
    from mcpio.types.lifecycle import ServerCapabilities

__all__ = ["Subscription", "honoured_of", "serve_listen"]


class Subscription:
    """One ``subscriptions/listen`` request that runs."""

    __slots__ = ("_connection", "_id", "driver")

    driver: Driver
    """The driver that carries its notifications."""

    def __init__(self, scope: Any) -> None:
        self.driver = scope.session.driver
        self._connection = scope.session.connection
        self._id = scope.id

    def hear(self, notification: Any) -> bool:
        """Send a notification; return whether that was possible. What the client has not read yet is not sent twice."""
        if not self._connection.is_pending(self._id):
            return False  # it has ended, and its handler is about to stop
        try:
            self._connection.send_notification(notification, related_to=self._id)
        except (LocalProtocolError, NoBackChannel):
            return False
        self.driver.wake()
        return True


def serve_listen(
    scope: Any,
    request: SubscriptionsListenRequest,
    audience: Audience,
    limits: Limits,
    is_offered: Callable[[str], bool],
) -> Coroutine[Any, Any, SubscriptionsListenResult]:
    """Serve a listen request until the client, the connection or the server ends it.

    ``is_offered`` says whether there is a resource with a URI. Raises RequestError beyond ``Limits.subscriptions`` or
    ``Limits.subscription_bytes``.
    """
    connection = scope.session.connection
    honoured = honoured_of(request.notifications, connection.capabilities, is_offered)
    size = _check_size(honoured, limits, connection.held.subscriptions)
    # The acknowledgement comes first, and nothing that happens from here on is missed (SUB-02).
    connection.acknowledge(scope.id, honoured)
    scope.session.driver.wake()
    subscription, topics = Subscription(scope), _topics_of(honoured)
    audience.add(subscription, topics)
    connection.held.subscriptions += size

    async def until_cancelled() -> SubscriptionsListenResult:
        try:
            # Nothing sets it: the request ends by being cancelled, or with its connection.
            return cast("SubscriptionsListenResult", await scope.driving.runtime.one_shot().wait())
        finally:
            audience.remove(subscription, topics)
            connection.held.subscriptions -= size

    # What follows on the same connection finds the subscription made.
    return until_cancelled()


def honoured_of(
    wanted: SubscriptionFilter, capabilities: ServerCapabilities, is_offered: Callable[[str], bool]
) -> SubscriptionFilter:
    """Return the part of a filter that this server honours: what it declares, and resources that exist (SUB-03)."""

    def of_list(feature: str) -> bool | None:
        is_wanted = getattr(wanted, f"{feature}_list_changed")
        return True if is_wanted and declares(capabilities, (feature, "list_changed")) else None

    uris = None
    if wanted.resource_subscriptions is not None and declares(capabilities, ("resources", "subscribe")):
        uris = tuple(uri for uri in dict.fromkeys(wanted.resource_subscriptions) if is_offered(uri))
    return SubscriptionFilter(of_list("tools"), of_list("prompts"), of_list("resources"), uris)


def _topics_of(honoured: SubscriptionFilter) -> list[Hashable]:
    kinds = ("tools", "prompts", "resources")
    lists = [kind for kind in kinds if getattr(honoured, f"{kind}_list_changed")]
    return [*lists, *map(resource_topic, honoured.resource_subscriptions or ())]


def _check_size(honoured: SubscriptionFilter, limits: Limits, held: int) -> int:
    """Return the bytes that a subscription holds. Raises RequestError if they are too many."""
    uris = honoured.resource_subscriptions or ()
    size = _COST + sum(sys.getsizeof(uri) + _COST for uri in uris)
    if len(uris) > limits.subscriptions:
        data = {"reason": "too many subscriptions", "limit": limits.subscriptions}
        raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
    if held + size > limits.subscription_bytes:
        data = {"reason": "the subscriptions take too much memory", "limit": limits.subscription_bytes}
        raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
    return size


_COST: Final = 128
"""Bytes that a subscription, and each of its resources, costs beside the URI."""
