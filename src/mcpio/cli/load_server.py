"""Import the Server that ``mcpio serve`` names, with an explanation for every way in which that fails."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from types import ModuleType, TracebackType

from mcpio._drivers import ServedOnImport, only_importing
from mcpio.app.server import Server
from mcpio.cli.exit_status import Exit, Failure, did_you_mean

DEFAULT_NAME = "server"
"""The variable that holds the Server unless the command line names another."""

MODULE_NAME = "__mcp_main__"
"""The module name of a file: unlike any other, and not ``__main__``, so that the file does not serve when imported."""


def load(reference: str) -> Server:
    """Import and return the Server at ``package.module:name`` or ``path/to/file.py:name``.

    The working directory is searched too. Raises Failure if the server cannot be loaded.
    """
    module_name, colon, name = reference.rpartition(":")
    # The colon may be part of a path.
    if not colon or not name.isidentifier():
        module_name, name = reference, DEFAULT_NAME
    module = _file(module_name) if module_name.endswith(".py") else _module(module_name)
    named_value = getattr(module, name, None)
    if isinstance(named_value, Server):
        return named_value
    servers = [each for each, value in vars(module).items() if isinstance(value, Server)]
    if named_value is not None:
        reason = f"{name!r} in {module_name} is a {type(named_value).__name__}, not an mcpio Server."
    else:
        reason = f"{module_name} has no {name!r}.{did_you_mean(name, servers or vars(module))}"
    there = f" It has the Server {' and '.join(map(repr, servers))}." if servers else " It has no Server."
    advice = f" Write {module_name}:{servers[0]}." if servers else ""
    raise Failure(Exit.NOT_LOADED, reason + there + advice)


def _module(name: str) -> ModuleType:
    if not name or name.startswith("."):
        raise Failure(Exit.NOT_LOADED, f"there is no module {name!r}")
    sys.path.insert(0, os.getcwd())
    try:
        with _importing(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Failure(Exit.NOT_LOADED, f"there is no module {error.name!r}") from error


def _file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise Failure(Exit.NOT_LOADED, f"there is no file {path!r}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    loader = SourceFileLoader(MODULE_NAME, path)
    spec = ModuleSpec(MODULE_NAME, loader, origin=path)
    spec.has_location = True
    module = sys.modules[MODULE_NAME] = module_from_spec(spec)
    with _importing(path):
        loader.exec_module(module)
    return module


@contextlib.contextmanager
def _importing(module_name: str) -> Iterator[None]:
    """Convert everything that an import raises to Failure, except interrupts and the absence of the module itself."""
    try:
        with only_importing():
            yield
    except BaseException as error:
        causes = _within(error)
        if any(isinstance(each, ServedOnImport) for each in causes):
            reason = _served(module_name, error)
        elif any(isinstance(each, KeyboardInterrupt) for each in causes):
            raise KeyboardInterrupt from error
        elif isinstance(error, SystemExit):
            reason = f"importing {module_name} ended the program: it raised SystemExit({error.code!r})"
        elif isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            # The named module itself is missing, which the caller reports. Its own missing imports get a traceback.
            raise
        else:
            lines = traceback.format_exception(type(error), error, _own_steps(error))
            reason = f"importing {module_name} failed:\n{''.join(lines)}".rstrip()
        raise Failure(Exit.NOT_LOADED, reason) from error


def _within(error: BaseException) -> list[BaseException]:
    """Return the exception, or the leaves of an exception group."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _within(each)]


def _served(module_name: str, error: BaseException) -> str:
    """Describe a module that starts to serve when it is imported, with the line that does it."""
    steps = traceback.extract_tb(_own_steps(error))
    at = [step for step in steps if step.name == "<module>" and not _is_machinery(step.filename)][-1]
    return (
        f"{module_name} serves while it is imported, at line {at.lineno} of {at.filename}:\n  {at.line}\n"
        "Move this line under if __name__ == '__main__'"
    )


def _own_steps(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames of the import machinery and of this module."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None and _is_machinery(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    return step


def _is_machinery(file: str) -> bool:
    return (
        file in (__file__, contextlib.__file__)
        or file.startswith("<frozen importlib")
        or os.path.dirname(file) == os.path.dirname(importlib.__file__)
    )
