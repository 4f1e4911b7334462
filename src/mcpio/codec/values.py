"""Hooks that check plain values, and the fault that they raise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from mcpio.types._fields import without_null

__all__ = [
    "MOST_ITEMS",
    "PLAIN",
    "BoundedOddities",
    "Decoder",
    "Encoder",
    "Fault",
    "Oddities",
    "TooManyItems",
    "choices_hook",
    "each_value",
    "exact_class",
    "note",
    "quoted",
    "refuse",
    "union_hook",
]

# Faults


_SIMPLE = re.compile(r"[$\w]{1,50}", re.ASCII).fullmatch


class Fault(Exception):
    """The reason why a value does not convert. Each level adds its step on the way out, the innermost first."""

    def __init__(self, reason: str, *steps: str | int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[Any] = list(steps)

    def where(self) -> str:
        """Return the path, such as ``tools[3].inputSchema``, or ``content['a key']`` for an unusual name."""
        path = ""
        for step in reversed(self.steps):
            if isinstance(step, int):
                path += f"[{step}]"
            elif _SIMPLE(step := str(step)):
                path += f".{step}" if path else step
            else:
                path += f"[{step[:50]!r}]"
        return path


def refuse(expected: str, value: Any) -> NoReturn:
    """Raise the fault for a value of another kind than expected."""
    raise Fault(f"expected {expected}, got {_name(value)}")


def _name(value: Any) -> str:
    if value is None:
        return "null"
    for kinds, name in _NAMES:
        if isinstance(value, kinds):
            return name
    return f"a {type(value).__name__}"


_NAMES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    ((list, tuple), "an array"),
    (Mapping, "an object"),
)

# Decoders note what they tolerate.

Oddities = list[str]
"""A text for each member that was dropped because of its type, up to ``_MOST_ODDITIES`` of them."""

_MOST_ODDITIES = 20

MOST_ITEMS = 20_000
"""How many items of lists and mappings are decoded one by one, where the caller sets no limit."""


class TooManyItems(Exception):
    """A message has too many items. No `Fault`, because those may cost only a member."""


class BoundedOddities(list[str]):
    """The oddities of a message that is large enough to have many items: it also counts these."""

    __slots__ = ("left", "most")

    def __init__(self, most: int = MOST_ITEMS) -> None:
        self.most: int = most
        """The most items of the message."""
        self.left: int = most
        """How many of them may still come."""

    def take(self, items: int) -> None:
        """Count items that are about to be decoded. Raises `TooManyItems`."""
        self.left -= items
        if self.left < 0:
            raise TooManyItems(f"more than {self.most} items")


def note(odd: Oddities, cls: type, fault: Fault) -> None:
    """Add the fault of a dropped value inside a ``cls``."""
    if len(odd) < _MOST_ODDITIES:
        where = fault.where()
        odd.append(f"{cls.__name__}.{where}: {fault.reason}" if where else f"{cls.__name__}: {fault.reason}")


# Hooks for plain values. An encoding hook takes the value, as cattrs has it. A decoding hook takes the value and, in
# place of cattrs' type argument, which it does not need, the list of oddities.

Decoder = Callable[[Any, Any], Any]
Encoder = Callable[[Any], Any]


def _string(value: Any, _: Any = None) -> str:
    return value if isinstance(value, str) else refuse("a string", value)


def _boolean(value: Any, _: Any = None) -> bool:
    return value if isinstance(value, bool) else refuse("a boolean", value)


def _integer(value: Any, _: Any = None) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():  # To JSON Schema, 5.0 is an integer.
        return int(value)
    refuse("an integer", value)


def _number(value: Any, _: Any = None) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    refuse("a number", value)


def _object(value: Any, _: Any = None) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else refuse("an object", value)


def _plain_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else dict(_object(value))


def _anything(value: Any, _: Any = None) -> Any:
    return value


PLAIN: dict[Any, tuple[type | None, Callable[..., Any], Encoder]] = {
    str: (str, _string, _string),
    bool: (bool, _boolean, _boolean),
    int: (int, _integer, _integer),
    float: (float, _number, _number),
    Any: (None, _anything, _anything),
    Mapping[str, Any]: (dict, _object, _plain_object),
}
"""For each type its exact class, whose values need no check, and its two hooks."""


KINDS = {str: "a string", int: "an integer", float: "a number", bool: "a boolean", list: "an array", tuple: "an array"}
"""The classes that tell the members of a plain union apart."""


def union_hook(hooks: Mapping[type, Callable[..., Any]]) -> Callable[..., Any]:
    """Return a hook, for either direction, that picks one of ``hooks`` by the class of the value."""
    expected = " or ".join(dict.fromkeys(KINDS[kind] for kind in hooks))

    def convert(value: Any, *odd: Any) -> Any:
        hook = hooks.get(value.__class__)
        if hook is None and not isinstance(value, bool):
            hook = next((hooks[kind] for kind in hooks if isinstance(value, kind)), None)
        return refuse(expected, value) if hook is None else hook(value, *odd)

    return convert


def exact_class(type_: Any) -> type | None:
    """Return the class whose values fit the type without a check, or ``None`` if each needs its hook."""
    plain = PLAIN.get(without_null(type_))
    return None if plain is None else plain[0]


def each_value(value: Any, convert: Encoder) -> dict[str, Any]:
    """Return the mapping with each of its values converted."""
    if not isinstance(value, Mapping):
        refuse("an object", value)
    made: dict[str, Any] = {}
    key = ""
    try:
        for key, item in value.items():
            made[key] = convert(item)
    except Fault as fault:
        fault.steps.append(key)
        raise
    return made


def choices_hook(choices: tuple[str, ...]) -> Callable[..., Any]:
    """Return a hook, for either direction, of a string that must be one of ``choices``.

    It returns the very object in ``choices``, so that defaults can be recognised by identity.
    """
    by_value = {choice: choice for choice in choices}
    # Sorted, for typing gives equal Literals the order of whichever came first in the process.
    expected = repr(*by_value) if len(by_value) == 1 else "one of " + ", ".join(map(repr, sorted(by_value)))

    def convert(value: Any, _: Any = None) -> str:
        made = by_value.get(value) if isinstance(value, str) else None
        if made is None:
            raise Fault(f"expected {expected}, got {quoted(value)}")
        return made

    return convert


def quoted(value: Any) -> str:
    """Return the name of a value for error texts: the string itself, cut short, or the kind of any other value."""
    return repr(value[:50]) if isinstance(value, str) else _name(value)
