"""The modules that users import from keep their promise: every name in ``__all__`` is there, once."""

from __future__ import annotations

import importlib
import inspect

import pytest
from tree import settings

MODULES = settings()["tool"]["mcpio"]["public-modules"]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_exists_once(name: str) -> None:
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []
    assert [public for public in module.__all__ if public.startswith("_") and public != "__version__"] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_public_class_and_function_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    values = [getattr(module, public) for public in module.__all__]
    named = [value for value in values if inspect.isclass(value) or inspect.isroutine(value)]
    assert [value for value in named if not (value.__doc__ or "").strip()] == []
