from __future__ import annotations

from mcpio.app.runtime import BroadcastEvent
from mcpio.testing import ManualCancelled, ManualRuntime


def test_waiter_is_woken_by_notification_or_timeout() -> None:
    runtime = ManualRuntime()
    bell = BroadcastEvent(runtime)
    seen: list[tuple[str, bool]] = []

    async def wait(name: str, seconds: float) -> None:
        seen.append((name, await bell.wait(seconds)))

    runtime.spawn(wait("short", 1))
    runtime.spawn(wait("long", 5))
    runtime.spawn(wait("longer", 50))
    runtime.advance_to(2)
    assert seen == [("short", False)]
    bell.notify_all()
    runtime.run()
    assert seen[1:] == [("long", True), ("longer", True)]
    # Nothing is left: no alarm goes off, and nobody is kept.
    assert runtime.next_deadline() is None
    assert bell._waiting == []
    bell.notify_all()


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    runtime = ManualRuntime()
    bell = BroadcastEvent(runtime)
    seen: list[str] = []

    async def wait() -> None:
        try:
            await bell.wait(5)
        except ManualCancelled:
            seen.append("cancelled")
            raise

    task = runtime.spawn(wait())
    runtime.run()
    task.cancel()
    runtime.run()
    assert seen == ["cancelled"]
    assert bell._waiting == []
    assert runtime.next_deadline() is None


def test_notification_of_one_skips_a_waiter_whose_time_is_up() -> None:
    runtime = ManualRuntime()
    bell = BroadcastEvent(runtime)
    seen: list[tuple[str, bool]] = []

    async def wait(name: str, seconds: float | None) -> None:
        seen.append((name, await bell.wait(seconds)))

    async def ring() -> None:
        await runtime.sleep(1)
        bell.notify_one()

    runtime.spawn(wait("short", 1))
    runtime.spawn(wait("long", None))
    runtime.run()
    runtime.spawn(ring())  # after the timer of the first, so that it rings before the waiter itself runs
    runtime.advance_to(2)
    assert sorted(seen) == [("long", True), ("short", False)]


def test_notification_at_the_moment_when_the_time_is_up_counts() -> None:
    runtime = ManualRuntime()
    bell = BroadcastEvent(runtime)
    seen: list[bool] = []

    async def wait() -> None:
        seen.append(await bell.wait(1))

    async def ring() -> None:
        await runtime.sleep(1)
        bell.notify_one()

    runtime.spawn(ring())
    runtime.run()
    runtime.spawn(wait())
    runtime.advance_to(2)
    assert seen == [True]
