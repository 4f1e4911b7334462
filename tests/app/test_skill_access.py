"""Skills for some clients only, by scopes and by ``visible=``, and skills of one name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from linked import Link
from skilled import head, skill

import mcpio._drivers  # noqa: F401  it can read files
from mcpio.app.context import Context
from mcpio.app.contracts import CacheHint
from mcpio.app.server import Server
from mcpio.auth.grant import Grant
from mcpio.errors import ErrorCode, RequestError
from mcpio.revisions import Era
from mcpio.types import (
    GetSkillRequest,
    ListSkillsRequest,
    ReadDirectoryRequest,
    ReadResourceRequest,
    SubscribeRequest,
)

GUEST = Grant("https://id", "eve", "app", frozenset({"notes:read"}))
CLERK = Grant("https://id", "ada", "app", frozenset({"refunds:read"}))
REFUSED = 1014


@pytest.fixture(params=["handshake", "stateless"])
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[False, True], ids=["its own", "mounted"])
def is_mounted(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    skill(tmp_path / "open", "billing", more_md="x")
    skill(tmp_path / "kept", "refunds", mail_md="Dear")
    skill(tmp_path / "kept", "refunds/parts/tax")
    return tmp_path


def desk(folders: Path, is_mounted: bool = False, **access: Any) -> Server:
    """Return a server with skills for all, and with a folder and a dynamic skill for some."""
    server = outer = Server("desk")
    if is_mounted:
        outer = Server("outer")
        outer.mount(server)
    server.skills.add_folder(folders / "open")
    server.skills.add_folder(folders / "kept", **access)

    @server.skills.dynamic("skill://daily/SKILL.md", **access)
    def daily() -> str:
        """What happened today."""
        return "Nothing."

    return outer


def listed(link: Link) -> list[str]:
    """Return the names of all skills that a client is told of; its resources agree."""
    skills = link.do(link.client.request(ListSkillsRequest())).skills
    resources = {each.uri for each in link.do(link.client.list_resources()).resources}
    uris = {each.uri for each in skills}
    assert uris == {uri for uri in resources if uri.endswith("/SKILL.md")}
    return sorted(each.frontmatter["name"] for each in skills)


def codes(link: Link) -> dict[str, int]:
    """Return with which errors requests about the skills that are for some are answered; 0 for none."""
    requests: dict[str, Any] = {
        "get": GetSkillRequest("skill://refunds/SKILL.md"),
        "get nested": GetSkillRequest("skill://refunds/parts/tax/SKILL.md"),
        "get dynamic": GetSkillRequest("skill://daily/SKILL.md"),
        "directory": ReadDirectoryRequest("skill://refunds"),
        "directory below": ReadDirectoryRequest("skill://refunds/parts"),
        "read": ReadResourceRequest("skill://refunds/mail.md"),
        "read dynamic": ReadResourceRequest("skill://daily/SKILL.md"),
    }
    if link.client.era is Era.HANDSHAKE:
        requests["subscribe"] = SubscribeRequest("skill://refunds/mail.md")
    found = {}
    for name, request in requests.items():
        try:
            link.do(link.client.request(request))
        except RequestError as error:
            found[name] = error.code
        else:
            found[name] = 0
    return found


@pytest.mark.req("SKILL-08")
@pytest.mark.parametrize("hide", [False, True])
def test_skills_with_scopes_are_for_clients_that_have_them(
    folders: Path, era: Any, is_mounted: bool, hide: bool
) -> None:
    server = desk(folders, is_mounted, scopes="refunds:read", hide=hide)
    everything = ["billing", "daily", "refunds", "tax"]
    clerk = Link(server, era=era, principal=CLERK)
    assert listed(clerk) == everything
    assert set(codes(clerk).values()) == {0}
    for principal in (GUEST, None):
        link = Link(server, era=era, principal=principal)
        assert listed(link) == (["billing"] if hide else everything)
        assert set(codes(link).values()) == {REFUSED}
        assert link.do(link.client.request(GetSkillRequest("skill://billing/SKILL.md"))).skill
        assert link.do(link.client.request(ReadDirectoryRequest("skill://billing"))).resources


@pytest.mark.req("SKILL-08", "SKILL-09")
def test_skills_that_are_not_visible_do_not_exist(folders: Path, era: Any, is_mounted: bool) -> None:
    def for_clerks(ctx: Context) -> bool:
        return ctx.peer.principal == CLERK

    server = desk(folders, is_mounted, visible=for_clerks)
    clerk, guest = (Link(server, era=era, principal=principal) for principal in (CLERK, GUEST))
    assert listed(clerk) == ["billing", "daily", "refunds", "tax"]
    assert set(codes(clerk).values()) == {0}
    assert listed(guest) == ["billing"]
    found = codes(guest)
    unknown = {ErrorCode.INVALID_PARAMS, ErrorCode.RESOURCE_NOT_FOUND}
    assert set(found.values()) <= unknown
    assert {found[name] for name in found if name.startswith(("get", "directory"))} == {ErrorCode.INVALID_PARAMS}


def test_scopes_may_depend_on_the_skill(folders: Path, era: Any) -> None:
    server = Server("desk")
    server.skills.add_folder(folders / "kept", scopes=lambda request: {"tax"} if "tax" in request.uri else ())
    link = Link(server, era=era, principal=CLERK)
    found = codes(link)
    assert (found["get"], found["read"], found["get nested"]) == (0, 0, REFUSED)


def test_skill_that_appears_later_has_the_access_of_its_folder(folders: Path, era: Any) -> None:
    server = desk(folders, scopes="refunds:read", hide=True)
    link = Link(server, era=era, principal=GUEST)
    skill(folders / "kept", "late")
    skill(folders / "kept", "refunds", new_md="x")
    server.skills.refresh()
    assert listed(link) == ["billing"]
    for uri in ("skill://late/SKILL.md", "skill://refunds/new.md"):
        with pytest.raises(RequestError) as caught:
            link.do(link.client.read_resource(uri))
        assert caught.value.code == REFUSED


def test_result_that_differs_by_client_is_private(folders: Path) -> None:
    rows: Any = (({}, "public"), ({"visible": lambda ctx: True}, "private"), ({"scopes": ()}, "private"))
    for access, scope in rows:
        server = Server("desk", cache=CacheHint(60, "public"))
        server.skills.add_folder(folders / "kept", **access)
        link = Link(server, era="stateless")
        for request in (ListSkillsRequest(), ReadDirectoryRequest("skill://refunds")):
            assert link.do(link.client.request(request)).cache_scope == scope


def test_visible_that_fails_hides_the_folder_and_is_reported(folders: Path) -> None:
    link = Link(desk(folders, visible=lambda ctx: 1 / 0))
    assert listed(link) == ["billing"]
    assert "visible= of skills.add_folder() failed, so it is hidden" in link.reports


@pytest.mark.parametrize(
    ("access", "error", "said"),
    [
        ({"hide": True}, ValueError, "hide= needs scopes="),
        ({"scopes": 5}, TypeError, "scopes must be texts"),
        ({"visible": 5}, TypeError, "visible"),
        ({"blocking": True}, TypeError, "blocking"),
    ],
)
def test_wrong_access_is_refused_and_nothing_served(
    folders: Path, access: dict[str, Any], error: type[Exception], said: str
) -> None:
    server = Server("desk")
    with pytest.raises(error, match=said):
        server.skills.add_folder(folders / "kept", **access)
    assert not server.skills.is_offered


# Names


@pytest.mark.req("SKILL-07")
def test_second_skill_of_a_name_is_served_and_noted_by_file_and_line(tmp_path: Path, era: Any) -> None:
    skill(tmp_path, "one/refunds")
    skill(tmp_path, "two/refunds", "---\ndescription: x\nname: refunds\n---\n")
    skill(tmp_path, "two/tax")
    inner, server = Server("inner"), Server("s")
    inner.skills.add_folder(tmp_path / "two", "inner")
    server.mount(inner)
    server.skills.add_folder(tmp_path)
    server.skills.dynamic("skill://daily/tax/SKILL.md")(_daily)
    assert inner.skills.faults == ()
    link = Link(server, era=era)
    assert listed(link) == ["refunds", "refunds", "refunds", "tax", "tax", "tax"]
    first, second = "skill://inner/refunds/SKILL.md", "skill://inner/tax/SKILL.md"
    assert [str(fault).replace(f"{tmp_path}/", "") for fault in server.skills.faults] == [
        f"one/refunds/SKILL.md:2: the name 'refunds' is that of {first} too",
        f"two/refunds/SKILL.md:3: the name 'refunds' is that of {first} too",
        f"two/tax/SKILL.md:2: the name 'tax' is that of {second} too",
        f"skill://daily/tax/SKILL.md: the name 'tax' is that of {second} too",
    ]
    assert not any(fault.is_fatal for fault in server.skills.faults)
    server.unmount(inner)
    (tmp_path / "one" / "refunds" / "SKILL.md").write_text(head("other"))
    assert [fault.line for fault in server.skills.refresh() if not fault.is_fatal] == [None]


def _daily() -> str:
    """What happened today."""
    return "Nothing."
