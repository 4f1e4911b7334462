"""Several questions in one array (2025-03-26), and all their outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mcpio.app.session import Waiter
from mcpio.engine.batches import BatchItem
from mcpio.engine.payloads import is_notification
from mcpio.events import ResponseReceived

if TYPE_CHECKING:
    from mcpio.app.session import Session
    from mcpio.engine.limits import Default, Timeout

__all__ = ["batch"]


async def batch(session: Session, messages: Iterable[Any], timeout: Timeout | float | Default | None) -> list[Any]:
    """Send requests and notifications as one batch, and wait for every outcome: see ``Client.batch``."""
    session.check_open()
    payloads = list(messages)
    waiters = [None if is_notification(each) else Waiter(session.driver.runtime.one_shot(), None) for each in payloads]
    items = [BatchItem(each, timeout, waiter) for each, waiter in zip(payloads, waiters, strict=True)]
    ids = session.connection.send_batch(items, now=session.driver.now())
    session.driver.wake()
    try:
        return [None if waiter is None else _outcome(await waiter.outcome.wait()) for waiter in waiters]
    except BaseException:
        # The wait was cancelled, in whatever way this event loop says so.
        for id in ids:
            if id is not None:
                session.connection.cancel_request(id, "the caller gave up")
        session.driver.wake()
        raise


def _outcome(event: Any) -> Any:
    return event.result if isinstance(event, ResponseReceived) else event.error
