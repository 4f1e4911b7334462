"""Subscriptions: notifications of changes, for clients that asked for them (2026-07-28)."""

from __future__ import annotations

from typing import ClassVar

from mcpio.revisions import REV_2026_07_28, Revision
from mcpio.types._fields import Payload, payload
from mcpio.types.messages import FinalResult, NotificationPayload, RequestPayload

__all__ = [
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotification",
    "SubscriptionsListenRequest",
    "SubscriptionsListenResult",
]


@payload
class SubscriptionFilter(Payload):
    """The changes to notify of (SUB-01)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: tuple[str, ...] | None = None
    """The URIs of resources."""
    task_ids: tuple[str, ...] | None = None
    """The ids of tasks, of the tasks extension (XTASK-11)."""

    @property
    def is_empty(self) -> bool:
        """Whether it names no change at all."""
        lists = self.tools_list_changed or self.prompts_list_changed or self.resources_list_changed
        return not (lists or self.resource_subscriptions or self.task_ids)


@payload
class SubscriptionsListenRequest(RequestPayload):
    """Ask for notifications of changes for as long as the request runs."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    notifications: SubscriptionFilter


@payload
class SubscriptionsListenResult(FinalResult):
    """The server ends the subscription; ``meta`` has its id (SUB-08)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28


@payload
class SubscriptionsAcknowledgedNotification(NotificationPayload):
    """The part of the filter that the server honours: the first message of a subscription (SUB-02)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    notifications: SubscriptionFilter
