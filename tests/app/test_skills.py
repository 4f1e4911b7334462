"""Skills that a server serves: entries, files, directories, changes, and what is left out."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from linked import Link
from skilled import head, linked_to, skill

from mcpio._drivers import skill_folders
from mcpio.app import runtime
from mcpio.app.context import Context
from mcpio.app.forwarding import ForwardingServer
from mcpio.app.server import Server
from mcpio.app.skills import SharedFile, SkillFault
from mcpio.engine.table import Role
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError
from mcpio.types import (
    BlobResourceContents,
    GetSkillRequest,
    ListSkillsRequest,
    ReadDirectoryRequest,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    TextResourceContents,
)

EXTENSION = "io.modelcontextprotocol/skills"


@pytest.fixture(params=["handshake", "stateless"])
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def entries(link: Link) -> dict[str, Any]:
    """Return what ``skills/list`` says, by URI."""
    return {entry.uri: entry for entry in link.do(link.client.request(ListSkillsRequest())).skills}


def entry(link: Link, uri: str) -> Any:
    return link.do(link.client.request(GetSkillRequest(uri))).skill


def children(link: Link, uri: str) -> dict[str, str | None]:
    found = link.do(link.client.request(ReadDirectoryRequest(uri)))
    return {resource.uri: resource.mime_type for resource in found.resources}


def content(link: Link, uri: str) -> bytes:
    (found,) = link.do(link.client.read_resource(uri)).contents
    if isinstance(found, BlobResourceContents):
        return base64.b64decode(found.blob)
    assert isinstance(found, TextResourceContents)
    return found.text.encode()


def skills_of(link: Link) -> Any:
    server: Any = link.session.server
    return server.skills


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def agrees(link: Link) -> bool:
    """Whether each entry says of each file what is read there."""
    for each in entries(link).values():
        for file in each.resources:
            data = content(link, file["uri"])
            if (digest(data), len(data)) != (file["digest"], file["size"]):
                return False
    return True


def refused(link: Link, request: Any) -> int:
    with pytest.raises(RequestError) as caught:
        link.do(link.client.request(request))
    return caught.value.code


# Declared


@pytest.mark.req("SKILL-01")
def test_server_with_a_folder_declares_the_extension_and_resources(tmp_path: Path, era: Any) -> None:
    link = linked_to(tmp_path, era=era)  # an empty folder will have some
    capabilities: Any = link.client.server.capabilities
    assert capabilities.extensions == {EXTENSION: {"directoryRead": True}}
    assert capabilities.resources is not None
    assert entries(link) == {}


@pytest.mark.req("SKILL-01", "SKILL-20")
def test_server_without_skills_declares_nothing_and_is_not_asked(era: Any) -> None:
    server = Server("s")
    assert server.skills.faults == ()
    link = Link(server, era=era)
    assert link.client.server.capabilities.extensions is None
    for request in (ListSkillsRequest(), GetSkillRequest("skill://a/SKILL.md"), ReadDirectoryRequest("skill://a")):
        with pytest.raises(LocalProtocolError, match="did not declare"):
            link.do(link.client.request(request))


def test_capabilities_given_by_the_program_stay(tmp_path: Path) -> None:
    from mcpio.types import ServerCapabilities

    server = Server("s", capabilities=ServerCapabilities(extensions={"com.example/x": {}}))
    server.skills.add_folder(tmp_path)
    assert server.capabilities.extensions == {EXTENSION: {"directoryRead": True}, "com.example/x": {}}


# Entries


@pytest.mark.req("SKILL-02", "SKILL-03", "SKILL-05", "SKILL-07", "SKILL-08", "SKILL-10", "SKILL-11")
def test_entry_lists_every_file_with_the_digest_of_its_bytes(tmp_path: Path, era: Any) -> None:
    skill(tmp_path, "billing/refunds", head("refunds", date="2026-01-02"), mail_md="a\r\nb", logo_png=b"\x89PNG\xff\0")
    skill(tmp_path, "billing/refunds/parts/tax")
    (tmp_path / "billing/refunds/a b.c.d").write_text("é")
    link = linked_to(tmp_path, "acme", era=era)
    found = entries(link)
    root = "skill://acme/billing/refunds/"
    assert list(found) == [f"{root}SKILL.md", f"{root}parts/tax/SKILL.md"]
    outer, nested = found.values()
    assert outer.frontmatter == {"name": "refunds", "description": "About refunds", "date": "2026-01-02"}
    assert {file["uri"].removeprefix(root) for file in outer.resources} == {
        "SKILL.md",
        "mail.md",
        "logo.png",
        "a%20b.c.d",
        "parts/tax/SKILL.md",
    }
    assert [file["uri"] for file in nested.resources] == [f"{root}parts/tax/SKILL.md"]
    assert agrees(link)
    assert {uri: entry(link, uri) for uri in found} == found


@pytest.mark.req("SKILL-04")
def test_skill_md_is_described_by_its_frontmatter(tmp_path: Path, era: Any) -> None:
    skill(tmp_path, "a", data_json="{}", page_html="x", other_unknownkind="x")
    link = linked_to(tmp_path, era=era)
    found = {each.uri: each for each in link.do(link.client.list_resources()).resources}
    first = found["skill://a/SKILL.md"]
    assert (first.name, first.description, first.mime_type) == ("a", "About a", "text/markdown")
    assert first.size == len(content(link, first.uri))
    kinds = [found[f"skill://a/{name}"].mime_type for name in ("data.json", "page.html", "other.unknownkind")]
    assert kinds == ["application/json", "text/html", "application/octet-stream"]
    assert not any(each.meta for each in found.values())


def test_folder_with_a_skill_md_of_its_own_is_one_skill(tmp_path: Path) -> None:
    skill(tmp_path, "refunds", mail_md="x")
    skill(tmp_path / "refunds", "inner")
    link = linked_to(tmp_path / "refunds", "acme")
    assert list(entries(link)) == ["skill://acme/refunds/SKILL.md", "skill://acme/refunds/inner/SKILL.md"]
    assert agrees(link)
    assert "skill://acme/refunds/mail.md" in children(link, "skill://acme/refunds")


@pytest.mark.req("SKILL-07")
def test_list_comes_in_pages_of_whole_entries(tmp_path: Path, era: Any) -> None:
    for number in range(7):
        skill(tmp_path, f"s{number}", more_md="x")
    link = linked_to(tmp_path, page_size=3, era=era)
    pages, cursor = [], None
    while True:
        page = link.do(link.client.request(ListSkillsRequest(cursor)))
        pages.append([len(each.resources) for each in page.skills])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == [[2, 2, 2], [2, 2, 2], [2]]
    assert refused(link, ListSkillsRequest("made up")) == ErrorCode.INVALID_PARAMS


@pytest.mark.req("SKILL-07", "SKILL-08", "SKILL-09")
def test_stateless_results_say_how_long_they_may_be_kept(tmp_path: Path) -> None:
    skill(tmp_path, "a")
    link = linked_to(tmp_path, era="stateless")
    requests = (ListSkillsRequest(), GetSkillRequest("skill://a/SKILL.md"), ReadDirectoryRequest("skill://a"))
    for request in requests:
        link.do(link.client.request(request))
    said = link.pair.sent(Role.SERVER)
    assert said.count(b'"resultType":"complete"') - len(requests) in (0, 1)  # with that of the opening
    assert said.count(b'"ttlMs":0') == said.count(b'"cacheScope":"private"') >= len(requests)


@pytest.mark.req("SKILL-08")
@pytest.mark.parametrize("uri", ["skill://b/SKILL.md", "skill://a", "skill://a/more.md", "", "skill://A/SKILL.md"])
def test_other_uri_is_no_skill(tmp_path: Path, uri: str, era: Any) -> None:
    skill(tmp_path, "a", more_md="x")
    link = linked_to(tmp_path, era=era)
    assert refused(link, GetSkillRequest(uri)) == ErrorCode.INVALID_PARAMS


# Directories


@pytest.mark.req("SKILL-09")
def test_directory_has_its_direct_children(tmp_path: Path, era: Any) -> None:
    directory = skill(tmp_path, "a", more_md="x")
    (directory / "empty").mkdir()
    skill(directory, "sub/nested")
    link = linked_to(tmp_path, "p", era=era)
    assert children(link, "skill://p/a") == {
        "skill://p/a/SKILL.md": "text/markdown",
        "skill://p/a/more.md": "text/markdown",
        "skill://p/a/empty": "inode/directory",
        "skill://p/a/sub": "inode/directory",
    }
    assert children(link, "skill://p/a/empty") == {}
    assert children(link, "skill://p/a/sub") == {"skill://p/a/sub/nested": "inode/directory"}
    assert children(link, "skill://p/a/sub/nested") == {"skill://p/a/sub/nested/SKILL.md": "text/markdown"}


@pytest.mark.req("SKILL-09")
@pytest.mark.parametrize("uri", ["skill://a/SKILL.md", "skill://a/none", "skill://b", "skill://a/", "", "x:y"])
def test_other_uri_is_no_directory(tmp_path: Path, uri: str, era: Any) -> None:
    skill(tmp_path, "a")
    link = linked_to(tmp_path, era=era)
    assert refused(link, ReadDirectoryRequest(uri)) == ErrorCode.INVALID_PARAMS
    assert refused(link, ReadDirectoryRequest("skill://a", "cursor")) == ErrorCode.INVALID_PARAMS


# Changes


@pytest.mark.req("SKILL-11")
def test_changed_file_gives_a_new_entry(tmp_path: Path, era: Any) -> None:
    directory = skill(tmp_path, "a", more_md="one", gone_md="x")
    link = linked_to(tmp_path, era=era)
    before = entry(link, "skill://a/SKILL.md")
    (directory / "more.md").write_text("two")
    (directory / "gone.md").unlink()
    (directory / "new.md").write_text("new")
    (directory / "SKILL.md").write_text(head("a", license="MIT"))
    after = entry(link, "skill://a/SKILL.md")
    assert after.frontmatter["license"] == "MIT"
    assert {file["uri"][10:] for file in after.resources} == {"SKILL.md", "more.md", "new.md"}
    assert before != after
    assert agrees(link)
    assert entries(link) == {"skill://a/SKILL.md": after}


@pytest.mark.req("SKILL-11")
def test_file_that_changed_between_entry_and_read_renews_the_entry_first(tmp_path: Path, era: Any) -> None:
    directory = skill(tmp_path, "a", more_md="one")
    skill(directory, "inner", deep_md="one")
    link = linked_to(tmp_path, era=era)
    for path, uri in (("more.md", "skill://a/more.md"), ("inner/deep.md", "skill://a/inner/deep.md")):
        (directory / path).write_text("two")
        assert content(link, uri) == b"two"
    held = entries(link)
    assert all(
        file["digest"] == digest(b"two")
        for each in held.values()
        for file in each.resources
        if not file["uri"].endswith("SKILL.md")
    )


@pytest.mark.req("SKILL-11")
def test_rewritten_file_with_all_the_old_times_is_noticed_when_read(tmp_path: Path) -> None:
    directory = skill(tmp_path, "a", more_md="one")
    file = directory / "more.md"
    os.utime(file, ns=(10**18, 10**18))
    link = linked_to(tmp_path)
    folder: Any = next(iter(skills_of(link)._folders))
    known = folder._reads[("a",)]
    file.write_text("two")
    os.utime(file, ns=(10**18, 10**18))
    status = file.stat()
    mark = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    known[("a", "more.md")] = attrs.evolve(known[("a", "more.md")], mark=mark, is_settled=True)
    assert content(link, "skill://a/more.md") == b"two"
    assert agrees(link)


@pytest.mark.req("SKILL-11")
def test_file_that_never_rests_is_an_error_and_never_other_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill(tmp_path, "a", more_md="one")
    link = linked_to(tmp_path)
    counts = iter(range(100))

    def read(self: Any, file: SharedFile) -> tuple[bytes, str]:
        data = str(next(counts)).encode()
        return data, digest(data)

    monkeypatch.setattr(skill_folders.FolderOnDisk, "read", read)
    with pytest.raises(RequestError, match="changes while it is read") as caught:
        content(link, "skill://a/more.md")
    assert caught.value.code == ErrorCode.INTERNAL_ERROR
    assert next(counts) == 3


@pytest.mark.req("SKILL-11")
def test_entry_that_is_renewed_during_a_read_is_what_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = skill(tmp_path, "a", more_md="one")
    link = linked_to(tmp_path)
    real: Any = skill_folders.FolderOnDisk.read
    reads: list[bytes] = []

    def read(self: Any, file: SharedFile) -> Any:
        found = real(self, file)
        if not reads:
            (directory / "more.md").write_text("two")
            skills_of(link).refresh()
            found = b"other", digest(b"other")
        reads.append(found[0])
        return found

    monkeypatch.setattr(skill_folders.FolderOnDisk, "read", read)
    assert content(link, "skill://a/more.md") == b"two"
    assert reads == [b"other", b"two"]


def test_folder_that_is_removed_has_no_skills(tmp_path: Path) -> None:
    directory = skill(tmp_path / "skills", "a")
    link = linked_to(tmp_path / "skills")
    (directory / "SKILL.md").unlink()
    directory.rmdir()
    directory.parent.rmdir()
    assert [fault.is_fatal for fault in skills_of(link).refresh()] == [False]
    assert entries(link) == {}


def test_skill_that_does_not_exist_for_a_request_is_not_listed(era: Any) -> None:
    server = Server("s")
    server.skills.dynamic("skill://a/SKILL.md", description="d", visible=lambda ctx: False)(lambda: "x")
    server.skills.dynamic("skill://b/SKILL.md", description="d")(lambda: "x")
    outer = Server("outer")
    outer.mount(server)
    for each in (server, outer):
        link = Link(each, era=era)
        assert list(entries(link)) == ["skill://b/SKILL.md"]
        assert refused(link, GetSkillRequest("skill://a/SKILL.md")) == ErrorCode.INVALID_PARAMS
        with pytest.raises(RequestError):
            content(link, "skill://a/SKILL.md")


def test_removed_file_is_not_found(tmp_path: Path, era: Any) -> None:
    directory = skill(tmp_path, "a", more_md="one")
    link = linked_to(tmp_path, era=era)
    (directory / "more.md").unlink()
    with pytest.raises(RequestError, match="not found"):
        content(link, "skill://a/more.md")
    with pytest.raises(RequestError, match="not found"):
        content(link, "skill://a/more.md")


def test_refresh_finds_new_skills_and_tells_listeners(tmp_path: Path) -> None:
    first = skill(tmp_path, "a", more_md="one")
    heard: list[Any] = []
    link = linked_to(tmp_path, on_notification=heard.append)
    link.do(link.client.subscribe_resource("skill://a/more.md"))
    server: Any = link.session.server
    assert server.skills.refresh() == ()
    link.run()
    assert heard == []
    skill(tmp_path, "b")
    (first / "more.md").write_text("other")
    assert server.skills.refresh() == ()
    link.run()
    assert {type(each) for each in heard} == {ResourceListChangedNotification, ResourceUpdatedNotification}
    assert list(entries(link)) == ["skill://a/SKILL.md", "skill://b/SKILL.md"]
    for path in (tmp_path / "b" / "SKILL.md", tmp_path / "b"):
        path.rmdir() if path.is_dir() else path.unlink()
    server.skills.refresh()
    assert list(entries(link)) == ["skill://a/SKILL.md"]


def test_change_of_equal_size_notifies_subscribers_and_not_the_list(tmp_path: Path) -> None:
    first = skill(tmp_path, "a", more_md="one")
    heard: list[Any] = []
    link = linked_to(tmp_path, on_notification=heard.append)
    link.do(link.client.subscribe_resource("skill://a/more.md"))
    (first / "more.md").write_text("two")
    skills_of(link).refresh()
    link.run()
    assert [(type(each), each.uri) for each in heard] == [(ResourceUpdatedNotification, "skill://a/more.md")]


def test_older_reading_that_ends_later_changes_nothing(tmp_path: Path) -> None:
    directory = skill(tmp_path, "a", more_md="one")
    link = linked_to(tmp_path)
    skills: Any = skills_of(link)
    ((folder, places),) = skills._folders.items()
    older = folder.read_tree(("a",))
    (directory / "more.md").write_text("longer")
    skills.refresh()
    skills._apply(places[("a",)], older)
    assert agrees(link)


def test_resource_that_the_program_removed_is_no_trouble(tmp_path: Path) -> None:
    directory = skill(tmp_path, "a", more_md="one")
    link = linked_to(tmp_path)
    server: Any = link.session.server
    server.resources.static.remove("skill://a/more.md")
    (directory / "more.md").unlink()
    server.skills.refresh()
    assert agrees(link)


# Faults


@pytest.mark.req("SKILL-02", "SKILL-06")
def test_fault_keeps_one_skill_out_and_never_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    skill(tmp_path, "good")
    skill(tmp_path, "wrong-name", head("other"))
    skill(tmp_path, "bomb", "---\nname: bomb\ndescription: &a x\n---\n")
    skill(tmp_path, "my.skill")
    skill(tmp_path, "outer", "no frontmatter")
    skill(tmp_path, "outer/inner")
    (tmp_path / "directory" / "SKILL.md").mkdir(parents=True)
    link = linked_to(tmp_path)
    assert list(entries(link)) == ["skill://good/SKILL.md", "skill://outer/inner/SKILL.md"]
    assert children(link, "skill://outer/inner") == {"skill://outer/inner/SKILL.md": "text/markdown"}
    assert agrees(link)
    said = [str(fault).replace(str(tmp_path), "") for fault in skills_of(link).faults]
    assert [each.partition(": ")[0] for each in said] == [
        "/bomb/SKILL.md:3",
        "/directory/SKILL.md",
        "/my.skill/SKILL.md:2",
        "/outer/SKILL.md:1",
        "/wrong-name/SKILL.md:2",
    ]
    assert all(fault.path in caplog.text for fault in skills_of(link).faults)
    with pytest.raises(RequestError):
        content(link, "skill://outer/SKILL.md")


def test_fault_that_is_mended_brings_the_skill_back(tmp_path: Path) -> None:
    directory = skill(tmp_path, "a", more_md="x")
    link = linked_to(tmp_path)
    skills = skills_of(link)
    (directory / "SKILL.md").write_text("broken")
    with pytest.raises(RequestError):
        entry(link, "skill://a/SKILL.md")
    assert len(skills.faults) == 1
    (directory / "SKILL.md").write_text(head("a"))
    assert skills.refresh() == ()
    assert agrees(link)


@pytest.mark.req("SKILL-06")
@pytest.mark.parametrize("files", [512, 513])
def test_skill_has_at_most_512_files(tmp_path: Path, files: int) -> None:
    directory = skill(tmp_path, "big")
    skill(tmp_path, "small")
    for number in range(files - 1):
        (directory / f"{number}.bin").write_bytes(bytes(32 << 10 if number < 511 else 1))
    link = linked_to(tmp_path)
    assert ("skill://big/SKILL.md" in entries(link)) == (files == 512)
    assert "skill://small/SKILL.md" in entries(link)


@pytest.mark.req("SKILL-06")
@pytest.mark.parametrize("more", [0, 1])
def test_skill_has_at_most_16_mib(tmp_path: Path, more: int) -> None:
    directory = skill(tmp_path, "big")
    size = (directory / "SKILL.md").stat().st_size
    (directory / "data.bin").write_bytes(bytes((16 << 20) - size + more))
    skill(directory, "../small")
    link = linked_to(tmp_path)
    found = list(entries(link))
    assert found == (["skill://small/SKILL.md"] if more else ["skill://big/SKILL.md", "skill://small/SKILL.md"])


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
@pytest.mark.parametrize("target", ["/etc/passwd", "..", "SKILL.md", "nothing"])
def test_link_keeps_its_skill_out(tmp_path: Path, target: str) -> None:
    directory = skill(tmp_path, "a")
    skill(directory, "inner")
    skill(tmp_path, "b")
    (directory / "link").symlink_to(target)
    link = linked_to(tmp_path)
    assert list(entries(link)) == ["skill://a/inner/SKILL.md", "skill://b/SKILL.md"]
    with pytest.raises(RequestError):
        content(link, "skill://a/link")


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
@pytest.mark.req("SKILL-11")
def test_file_replaced_by_a_link_is_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    directory = skill(tmp_path / "skills", "a", more_md="one")
    link = linked_to(tmp_path / "skills")
    (directory / "more.md").unlink()
    (directory / "more.md").symlink_to(tmp_path / "secret")
    with pytest.raises(RequestError):
        content(link, "skill://a/more.md")
    (tmp_path / "skills" / "linked").symlink_to(directory)
    assert "skill://linked/SKILL.md" not in entries(link)
    assert any(not fault.is_fatal for fault in skills_of(link).refresh())


@pytest.mark.skipif(os.name == "nt", reason="there are none there")
def test_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(skill(tmp_path, "a") / "pipe")
    os.mkfifo(tmp_path / "pipe")
    link = linked_to(tmp_path)
    assert entries(link) == {}
    assert [fault.is_fatal for fault in skills_of(link).faults] == [False, True]


@pytest.mark.req("SKILL-05")
def test_hidden_files_are_left_out_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = skill(tmp_path, "a")
    for name in (".git", "__pycache__"):
        (directory / name).mkdir()
        (directory / name / "x.md").write_text("x")
    (directory / ".env").write_text("secret")
    (directory / "back\\slash").write_text("x")
    link = linked_to(tmp_path)
    (found,) = entries(link).values()
    assert [file["uri"] for file in found.resources] == ["skill://a/SKILL.md"]
    assert set(children(link, "skill://a")) == {"skill://a/SKILL.md"}
    assert caplog.text.count("left out") == 4
    assert not any(fault.is_fatal for fault in skills_of(link).refresh())
    assert caplog.text.count("left out") == 4  # once each


def test_directories_deeper_than_the_limit_are_not_served(tmp_path: Path) -> None:
    directory = skill(tmp_path, "a")
    (directory / "/".join(["d"] * 40)).mkdir(parents=True)
    (tmp_path / "/".join(["e"] * 40)).mkdir(parents=True)
    skill(tmp_path, "b")
    link = linked_to(tmp_path)
    assert list(entries(link)) == ["skill://b/SKILL.md"]
    assert [fault.reason for fault in skills_of(link).faults] == ["a directory deeper than 32"] * 2


def test_names_beyond_the_limit_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_folders, "MAX_ENTRIES", 5)
    monkeypatch.setattr(skill_folders._Findings, "__init__", _found_with_five)
    skill(tmp_path, "a", **{f"f{number}_md": "x" for number in range(6)})
    link = linked_to(tmp_path)
    assert entries(link) == {}
    assert "more than 5 names" in str(skills_of(link).faults)


def _found_with_five(self: Any) -> None:
    self.files, self.directories, self.faults, self.left = {}, [], [], 5


def test_unreadable_file_keeps_its_skill_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skill(tmp_path, "a", more_md="x")
    link, real = linked_to(tmp_path), os.open

    def refuse(path: Any, *given: Any, **more: Any) -> int:
        if str(path).endswith("more.md"):  # a mode would not keep root from it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *given, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert entries(link) == {}


def test_file_that_vanishes_while_its_skill_is_read_keeps_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = skill(tmp_path, "a", more_md="x")
    real: Any = vars(skill_folders)["frontmatter_of"]

    def vanish(*given: Any) -> Any:
        (directory / "more.md").unlink(missing_ok=True)
        return real(*given)

    monkeypatch.setattr(skill_folders, "frontmatter_of", vanish)
    link = linked_to(tmp_path)
    assert "is being written" in str(skills_of(link).faults)
    assert list(entries(link)) == []
    assert skills_of(link).refresh() == ()


# Several folders


def test_two_folders_keep_apart_by_prefix(tmp_path: Path) -> None:
    skill(tmp_path, "a")
    link = linked_to(tmp_path)
    skills = skills_of(link)
    skills.add_folder(tmp_path, "two")
    assert list(entries(link)) == ["skill://a/SKILL.md", "skill://two/a/SKILL.md"]
    with pytest.raises(ValueError, match="served already"):
        skills.add_folder(tmp_path)


def test_uri_that_is_taken_costs_the_second_skill(tmp_path: Path) -> None:
    skill(tmp_path / "one", "a")
    skill(tmp_path / "two", "a")
    skill(tmp_path / "two", "b")
    link = linked_to(tmp_path / "one")
    skills = skills_of(link)
    skills.add_folder(tmp_path / "two")
    assert list(entries(link)) == ["skill://a/SKILL.md", "skill://b/SKILL.md"]
    assert "is served already" in str(skills.faults)
    (tmp_path / "one" / "a" / "SKILL.md").unlink()
    skills.refresh()
    assert skills.refresh()[0].reason.startswith("no directory in it")
    assert agrees(link)


@pytest.mark.parametrize("prefix", ["", "/a", "a//b", "../a", "a b", "ä", 1])
def test_malformed_prefix_is_refused(tmp_path: Path, prefix: Any) -> None:
    with pytest.raises(ValueError, match="prefix must be"):
        linked_to(tmp_path, prefix)


def test_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        linked_to(tmp_path / "nothing")


def test_folder_before_any_driver_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(runtime.OPENERS, "skills", raising=False)
    with pytest.raises(RuntimeError, match=r"import mcpio\.trio"):
        Server("s").skills.add_folder(tmp_path)


# Dynamic


@pytest.mark.req("SKILL-05", "SKILL-08")
def test_dynamic_skill_is_made_on_demand(era: Any) -> None:
    server = Server("s")

    @server.skills.dynamic("skill://reports/daily/SKILL.md", frontmatter={"license": "MIT"})
    async def daily(ctx: Context) -> str:
        """Today's numbers."""
        return f"# For {ctx.peer.revision}"

    link = Link(server, era=era)
    (found,) = entries(link).values()
    assert found.resources == "dynamic"
    assert found.frontmatter == {"name": "daily", "description": "Today's numbers.", "license": "MIT"}
    assert entry(link, found.uri) == found
    text = content(link, found.uri).decode()
    assert text.startswith("---\nname: daily\n")
    assert text.endswith(f"---\n# For {link.client.connection.revision}")
    assert refused(link, ReadDirectoryRequest("skill://reports/daily")) == ErrorCode.INVALID_PARAMS


def test_dynamic_skill_without_content_is_not_found() -> None:
    server = Server("s")

    @server.skills.dynamic("skill://a/SKILL.md", description="d")
    def nothing() -> None:
        return None

    @server.skills.dynamic("skill://b/SKILL.md", description="d")
    def number() -> int:
        return 1

    link = Link(server)
    with pytest.raises(RequestError, match="not found"):
        content(link, "skill://a/SKILL.md")
    with pytest.raises(RequestError):
        content(link, "skill://b/SKILL.md")


@pytest.mark.parametrize(
    "uri",
    [
        "skill://a/x.md",
        "skill://SKILL.md",
        "skill://A/SKILL.md",
        "skill://a/{b}/SKILL.md",
        "a/SKILL.md",
        "skill:a/SKILL.md",
        "skill://a//b/SKILL.md",
    ],
)
def test_uri_that_no_skill_can_have_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"^uri must "):
        Server("s").skills.dynamic(uri)


def test_dynamic_skill_without_a_description_is_refused() -> None:
    server = Server("s")
    with pytest.raises(ValueError, match="description"):
        server.skills.dynamic("skill://a/SKILL.md")(lambda: "x")
    assert not server.skills.is_offered


# Composed


@pytest.mark.req("SKILL-01", "SKILL-08", "SKILL-09", "SKILL-11")
def test_mounted_servers_skills_are_served_under_their_uris(tmp_path: Path, era: Any) -> None:
    directory = skill(tmp_path, "a", more_md="one")
    inner, outer = Server("inner"), Server("outer")
    outer.mount(inner, "in")
    inner.skills.add_folder(tmp_path, "p")
    link = Link(outer, era=era)
    assert list(entries(link)) == ["skill://p/a/SKILL.md"]
    assert set(children(link, "skill://p/a")) == {"skill://p/a/SKILL.md", "skill://p/a/more.md"}
    (directory / "more.md").write_text("two")
    assert content(link, "skill://p/a/more.md") == b"two"
    (directory / "more.md").write_text("three")
    assert agrees(link)
    assert entry(link, "skill://p/a/SKILL.md") == entries(link)["skill://p/a/SKILL.md"]
    outer.unmount(inner)
    assert entries(link) == {}


def test_skill_whose_uri_the_outer_server_has_is_a_fault(tmp_path: Path) -> None:
    skill(tmp_path, "a")
    inner, outer = Server("inner"), Server("outer")
    outer.resource("skill://a/SKILL.md", name="x")(lambda: "x")
    outer.mount(inner)
    inner.skills.add_folder(tmp_path)
    assert "would be one" in str(inner.skills.faults)


def test_proxy_has_no_skills_of_its_own() -> None:
    lifespan: Any = lambda _: None  # noqa: E731  it is never entered
    server = ForwardingServer(lifespan, may_change=False)
    with pytest.raises(TypeError, match="never be served"):
        _ = server.skills


def test_fault_shows_its_line() -> None:
    assert str(SkillFault("a", "b", 3)) == "a:3: b"
    assert str(SkillFault("a", "b")) == "a: b"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_thousand_skills_are_found_and_one_is_read_without_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "---\nname: {}\ndescription: d\n---\n"
    for number in range(10_000):
        directory = tmp_path / f"s{number}"
        directory.mkdir()
        (directory / "SKILL.md").write_text(text.format(directory.name))
    link = linked_to(tmp_path)
    looked: list[Any] = []
    real = skill_folders.FolderOnDisk._tree

    def look(self: Any, key: Any, *rest: Any) -> Any:
        looked.append(key)
        return real(self, key, *rest)

    monkeypatch.setattr(skill_folders.FolderOnDisk, "_tree", look)
    assert len(entries(link)) == 50
    assert len(looked) == 50
    assert entry(link, "skill://s9999/SKILL.md").frontmatter["name"] == "s9999"
    assert len(looked) == 51
