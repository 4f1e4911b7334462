"""The front door of the drivers: every name is there, and is imported when it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import mcpio.trio


def test_every_public_name_resolves() -> None:
    for name in mcpio.trio.__all__:
        vars(mcpio.trio).pop(name, None)
        assert name in dir(mcpio.trio)
        value = getattr(mcpio.trio, name)
        if inspect.isclass(value) or inspect.isfunction(value):  # not an alias of a type
            assert value.__name__ == name
        assert name in vars(mcpio.trio)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'mcpio.trio' has no attribute 'sever'$"):
        _ = mcpio.trio.sever  # type: ignore[attr-defined]  # the mistake


@pytest.mark.long
@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import mcpio.trio", {"trio", "mcpio.trio._drivers", "mcpio.app"}),
        ("from mcpio.trio import serve", {"mcpio.trio._stdio", "mcpio.trio._memory", "mcpio.app.server"}),
        ("from mcpio.trio import open_stdio", {"mcpio.app.server", "mcpio.app.schema.signature", "mcpio.trio._memory"}),
    ],
)
def test_nothing_is_loaded_before_it_is_used(statement: str, unwanted: set[str]) -> None:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not unwanted & set(run.stdout.split())
