from __future__ import annotations

from typing import Any

import pytest

from mcpio.app.root_list import RootList, root_of
from mcpio.testing import ManualRuntime
from mcpio.types import ListRootsResult, Root

HOME, SOURCE, WORK, SHARE, WEB = (
    Root("file:///home/ada"),
    Root("file:///home/ada/my%20src/"),
    Root("file:///C:/Work"),
    Root("file://nas/share"),
    Root("https://example.com/"),
)


@pytest.mark.req("ROOT-05", "ROOT-06")
@pytest.mark.parametrize(
    ("target", "root"),
    [
        ("/home/ada", HOME),
        ("/home/ada/", HOME),
        ("/home//ada/./notes", HOME),
        ("/home/ada/x/../y", HOME),
        ("/home/ada/my src/main.py", SOURCE),
        ("file:///home/ada/my%20src/a", SOURCE),
        ("file://localhost/home/ada/x", HOME),
        ("C:\\work\\x", WORK),
        ("c:/WORK", WORK),
        ("file:///c:/work/x", WORK),
        ("file://NAS/share/x", SHARE),
        # Elsewhere, though it looks like it
        ("/home/adam", None),
        ("/home/ada/../bob", None),
        ("/../home/ada/../../etc/passwd", None),
        ("file:///home/ada/%2e%2e/bob", None),
        ("file:///home/ada/..%2fbob", None),
        ("file:///home/ada/..%5Cbob", None),
        ("file:///home/ada/x%00", None),
        ("file:///home/ada/x?y", None),
        ("file:///home/ada/x#y", None),
        ("file:///home/ada/\tx", None),
        ("file:///home/ada/%ff", None),
        ("file://[nas/share/x", None),
        ("file://nas2/share/x", None),
        ("C:\\work\\..\\x", None),
        ("C:work", None),
        ("/home/ada/x\0", None),
        ("home/ada", None),
        ("https://example.com/x", None),
        ("", None),
    ],
)
def test_what_lies_in_a_root(target: str, root: Root | None) -> None:
    assert root_of(target, [SHARE, HOME, SOURCE, WORK, WEB]) == root
    assert root_of(target, [WORK, SOURCE, HOME, SHARE]) == root


def test_without_roots_nothing_lies_in_one() -> None:
    assert root_of("/home/ada", []) is None
    assert root_of("/home/ada", [Root("file:")]) is None


@pytest.mark.req("ROOT-06")
def test_an_answer_that_a_change_overtook_is_not_kept() -> None:
    runtime, roots = ManualRuntime(), RootList()
    answer = runtime.one_shot()

    async def ask() -> Any:
        return await roots.fill(answer.wait())

    seen: list[Any] = []

    async def run() -> None:
        seen.append(await ask())

    runtime.spawn(run())
    runtime.run()
    roots.forget()
    answer.set(ListRootsResult((HOME,)))
    runtime.run()
    assert seen == [(HOME,)]
    assert roots.current is None


@pytest.mark.req("ROOT-06")
def test_an_answer_is_kept_until_a_change() -> None:
    async def answer() -> ListRootsResult:
        return ListRootsResult((HOME,))

    roots = RootList()
    assert ManualRuntime().complete(roots.fill(answer())) == (HOME,)
    assert roots.current == (HOME,)
    roots.forget()
    assert roots.current is None
