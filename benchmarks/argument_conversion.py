"""What binding a tool's arguments costs: mcpio's own conversion and cattrs, equally strict, in the same run.

    python benchmarks/argument_conversion.py

Both refuse unknown members and values of another type, and both name the place of a fault. Times are microseconds a
call, the best of several rounds, in turn.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn

from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.signature import Binder

ROUNDS = 7


@attrs.frozen
class Item:
    """What a tool may take."""

    name: str
    size: int = 5
    tags: list[str] = attrs.Factory(list)


VALUES = [{"name": "x", "size": 3, "tags": ["a", "b"]}] * 20


def echo(text: str) -> str:
    """Return the text."""
    return text


def main() -> None:
    """Measure and print."""
    own = SchemaBuilder("items").converter(list[Item]).convert
    theirs = strict_converter().get_structure_hook(list[Item])
    if own(VALUES) != theirs(VALUES, list[Item]):
        raise SystemExit("the two do not agree")
    bind = Binder(echo).bind
    measured: dict[str, tuple[Callable[[], Any], int]] = {
        "bind one text, own": (lambda: bind({"text": "x"}), 100_000),
        "20 items, own": (lambda: own(VALUES), 1000),
        "20 items, cattrs": (lambda: theirs(VALUES, list[Item]), 1000),
        "prepare list[Item], own": (lambda: SchemaBuilder("items").converter(list[Item]), 200),
        "prepare list[Item], cattrs": (lambda: strict_converter().get_structure_hook(list[Item]), 20),
    }
    best = dict.fromkeys(measured, float("inf"))
    for _ in range(ROUNDS):
        for name, (call, number) in measured.items():
            best[name] = min(best[name], timeit.timeit(call, number=number) / number * 1e6)
    for name, time in best.items():
        print(f"{name:<30}{time:>10.2f} µs")


def strict_converter() -> cattrs.Converter:
    """Return a converter that takes no value for one of another type."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _only(kind, lambda value, _: value))

    def list_hook(kind: Any) -> Callable[[Any, Any], Any]:
        return _only(list, cattrs.cols.list_structure_factory(kind, converter))

    def class_hook(kind: Any) -> Callable[[Any, Any], Any]:
        return _only(dict, make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True))

    converter.register_structure_hook_factory(cattrs.cols.is_sequence, list_hook)
    converter.register_structure_hook_factory(attrs.has, class_hook)
    return converter


def _only(kind: type, inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def hook(value: Any, target: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"expected {kind.__name__}")
        return inner(value, target)

    return hook


if __name__ == "__main__":
    main()
