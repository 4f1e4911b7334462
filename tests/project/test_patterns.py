"""Every regular expression of the library takes linear time, whatever the text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from types import BuiltinMethodType
from typing import Any

import pytest
from counting import processor_seconds

import mcpio
from mcpio.observe.tap import SECRET_PATTERNS

TAILS = ("", "aaaaaaaa-", "aaaaaaaa.", "a", "A", "0", *'-._ \n"\\%:/@=&\0')
"""What follows a word of the pattern, over and over, in a hostile text."""

SYMBOLS = '"/*\\${<'
"""What begins something that has an end, and what may stand in it."""

ENDS = ("", "!", "\n")
"""What ends a hostile text, so that what nearly matches fails."""

SHORT, LONG = 750, 6000
"""Lengths of hostile texts. The longer takes 8 times as long as the shorter in linear time, 64 times in quadratic."""

QUICK = 0.003
"""Seconds that are never too slow for the longer text: a quadratic pattern takes several times that."""

AUTHORS_OWN = {"mcpio.app.schema.values"}
"""Modules whose patterns read the program itself, and never what a peer sends."""

SEARCHES = ("fullmatch", "match", "search", "sub", "subn", "split", "findall", "finditer")


def module_patterns() -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Yield each pattern that a module holds: its place, the pattern, and the method that the module calls."""
    root = Path(mcpio.__path__[0])
    for path in sorted(root.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "re.compile(" not in source:
            continue
        place = ".".join(["mcpio", *path.relative_to(root).with_suffix("").parts])
        if place in AUTHORS_OWN:
            continue
        for name, value in vars(import_module(place)).items():
            if isinstance(value, BuiltinMethodType) and isinstance(value.__self__, re.Pattern):
                yield f"{place}.{name}", value.__self__, value.__name__
            for row in value if isinstance(value, tuple) else (value,):
                # A row of a table holds its pattern beside what the pattern means.
                for part in row if isinstance(row, tuple) else (row,):
                    if isinstance(part, re.Pattern):
                        yield f"{place}.{name}", part, method_called(name, source)


def method_called(name: str, source: str) -> str:
    called = {method for method in SEARCHES if f"{name}.{method}(" in source}
    return called.pop() if len(called) == 1 else "search"


def hostile_texts(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Yield texts of a length that repeat what the pattern itself is made of."""
    source = pattern.pattern.decode() if isinstance(pattern.pattern, bytes) else pattern.pattern
    words = sorted({"", *re.findall(r"[A-Za-z]{2,}|://|-----", re.sub(r"\\.", " ", source))})
    symbols = "".join(sorted(set(source) & set(SYMBOLS)))
    units = ("".join(unit) for size in (2, 3) for unit in product(f"a{symbols}", repeat=size))
    yield from (unit * (length // len(unit)) for unit in units)
    for word, tail in product(words, TAILS):
        unit = word + tail or "a"
        repeated = unit * (length // len(unit))
        yield from (repeated + end for end in ENDS)
        yield word + (tail or "a") * length + "!"


def slow_text(pattern: re.Pattern[Any], method: str) -> str | None:
    """Return the beginning of a text for which a pattern takes more than linear time, None without one."""
    functions: dict[str, Callable[[Any], object]] = {
        "sub": lambda text: pattern.sub(text[:0], text),
        "subn": lambda text: pattern.subn(text[:0], text),
        "finditer": lambda text: list(pattern.finditer(text)),
    }
    call = functions.get(method) or getattr(pattern, method)
    encoded = isinstance(pattern.pattern, bytes)
    for short, long in zip(hostile_texts(pattern, SHORT), hostile_texts(pattern, LONG), strict=True):
        texts = (short.encode(), long.encode()) if encoded else (short, long)
        began = time.process_time()
        call(texts[1])
        if time.process_time() - began < QUICK:
            continue
        short_time, long_time = (processor_seconds([partial(call, text)] * 3) for text in texts)
        if long_time > max(QUICK, 24 * short_time):
            return long[:40]
    return None


MODULE_PATTERNS = list(module_patterns())


def test_patterns_of_modules_are_found() -> None:
    places = {place for place, _, _ in MODULE_PATTERNS}
    assert {"mcpio._printable._UNSAFE", "mcpio.app.icons._MAGIC", "mcpio.codec.values._SIMPLE"} <= places


@pytest.mark.parametrize(("pattern", "method"), [(r"\s+x", "search"), (r"\beyJ[\w-]{8,}\.", "sub")])
def test_a_slow_pattern_is_found(pattern: str, method: str) -> None:
    assert slow_text(re.compile(pattern), method)


@pytest.mark.parametrize(
    ("pattern", "method"), [pytest.param(pattern, method, id=place) for place, pattern, method in MODULE_PATTERNS]
)
def test_patterns_of_modules_take_linear_time(pattern: re.Pattern[Any], method: str) -> None:
    assert slow_text(pattern, method) is None


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("pattern", SECRET_PATTERNS)
def test_patterns_of_secrets_take_linear_time(pattern: str) -> None:
    assert slow_text(re.compile(pattern), "sub") is None


@pytest.mark.parametrize("pattern", SECRET_PATTERNS)
def test_patterns_of_secrets_pass_over_other_text_fast(pattern: str) -> None:
    compiled, usual = re.compile(pattern), re.compile(r"(?<!\w)\0")
    for unit in ("=", "a=", "n=", "y=", "-", "a/+", "a "):
        text = unit * (200_000 // len(unit))
        least = processor_seconds([partial(usual.subn, "", text)] * 5)
        assert processor_seconds([partial(compiled.subn, "", text)] * 5) < 6 * least, unit
