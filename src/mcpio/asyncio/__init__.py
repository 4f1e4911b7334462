"""The runtime seam on asyncio: what the application layer needs of an event loop, and nothing else."""

from mcpio.asyncio._runtime import AsyncioRuntime

__all__ = ["AsyncioRuntime"]
