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


def test_listen_request_round_trips() -> None:
    raw = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"], "taskIds": ["1"]}}
    read = E.decode(raw, SubscriptionsListenRequest)
    assert read == SubscriptionsListenRequest(
        SubscriptionFilter(True, resource_subscriptions=("a:b",), task_ids=("1",))
    )
    assert E.encode(read) == raw


def test_subscription_acknowledgement_round_trips() -> None:
    raw = {"notifications": {}, "_meta": {"io.modelcontextprotocol/subscriptionId": 5}}
    read = E.decode(raw, SubscriptionsAcknowledgedNotification)
    assert read.notifications == SubscriptionFilter()
    assert E.encode(read) == raw


def test_subscription_result_round_trips() -> None:
    ended = SubscriptionsListenResult(meta={"io.modelcontextprotocol/subscriptionId": 5})
    assert E.encode(ended)["resultType"] == "complete"
