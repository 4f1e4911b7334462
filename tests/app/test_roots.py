from __future__ import annotations

from typing import Any

import pytest

from mcpio.app.asking import RootList, root_of
from mcpio.testing import ManualRuntime
from mcpio.types import ListRootsResult, Root

HOME, SOURCE, DESK, SHARE, WEB = (
    Root("file:///srv/ada"),
    Root("file:///srv/ada/my%20src/"),
    Root("file:///C:/Desk"),
    Root("file://nas/share"),
    Root("https://example.com/"),
)


@pytest.mark.req("ROOT-05", "ROOT-06")
@pytest.mark.parametrize(
    ("target", "root"),
    [
        ("/srv/ada", HOME),
        ("/srv/ada/", HOME),
        ("/srv//ada/./notes", HOME),
        ("/srv/ada/x/../y", HOME),
        ("/srv/ada/my src/main.py", SOURCE),
        ("file:///srv/ada/my%20src/a", SOURCE),
        ("file://localhost/srv/ada/x", HOME),
        ("C:\\desk\\x", DESK),
        ("c:/DESK", DESK),
        ("file:///c:/DESK/x", DESK),
        ("file://NAS/share/x", SHARE),
        # Elsewhere, though it looks like it
        ("/srv/adam", None),
        ("/srv/ada/../bob", None),
        ("/../srv/ada/../../etc/passwd", None),
        ("file:///srv/ada/%2e%2e/bob", None),
        ("file:///srv/ada/..%2fbob", None),
        ("file:///srv/ada/..%5Cbob", None),
        ("file:///srv/ada/x%00", None),
        ("file:///srv/ada/x?y", None),
        ("file:///srv/ada/x#y", None),
        ("file:///srv/ada/\tx", None),
        ("file:///srv/ada/%ff", None),
        ("file://[nas/share/x", None),
        ("file://nas2/share/x", None),
        ("C:\\desk\\..\\x", None),
        ("C:work", None),
        ("/srv/ada/x\0", None),
        ("srv/ada", None),
        ("https://example.com/x", None),
        ("", None),
    ],
)
def test_paths_in_roots_are_found(target: str, root: Root | None) -> None:
    assert root_of(target, [SHARE, HOME, SOURCE, DESK, WEB]) == root
    assert root_of(target, [DESK, SOURCE, HOME, SHARE]) == root


def test_no_roots_contain_nothing() -> None:
    assert root_of("/srv/ada", []) is None
    assert root_of("/srv/ada", [Root("file:")]) is None


@pytest.mark.req("ROOT-06")
def test_roots_overtaken_by_a_change_are_not_cached() -> None:
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
