from __future__ import annotations

import copy
import itertools
import pickle

import pytest

from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    LATEST_HANDSHAKE,
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
    Era,
    Revision,
)


def test_the_revisions_are_ordered_by_age() -> None:
    assert [revision.name for revision in REVISIONS] == [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    ]
    assert list(REVISIONS) == sorted(REVISIONS)
    for (i, one), (j, two) in itertools.product(enumerate(REVISIONS), repeat=2):
        assert (one < two, one <= two, one > two, one >= two, one == two) == (i < j, i <= j, i > j, i >= j, i == j)
        assert (hash(one) == hash(two)) == (i == j)


@pytest.mark.req("LIFE-03", "LIFE-05")
@pytest.mark.parametrize("name", ["", "2024-11-06", "1999-01-01", "2025-11-25 ", "DRAFT-2026", "2025-11-25\n"])
def test_unknown_name_is_not_a_revision(name: str) -> None:
    assert Revision.parse(name) is None


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_revision_is_a_singleton_by_name(revision: Revision) -> None:
    assert Revision.parse(revision.name) is revision
    assert str(revision) == revision.name
    assert repr(revision) == f"<Revision {revision.name}>"
    assert pickle.loads(pickle.dumps(revision)) is copy.deepcopy(revision) is revision


@pytest.mark.req("LIFE-03")
def test_all_but_the_last_have_a_handshake() -> None:
    assert HANDSHAKE_REVISIONS == (REV_2024_11_05, REV_2025_03_26, REV_2025_06_18, REV_2025_11_25)
    assert LATEST_HANDSHAKE is REV_2025_11_25
    assert {revision.era for revision in HANDSHAKE_REVISIONS} == {Era.HANDSHAKE}
    assert REV_2026_07_28.era is Era.STATELESS


@pytest.mark.req("BATCH-01", "BATCH-02")
def test_one_revision_has_batches() -> None:
    assert [revision for revision in REVISIONS if revision.has_batches] == [REV_2025_03_26]
