"""P6: a message within all limits takes a bounded amount of work and memory, whatever it is filled with.

The payloads and their members are derived from the table of methods, so a new one is covered without a line here. Sizes
and limits are a thousandth of the usual ones, and so is the bound: 20 million instructions of Python code take about
half a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import pytest
from work import peak_memory, steps_of

from mcpio.codec import BoundedOddities, codec
from mcpio.engine.limits import Limits
from mcpio.errors import InvalidMessage
from mcpio.framing import jsonrpc
from mcpio.methods import METHODS
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.types._fields import OneOrMore, Payload, is_union, members, without_null

SIZE = Limits().message_bytes // 1000
ITEMS = Limits().message_items // 1000
VALUES = Limits().message_values // 1000
MOST_STEPS = 20_000
REVISIONS = (REV_2025_11_25, REV_2026_07_28)
SCALARS: dict[Any, Any] = {str: "a", int: 1, float: 0.5, bool: True, Any: {}}

Wrap: TypeAlias = Callable[[Any], Any]
"""Makes a whole payload of the value of one of its members."""


def roots(revision: Revision) -> dict[str, type[Any]]:
    """Return the params and the results of all methods of a revision."""
    found = {}
    for method in METHODS.values():
        if method.exists_in(revision):
            found[f"{method.name} params"] = method.params_type
            if method.result is not None:
                found[f"{method.name} result"] = method.result_type
    return found


def sample(type_: Any, revision: Revision) -> Any:
    """Return a small JSON value of a type."""
    type_ = without_null(type_)
    origin = get_origin(type_)
    if type_ in SCALARS:
        return SCALARS[type_]
    if origin is Literal:
        return get_args(type_)[0]
    if origin is tuple:
        return []
    if origin is Mapping:
        return {}
    if not classes_of(type_, revision):
        return sample(get_args(type_)[0], revision)
    cls = classes_of(type_, revision)[0]
    raw = {name: getattr(cls, name) for name in cls.CONSTANTS}
    for member in members(cls):
        if member.exists_in(revision) and member.needed_in(revision):
            raw[member.name] = sample(member.type_in(revision), revision)
    return raw


def classes_of(type_: Any, revision: Revision) -> list[type[Payload]]:
    """Return the payload classes that a value of a type can have."""
    type_ = without_null(type_)
    if get_origin(type_) is Annotated:
        inner, mark = get_args(type_)[:2]
        return classes_of(mark.item if isinstance(mark, OneOrMore) else inner, revision)
    if is_union(type_):
        return [cls for choice in get_args(type_) for cls in classes_of(choice, revision)]
    if not isinstance(type_, type) or not issubclass(type_, Payload):
        return []
    if vars(type_).get("CHOICE") is not None:
        return [cls for child in type_.__subclasses__() for cls in classes_of(child, revision)]
    return [type_] if type_.SINCE <= revision <= type_.UNTIL else []


def places(
    type_: Any, revision: Revision, wrap: Wrap, seen: frozenset[Any] = frozenset()
) -> Iterator[tuple[str, Wrap]]:
    """Yield each place inside a type where a value can stand, with the way to put it there."""
    bare = without_null(type_)
    if get_origin(bare) is tuple:
        inside = places(get_args(bare)[0], revision, lambda value: wrap([value]), seen)
        yield from ((f"[].{name}", inner) for name, inner in inside)
    elif get_origin(bare) is Mapping:
        inside = places(get_args(bare)[1], revision, lambda value: wrap({"a": value}), seen)
        yield from ((f"{{}}.{name}", inner) for name, inner in inside)
    for cls in classes_of(type_, revision):
        if cls in seen:
            continue
        raw = sample(cls, revision)
        yield f"{cls.__name__} itself", partial(_beside, wrap, raw)
        for member in members(cls):
            if member.exists_in(revision):
                put = partial(_put, wrap, raw, member.name)
                yield f"{cls.__name__}.{member.name}", put
                inside = places(member.type_in(revision), revision, put, seen | {cls})
                yield from ((f"{cls.__name__}.{member.name}.{name}", inner) for name, inner in inside)


def _beside(wrap: Wrap, raw: dict[str, Any], value: Any) -> Any:
    return wrap({**value, **raw} if isinstance(value, dict) else value)


def _put(wrap: Wrap, raw: dict[str, Any], name: str, value: Any) -> Any:
    return wrap({**raw, name: value})


PARTS: list[Any] = [0, "a", {}, [[]], {"a": 0}, {"type": "text"}, {"type": "x"}, {"name": "a"}, {"uri": "a:b"}]


def fillings() -> Iterator[Any]:
    """Yield values filled with small parts: as many as are read, and as many as are decoded one by one."""
    for part in PARTS:
        text = json.dumps(part)
        values = 1 + sum(text.count(mark) for mark in ",:[{")
        for count in (VALUES * 9 // 10 // (values + 1), ITEMS - 5):
            yield [part] * count
            yield {f"{number:06x}": part for number in range(count)}


def read(cls: type[Any], revision: Revision, text: bytes) -> None:
    message = jsonrpc.parse(text, VALUES)
    if isinstance(message, jsonrpc.Request):
        with suppress(InvalidMessage):
            codec(revision).decode(message.params, cls, BoundedOddities(ITEMS))


def encoded(params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", "params": params}).encode()


CASES = [(revision, name) for revision in REVISIONS for name in roots(revision)]


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(("revision", "name"), CASES, ids=[f"{revision}-{name}" for revision, name in CASES])
def test_no_member_makes_a_message_expensive(revision: Revision, name: str) -> None:
    cls = roots(revision)[name]
    text = encoded({**sample(cls, revision), "text": "a" * SIZE})
    read(cls, revision, text)
    usual = steps_of(partial(read, cls, revision, text))
    worst = max(
        (steps_of(partial(read, cls, revision, encoded(wrap(value)))) - usual, place, repr(value)[:40])
        for place, wrap in places(cls, revision, lambda value: value)
        for value in fillings()
    )
    assert worst[0] < MOST_STEPS, worst


def test_payloads_of_all_kinds_are_filled() -> None:
    found = {
        place
        for revision in REVISIONS
        for cls in roots(revision).values()
        for place, _ in places(cls, revision, lambda value: value)
    }
    assert {
        "ListToolsResult.tools",
        "ListToolsResult.tools.[].Tool.icons.[].Icon.sizes",
        "CallToolResult.content.[].TextContent.annotations.Annotations.audience",
        "InitializeRequest.capabilities.ClientCapabilities.experimental",
    } <= found


@pytest.mark.parametrize("part", PARTS, ids=json.dumps)
@pytest.mark.parametrize("kind", [list, dict])
def test_no_message_takes_more_memory_than_eight_times_the_longest(part: Any, kind: type) -> None:
    most = VALUES * 100
    whole: Any = [part] * most if kind is list else {f"{number:06x}": part for number in range(most)}
    texts = [encoded(whole), encoded(whole[: most // 4] if kind is list else dict([*whole.items()][: most // 4]))]
    for text in texts:
        assert peak_memory(partial(jsonrpc.parse, text, most)) < 8 * SIZE * 100
