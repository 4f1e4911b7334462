"""The grammar of ``--chaos``, and that a seed decides which messages are hit."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from mcpio.cli.relaying.chaos import FAULTS, Fault, parse_chaos


def test_each_fault_has_its_value_and_its_time() -> None:
    chaos = parse_chaos("seed=7, cut=1%,slow=50ms..2s@10%,status=401@3,split=16,kill=@4")
    assert chaos.seed == 7
    assert chaos.faults == (
        Fault(text="cut=1%", kind="cut", rate=0.01),
        Fault(text="slow=50ms..2s@10%", kind="slow", low=0.05, high=2.0, rate=0.1),
        Fault(text="status=401@3", kind="status", low=401, high=401, nth=3, rate=0.0),
        Fault(text="split=16", kind="split", low=16, high=16, rate=1.0),
        Fault(text="kill=@4", kind="kill", nth=4, rate=0.0),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuts=1%", "no fault 'cuts'. Did you mean 'cut'?"),
        ("", "no fault ''. They are seed, cut, drop, stall, kill, twice, slow, split, status."),
        ("seed=x", "'seed=x': the seed must be a whole number, not 'x'"),
        ("cut", "'cut' has no value: write cut=3 for the third message or cut=1% for a share"),
        ("slow=", "'slow=' has no value: write slow=50ms or slow=50ms..200ms@10%"),
        ("slow=50", "'slow=50': the time must be like 50ms, 2s or 10ms..200ms, not '50'"),
        ("slow=2s..1s", "'slow=2s..1s': the range must begin before its end, not '2s..1s'"),
        ("split=0", "'split=0': the value must be a whole number above 0, not '0': write split=16"),
        ("status=200@1", "'status=200@1': the status must be from 400 to 599, not 200"),
        (
            "cut=half",
            "'cut=half': when must be the number of a message, from 1, or a share such as 1%, not 'half': write c",
        ),
        (
            "cut=101%",
            "'cut=101%': when must be the number of a message, from 1, or a share such as 1%, not '101%': write c",
        ),
        (
            "cut=0",
            "'cut=0': when must be the number of a message, from 1, or a share such as 1%, not '0': write cut=3 for",
        ),
        ("drop=5@3", "'drop=5@3': drop takes no value before the @: write drop=3 for the third message or drop=1%"),
    ],
)
def test_wrong_text_is_named(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        parse_chaos(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("kind", FAULTS)
def test_number_hits_one_message(kind: str) -> None:
    chaos = parse_chaos({"slow": "slow=1ms@2", "split": "split=1@2", "status": "status=500@2"}.get(kind, f"{kind}=2"))
    assert [number for number in range(1, 9) if chaos.of(kind, "server", number)] == [2]


def test_seed_decides_which_messages_are_hit() -> None:
    def hits(text: str, stream: str = "server") -> list[int]:
        chaos = parse_chaos(text)
        return [number for number in range(1, 2001) if chaos.of("cut", stream, number)]

    first = hits("seed=7,cut=5%")
    assert first == hits("cut=5%,seed=7")
    assert 60 <= len(first) <= 140
    assert first != hits("seed=8,cut=5%")
    assert first != hits("seed=7,cut=5%", "client")
    assert hits("cut=100%") == list(range(1, 2001))
    assert hits("cut=0%") == []


def test_range_gives_delays_within_it() -> None:
    chaos = parse_chaos("slow=10ms..20ms")
    delays = [chaos.delay(chaos.faults[0], "server", number) for number in range(100)]
    assert all(0.01 <= delay <= 0.02 for delay in delays)
    assert len(set(delays)) > 50


@pytest.mark.long
def test_seed_means_the_same_in_every_process() -> None:
    code = (
        "from mcpio.cli.relaying.chaos import parse_chaos\nchaos = parse_chaos('seed=3,drop=20%')\n"
        "print([n for n in range(50) if chaos.of('drop', 'server', n)])"
    )
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)}
    assert len(runs) == 1
    assert "[" in runs.pop()
