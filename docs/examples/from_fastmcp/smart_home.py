"""A home with lamps: a server for the lamps, mounted in that of the house."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcpio import Context, Server, ToolError
from mcpio.app import Depends
from mcpio.types import ToolAnnotations
from pydantic import BaseModel


class Lamp(BaseModel):
    name: str
    on: bool = False
    percent: int = 100


class Bridge:
    """Stands for the device that the lamps answer to."""

    def __init__(self, lamps: list[Lamp]) -> None:
        self.lamps = {lamp.name: lamp for lamp in lamps}

    async def lamp(self, name: str) -> Lamp:
        if name not in self.lamps:
            raise ToolError(f"there is no lamp {name!r}: there are {', '.join(self.lamps)}")
        return self.lamps[name]


@asynccontextmanager
async def connected(server: Any) -> AsyncIterator[dict[str, Bridge]]:
    yield {"bridge": Bridge([Lamp(name="kitchen"), Lamp(name="hall", on=True)])}


def get_bridge(ctx: Context) -> Any:
    return ctx.state["bridge"]


lamps = Server("Lamps", lifespan=connected)
READ = ToolAnnotations(read_only_hint=True, open_world_hint=True)


@lamps.tool(annotations=READ)
async def read(bridge: Bridge = Depends(get_bridge)) -> dict[str, Lamp]:
    """Read the lamps by name."""
    return bridge.lamps


@lamps.tool
async def switch(name: str, on: bool, bridge: Bridge = Depends(get_bridge)) -> Lamp:
    """Switch a lamp on or off."""
    lamp = await bridge.lamp(name)
    lamp.on = on
    return lamp


@lamps.tool
async def dim(name: str, percent: int, bridge: Bridge = Depends(get_bridge)) -> Lamp:
    """Dim a lamp."""
    lamp = await bridge.lamp(name)
    lamp.percent = percent
    return lamp


home = Server("Home")
home.mount(lamps, "lamps")
