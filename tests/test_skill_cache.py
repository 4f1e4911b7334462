"""The cache of skills on disk: a folder of this user's, apart by server, whose files need not be trusted."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from skilled import linked_to, skill

from mcpio.skill_cache import FolderSkillCache


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.mark.req("SKILL-24")
def test_file_is_there_for_the_next_process_and_for_its_server_only(tmp_path: Path) -> None:
    FolderSkillCache(tmp_path / "cache", "one").put(digest(b"x"), b"x")
    assert FolderSkillCache(tmp_path / "cache", "one").get(digest(b"x")) == b"x"
    for other in ("two", "One", "one ", "../one"):
        assert FolderSkillCache(tmp_path / "cache", other).get(digest(b"x")) is None
    assert all(path.parent.parent == tmp_path / "cache" for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.req("SKILL-24")
def test_cached_skill_is_read_without_the_server_and_never_if_it_was_changed(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "a", more_md="one")
    link = linked_to(tmp_path / "skills")
    cache = FolderSkillCache(tmp_path / "cache", "s", searched=[tmp_path / "skills"])
    held = link.do(link.client.skill("skill://a/SKILL.md", cache=cache))
    for _ in range(2):
        assert link.do(held.read("more.md")) == b"one"
    (kept,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    kept.write_bytes(b"two")
    assert link.do(held.read("more.md")) == b"one"
    assert kept.read_bytes() == b"one"


@pytest.mark.req("SKILL-24")
def test_cache_within_a_folder_of_skills_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "skills", tmp_path / "skills" / "cache"):
        with pytest.raises(ValueError, match="searched for skills"):
            FolderSkillCache(folder, "s", searched=[tmp_path / "skills"])
    FolderSkillCache(tmp_path / "skills-cache", "s", searched=[tmp_path / "skills"])


@pytest.mark.req("SKILL-24")
@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
def test_cache_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    FolderSkillCache(tmp_path / "mine", "s")
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    (tmp_path / "mine").chmod(0o777)
    with pytest.raises(PermissionError, match="chmod"):
        FolderSkillCache(tmp_path / "mine", "s")


@pytest.mark.parametrize("server", ["", None, 1])
def test_label_is_a_text(tmp_path: Path, server: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        FolderSkillCache(tmp_path, server)


@pytest.mark.parametrize("name", ["../x", "sha256:../x", "sha256:" + "A" * 64, ""])
def test_name_that_is_no_digest_is_refused(tmp_path: Path, name: str) -> None:
    cache = FolderSkillCache(tmp_path, "s")
    with pytest.raises(ValueError, match="digest"):
        cache.get(name)
    with pytest.raises(ValueError, match="digest"):
        cache.put(name, b"")


def test_file_that_cannot_be_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FolderSkillCache(tmp_path, "s")

    def fail(*_: Any) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "replace", fail)
    cache.put(digest(b"x"), b"x")
    assert cache.get(digest(b"x")) is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.skipif(os.name == "nt", reason="no process is killed so there")
def test_file_of_a_process_that_was_killed_while_it_wrote_is_removed_later(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from mcpio.skill_cache import FolderSkillCache\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "FolderSkillCache(sys.argv[1], 's').put('sha256:' + '0' * 64, b'x' * 9999)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path], check=False).returncode == -signal.SIGKILL
    (left,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    cache = FolderSkillCache(tmp_path, "s")
    cache.put(digest(b"x"), b"x")
    other = left.with_name("notes.txt")
    other.write_text("a file of another program")
    assert left.exists(), "another process may be writing it"
    for each in left.parent.iterdir():
        os.utime(each, (time.time() - 7200,) * 2)
    cache = FolderSkillCache(tmp_path, "s")
    assert not left.exists()
    assert other.exists()
    assert cache.get(digest(b"x")) == b"x"


def test_file_whose_writing_is_interrupted_is_removed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FolderSkillCache(tmp_path, "s")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.put(digest(b"x"), b"x")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_temporary_file_that_another_process_has_removed_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FolderSkillCache(tmp_path, "s")
    (folder,) = tmp_path.iterdir()
    for name in ("tmp01234567", "tmpabcdefgh"):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (0, 0))
    unlink, asked = os.unlink, list[str]()

    def lose(path: str) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise FileNotFoundError(path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", lose)
    FolderSkillCache(tmp_path, "s")
    assert len(list(folder.iterdir())) == 1
