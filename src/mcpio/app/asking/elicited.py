"""What the user did with what a server asked: one class for each of the three actions (ELIC-11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import attrs

if TYPE_CHECKING:
    from mcpio.types.elicitation import ElicitResult

__all__ = ["Accepted", "Declined", "Dismissed", "ElicitAnswer", "answer_of"]

T = TypeVar("T")


@attrs.frozen
class Accepted(Generic[T]):
    """The user agreed. ``value`` is the form as they filled it in.

    After ``Context.elicit_url`` it is the elicitation's id: they agreed to go there, and are not done yet (ELIC-15).
    """

    action: ClassVar[Literal["accept"]] = "accept"

    value: T


@attrs.frozen
class Declined:
    """The user said no: do without, or offer something else."""

    action: ClassVar[Literal["decline"]] = "decline"


@attrs.frozen
class Dismissed:
    """The user closed the question without an answer: they may be asked again later."""

    action: ClassVar[Literal["cancel"]] = "cancel"


ElicitAnswer: TypeAlias = Accepted[T] | Declined | Dismissed
"""Match on the class, or look at ``action``."""


def answer_of(result: ElicitResult, read: Callable[[Any], T]) -> ElicitAnswer[T]:
    """Return what a result says; ``read`` makes the value of its content."""
    if result.action == "accept":
        return Accepted(read(result.content))
    return Declined() if result.action == "decline" else Dismissed()
