from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mcpio.http.model import Cors, HostPolicy, HttpOptions, Page


@pytest.mark.req("HTTP-04")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.7", ""])
def test_policy_for_loopback_serves_only_local_names(host: str) -> None:
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
def test_policy_names_ignore_case() -> None:
    policy = HostPolicy.for_address("127.0.0.1", 8000, hosts=["MCP.Example:8000"], origins=["https://App.Example"])
    assert policy.hosts is not None
    assert policy.origins is not None
    assert {"mcp.example:8000", "localhost"} <= policy.hosts
    assert {"https://app.example", "http://mcp.example:8000", "http://localhost"} <= policy.origins


@pytest.mark.req("HTTP-02")
def test_policy_for_other_addresses_serves_any_host_and_few_origins() -> None:
    policy = HostPolicy.for_address("0.0.0.0", 8000)
    assert policy.hosts is None
    assert policy.origins is not None
    assert "http://evil.example:8000" not in policy.origins
    assert {"http://0.0.0.0:8000", "http://localhost:8000"} <= policy.origins


@pytest.mark.req("HTTP-02")
def test_policy_for_other_addresses_with_hosts_serves_only_those() -> None:
    policy = HostPolicy.for_address("10.0.0.5", 8000, hosts=["mcp.example"])
    assert policy.hosts == frozenset({"mcp.example"})
    assert policy.origins is not None
    assert "https://mcp.example" in policy.origins


def test_defaults_serve_any_client() -> None:
    options = HttpOptions()
    assert (options.path, options.answers, options.sessions, options.resumes) == ("/mcp", "auto", True, True)
    assert (options.cors, options.health, options.legacy) == (None, None, None)
    assert Cors().origins == "*"


@pytest.mark.parametrize("without", ["resumable", "listening", "sessions"])
def test_resumption_needs_sessions_and_listening(without: str) -> None:
    lacking: dict[str, Any] = {without: False}
    assert not HttpOptions(**lacking).resumes


@pytest.mark.parametrize("name", ["sse_after", "session_idle", "resume_within", "keep_alive"])
def test_times_must_be_numbers_of_seconds(name: str) -> None:
    endless: dict[str, Any] = {name: math.inf}
    assert getattr(HttpOptions(**endless), name) is None
    wrong: Any
    for wrong in (-1, "1", math.nan):
        with pytest.raises(ValueError, match=f"{name} must be a number of seconds"):
            HttpOptions(**{name: wrong})


def test_policy_for_unix_socket_serves_any_host_and_named_origins() -> None:
    assert HostPolicy.for_unix_socket() == HostPolicy(None, frozenset())
    policy = HostPolicy.for_unix_socket(origins=["https://App.Example"])
    assert policy.origins == frozenset({"https://app.example"})


@pytest.mark.req("HTTP-02", "HTTP-04")
def test_str_is_refused_as_a_collection_of_names() -> None:
    makers: list[Callable[[Any], object]] = [
        lambda name: HostPolicy(name, None),
        lambda name: HostPolicy(None, name),
        lambda name: HostPolicy.for_address("0.0.0.0", 8000, hosts=name),
        lambda name: HostPolicy.for_address("0.0.0.0", 8000, origins=name),
        lambda name: HostPolicy.for_unix_socket(origins=name),
        lambda name: Cors(origins=name),
    ]
    for make in makers:
        with pytest.raises(TypeError, match=r"names must be a collection, as in \['https://app\.example'\]"):
            make("https://app.example")


def test_names_may_be_in_any_collection_and_case() -> None:
    assert HostPolicy(["MCP.Example"], {"https://App.Example"}) == HostPolicy(
        frozenset({"mcp.example"}), frozenset({"https://app.example"})
    )
    assert Cors(origins=["https://App.Example"]).origins == frozenset({"https://app.example"})
    assert Cors(origins="*").origins == "*"


@pytest.mark.parametrize("path", ["/x?y", "/x#y", "/x y", "/x\n", "/é"])
def test_path_must_be_possible_in_a_url(path: str) -> None:
    with pytest.raises(ValueError, match="path must be printable ASCII without"):
        HttpOptions(path=path)
    with pytest.raises(ValueError, match="health must be printable ASCII"):
        HttpOptions(health=path)


def test_pages_are_checked() -> None:
    page = Page(b"x")
    assert page.headers == ((b"content-type", b"text/html; charset=utf-8"),)
    assert hash(HttpOptions(pages={"/": page}))
    with pytest.raises(ValueError, match="pages must begin with a slash, not 'x'"):
        HttpOptions(pages={"x": page})
    wrong: Any = "<p>"
    with pytest.raises(TypeError, match=r"pages\['/'\] must be Page, not '<p>'"):
        HttpOptions(pages={"/": wrong})
    with pytest.raises(ValueError, match="Page: the header field b'x:' must have no line end, and a token for a name"):
        Page(b"", ((b"x:", b""),))


def test_path_without_slash_and_unknown_answers_are_refused() -> None:
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
def test_star_is_not_a_wildcard_in_a_policy(name: str, kind: str) -> None:
    star: dict[str, Any] = {name: "*"}
    with pytest.raises(TypeError, match=rf"^{name} must be {kind}, not '\*'$"):
        HttpOptions(**star)


def test_legacy_paths_are_checked() -> None:
    for wrong in ("/sse", ["/sse", "/messages"], ("/sse",)):
        with pytest.raises(TypeError, match=r"legacy must be two paths, as in \('/sse', '/messages'\), not"):
            HttpOptions(legacy=wrong)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(ValueError, match="legacy must begin with a slash, not 'messages'"):
        HttpOptions(legacy=("/sse", "messages"))


@pytest.mark.parametrize("wrong", [-1, "600", None, 1.5])
def test_max_age_must_be_whole_seconds(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_age must be a whole number of seconds, 0 or more, not"):
        Cors(max_age=wrong)
