"""The time that a server has to end: by its grace, and by the timer that ends its process."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio._drivers import signals
from mcpio._drivers.serving import _end, exit_timer
from mcpio._drivers.signals import ExitTimer
from mcpio._drivers.socket_server import LAST_WRITES


class Clock:
    """A time that passes by sleeping, and a process that can end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.threads, self.exits = 100.0, list[Any](), list[tuple[float, int]]()
        self.while_asleep: Any = lambda: None
        monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))
        start = SimpleNamespace(start_new_thread=lambda function, arguments: self.threads.append((function, arguments)))
        monkeypatch.setattr(signals, "_thread", start)
        monkeypatch.setattr(os, "_exit", lambda status: self.exits.append((self.now, status)))

    def sleep(self, seconds: float) -> None:
        self.while_asleep()
        self.now += seconds

    def run(self) -> None:
        ((function, arguments),) = self.threads
        function(*arguments)


def test_process_ends_when_its_time_after_the_signal_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timer = Clock(monkeypatch), ExitTimer(2.0)
    timer.start(143)
    clock.run()
    assert clock.exits == [(102.0, 143)]


def test_end_that_begins_late_extends_the_time_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timer = Clock(monkeypatch), ExitTimer(2.0)
    timer.extend(50.0)  # before the signal there is nothing to extend
    timer.start(143)

    def extend() -> None:
        clock.while_asleep = lambda: None
        clock.now += 1.5  # the loop was busy
        timer.extend(2.0)
        timer.extend(0.1)  # less than is left
        clock.now -= 1.5

    clock.while_asleep = extend
    clock.run()
    assert clock.exits == [(103.5, 143)]


@pytest.mark.parametrize(("timeout", "end"), [(ExitTimer(2.0), 103.5), (2.0, 102.0)], ids=["a server's", "a program's"])
def test_time_of_a_server_counts_from_when_its_loop_hears_of_the_signal(
    timeout: Any, end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, called, handlers = Clock(monkeypatch), list[Any](), dict[int, Any]()

    def install(signum: int, handler: Any) -> None:
        handlers[signum] = handler

    monkeypatch.setattr(signal, "signal", install)
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    monkeypatch.setattr(signals, "_exit_quietly", lambda: None)
    cancelled: list[bool] = []

    class Scope(contextlib.nullcontext[None]):
        def cancel(self) -> None:
            cancelled.append(True)

    scope: Any = Scope()

    def serve() -> None:
        with signals.ended_by_signals(scope, called.append, timeout):
            handlers[signal.SIGTERM](signal.SIGTERM, None)
            assert not cancelled
            clock.now += 1.5
            called.pop()()
            clock.now -= 1.5

    with pytest.raises(signals.Terminated):
        serve()
    clock.run()
    assert (cancelled, clock.exits) == ([True], [(end, 143)])


def test_exit_timer_has_the_time_of_the_drain_and_the_grace() -> None:
    assert exit_timer(1.0, 2.0)._seconds == 3.0 + LAST_WRITES
    with pytest.raises(ValueError, match="grace"):
        exit_timer("x")  # type: ignore[arg-type]  # a mistake, made on purpose


@pytest.mark.parametrize("drain", [0.0, 2.0])
@pytest.mark.parametrize("lag", [0.0, 1.0])
def test_each_part_of_the_end_has_its_time_however_late_the_one_before_ended(
    lag: float, drain: float, each_virtual_loop: EachLoop
) -> None:
    async def main(here: Here) -> None:
        ended, extended = list[float](), list[float]()

        class Handler:
            grace: float | None = None

            def close(self, grace: float) -> None:
                self.grace = grace

            async def wait_empty(self) -> None:
                await here.forever()

            def retire(self) -> None:
                """Serve on."""

        handler: Any = Handler()
        timer: Any = SimpleNamespace(extend=extended.append)

        async def end() -> None:
            acceptor: Any = SimpleNamespace(wait_empty=here.forever)
            await _end(handler, acceptor, drain, 0.5, here.loop, timer)
            ended.append(here.now())

        async with here.tasks() as tasks:
            began = here.now()
            tasks.spawn(end())
            for part in filter(None, (drain, 0.5)):
                await here.settle()
                here.jump(part + lag)
        assert handler.grace == 0.5
        of_drain = [drain + 0.5 + LAST_WRITES] if drain else []
        assert extended == [*of_drain, 0.5 + LAST_WRITES, LAST_WRITES]
        assert ended[0] - began >= (drain + lag if drain else 0.0) + 0.5 + lag + LAST_WRITES / 2

    each_virtual_loop.run(main, virtual=True)


def test_server_without_connections_ends_at_once(each_virtual_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async def nothing() -> None:
            """No connection is left."""

        handler: Any = SimpleNamespace(close=lambda grace: None, wait_empty=nothing, finish=nothing)
        began, extended = here.now(), list[float]()
        timer: Any = SimpleNamespace(extend=extended.append)
        await _end(handler, SimpleNamespace(), 0.0, 60.0, here.loop, timer)  # type: ignore[arg-type]  # accepts none
        assert (here.now() - began < 1, extended) == (True, [60.0 + LAST_WRITES])

    each_virtual_loop.run(main, virtual=True)


@pytest.mark.parametrize("when", [0.4, 0.6])
def test_naming_of_handlers_takes_its_time_after_the_grace(when: float, each_virtual_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        named = list[float]()
        began = here.now()

        async def wait_empty() -> None:
            await here.sleep(max(0.0, began + when - here.now()))

        async def finish() -> None:
            await here.sleep(2)
            named.append(here.now() - began)

        handler: Any = SimpleNamespace(close=lambda grace: None, wait_empty=wait_empty, finish=finish)
        timer: Any = SimpleNamespace(extend=lambda seconds: None)
        await _end(handler, SimpleNamespace(), 0.0, 0.5, here.loop, timer)  # type: ignore[arg-type]  # accepts none
        assert named == [pytest.approx(when + 2, abs=0.1)]

    each_virtual_loop.run(main, virtual=True)
