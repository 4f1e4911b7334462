"""Faults that a relay injects, chosen by a seed: the grammar of ``--chaos``, and which message meets which fault."""

from __future__ import annotations

import argparse
import random
import re
from typing import Final

import attrs

from mcpio.cli.exit_status import did_you_mean

FAULTS: Final = {
    "cut": "",
    "drop": "",
    "stall": "",
    "kill": "",
    "twice": "",
    "slow": "TIME",
    "split": "BYTES",
    "status": "CODE",
}
"""Each fault, and the value that it takes."""

PROGRAMS_ONLY: Final = ("kill",)
URLS_ONLY: Final = ("twice", "status")

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)%")
_UNITS: Final = {"ms": 0.001, "s": 1.0}


@attrs.frozen(kw_only=True)
class Fault:
    """One fault, and when it occurs."""

    text: str
    """As the user wrote it."""
    kind: str
    low: float = 0.0
    """Its value; of a range, the lower end."""
    high: float = 0.0
    """The upper end of a range."""
    nth: int | None = None
    """The only message that it hits, counted from 1."""
    rate: float = 1.0
    """The share of messages that it hits, if there is no ``nth``."""


@attrs.frozen
class Chaos:
    """Faults and their seed. The same seed gives the same faults to the same messages, whatever the timing."""

    seed: int = 0
    faults: tuple[Fault, ...] = ()

    def hits(self, fault: Fault, stream: str, number: int) -> bool:
        """Whether a fault hits the message of that number in a stream of messages."""
        if fault.nth is not None:
            return number == fault.nth
        # Not one sequence of random numbers: then the faults would depend on the order of two directions.
        return fault.rate >= 1 or self._random(fault, stream, number).random() < fault.rate

    def of(self, kind: str, stream: str, number: int) -> Fault | None:
        """Return the first fault of a kind that hits a message."""
        return next((each for each in self.faults if each.kind == kind and self.hits(each, stream, number)), None)

    def delay(self, fault: Fault, stream: str, number: int) -> float:
        """Return the seconds by which a fault delays a message."""
        return self._random(fault, f"{stream} delay", number).uniform(fault.low, fault.high)

    def _random(self, fault: Fault, stream: str, number: int) -> random.Random:
        # Seeded by a text, whose hash is the same in every process.
        return random.Random(f"{self.seed} {fault.text} {stream} {number}")  # noqa: S311  faults, no secrets


def parse_chaos(text: str) -> Chaos:
    """Parse ``seed=7,cut=1%,slow=50ms..200ms@10%,status=401@3``. For ``argparse``."""
    seed, faults = 0, []
    for item in text.split(","):
        name, equals, value = item.strip().partition("=")
        if name == "seed":
            if not value.isascii() or not value.isdigit():
                raise argparse.ArgumentTypeError(f"{item!r:.100}: the seed must be a whole number, not {value!r:.100}")
            seed = int(value)
        elif name not in FAULTS:
            names = ", ".join(["seed", *FAULTS])
            hint = did_you_mean(name, ["seed", *FAULTS]) or f" They are {names}."
            raise argparse.ArgumentTypeError(f"no fault {name!r}.{hint}")
        elif not equals or not value:
            raise argparse.ArgumentTypeError(f"{item!r} has no value: write {_example(name)}")
        else:
            faults.append(_fault(item.strip(), name, value))
    return Chaos(seed, tuple(faults))


def _fault(text: str, kind: str, value: str) -> Fault:
    amount, at, when = value.rpartition("@")
    if not at:
        amount, when = ("", value) if not FAULTS[kind] else (value, "100%")
    nth, rate = _when(text, kind, when)
    low = high = 0.0
    match FAULTS[kind]:
        case "TIME":
            low, high = _times(text, amount)
        case "BYTES" | "CODE" as what:
            if not amount.isascii() or not amount.isdigit() or not int(amount):
                raise argparse.ArgumentTypeError(
                    f"{text!r:.100}: the value must be a whole number above 0, not {amount!r:.100}: "
                    f"write {_example(kind)}"
                )
            low = high = int(amount)
            if what == "CODE" and not 400 <= low <= 599:
                raise argparse.ArgumentTypeError(f"{text!r:.100}: the status must be from 400 to 599, not {amount}")
        case _ if amount:
            raise argparse.ArgumentTypeError(f"{text!r}: {kind} takes no value before the @: write {_example(kind)}")
    return Fault(text=text, kind=kind, low=low, high=high, nth=nth, rate=rate)


def _when(text: str, kind: str, when: str) -> tuple[int | None, float]:
    """Return the number of the message, or else the share of messages."""
    if when.isascii() and when.isdigit() and int(when):
        return int(when), 0.0
    rate = _RATE.fullmatch(when)
    if rate is None or float(rate[1]) > 100:
        raise argparse.ArgumentTypeError(
            f"{text!r}: when must be the number of a message, from 1, or a share such as 1%, not {when!r}: "
            f"write {_example(kind)}"
        )
    return None, float(rate[1]) / 100


def _times(text: str, amount: str) -> tuple[float, float]:
    first, dots, last = amount.partition("..")
    matches = [_TIME.fullmatch(each) for each in ([first, last] if dots else [first, first])]
    times = [float(each[1]) * _UNITS[each[2]] for each in matches if each is not None]
    if len(times) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: the time must be like 50ms, 2s or 10ms..200ms, not {amount!r}")
    if times[0] > times[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: the range must begin before its end, not {amount!r}")
    return times[0], times[1]


def _example(kind: str) -> str:
    value = {"TIME": "slow=50ms or slow=50ms..200ms@10%", "BYTES": "split=16", "CODE": "status=401@3"}
    return value.get(FAULTS[kind], f"{kind}=3 for the third message or {kind}=1% for a share")
