from __future__ import annotations

import math
from typing import Any

import attrs
import pytest

from mcpio._checks import check_options, checked, chosen, is_amount, is_count, of_kind, required


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
