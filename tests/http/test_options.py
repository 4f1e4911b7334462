from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mcpio.http.options import Cors, HostPolicy, HttpOptions


@pytest.mark.req("HTTP-04")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.7", ""])
def test_on_loopback_only_names_of_this_machine_are_served(host: str) -> None:
    policy = HostPolicy.for_address(host, 8000)
    assert policy.hosts is not None
    assert policy.origins is not None
    assert {"localhost:8000", "127.0.0.1:8000", "[::1]:8000", "localhost"} <= policy.hosts
    assert {
        "http://localhost:8000",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "https://localhost",
    } <= policy.origins
    for evil in ("evil.example", "evil.example:8000", "localhost:8001", "0.0.0.0:8000"):
        assert evil not in policy.hosts
        assert f"http://{evil}" not in policy.origins


@pytest.mark.req("HTTP-04")
def test_more_names_may_be_given_in_any_case() -> None:
    policy = HostPolicy.for_address("127.0.0.1", 8000, hosts=["MCP.Example:8000"], origins=["https://App.Example"])
    assert policy.hosts is not None
    assert policy.origins is not None
    assert {"mcp.example:8000", "localhost"} <= policy.hosts
    assert {"https://app.example", "http://mcp.example:8000", "http://localhost"} <= policy.origins


@pytest.mark.req("HTTP-02")
def test_bound_to_the_world_any_host_is_served_but_no_page_of_a_name_that_may_be_anybodys() -> None:
    policy = HostPolicy.for_address("0.0.0.0", 8000)
    assert policy.hosts is None
    assert policy.origins is not None
    assert "http://evil.example:8000" not in policy.origins
    assert {"http://0.0.0.0:8000", "http://localhost:8000"} <= policy.origins


@pytest.mark.req("HTTP-02")
def test_bound_to_the_world_with_names_only_those_are_served() -> None:
    policy = HostPolicy.for_address("10.0.0.5", 8000, hosts=["mcp.example"])
    assert policy.hosts == frozenset({"mcp.example"})
    assert policy.origins is not None
    assert "https://mcp.example" in policy.origins


def test_the_defaults_serve_any_client() -> None:
    options = HttpOptions()
    assert (options.path, options.answers, options.sessions, options.resumes) == ("/mcp", "auto", True, True)
    assert (options.cors, options.health, options.legacy) == (None, None, None)
    assert Cors().origins == "*"


@pytest.mark.parametrize("without", ["resumable", "listening", "sessions"])
def test_nobody_goes_on_with_a_stream_without_what_that_needs(without: str) -> None:
    lacking: dict[str, Any] = {without: False}
    assert not HttpOptions(**lacking).resumes


@pytest.mark.parametrize("name", ["sse_after", "session_idle", "resume_within", "keep_alive"])
def test_times_are_numbers_of_seconds(name: str) -> None:
    endless: dict[str, Any] = {name: math.inf}
    assert getattr(HttpOptions(**endless), name) is None
    wrong: Any
    for wrong in (-1, "1", math.nan):
        with pytest.raises(ValueError, match="a time is a number of seconds"):
            HttpOptions(**{name: wrong})


def test_on_a_unix_socket_any_host_is_served_and_no_page_but_those_that_are_named() -> None:
    assert HostPolicy.for_unix_socket() == HostPolicy(None, frozenset())
    policy = HostPolicy.for_unix_socket(origins=["https://App.Example"])
    assert policy.origins == frozenset({"https://app.example"})


@pytest.mark.req("HTTP-02", "HTTP-04")
def test_one_text_is_no_list_of_names() -> None:
    makers: list[Callable[[Any], object]] = [
        lambda name: HostPolicy(name, None),
        lambda name: HostPolicy(None, name),
        lambda name: HostPolicy.for_address("0.0.0.0", 8000, hosts=name),
        lambda name: HostPolicy.for_address("0.0.0.0", 8000, origins=name),
        lambda name: HostPolicy.for_unix_socket(origins=name),
        lambda name: Cors(origins=name),
    ]
    for make in makers:
        with pytest.raises(TypeError, match=r"expected a collection of names, as in \['https://app\.example'\]"):
            make("https://app.example")


def test_names_may_be_given_in_any_collection_and_in_any_case() -> None:
    assert HostPolicy(["MCP.Example"], {"https://App.Example"}) == HostPolicy(
        frozenset({"mcp.example"}), frozenset({"https://app.example"})
    )
    assert Cors(origins=["https://App.Example"]).origins == frozenset({"https://app.example"})
    assert Cors(origins="*").origins == "*"


@pytest.mark.parametrize("path", ["/x?y", "/x#y", "/x y", "/x\n", "/é"])
def test_a_path_is_one_that_a_url_can_have(path: str) -> None:
    with pytest.raises(ValueError, match="path must be printable ASCII without"):
        HttpOptions(path=path)
    with pytest.raises(ValueError, match="health must be printable ASCII"):
        HttpOptions(health=path)


def test_a_path_begins_with_a_slash_and_answers_are_of_three_kinds() -> None:
    with pytest.raises(ValueError, match="path must begin with a slash, not 'mcp'"):
        HttpOptions(path="mcp")
    with pytest.raises(ValueError, match="health must begin with a slash, not 'ok'"):
        HttpOptions(health="ok")
    wrong: Any = 5
    with pytest.raises(ValueError, match="path must begin with a slash, not 5"):
        HttpOptions(path=wrong)
    wrong = "xml"
    with pytest.raises(ValueError, match="answers must be 'auto', 'json' or 'sse', not 'xml'"):
        HttpOptions(answers=wrong)


@pytest.mark.parametrize(("name", "kind"), [("policy", "HostPolicy"), ("cors", "Cors")])
def test_every_host_or_page_is_not_let_in_by_a_star(name: str, kind: str) -> None:
    star: dict[str, Any] = {name: "*"}
    with pytest.raises(TypeError, match=rf"^{name}= takes {kind}, not '\*'$"):
        HttpOptions(**star)
