"""A search of every order of moves up to a depth, for worlds that are played again from their beginning."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

__all__ = ["search"]

M_co = TypeVar("M_co", bound=tuple[str, Any], covariant=True)


class World(Protocol[M_co]):
    """What is searched. Of two ways to the same key one is followed."""

    def moves(self) -> Iterable[M_co]: ...

    def check(self) -> None: ...

    def key(self) -> Hashable: ...


def search(play: Callable[[tuple[M_co, ...]], World[M_co]], root: tuple[M_co, ...], depth: int) -> int:
    """Check every state up to ``depth`` moves after ``root``; return how many there were.

    States come in the order of their depth, so that a violation has the shortest way to it as its note.
    """
    seen = {play(root).key()}
    level = [root]
    for _ in range(depth):
        following: list[tuple[M_co, ...]] = []
        for way in level:
            for move in play(way).moves():
                further = (*way, move)
                try:
                    world = play(further)
                    world.check()
                except BaseException as error:
                    error.add_note("\n".join(name for name, _ in further))
                    raise
                key = world.key()
                if key not in seen:
                    seen.add(key)
                    following.append(further)
        level = following
    return len(seen)
