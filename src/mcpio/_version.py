"""The version of the package, read from its metadata when it is first asked for."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("mcpio")
