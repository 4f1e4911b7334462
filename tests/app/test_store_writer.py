"""Effects that are carried out in order, and how they share calls of the store."""

from __future__ import annotations

from collections import deque
from typing import Any

from mcpio.app.store_writer import StoreWriter
from mcpio.testing import ManualRuntime


def worked(effects: list[str], fails: str = "") -> tuple[list[Any], list[str]]:
    """Carry out effects of one letter, of which capitals read; return the answers, and what was done."""
    log: list[str] = []

    def read(effect: str) -> Any:
        return (lambda: done(effect)) if effect.isupper() else None

    def make(changes: list[str]) -> None:
        done("+".join(changes))

    def done(what: str) -> str:
        log.append(what)
        if what == fails:
            raise OSError(what)
        return what.lower()

    class Store:
        blocking = False
        write = staticmethod(make)

    wanted, values = deque(effects), list[Any]()
    writer: StoreWriter[str] = StoreWriter(
        Store(),
        read=read,
        next_effect=lambda: wanted.popleft() if wanted else None,
        done=lambda effect, value: values.append(value),
        process=lambda: None,
    )
    assert writer.carry_on(None) is bool(effects)
    return values, log


def test_changes_that_follow_each_other_are_made_together() -> None:
    assert worked([]) == ([], [])
    assert worked(["a", "b", "C", "d", "E", "F"]) == ([None, None, "c", None, "e", "f"], ["a+b", "C", "d", "E", "F"])


def test_exception_answers_every_effect_of_its_batch() -> None:
    values, log = worked(["a", "b", "C", "d"], fails="a+b")
    assert [repr(value) for value in values] == ["OSError('a+b')", "OSError('a+b')", "'c'", "None"]
    assert log == ["a+b", "C", "d"]
    assert repr(worked(["a", "B", "c"], fails="B")[0]) == "[None, OSError('B'), None]"


def test_what_the_last_look_for_effects_releases_is_processed() -> None:
    # A machine that finds nothing to store says so when it is asked, and releases answers by that.
    effects, released, processed = deque(["a"]), list[str](), list[int]()

    class Store:
        blocking = True

        @staticmethod
        def write(changes: list[str]) -> None:
            assert changes == ["a"]

    def next_effect() -> str | None:
        if effects:
            return effects.popleft()
        released.append("an answer")
        return None

    runtime = ManualRuntime()
    writer: StoreWriter[str] = StoreWriter(
        Store(),
        read=lambda effect: None,
        next_effect=next_effect,
        done=lambda effect, value: None,
        process=lambda: processed.append(len(released)),
    )
    writer.carry_on(runtime)
    runtime.run()
    assert processed[-1] == len(released)
