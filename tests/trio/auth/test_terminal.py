"""The person at the terminal: the browser that opens or, where none can, the URL that is printed and the one pasted."""

from __future__ import annotations

import io
import os
import re
import socket
import sys
import threading
import time
import urllib.request
import webbrowser
from collections.abc import Iterator
from typing import Any

import pytest
from authsite import AuthSite, each_loop, run
from authworld import World

from mcpio._drivers.login import ask_at_terminal, ask_without_browser, is_headless
from mcpio.auth import AskUser, MemoryCredentials, OAuth, ShowCode
from mcpio.errors import ConnectFailed

SHOWS_NO_BROWSER = ("SSH_CONNECTION", "SSH_TTY", "CI", "DISPLAY", "WAYLAND_DISPLAY")


class Terminal(io.StringIO):
    """Standard input and error: the person pastes ``lines``, and then what the site's browser ends at."""

    def __init__(self, site: AuthSite, *lines: str, gives_up: bool = False) -> None:
        super().__init__()
        self.site = site
        self.lines = lines
        self.gives_up = gives_up
        self.typed = self.type()

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]  # as the file that it stands for
        return next(self.typed, "")

    def type(self) -> Iterator[str]:
        yield from (line + "\n" for line in self.lines)
        if not self.gives_up:
            [url] = re.findall(r"http\S+/authorize\?\S+", self.getvalue())
            yield f"  {self.site.server.approve(url, time.time())}\n"


@each_loop
@pytest.mark.parametrize("gives_up", [False, True])
def test_url_is_pasted_where_no_browser_can_open(loop: Any, gives_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")

    async def play(site: AuthSite) -> None:
        terminal = Terminal(site, "y", "http://127.0.0.1:1/callback?code=x&state=y", gives_up=gives_up)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)
        how: Any = {"auth": OAuth(login_timeout=0.2 if gives_up else 60), "credentials": MemoryCredentials()}
        if gives_up:
            # At the end of the input the wait goes on: the browser may still come.
            with pytest.raises(ConnectFailed, match="the login was not completed in time"):
                async with loop.open_http(site.url, **how):
                    pass
        else:
            async with loop.open_http(site.url, **how) as client:
                assert (await client.call_tool("x")).text == "done"
            assert terminal.getvalue().count("does not belong to the login") == 2
        assert f"To log in at {site.base}, open this URL" in terminal.getvalue()

    run(play, loop=loop)


class Printed(io.StringIO):
    """Standard error: a person opens the URL that is printed, with a browser on this machine."""

    def __init__(self, person: str) -> None:
        super().__init__()
        self.person = person

    def write(self, text: str) -> int:
        if self.person == "browses" and (found := re.search(r"http\S+/authorize\?\S+", text)):
            threading.Thread(target=urllib.request.urlopen, args=[found[0]]).start()
        return super().write(text)


@each_loop
@pytest.mark.parametrize("person", ["browses", "does nothing"])
def test_lines_after_the_end_of_a_login_are_the_programs(
    loop: Any, person: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    keyboard, terminal = os.openpty()

    async def play(site: AuthSite) -> None:
        oauth = OAuth(login_timeout=60 if person == "browses" else 0.2)
        opening = loop.open_http(site.url, auth=oauth, credentials=MemoryCredentials())
        if person == "browses":
            async with opening as client:
                assert (await client.call_tool("x")).text == "done"
        else:
            with pytest.raises(ConnectFailed, match="the login was not completed in time"):
                async with opening:
                    pass

    monkeypatch.setattr(sys, "stderr", Printed(person))
    with os.fdopen(terminal, "r") as stdin, os.fdopen(keyboard, "wb", buffering=0) as typing:
        monkeypatch.setattr(sys, "stdin", stdin)
        run(play, loop=loop)
        typing.write(b"first\nsecond\n")
        assert [stdin.readline(), stdin.readline()] == ["first\n", "second\n"]


@each_loop
@pytest.mark.parametrize("is_terminal", [True, False])
def test_url_is_pasted_where_the_port_of_the_redirect_uri_is_taken(
    loop: Any, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, {}, "linux")

    async def play(site: AuthSite) -> None:
        terminal = Terminal(site)
        monkeypatch.setattr(sys, "stdin", terminal if is_terminal else io.StringIO())
        monkeypatch.setattr(sys, "stderr", terminal)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            uri = f"http://127.0.0.1:{taken.getsockname()[1]}/done"
            how: Any = {"auth": OAuth(redirect_uri=uri), "credentials": MemoryCredentials()}
            if is_terminal:
                async with loop.open_http(site.url, **how) as client:
                    assert (await client.call_tool("x")).text == "done"
            else:
                with pytest.raises(ConnectFailed, match=f"nothing listens at the redirect URI {uri}"):
                    async with loop.open_http(site.url, **how):
                        pass

    run(play, loop=loop)


@pytest.mark.parametrize(
    ("environment", "platform", "headless"),
    [
        ({"DISPLAY": ":0"}, "linux", False),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", False),
        ({}, "linux", True),
        ({}, "darwin", False),
        ({}, "win32", False),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "x"}, "linux", True),
        ({"SSH_TTY": "/dev/pts/1"}, "darwin", True),
        ({"DISPLAY": ":0", "CI": "true"}, "linux", True),
    ],
)
def test_host_without_a_browser_is_recognised(
    environment: dict[str, str], platform: str, headless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, environment, platform)
    assert is_headless() is headless


@pytest.mark.parametrize("opens", [True, False, None])
def test_browser_opens_without_a_shell_or_the_url_is_printed(
    opens: bool | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, {"DISPLAY": ":0"}, "linux")
    opened = []

    def open_browser(url: str) -> bool:
        opened.append(url)
        if opens is None:
            raise webbrowser.Error("no runnable browser")
        return opens

    monkeypatch.setattr(webbrowser, "open", open_browser)
    effect = asking()
    before = set(threading.enumerate())
    ask_at_terminal(effect)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert opened == [effect.url]
    said = capsys.readouterr().err
    assert "Opening a browser to log in at https://as.example.com" in said
    assert (effect.url in said) is not (opens is True)


def test_url_or_code_is_printed_without_a_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, {}, "linux")
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("a browser was opened"))
    effect = asking()
    ask_at_terminal(effect)
    ask_without_browser(effect)
    assert capsys.readouterr().err.count(effect.url) == 2
    place = "https://as.example.com/device"
    code = ShowCode(user_code="AB-CD", verification_uri=place, verification_uri_complete=None, expires_at=1.0)
    ask_at_terminal(code)
    assert "open https://as.example.com/device on any device and enter the code AB-CD" in capsys.readouterr().err


def asking() -> AskUser:
    world = World()
    pending = world.run(OAuth().begin(world.context))
    return AskUser(
        url=pending.url,
        pending=pending,
        expires_at=1.0,
        issuer="https://as.example.com",
        client_id="c",
        scopes=frozenset(),
        resource=world.url,
    )


def pretend(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], platform: str) -> None:
    for name in SHOWS_NO_BROWSER:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
