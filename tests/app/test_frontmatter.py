"""Frontmatter of skills: JSON's values from plain YAML, within bounds, and faults with their lines."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from skilled import head

from mcpio.app import frontmatter
from mcpio.app.frontmatter import FrontmatterFault, differing_members, frontmatter_of, frontmatter_text


def read(*lines: str) -> dict[str, Any]:
    return frontmatter_of("\n".join(["---", "name: a", "description: b", *lines, "---", "text"]).encode())


@pytest.mark.req("SKILL-02", "SKILL-05")
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("x: 1", 1),
        ("x: -1.5", -1.5),
        ("x: 1e3", 1000.0),
        ("x: true", True),
        ("x:", None),
        ("x: ~", None),
        ("x: 2026-01-02", "2026-01-02"),
        ("x: 2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("x: yes", "yes"),
        ("x: '1'", "1"),
        ('x: "true"', "true"),
        ("x: [a, {b: c}]", ["a", {"b": "c"}]),
        ("x: |\n  one\n  two", "one\ntwo\n"),
        ("x: é", "é"),
    ],
)
def test_value_is_that_of_json(line: str, value: Any) -> None:
    found = read(line)["x"]
    assert found == value
    assert type(found) is type(value)


BOMB = "\n".join(["a: &a [x, x]", *(f"b{n}: &b{n} [*a, *a]" for n in range(20))])


@pytest.mark.req("SKILL-02")
@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "does not begin"),
        ("# Title\n", 1, "does not begin"),
        ("\ufeff---\nname: a\n---\n", 1, "does not begin"),
        ("---\nname: a\n", 1, "no second line ---"),
        (f"---\n{'#' * 70000}\n---\n", 1, "within 65536 bytes"),
        ("---\n- a\n---\n", 2, "not a mapping"),
        ("---\n---\n", 1, "not a mapping"),
        ("---\nname: [a\n---\n", 3, "invalid YAML"),
        ("---\nname: a\n\tb: c\n---\n", 3, "invalid YAML"),
        ("---\nname: a\nx: \x01\n---\n", 3, "forbids"),
        (f"---\n{BOMB}\n---\n", 2, "anchors and aliases"),
        ("---\nx: *a\n---\n", 2, "anchors and aliases"),
        ("---\nx: !!python/object/apply:os.system [ls]\n---\n", 2, "tag"),
        ("---\nx: !!binary aGk=\n---\n", 2, "tag"),
        ("---\nname: a\nname: b\n---\n", 3, "twice"),
        ("---\n1: b\n---\n", 2, "not a text"),
        ("---\n? [a]\n: b\n---\n", 2, "not a text"),
        ("---\n<<: {a: b}\n---\n", 2, "not a text"),
        ("---\nx: .nan\n---\n", 2, "no number"),
        ("---\nx: -.inf\n---\n", 2, "no number"),
        ("---\nx: 1e999\n---\n", 2, "no number"),
        ('---\nx: "\\uD800"\n---\n', 2, "surrogate"),
        ("---\nx: 9007199254740992\n---\n", 2, "too large"),
        (f"---\nx: {'9' * 5000}\n---\n", 2, "too large"),
        (f"---\nx: {'[' * 5000}\n---\n", 2, "nest deeper"),
        ("---\ndescription: b\n---\n", 1, "name is missing"),
        ("---\ndescription: b\nname: A\n---\n", 3, "name is 'A'"),
        ("---\nname: a--b\ndescription: b\n---\n", 2, "single hyphens"),
        ("---\nname: -a\ndescription: b\n---\n", 2, "single hyphens"),
        (f"---\nname: {'a' * 65}\ndescription: b\n---\n", 2, "1 to 64"),
        ("---\nname: 1\ndescription: b\n---\n", 2, "name is 1"),
        ("---\nname: a\n---\n", 1, "description is missing"),
        ("---\nname: a\ndescription: ' '\n---\n", 3, "description is not"),
        (f"---\nname: a\ndescription: {'b' * 1025}\n---\n", 3, "description is not"),
        ("---\nname: a\ndescription: b\ncompatibility: ''\n---\n", 4, "compatibility is not"),
        ("---\nname: a\ndescription: b\ncompatibility: [c]\n---\n", 4, "compatibility is not"),
        (f"---\nname: a\ndescription: b\ncompatibility: {'c' * 501}\n---\n", 4, "compatibility is not"),
        ("---\nname: a\ndescription: b\nmetadata: c\n---\n", 4, "metadata is not"),
        ("---\nname: a\ndescription: b\nmetadata:\n  c: d\n  version: 1.0\n---\n", 6, "version of metadata"),
    ],
)
def test_fault_names_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(FrontmatterFault, match=said) as caught:
        frontmatter_of(text.encode())
    assert caught.value.line == line


@pytest.mark.parametrize("lines", [("compatibility: Linux",), ("metadata:", "  version: '1.0'"), ("metadata: {}",)])
def test_optional_members_by_the_rules_are_kept(lines: tuple[str, ...]) -> None:
    assert list(read(*lines)) == ["name", "description", lines[0].partition(":")[0]]


def test_frontmatter_that_is_not_utf8_is_a_fault() -> None:
    with pytest.raises(FrontmatterFault, match="UTF-8") as caught:
        frontmatter_of(b"---\nname: a\nx: \xff\n---\n")
    assert caught.value.line == 3


def test_windows_line_ends_are_read() -> None:
    assert frontmatter_of(head("a").replace("\n", "\r\n").encode())["name"] == "a"


def test_name_that_differs_from_the_directory_is_a_fault() -> None:
    with pytest.raises(FrontmatterFault, match="not that of the directory, 'b'"):
        frontmatter_of(head("a").encode(), "b")


@pytest.mark.req("SKILL-22")
@pytest.mark.parametrize(
    ("said", "differing"),
    [
        ({"x": "yes", "y": [1, {"z": None}]}, []),
        ({"x": True, "y": [1, {"z": None}]}, []),  # as YAML 1.1 reads it
        ({"x": 1, "y": [1, {"z": None}]}, ["x"]),
        ({"x": "yes", "y": [True, {"z": None}]}, ["y"]),
        ({"x": "yes", "y": [1, {}]}, ["y"]),
        ({"x": "yes", "y": [1]}, ["y"]),
        ({"x": "yes", "y": {}}, ["y"]),
        ({"x": "yes"}, ["y"]),
        ({"x": "yes", "y": [1, {"z": None}], "more": 1}, ["more"]),
    ],
)
def test_members_that_differ_are_named(said: dict[str, Any], differing: list[str]) -> None:
    data = "\n".join(["---", "name: a", "description: b", "x: yes", "y: [1, {z: }]", "---"]).encode()
    assert differing_members(data, {"name": "a", "description": "b", **said}) == differing


@pytest.mark.parametrize("text", ["017", "1_000", "0x_", "12:30", "2026-01-02", "="])
def test_text_that_yaml_1_1_may_read_as_a_number_is_compared_in_either_way(text: str) -> None:
    data = f"---\nname: a\ndescription: b\nx: {text}\n---\n".encode()
    assert differing_members(data, frontmatter_of(data)) == []


def test_written_frontmatter_is_read_unchanged() -> None:
    members = {"name": "a", "description": "b: 'c' \U0001f600 yes", "x": [1, True, None, {"y": "2026-01-02"}]}
    assert frontmatter_of(frontmatter_text(members).encode()) == members


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, (1, 2), "\x01\ud800"])
def test_value_that_json_lacks_cannot_be_written(value: Any) -> None:
    with pytest.raises(FrontmatterFault):
        frontmatter_text({"name": "a", "description": "b", "x": value})


def test_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    frontmatter.yaml_package.cache_clear()
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ModuleNotFoundError("no yaml", name="yaml")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"mcpio\[skills\]"):
        frontmatter_of(head("a").encode())


def test_frontmatter_of_many_values_is_read_in_part() -> None:
    text = b"---\nname: a\ndescription: d\nlist: [" + b"a," * (frontmatter.MAX_FRONTMATTER // 2 - 50) + b"]\n---\n"
    with pytest.raises(FrontmatterFault, match="line 4: there are more than 2,000 names and values"):
        frontmatter_of(text)
