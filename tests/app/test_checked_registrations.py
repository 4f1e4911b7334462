"""What can never work is refused where it is registered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import pydantic
import pytest

from mcpio import Server
from mcpio.app.middleware import checked_middleware
from mcpio.app.middleware.policies import RateLimit
from mcpio.trio import open_http, proxy


def plain() -> str:
    return "x"


def test_entry_of_a_proxy_is_refused() -> None:
    server = proxy(partial(open_http, "http://127.0.0.1:1/mcp"))
    registrations: list[Callable[[], object]] = [
        lambda: server.tool(plain),
        lambda: server.prompt(plain),
        lambda: server.resource("a:b")(plain),
        lambda: server.resource("a:{id}", name="a")(lambda id: id),
        lambda: server.completion("text", prompt="p")(lambda text: []),
        lambda: server.mount(Server("other", "1.0")),
    ]
    for register in registrations:
        with pytest.raises(TypeError, match="it would never be served: a proxy answers nothing by itself"):
            register()


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("tools/lst", "the protocol has no method 'tools/lst'; did you mean 'tools/list'"),
        ("tool/list", "did you mean 'tools/list'"),
        ("tools/erase", "the protocol has no method 'tools/erase'"),
        ("ping", "no handler here gets 'ping'"),
        ("initialize", "no handler here gets 'initialize'"),
        ("sampling/createMessage", "no handler here gets 'sampling/createMessage'"),
        ("notifications/cancelled", "no handler here gets 'notifications/cancelled'"),
        ("acme/notes", "no handler here gets 'acme/notes'"),
    ],
)
def test_scopes_of_a_method_that_no_handler_gets_are_refused(method: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Server("s", "1.0").require(method, "read")


def test_scopes_of_a_custom_method_are_accepted_with_its_handler() -> None:
    server = Server("s", "1.0")
    server.handlers["acme/notes"] = lambda scope, request: {}
    server.require("acme/notes", "read")
    server.require("tasks/get", "read")
    assert server.scope_rules is not None


def test_misspelt_method_of_a_middleware_is_refused() -> None:
    for methods in ("tools/cal", ["tools/call", "resources/reed"]):
        with pytest.raises(ValueError, match="the protocol has no method"):
            RateLimit(1, 1.0, methods=methods)
    RateLimit(1, 1.0, methods=["tools/call", "acme/notes"])


async def two(context: Any, call_next: Any) -> Any: ...


async def four(ctx: Any, request: Any, call_next: Any, more: Any) -> Any: ...


async def named(ctx: Any, *, request: Any, call_next: Any) -> Any: ...


async def three(ctx: Any, request: Any, call_next: Any) -> Any: ...


async def any_number(*given: Any) -> Any: ...


class Layer:
    async def __call__(self, ctx: Any, request: Any, call_next: Any) -> Any: ...

    async def method(self, ctx: Any, request: Any, call_next: Any) -> Any: ...


@pytest.mark.parametrize("function", [two, four, named])
def test_middleware_of_other_parameters_is_refused(function: Any) -> None:
    said = r"middleware= is called with \(ctx, request, call_next\), which .* does not take"
    with pytest.raises(TypeError, match=said):
        Server("s", "1.0").middleware(function)
    with pytest.raises(TypeError, match=said):
        Server("s", "1.0", middleware=[function])


def test_middleware_that_takes_three_is_accepted() -> None:
    assert len(checked_middleware([three, any_number, Layer(), Layer().method])) == 4


def test_callback_of_other_parameters_is_refused() -> None:
    server = Server("s", "1.0")
    options: list[Any] = [{"scopes": lambda: ["read"]}, {"visible": lambda: True}, {"visible": lambda ctx, more: True}]
    for option in options:
        with pytest.raises(TypeError, match="is called with"):
            server.tool(**option)(plain)
    key: Any = lambda ctx: "x"  # noqa: E731  a function of one parameter
    with pytest.raises(TypeError, match="per= is called with"):
        RateLimit(1, 1.0, per=key)
    of_c: Any = min  # it has no signature
    server.tool(name="y", visible=of_c)(plain)


@pytest.mark.parametrize(
    ("annotation", "default", "said"),
    [
        (int, "z", "default must be an integer, not 'z'"),
        (int, True, "default must be an integer, not True"),
        (str, 5, "default must be a string, not 5"),
        (bool, 0, "default must be .*, not 0"),
        (list[int], "z", "default must be an array, not 'z'"),
        (Literal["a"], 5, "default must be .*, not 5"),
        (int | None, "z", "default must be .*, not 'z'"),
    ],
)
def test_default_of_another_type_is_refused(annotation: Any, default: Any, said: str) -> None:
    def function(x: Any = default) -> None: ...

    function.__annotations__["x"] = annotation
    with pytest.raises(TypeError, match=rf"parameter 'x': {said}"):
        Server("s", "1.0").tool(function)


@pytest.mark.parametrize(
    ("annotation", "default"), [(int, None), (float, 1), (int, 1), (Any, "z"), (int | str, "z"), (list[int], ())]
)
def test_default_that_fits_is_accepted(annotation: Any, default: Any) -> None:
    def function(x: Any = default) -> None: ...

    function.__annotations__["x"] = annotation
    Server("s", "1.0").tool(function)


@pytest.mark.parametrize(
    "kind", [set[list[int]], frozenset[dict[str, int]], set[Annotated[list[int], "x"]], set[set[int]]]
)
def test_set_of_unhashable_items_is_refused(kind: Any) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__["x"] = kind
    with pytest.raises(TypeError, match="its items are not hashable; take a list"):
        Server("s", "1.0").tool(function)


@pytest.mark.parametrize("kind", [set[int], set[frozenset[int]], set[tuple[int, str]], set[int | str]])
def test_set_of_hashable_items_is_accepted(kind: Any) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__["x"] = kind
    Server("s", "1.0").tool(function)


def takes_ctx(ctx, a):  # type: ignore[no-untyped-def]  # that is what is refused
    ...


def takes_context(context, a):  # type: ignore[no-untyped-def]  # as above
    ...


@pytest.mark.parametrize("function", [takes_ctx, takes_context])
def test_context_without_annotation_is_refused(function: Any) -> None:
    server = Server("s", "1.0")
    for register in (server.tool, server.prompt, server.resource("a:{a}")):
        with pytest.raises(TypeError, match="callers would have to give it; annotate it with Context"):
            register(function)


TAKES: dict[str, Any] = {
    "id": lambda id: None,
    "name": lambda name: None,
    "path": lambda path: None,
    "id more": lambda id, more: None,
}


def add(server: Server, template: str) -> None:
    names = [part.partition("}")[0].lstrip("+").partition(":")[0] for part in template.split("{")[1:]]
    server.resource(template, name="read")(TAKES[" ".join(names)])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a:{id}", "a:{name}"),
        ("a:{id}", "a:x{name}"),
        ("a:{id}", "a:{id}.json"),
        ("a:{+path}", "a:{id}"),
        ("a:{+path}", "a:{id}/{more}"),
        ("a:{id}", "a:{id:3}"),
    ],
)
def test_template_that_is_never_read_is_refused(first: str, second: str) -> None:
    server = Server("s", "1.0")
    add(server, first)
    with pytest.raises(ValueError, match=r"never read, since .* was registered before it"):
        add(server, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a:{id}", "a:{+path}"),
        ("a:{id}", "b:{id}"),
        ("a:{id:3}", "a:{id}"),
        ("a:{id}", "a:{id}/{more}"),
        ("a:x{name}", "a:{id}"),
    ],
)
def test_template_that_is_read_at_some_uris_is_accepted(first: str, second: str) -> None:
    server = Server("s", "1.0")
    add(server, first)
    add(server, second)


def test_template_behind_one_that_some_do_not_see_is_accepted() -> None:
    server = Server("s", "1.0")
    server.resource("a:{id}", name="one", visible=lambda ctx: False)(lambda id: id)
    server.resource("a:{name}", name="two")(lambda name: name)


def test_empty_name_is_refused() -> None:
    server = Server("s")
    for register in (server.tool(name=""), server.prompt(name=""), server.resource("a:1", name="")):
        with pytest.raises(ValueError, match="name must not be empty"):
            register(plain)


@dataclasses.dataclass
class Sized:
    size: Annotated[int, pydantic.Field(serialization_alias="theSize")]


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, pydantic.Field(alias="y")],
        Annotated[int, pydantic.Field(validation_alias=pydantic.AliasChoices("y", "z"))],
        Sized,
    ],
)
def test_alias_of_a_pydantic_field_outside_of_models_is_refused(annotation: Any) -> None:
    def tool(x: Any) -> None: ...

    tool.__annotations__["x"] = annotation
    with pytest.raises(TypeError, match="the alias of a pydantic Field is read in pydantic models only"):
        Server("s").tool(tool)


def test_alias_of_a_default_that_is_a_pydantic_field_is_refused() -> None:
    def tool(x: int = pydantic.Field(1, alias="y")) -> None: ...

    with pytest.raises(TypeError, match="the alias of a pydantic Field is read in pydantic models only"):
        Server("s").tool(tool)
