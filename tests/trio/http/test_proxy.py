from __future__ import annotations

import pytest

from mcpio._drivers.fetch import Proxy, find_proxy
from mcpio.http.client import Location

HERE = Location.parse("http://a.example.com:8000/mcp")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("REQUEST_METHOD", raising=False)


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://localhost:3128", Proxy("localhost", 3128)),
        ("http://localhost:3128/", Proxy("localhost", 3128)),
        ("localhost:3128", Proxy("localhost", 3128)),
        ("http://u:p@localhost", Proxy("localhost", 80, b"Basic dTpw")),
        ("http://u@[::1]:1", Proxy("::1", 1, b"Basic dTo=")),
        ("http://%C3%A9:%40@x", Proxy("x", 80, b"Basic w6k6QA==")),
    ],
)
def test_proxy_url_gives_address_and_credentials(url: str, proxy: Proxy) -> None:
    assert Proxy.parse(url) == proxy


def test_proxy_for_a_unix_socket_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    socket = Location.parse("http+unix://%2Fa/mcp")
    monkeypatch.setenv("HTTP_PROXY", "http://localhost:1")
    assert find_proxy(socket, None, trust_env=True) is None
    with pytest.raises(ValueError, match="proxy must be None for a Unix socket") as refused:
        find_proxy(socket, "http://user:secret@localhost:1", trust_env=False)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["socks5://localhost:1", "https://localhost:1", "http://u:secret@", "http://u:secret@a b"]
)
def test_invalid_proxy_url_is_rejected_without_showing_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        Proxy.parse(url)
    assert "secret" not in str(caught.value)


def test_proxy_repr_hides_the_password() -> None:
    assert "dTpw" not in repr(Proxy.parse("http://u:p@localhost"))


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        ({}, None),
        ({"http_proxy": "http://p"}, "p"),
        ({"HTTP_PROXY": "http://p"}, "p"),
        ({"https_proxy": "http://p"}, None),
        ({"all_proxy": "http://p"}, "p"),
        ({"http_proxy": "http://p", "all_proxy": "http://q"}, "p"),
        ({"http_proxy": ""}, None),
        *(
            ({"http_proxy": "http://p", "no_proxy": no}, None)
            for no in ("*", "example.com", ".example.com", "x, A.EXAMPLE.COM ", "a.example.com:8000")
        ),
        *(
            ({"http_proxy": "http://p", "no_proxy": no}, "p")
            for no in ("", ",", "ample.com", "b.example.com", "a.example.com:80", ".")
        ),
    ],
)
def test_environment_variables_select_the_proxy(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], host: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = find_proxy(HERE, None, trust_env=True)
    assert (found and found.host) == host
    assert find_proxy(HERE, None, trust_env=False) is None
    assert find_proxy(HERE, "http://given", trust_env=True) == Proxy("given", 80)
