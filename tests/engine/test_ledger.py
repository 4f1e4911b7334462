from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from mcpio.engine.limits import LARGEST_FACTOR, Ledger, parsed_size
from mcpio.framing import json as json_codec


def test_heaviest_holder_gives_up_first() -> None:
    ended: list[str] = []
    ledger = Ledger(100)
    for name, size in (("small", 10), ("large", 60), ("middle", 30)):
        ledger.settle(name, size, ended.append)
    assert (ledger.total, ended) == (100, [])
    ledger.settle("small", 11, ended.append)
    assert (ledger.total, ended) == (41, ["large"])


def test_holders_give_up_until_the_rest_fits() -> None:
    ended: list[str | int] = []
    ledger = Ledger(100)
    for number in range(10):
        ledger.settle(number, 10, ended.append)
    ledger.settle("one", 99, ended.append)
    assert ended == ["one"]
    ledger.settle(0, 31, ended.append)
    assert (ended, ledger.total) == (["one", 0], 90)


def test_holder_of_zero_bytes_is_forgotten() -> None:
    ledger = Ledger(100)
    ledger.settle("it", 40, pytest.fail)
    ledger.settle("it", 50, pytest.fail)
    assert ledger.total == 50
    ledger.settle("it", 0, pytest.fail)
    assert ledger.total == 0
    ledger.settle("other", 100, pytest.fail)
    assert ledger.is_nearly_full


def test_give_up_may_call_settle() -> None:
    ledger = Ledger(100)

    def shrink(holder: str) -> None:
        ledger.settle(holder, 20, shrink)

    ledger.settle("it", 101, shrink)
    assert (ledger.total, ledger.is_nearly_full) == (20, False)


@pytest.mark.parametrize(
    "value",
    [
        [{}] * 20_000,
        [[]] * 20_000,
        [{"a": number} for number in range(20_000)],
        [{"id": number, "name": f"name {number}", "value": number / 7} for number in range(5_000)],
        [number / 7 for number in range(20_000)],
        [f"{number} {'é' * (number % 20)}" for number in range(10_000)],
        {f"key {number}": number for number in range(10_000)},
        ["x" * 500_000],
        ["é" * 500_000],
        [list(range(1000, 1010))] * 3_000,
    ],
    ids=["objects", "lists", "members", "records", "numbers", "texts", "keys", "ascii", "wide", "nested"],
)
@pytest.mark.parametrize("kind", [bytes, str])
def test_parsed_size_is_near_the_measured_size(value: Any, kind: type) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    given = text.encode() if kind is bytes else text
    tracemalloc.start()
    parsed = json_codec.loads(given)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parsed is not None
    assert 0.9 * taken <= parsed_size(given) <= 6 * taken + 4096
    assert taken <= LARGEST_FACTOR * len(given)
