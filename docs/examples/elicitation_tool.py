"""A tool that asks its user: what is missing, by a form that a class describes."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import attrs
import trio

from mcpio import Context, Server
from mcpio.app import (
    Accepted,
    Cancelled,
    Constraints,
    Declined,
    Form,
    RequestScope,
    defaults_of,
)
from mcpio.trio import memory_client
from mcpio.types import ElicitFormRequest, ElicitResult, ElicitURLRequest

server = Server("travel", "1.0")


class Seat(Enum):
    """Seat preference."""

    WINDOW = "window"
    AISLE = "aisle"


@attrs.frozen
class Booking:
    """Details of a flight."""

    to: Annotated[str, "Where to", Constraints(min_length=3)]
    people: Annotated[int, Constraints(ge=1, le=9)] = 1
    seat: Seat = Seat.AISLE


BOOKING = Form(Booking)  # made here, so that what no form can ask for is found at once


@server.tool
async def book(ctx: Context) -> str:
    """Book a flight."""
    match await ctx.elicit("Where would you like to go?", BOOKING, timeout=600):
        case Accepted(Booking(to, people, seat)):
            return f"{people} to {to}, {seat.value} seat"
        case Declined():
            return "nothing booked"
        case Cancelled():
            return "nothing booked yet: ask again later"


def ask_user(
    scope: RequestScope, request: ElicitFormRequest | ElicitURLRequest
) -> ElicitResult:
    """Stand in for a dialog: show the server, its message and the form with its defaults."""
    if not isinstance(request, ElicitFormRequest):
        return ElicitResult("decline")
    print(f"{scope.peer.info.name}: {request.message} {defaults_of(request.requested_schema)}")
    return ElicitResult("accept", {"to": "Oslo", "people": 2})


async def main() -> None:
    async with memory_client(server, elicitation=ask_user) as client:
        print((await client.call_tool("book")).text)


if __name__ == "__main__":
    trio.run(main)
