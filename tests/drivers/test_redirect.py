"""The listener for the redirect of a browser: what it takes, and what cannot end a login."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from authworld import World

from mcpio._drivers.login import RedirectReceiver, _has_ipv6
from mcpio.auth import OAuth, PendingAuthorization


@contextmanager
def waiting(
    host: str = "127.0.0.1", path: str = "/callback"
) -> Iterator[tuple[RedirectReceiver, PendingAuthorization, list[str | None], threading.Thread]]:
    world = World()
    receiver = RedirectReceiver(host, None, path)
    pending = world.run(OAuth().begin(world.context))
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.append(receiver.wait(pending)))
    receiver.listen()
    thread.start()
    try:
        yield receiver, pending, found, thread
    finally:
        receiver.close()
        thread.join(5)
        assert not thread.is_alive()


def send(receiver: RedirectReceiver, text: str, host: str | None = None, *, address: str = "127.0.0.1") -> str:
    """Send a request and return the response, up to the end of the connection."""
    port = port_of(receiver)
    with socket.create_connection((address, port), timeout=5) as connection:
        connection.sendall(f"{text} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\n\r\n".encode())
        answer = b""
        while data := connection.recv(65536):
            answer += data
        return answer.decode()


def callback(pending: PendingAuthorization, **more: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in {"state": pending.state, **more}.items())
    return f"/callback?{query}"


def test_redirect_ends_the_wait_with_a_page() -> None:
    with waiting() as (receiver, pending, found, thread):
        answer = send(receiver, "GET " + callback(pending, code="c", iss=pending.server.issuer))
        thread.join(5)
        assert found == [f"{receiver.uri.rpartition('/')[0]}{callback(pending, code='c', iss=pending.server.issuer)}"]
    head, _, page = answer.partition("\r\n\r\n")
    assert "200 OK" in head
    assert "You can close this window" in page
    assert "default-src 'none'" in head
    assert "no-store" in head
    assert pending.state not in answer


@pytest.mark.req("AUTH-31")
@pytest.mark.parametrize(
    "more", [{"code": "c", "iss": "https://evil.example"}, {"error": "<script>alert(1)</script>"}, {}]
)
def test_failed_login_ends_the_wait_and_its_page_echoes_nothing(more: dict[str, str]) -> None:
    with waiting() as (receiver, pending, found, thread):
        answer = send(receiver, "GET " + callback(pending, **more))
        thread.join(5)
        assert found != [None]
    assert "The login failed" in answer
    assert "script" not in answer.partition("\r\n\r\n")[2]


@pytest.mark.req("AUTH-27")
@pytest.mark.parametrize(
    ("request_line", "host", "status"),
    [
        ("GET /callback?state=wrong&code=c", None, 400),
        ("GET /callback", None, 400),
        ("GET /callback?state=a&state=b", None, 400),
        ("GET /favicon.ico", None, 404),
        ("POST {}", None, 404),
        ("GET {}", "evil.example", 404),
        ("GET {}", "localhost:80", 404),
    ],
)
def test_other_requests_do_not_end_the_wait(request_line: str, host: str | None, status: int) -> None:
    with waiting() as (receiver, pending, found, thread):
        line = request_line.format(callback(pending, code="c", iss=pending.server.issuer))
        assert f" {status} " in send(receiver, line, host)
        assert found == []
        assert "200 OK" in send(receiver, "GET " + callback(pending, code="c", iss=pending.server.issuer))
        thread.join(5)
        assert found != [None]


@pytest.mark.long
@pytest.mark.req("AUTH-27")
def test_silent_and_malformed_connections_do_not_delay_the_redirect() -> None:
    with waiting() as (receiver, pending, found, thread):
        port = port_of(receiver)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        idle[0].sendall(b"GET /call")
        idle[1].sendall(b"nonsense\r\n\r\n")
        idle[2].close()
        idle[3].sendall(b"GET /" + b"x" * 20000)
        assert "200 OK" in send(receiver, "GET " + callback(pending, code="c", iss=pending.server.issuer))
        thread.join(5)
        assert found != [None]
        for each in idle:
            each.close()


def test_connection_without_a_request_is_dropped_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpio._drivers.login._PATIENCE", 0.02)
    with waiting() as (receiver, _, found, thread):
        port = port_of(receiver)
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            assert connection.recv(1) == b""
        assert found == []
        assert thread.is_alive()


HOSTS = [("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")]
if _has_ipv6():
    HOSTS += [("localhost", "::1"), ("[::1]", "::1"), ("[::1]", "127.0.0.1")]


@pytest.mark.parametrize(("host", "address"), HOSTS)
def test_receiver_listens_at_the_host_of_the_redirect_uri(host: str, address: str) -> None:
    with waiting(host.strip("[]"), "/oauth/done?from=mcpio") as (receiver, pending, found, thread):
        port = port_of(receiver)
        assert receiver.uri == f"http://{host}:{port}/oauth/done?from=mcpio"
        target = f"/oauth/done?from=mcpio&state={pending.state}&code=c"
        if host == "localhost" or host.strip("[]") == address:
            answer = send(receiver, f"GET {target}", f"{host}:{port}", address=address)
            assert "200 OK" in answer
            thread.join(5)
            assert found == [f"http://{host}:{port}{target}"]
        else:
            with pytest.raises(OSError, match=r"."):
                socket.create_connection((address, port), timeout=5)


def test_redirect_uri_without_a_path_is_the_root() -> None:
    with waiting(path="") as (receiver, pending, found, thread):
        send(receiver, f"GET /?state={pending.state}&code=c")
        thread.join(5)
        assert found == [f"{receiver.uri}/?state={pending.state}&code=c"]


def test_closed_receiver_ends_the_wait() -> None:
    with waiting() as (receiver, _, found, thread):
        receiver.close()
        receiver.close()
        thread.join(5)
        assert found == [None]


def test_receiver_closed_before_the_wait_returns_at_once() -> None:
    world = World()
    receiver = RedirectReceiver("127.0.0.1", None, "/callback")
    receiver.close()
    assert receiver.wait(world.run(OAuth().begin(world.context))) is None


@pytest.mark.parametrize("listens", [False, True])
def test_taken_port_is_an_error(listens: bool) -> None:
    first = RedirectReceiver("127.0.0.1", None, "/callback")
    port = port_of(first)
    if listens:
        first.listen()
    try:
        with pytest.raises(OSError, match=r"."):
            RedirectReceiver("127.0.0.1", port, "/callback")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match=r"."):
                other.bind(("127.0.0.1", port))
    finally:
        first.close()


def test_port_of_a_login_just_before_is_free() -> None:
    with waiting() as (receiver, pending, _, thread):
        send(receiver, "GET " + callback(pending, code="c", iss=pending.server.issuer))
        thread.join(5)
    again = RedirectReceiver("127.0.0.1", port_of(receiver), "/callback")
    again.listen()
    again.close()


def port_of(receiver: RedirectReceiver) -> int:
    return urlsplit(receiver.uri).port or 80
