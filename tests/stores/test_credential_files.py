"""Credentials in files: modes, versions, locks, and what others may not read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mcpio._drivers.login import state_directory
from mcpio.auth import MemoryCredentials, Secret
from mcpio.stores import FileCredentials, KeyringCredentials

KEY = "https://mcp.example.com/mcp default"


@pytest.fixture(params=["memory", "file", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "memory":
        return MemoryCredentials()
    if request.param == "file":
        return FileCredentials(tmp_path)
    with_keyring(monkeypatch)
    return KeyringCredentials(tmp_path)


def with_keyring(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Put a keyring in memory in place of the system's."""
    kept: dict[str, str] = {}
    keyring: Any = ModuleType("keyring")
    keyring.get_password = lambda service, name: kept.get(f"{service} {name}")
    keyring.set_password = lambda service, name, value: kept.update({f"{service} {name}": value})
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    return kept


def test_record_is_replaced_only_in_the_version_that_was_read(store: Any) -> None:
    assert store.load(KEY) is None
    first = store.swap(KEY, Secret("one"), None)
    assert store.load(KEY).record == Secret("one")
    assert store.swap(KEY, Secret("other"), None) is None
    second = store.swap(KEY, Secret("two"), first)
    assert second not in (None, first)
    assert store.swap(KEY, Secret("late"), first) is None
    assert (store.load(KEY).record, store.load(KEY).version) == (Secret("two"), second)


def leave_temporary(store: FileCredentials) -> Path:
    """Leave a temporary file as a process does that is killed while it writes."""
    file = store._file(KEY)
    temporary = file.with_suffix(".0123456789abcdef")
    temporary.write_text("a token")
    return temporary


def test_next_write_removes_the_temporary_file_of_a_killed_process(tmp_path: Path) -> None:
    store = FileCredentials(tmp_path)
    temporary = leave_temporary(store)
    store.swap("https://mcp.example.com/mcp work", Secret("other"), None)
    assert temporary.exists()
    store.swap(KEY, Secret("one"), None)
    assert not temporary.exists()
    assert store.load(KEY) is not None


def test_logout_removes_the_temporary_file_of_a_killed_process(tmp_path: Path) -> None:
    store = FileCredentials(tmp_path)
    temporary = leave_temporary(store)
    store.forget(KEY)
    assert not temporary.exists()


def test_logout_without_a_directory_creates_none(tmp_path: Path) -> None:
    FileCredentials(tmp_path / "none").forget(KEY)
    assert not (tmp_path / "none").exists()


def test_records_of_several_keys_are_listed_and_forgotten(store: Any) -> None:
    other = "https://mcp.example.com/mcp work"
    for key in (KEY, other):
        store.swap(key, Secret(key), None)
    assert sorted(store.keys()) == [KEY, other]
    store.forget(KEY)
    store.forget(KEY)
    assert list(store.keys()) == [other]
    assert store.load(other).record == Secret(other)


def test_lock_is_held_by_one(store: Any) -> None:
    assert store.try_lock(KEY)
    assert not store.try_lock(KEY)
    assert store.try_lock("https://other.example.com default")
    store.unlock(KEY)
    store.unlock(KEY)
    assert store.try_lock(KEY)
    store.unlock(KEY)
    store.unlock("https://other.example.com default")


def test_lock_excludes_other_processes_and_ends_with_its_own(tmp_path: Path) -> None:
    program = (
        "import sys; from mcpio.stores import FileCredentials; store = FileCredentials(sys.argv[1]); "
        "print(store.try_lock(sys.argv[2]), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path), KEY]
    store = FileCredentials(tmp_path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert not store.try_lock(KEY)
        process.kill()
        process.wait(5)
    assert store.try_lock(KEY)
    store.unlock(KEY)


def test_two_stores_lose_no_change_to_each_other(tmp_path: Path) -> None:
    stores = [FileCredentials(tmp_path) for _ in range(4)]
    stores[0].swap(KEY, Secret("0"), None)
    done: list[int] = []

    def count(store: FileCredentials) -> None:
        for _ in range(10):
            while True:
                found = store.load(KEY)
                assert found is not None
                if store.swap(KEY, Secret(str(int(found.record.reveal()) + 1)), found.version) is not None:
                    done.append(1)
                    break

    threads = [threading.Thread(target=count, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    found = stores[0].load(KEY)
    assert found is not None
    assert (found.record, len(done)) == (Secret("40"), 40)


@pytest.mark.req("AUTH-39")
def test_files_and_directory_are_for_their_owner_only(tmp_path: Path) -> None:
    store = FileCredentials(tmp_path / "a" / "b")
    before = os.umask(0)
    try:
        store.swap(KEY, Secret("x"), None)
        store.try_lock(KEY)
    finally:
        os.umask(before)
        store.unlock(KEY)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "a" / "b").iterdir()} == {0o600}
    assert not [file for file in (tmp_path / "a" / "b").iterdir() if file.suffix not in (".json", ".lock")]


def test_file_that_others_can_read_is_rejected(tmp_path: Path) -> None:
    store = FileCredentials(tmp_path)
    store.swap(KEY, Secret("x"), None)
    (file,) = tmp_path.glob("*.json")
    file.chmod(0o640)
    with pytest.raises(PermissionError, match="can be read by others: chmod 600"):
        store.load(KEY)


def test_file_of_another_user_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileCredentials(tmp_path)
    store.swap(KEY, Secret("x"), None)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PermissionError, match="belongs to another user"):
        store.load(KEY)


def test_link_is_not_followed(tmp_path: Path) -> None:
    store = FileCredentials(tmp_path)
    store.swap(KEY, Secret("x"), None)
    (file,) = tmp_path.glob("*.json")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"."):
        store.load(KEY)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": "k", "version": 1, "record": "%"}', '{"version": "x"}'])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    store = FileCredentials(tmp_path)
    store.swap(KEY, Secret("x"), None)
    (file,) = tmp_path.glob("*.json")
    file.write_text(text)
    with pytest.raises(ValueError, match="remove it and log in again") as caught:
        store.load(KEY)
    assert str(file) in str(caught.value)
    assert store.keys() == []


def test_write_that_fails_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileCredentials(tmp_path)
    version = store.swap(KEY, Secret("old"), None)

    def fail(*args: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        store.swap(KEY, Secret("new"), version)
    monkeypatch.undo()
    found = store.load(KEY)
    assert found is not None
    assert found.record == Secret("old")
    assert len(list(tmp_path.glob("*"))) == 2


def test_no_file_and_no_text_shows_a_record_of_the_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = with_keyring(monkeypatch)
    store = KeyringCredentials(tmp_path)
    store.swap(KEY, Secret("canary"), None)
    (file,) = tmp_path.glob("*.json")
    assert b"canary" not in file.read_bytes()
    assert "canary" not in repr(store)
    kept.clear()
    with pytest.raises(ValueError, match="log in again"):
        KeyringCredentials(tmp_path).load(KEY)


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"MCPIO_HOME": "/x/home"}, "/x/home"),
        ({"XDG_STATE_HOME": "/x/state"}, "/x/state/mcpio"),
        ({"HOME": "/x"}, "/x/.local/state/mcpio"),
    ],
)
def test_state_directory_follows_the_environment(
    environment: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MCPIO_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert state_directory() == Path(place)
    assert FileCredentials().path == Path(place) / "credentials"


def test_version_of_a_record_that_was_forgotten_is_not_given_again(store: Any) -> None:
    before = store.swap(KEY, Secret("old"), None)
    store.forget(KEY)
    assert store.swap(KEY, Secret("new"), None) is not None
    assert store.swap(KEY, Secret("old, renewed"), before) is None
    assert store.load(KEY).record == Secret("new")
