"""A memory that merges what is alike and forgets what matters least, on asyncio."""

import asyncio
import math
import re
from collections import Counter
from typing import Annotated

from mcpio import Server
from pydantic import BaseModel, Field

MOST = 5
ALIKE = 0.6

mcp = Server("memory")
lock = asyncio.Lock()


class Memory(BaseModel):
    content: str
    importance: float = 1.0

    def likeness(self, other: "Memory") -> float:
        """Return how alike two memories are, from 0 to 1: the cosine of their words."""
        one, two = (Counter(re.findall(r"\w+", each.content.lower())) for each in (self, other))
        lengths = math.hypot(*one.values()) * math.hypot(*two.values())
        return sum(one[word] * two[word] for word in one) / lengths if lengths else 0.0


memories: list[Memory] = []


async def add(content: str) -> str:
    new = Memory(content=content)
    async with lock:
        await asyncio.sleep(0)  # stands for a call of a model or a database
        for known in [each for each in memories if each.likeness(new) > ALIKE]:
            memories.remove(known)
            new.importance += known.importance
        memories.append(new)
        memories.sort(key=lambda each: -each.importance)
        del memories[MOST:]
    return f"Remembered: {content}"


@mcp.tool
async def remember(
    contents: Annotated[list[str], Field(description="What to store")],
) -> str:
    """Store observations."""
    return "\n".join(await asyncio.gather(*[add(content) for content in contents]))


@mcp.tool
async def recall() -> list[Memory]:
    """Return the memories, the most important first."""
    return memories
