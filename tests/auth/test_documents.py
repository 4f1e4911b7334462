"""The cache of metadata documents, and how long ``Cache-Control`` lets them be kept."""

from __future__ import annotations

import pytest

from mcpio.auth.payloads import DocumentCache, Moment, max_age

URL = "https://as.example.com/metadata"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 300),
        ("max-age=0", 300),
        ("max-age=600", 600),
        ("public, Max-Age=3600, immutable", 3600),
        ("max-age=99999999", 86400),
        ("max-age=many", 300),
        ("private", 300),
    ],
)
def test_document_is_kept_as_long_as_it_says(value: str | None, seconds: float) -> None:
    cache = DocumentCache()
    cache.keep(URL, b"{}", [] if value is None else [("Cache-Control", value)], 1000.0)
    assert cache.find(URL, 1000.0 + seconds - 1) == b"{}"
    assert cache.find(URL, 1000.0 + seconds) is None


def test_document_is_not_kept_for_longer_if_the_clock_was_set_back() -> None:
    cache = DocumentCache()
    cache.keep(URL, b"{}", [], Moment(86400.0, 0.0))
    assert cache.find(URL, Moment(0.0, 299.0)) == b"{}"
    assert cache.find(URL, Moment(0.0, 300.0)) is None


def test_document_with_no_store_is_not_kept_and_ends_the_earlier_one() -> None:
    cache = DocumentCache()
    cache.keep(URL, b"{}", [], 0.0)
    cache.keep(URL, b"{}", [("cache-control", "No-Store, max-age=600")], 1.0)
    assert cache.find(URL, 1.0) is None


def test_latest_sixteen_documents_are_kept() -> None:
    cache = DocumentCache()
    for number in range(17):
        cache.keep(f"{URL}/{number}", b"%d" % number, [], 0.0)
    assert cache.find(f"{URL}/0", 0.0) is None
    assert cache.find(f"{URL}/1", 0.0) == b"1"
    cache.clear()
    assert cache.find(f"{URL}/1", 0.0) is None


@pytest.mark.parametrize(
    ("headers", "seconds"), [([], None), ([("x", "max-age=1")], None), ([("Cache-Control", "x-max-age=1")], None)]
)
def test_max_age_is_none_where_there_is_none(headers: list[tuple[str, str]], seconds: float | None) -> None:
    assert max_age(headers) == seconds
