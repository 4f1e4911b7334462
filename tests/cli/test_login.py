"""``mcpio login``, ``logout`` and ``auth``, in processes of their own, and commands that use what is stored."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
import trio
from authsite import AuthSite, get, run

from mcpio.auth import Credentials, Reach, Registration, Response, Secret, to_text
from mcpio.cli import logins, main
from mcpio.cli.check import _headers
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.logins import _probe
from mcpio.cli.output import Console
from mcpio.stores import FileCredentials


class Shell:
    """Runs commands with a home of their own; ``site`` has the person who logs in."""

    def __init__(self, site: AuthSite, home: Path) -> None:
        self.site = site
        names = ("PATH", "PYTHONPATH", "COVERAGE_PROCESS_START")
        self.environment = {name: os.environ[name] for name in names if name in os.environ}
        self.environment["MCPIO_HOME"] = str(home)
        self.said = ""

    async def __call__(self, *words: str, status: Exit = Exit.DONE) -> str:
        """Run a command and return its output; what it said on standard error is added to ``said``."""
        command = [sys.executable, "-m", "mcpio", *words]
        process = await trio.lowlevel.open_process(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, process)
            assert process.stdout is not None
            output = b"".join([bytes(chunk) async for chunk in process.stdout])
        assert await process.wait() == status, self.said
        return output.decode()

    def here(self, *words: str, status: Exit = Exit.DONE) -> str:
        """Run a command that waits for nothing in this process, which is faster, and return its output."""
        output, said = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, self.environment), redirect_stdout(output), redirect_stderr(said):
            assert main(words) == status
        self.said += said.getvalue()
        return output.getvalue()

    async def _listen(self, process: trio.Process) -> None:
        """Do as the command asks: open the URL, or enter the code."""
        assert process.stderr is not None
        text = ""
        async for chunk in process.stderr:
            text += chunk.decode()
            if (found := re.search(r"(http\S+/authorize\?\S+)\s", text)) is not None:
                self.said, text = self.said + text, ""
                await get(await self.site.redirected(found[1]))
            elif (found := re.search(r"enter the code (\S+)\n", text)) is not None:
                self.said, text = self.said + text, ""
                self.site.server.approve_device(found[1])
        self.said += text


def secrets_of(site: AuthSite) -> set[str]:
    """Return every secret that the server gave away."""
    server = site.server
    return {*server._tokens, *server._refresh_tokens, *server._codes}


def test_login_is_used_by_other_commands_until_the_logout(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        shell = Shell(site, tmp_path)
        output = await shell("login", "--no-browser", "--scope", "mcp:basic", site.url)
        assert f"logged in to {site.url} as account 'default'" in output
        assert "scopes: mcp:basic" in output
        assert "renews itself" in output
        output += await shell("call", site.url, "x")
        site.server.expire_tokens()
        output += await shell("call", site.url, "x")
        assert len(site.server.authorizations) == 1
        assert shell.here("auth", "list") == f"{site.url}  default\n"
        shown = shell.here("auth", "show", site.url)
        assert f"token by {site.base} for {site.url}" in shown
        assert "registered by itself" in shown
        assert await shell("logout", "--revoke", site.url) == f"the tokens were revoked\nlogged out of {site.url}\n"
        await shell("call", site.url, "x", status=Exit.REFUSED)
        assert "Log in with mcpio login" in shell.said
        await shell("call", "--auth", "work", site.url, "x", status=Exit.USAGE)
        assert f"mcpio login {site.url} --account work" in shell.said
        assert shell.here("auth", "list") == ""
        assert "no account is logged in anywhere" in shell.said
        assert shell.here("logout", site.url) == ""
        shell.here("auth", "show", site.url, status=Exit.NOT_FOUND)
        for secret in secrets_of(site):
            assert secret not in output + shown + shell.said

    run(play)


def test_two_accounts_at_one_server_are_two_logins(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        shell = Shell(site, tmp_path)
        for account in ("work", "home"):
            await shell("login", "--no-browser", "--account", account, site.url)
        assert shell.here("auth", "list") == f"{site.url}  home\n{site.url}  work\n"
        await shell("call", "--auth", "work", site.url, "x")
        shell.here("logout", "--account", "work", site.url)
        assert shell.here("auth", "list") == f"{site.url}  home\n"

    run(play)


def test_check_carries_the_stored_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPIO_HOME", str(tmp_path))

    async def play(site: AuthSite) -> None:
        await Shell(site, tmp_path)("login", "--no-browser", site.url)
        options = argparse.Namespace(header=[("X-A", "1")], auth=None, url=site.url, timeout=10.0)
        headers = await _headers(options)
        assert headers["x-a"] == "1"
        assert headers["authorization"].removeprefix("Bearer ") in secrets_of(site)
        site.server.expire_tokens()
        assert await _headers(options) != headers
        options.header = [("Authorization", "Bearer own")]
        assert await _headers(options) == {"authorization": "Bearer own"}

    run(play)


def test_login_of_a_registered_client_takes_its_secret_from_a_file(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        shell = Shell(site, tmp_path)
        file = tmp_path / "secret"
        await shell(
            "login",
            "--no-browser",
            "--client-id",
            "app",
            "--client-secret-file",
            str(file),
            site.url,
            status=Exit.USAGE,
        )
        file.write_text("s3cret\n")
        await shell("login", "--no-browser", "--client-id", "app", "--client-secret-file", str(file), site.url)
        shown = await shell("auth", "show", site.url)
        assert f"client at {site.base}: app (given, client_secret_basic)" in shown
        assert "s3cret" not in shown + shell.said

    run(play, clients={"app": "s3cret"}, registers=False)


def test_login_at_an_open_server_reports_that_none_is_needed(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        site.is_open = True
        shell = Shell(site, tmp_path)
        await shell("login", "--no-browser", site.url)
        assert "the server asks for no login" in shell.said

    run(play)


def test_login_after_an_unfinished_one_does_not_need_a_token(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        site.is_open = True
        shell = Shell(site, tmp_path)
        client = Registration(site.base, "c", "none", is_dynamic=True)
        store = FileCredentials(tmp_path / "credentials")
        store.swap(f"{site.url} default", to_text(Credentials(registrations={site.base: client})), None)
        await shell("login", "--no-browser", site.url)
        assert "the server asks for no login" in shell.said

    run(play)


def test_failed_login_names_the_option_to_use(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        shell = Shell(site, tmp_path)
        await shell("login", "--no-browser", site.url, status=Exit.REFUSED)
        assert shell.said.endswith("the option --client-id lets it pass\n")

    run(play, registers=False)


def test_doctor_shows_each_step_and_the_option_that_helps(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        shell = Shell(site, tmp_path)
        output = await shell("auth", "doctor", site.url)
        assert f"GET {site.base}/.well-known/oauth-protected-resource/mcp: status 200" in output
        assert "ok: clients register themselves" in output
        assert "logout --revoke" in output
        assert output.endswith("ok: a login can begin\n")
        site.server.faults.resource = "https://other.example.com/mcp"
        output = await shell("auth", "doctor", site.url, status=Exit.REFUSED)
        assert "failed:" in output
        assert "the option --resource lets it pass" in output
        assert "a login can begin" in await shell("auth", "doctor", "--resource", site.url, site.url)
        site.is_open = True
        assert "asks for no login" in await shell("auth", "doctor", site.url)

    run(play)


def test_login_listens_at_the_redirect_uri_of_a_registered_client(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        shell = Shell(site, tmp_path)
        words = ("login", "--no-browser", "--redirect-uri", "http://localhost/oauth/done")
        await shell(*words, site.url)
        assert site.server.authorizations[0]["redirect_uri"].startswith("http://localhost:")
        await shell(*words, "--port", "1", site.url, status=Exit.USAGE)
        assert "--redirect-uri has its port" in shell.said
        await shell("login", "--client-secret-file", os.devnull, site.url, status=Exit.USAGE)
        assert "--client-secret-file and signer= belong to a --client-id" in shell.said

    run(play)


@pytest.mark.parametrize("words", [["auth", "show"], ["login", "ftp://x"], ["logout", "nothing"]])
def test_wrong_usage_is_reported(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == Exit.USAGE
    assert capsys.readouterr().err.startswith("mcpio: ")


def test_unreadable_store_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MCPIO_HOME", str(tmp_path))
    url = "http://127.0.0.1:1/mcp"
    FileCredentials().swap(f"{url} default", Secret("nonsense"), None)
    for words in (["auth", "show", url], ["login", url], ["list", url]):
        assert main(words) == Exit.USAGE
        assert "not a stored Credentials" in capsys.readouterr().err
    [file] = (tmp_path / "credentials").glob("*.json")
    file.unlink()
    file.mkdir(0o700)
    assert main(["login", url]) == Exit.USAGE
    assert f"cannot read the login of {url} default: Is a directory" in capsys.readouterr().err


def test_credentials_that_cannot_be_removed_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forget(store: FileCredentials, key: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setenv("MCPIO_HOME", str(tmp_path))
    FileCredentials().swap("http://127.0.0.1:1/mcp default", to_text(Credentials()), None)
    monkeypatch.setattr(FileCredentials, "forget", forget)
    assert main(["logout", "http://127.0.0.1:1/mcp"]) == Exit.UNWRITABLE
    assert "cannot remove the login of" in capsys.readouterr().err


def test_user_without_a_home_can_use_a_server_and_cannot_log_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MCPIO_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert main(["list", "http://127.0.0.1:1/mcp"]) == Exit.UNREACHABLE
    assert main(["login", "http://127.0.0.1:1/mcp"]) == Exit.USAGE
    assert "set HOME, or MCPIO_HOME to a directory" in capsys.readouterr().err


def test_doctor_shows_a_challenge_that_no_field_may_hold(capsys: pytest.CaptureFixture[str]) -> None:
    asked = _probe("https://mcp.example.com", Reach.PUBLIC, Console())
    next(asked)
    with pytest.raises(StopIteration) as caught:
        asked.send(Response(401, (("www-authenticate", 'Bearer realm="\xe4"'),)))
    assert caught.value.value.params == {"realm": "\xe4"}
    assert "it sends the challenge Bearer {'realm': '\\xe4'}" in capsys.readouterr().out


@pytest.mark.req("AUTH-41")
def test_processes_that_share_a_store_present_no_refresh_token_twice(tmp_path: Path) -> None:
    async def play(site: AuthSite) -> None:
        shell = Shell(site, tmp_path)
        await shell("login", "--no-browser", site.url)
        site.server.expire_tokens()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(shell, "call", site.url, "x")
        assert site.server.reused == []
        assert sum("refresh_token=" in request for request in site.token_requests) == 1

    run(play)


def test_login_that_cannot_be_stored_is_reported_before_anybody_logs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("MCPIO_HOME", str(tmp_path / "file"))
    assert main(["login", "http://127.0.0.1:1/mcp"]) == Exit.UNWRITABLE
    folder = tmp_path / "file" / "credentials"
    assert capsys.readouterr().err == f"mcpio: cannot store the login in {folder}: Not a directory\n"


def test_login_that_fails_to_be_stored_later_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(store: FileCredentials, key: str, record: Secret, version: int | None) -> int | None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("MCPIO_HOME", str(tmp_path))
    store = logins._LoginStore()
    store.check()
    store.raise_failure()
    assert store.swap("http://127.0.0.1:1/mcp default", to_text(Credentials()), None) is not None
    monkeypatch.setattr(FileCredentials, "swap", swap)
    with pytest.raises(OSError, match="No space"):
        store.swap("http://127.0.0.1:1/mcp default", to_text(Credentials()), None)
    with pytest.raises(Failure, match=r"cannot store the login in .*: No space left on device"):
        store.raise_failure()


def test_list_names_the_files_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MCPIO_HOME", str(tmp_path))
    FileCredentials().swap("http://127.0.0.1:1/mcp default", to_text(Credentials()), None)
    damaged, folder = tmp_path / "credentials" / "damaged.json", tmp_path / "credentials" / "folder.json"
    damaged.touch(0o600)
    folder.mkdir(0o700)
    assert main(["auth", "list"]) == Exit.USAGE
    shown = capsys.readouterr()
    assert shown.out == "http://127.0.0.1:1/mcp  default\n"
    assert f"{damaged} holds no credentials that can be read" in shown.err
    assert f"cannot read {folder}: Is a directory" in shown.err
