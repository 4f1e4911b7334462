"""Models of pydantic wherever a class of one's own may stand: dependencies, lifespan, forms, resources."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pydantic
import pytest
import trio

from mcpio.app.asking import Accepted
from mcpio.app.client import Client
from mcpio.app.context import Context
from mcpio.app.schema.signature import Depends
from mcpio.app.server import Server
from mcpio.trio import memory_client
from mcpio.types import ElicitRequest, ElicitResult, TextResourceContents


class Settings(pydantic.BaseModel):
    """Has a field under another name, and one that only validation turns into a number."""

    model_config = pydantic.ConfigDict(frozen=True)

    root: str = pydantic.Field(alias="rootName")
    limit: int = 3


class City(pydantic.BaseModel):
    name: str
    people: int = pydantic.Field(ge=0)


class Booking(pydantic.BaseModel):
    to: str = pydantic.Field(min_length=3)
    seats: int = 1

    @pydantic.field_validator("to")
    @classmethod
    def _is_served(cls, value: str) -> str:
        """A rule that the schema of a form cannot express."""
        if value == "Atlantis":
            raise ValueError("no train goes there")
        return value


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[Settings]:
    yield Settings.model_validate({"rootName": "/srv", "limit": "7"})


def settings(ctx: Context) -> Settings:
    found = ctx.state
    assert isinstance(found, Settings)
    return found


def capital(known: Annotated[Settings, Depends(settings)]) -> City:
    return City(name=known.root, people=known.limit)


server = Server("atlas", lifespan=lifespan)


@server.tool
def grow(city: City, root: Annotated[City, Depends(capital)]) -> City:
    return City(name=root.name + city.name, people=root.people + city.people)


@server.tool
async def book(ctx: Context) -> str:
    answer = await ctx.elicit("Where to?", Booking)
    return repr(answer.value) if isinstance(answer, Accepted) else "no"


@server.resource("atlas://all")
def all_cities(root: Annotated[City, Depends(capital)]) -> list[City]:
    return [root]


@server.resource("atlas://cities/{name}")
def one_city(name: str) -> City:
    return City(name=name, people=1)


async def _with_client(work: Any, **options: Any) -> None:
    with trio.fail_after(30):
        async with memory_client(server, **options) as client:
            await work(client)


def test_dependency_and_lifespan_give_models_that_clients_do_not_see() -> None:
    async def work(client: Client) -> None:
        (tool,) = [tool async for tool in client.tools() if tool.name == "grow"]
        assert list(tool.input_schema["properties"]) == ["city"]
        result = await client.call_tool("grow", {"city": {"name": "/oslo", "people": 2}}, returns=City)
        assert result == City(name="/srv/oslo", people=9)
        refused = await client.call_tool("grow", {"city": {"name": "", "people": -1}})
        assert refused.is_error
        assert "arguments.city.people" in refused.text

    trio.run(_with_client, work)


def test_client_cannot_give_a_model_of_a_dependency() -> None:
    async def work(client: Client) -> None:
        forged = {"city": {"name": "/oslo", "people": 0}, "root": {"name": "forged", "people": 1}}
        result = await client.call_tool("grow", forged)
        assert "forged" not in result.text
        assert result.is_error or result.structured_content == {"name": "/srv/oslo", "people": 7}

    trio.run(_with_client, work)


@pytest.mark.parametrize(
    ("content", "said"),
    [({"to": "Oslo", "seats": 2}, "Booking(to='Oslo', seats=2)"), ({"to": "Rome"}, "Booking(to='Rome', seats=1)")],
)
def test_elicited_form_becomes_a_model(content: dict[str, Any], said: str) -> None:
    async def answer(scope: Any, request: ElicitRequest) -> ElicitResult:
        return ElicitResult("accept", content)

    async def work(client: Client) -> None:
        assert (await client.call_tool("book")).text == said

    async def run() -> None:
        await _with_client(work, elicitation=answer)

    trio.run(run)


def test_elicited_form_that_breaks_a_rule_of_the_model_is_refused() -> None:
    async def answer(scope: Any, request: ElicitRequest) -> ElicitResult:
        return ElicitResult("accept", {"to": "Atlantis"})

    async def work(client: Client) -> None:
        result = await client.call_tool("book")
        assert result.is_error
        assert "content.to" in result.text
        assert "no train goes there" in result.text

    async def run() -> None:
        await _with_client(work, elicitation=answer, era="handshake")  # a stateless server asks again

    trio.run(run)


def test_resources_of_models_are_json() -> None:
    async def work(client: Client) -> None:
        (every,) = (await client.read_resource("atlas://all")).contents
        assert isinstance(every, TextResourceContents)
        assert json.loads(every.text) == [{"name": "/srv", "people": 7}]
        assert every.mime_type == "application/json"
        (one,) = (await client.read_resource("atlas://cities/Rome")).contents
        assert isinstance(one, TextResourceContents)
        assert json.loads(one.text) == {"name": "Rome", "people": 1}

    trio.run(_with_client, work)


class Meeting(pydantic.BaseModel):
    at: pydantic.AwareDatetime


def test_aware_datetime_of_a_model_needs_a_time_zone() -> None:
    server = Server("s")

    @server.tool
    def book(meeting: Meeting) -> str:
        return str(meeting.at)

    async def main() -> None:
        async with memory_client(server) as client:
            (tool,) = [tool async for tool in client.tools()]
            assert '"format": "date-time"' in json.dumps(tool.input_schema, default=dict)
            assert not (await client.call_tool("book", {"meeting": {"at": "2025-01-01T00:00:00Z"}})).is_error
            assert (await client.call_tool("book", {"meeting": {"at": "2025-01-01T00:00:00"}})).is_error

    trio.run(main)
