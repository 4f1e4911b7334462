from __future__ import annotations

from mcpio.codec import codec
from mcpio.revisions import REV_2026_07_28
from mcpio.types import (
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
)

E = codec(REV_2026_07_28)


def test_a_subscription() -> None:
    raw = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"], "taskIds": ["1"]}}
    read = E.decode(raw, SubscriptionsListenRequest)
    assert read == SubscriptionsListenRequest(
        SubscriptionFilter(True, resource_subscriptions=("a:b",), extra={"taskIds": ["1"]})
    )
    assert E.encode(read) == raw


def test_what_is_honoured_of_it() -> None:
    raw = {"notifications": {}, "_meta": {"io.modelcontextprotocol/subscriptionId": 5}}
    read = E.decode(raw, SubscriptionsAcknowledgedNotification)
    assert read.notifications == SubscriptionFilter()
    assert E.encode(read) == raw


def test_the_end_of_it() -> None:
    ended = SubscriptionsListenResult(meta={"io.modelcontextprotocol/subscriptionId": 5})
    assert E.encode(ended)["resultType"] == "complete"
