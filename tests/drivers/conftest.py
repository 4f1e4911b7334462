"""Fixtures that run a test on each event loop."""

from eachloop import each_loop, each_virtual_loop
from rawsite import serve_site

__all__ = ["each_loop", "each_virtual_loop", "serve_site"]
