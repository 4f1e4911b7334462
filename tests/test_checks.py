from __future__ import annotations

import math
from functools import partial
from typing import Any

import attrs
import pytest

from mcpio._checks import check_options, checked, chosen, is_amount, is_count, of_kind, required
from mcpio.app import ServerEntry
from mcpio.auth.grant import Grant
from mcpio.auth.keys import Secret
from mcpio.auth.payloads import TokenSet
from mcpio.backoff import Backoff
from mcpio.engine.options import Options
from mcpio.errors import ConnectFailed
from mcpio.profiles import Profile
from mcpio.revisions import REV_2025_03_26


class Thing:
    """Something that can be chosen, and has a default."""


@attrs.frozen
class Holder:
    thing: Any = attrs.field(default=Thing(), validator=of_kind(Thing))
    other: Any = attrs.field(default=None, validator=of_kind(Thing, optional=True))


def test_argument_of_another_kind_is_refused_by_name() -> None:
    thing = Thing()
    assert chosen("thing", thing, Thing) is checked("thing", thing, Thing) is required("thing", thing, Thing) is thing
    assert isinstance(chosen("thing", None, Thing), Thing)
    assert checked("thing", None, Thing) is None
    for check in (chosen, checked, required):
        with pytest.raises(TypeError, match=r"^thing must be Thing, not 5$"):
            check("thing", 5, Thing)
    with pytest.raises(TypeError, match=r"^thing must be Thing, not None$"):
        required("thing", None, Thing)


def test_the_fields_of_a_class_are_checked_alike() -> None:
    assert Holder(other=Thing()).other is not None
    for wrong in ({"thing": 5}, {"other": 5}):
        with pytest.raises(TypeError, match=rf"^{next(iter(wrong))} must be Thing, not 5$") as caught:
            Holder(**wrong)
        assert len(caught.value.args) == 1
    with pytest.raises(TypeError, match=r"^thing must be Thing, not None$"):
        Holder(thing=None)


@pytest.mark.parametrize("wrong", ["1", None, -1, math.nan, [1], True])
def test_other_values_are_neither_counts_nor_amounts(wrong: object) -> None:
    assert not is_count(wrong)
    assert not is_amount(wrong)


def test_counts_are_integers_and_amounts_are_finite() -> None:
    assert (is_count(0), is_count(1, 1), is_count(0, 1), is_count(1.0)) == (True, True, False, False)
    assert (is_amount(0), is_amount(0.5), is_amount(0.5, 1), is_amount(math.inf)) == (True, True, False, False)


def test_unknown_option_is_refused_with_a_list_of_options() -> None:
    check_options(["a"], ["b", "a"])
    with pytest.raises(TypeError, match=r"^unknown option 'c'; the options are a, b$"):
        check_options(["c", "a"], ["b", "a"])


@pytest.mark.parametrize(
    ("make", "name", "items"),
    [
        (Options, "revisions", [REV_2025_03_26]),
        (Options, "custom_methods", ["x/y"]),
        (Options, "profiles", [Profile.ERLMCP]),
        (Backoff, "also", [ConnectFailed]),
        (partial(Grant, None, None), "scopes", ["a", "b"]),
        (partial(TokenSet, Secret("t"), "https://i", "https://r", "c", 0), "scopes", ["a", "b"]),
        (ServerEntry, "command", ["python", "x.py"]),
    ],
)
def test_option_of_several_takes_a_list_and_refuses_a_text(make: Any, name: str, items: list[Any]) -> None:
    value = getattr(make(**{name: items}), name)
    assert hash(value)
    assert sorted(value, key=repr) == sorted(items, key=repr)
    for wrong in ("text", 5):
        with pytest.raises(TypeError, match=f"{name} must be a collection, such as a tuple, not"):
            make(**{name: wrong})
