from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.app.schema.values import parse_docstring

GOOGLE = """Find notes.

    Looks in titles first,
    then in bodies.

    Args:
        query (str): what to look for,
            in plain words
        limit (dict[str, int], optional): at most: this many
        *rest: more words
        **options : switches
        nothing:
        not an entry

    Returns:
        query: not a parameter
    """

NUMPY = """Find notes.

    Parameters
    ----------
    query : str
        What to look for,
        in plain words.
    low, high : int, optional
        The bounds.
    *rest
        More words.
    silent : bool

    Returns
    -------
    query
        Not a parameter.

    Notes
    -----
    Nothing.
    """

SPHINX = """Find notes.

    :param str query: what to look for,
        in plain words
    :param limit: at most
        this many
    :type limit: int
    :keyword flag: a switch
    :returns: nothing
    After that, text.
    """


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        (
            GOOGLE,
            {
                "query": "what to look for, in plain words",
                "limit": "at most: this many",
                "rest": "more words",
                "options": "switches",
            },
        ),
        (
            NUMPY,
            {
                "query": "What to look for, in plain words.",
                "low": "The bounds.",
                "high": "The bounds.",
                "rest": "More words.",
            },
        ),
        (SPHINX, {"query": "what to look for, in plain words", "limit": "at most this many", "flag": "a switch"}),
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_parameters_in_three_docstring_styles(text: str, parameters: dict[str, str]) -> None:
    parsed = parse_docstring(text)
    assert parsed.parameters == parameters
    assert parsed.summary == "Find notes."


def test_description_is_the_text_before_the_first_section() -> None:
    assert parse_docstring(GOOGLE).description == "Find notes.\n\nLooks in titles first,\nthen in bodies."
    assert parse_docstring(SPHINX).description == "Find notes."


def test_summary_is_the_first_paragraph_on_one_line() -> None:
    assert parse_docstring("One\n    two.\n\n    Three.").summary == "One two."


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_empty_docstring_has_no_description(text: str | None) -> None:
    parsed = parse_docstring(text)
    assert (parsed.summary, parsed.description, parsed.parameters) == (None, None, {})


@pytest.mark.parametrize(
    "text",
    [
        "Note: this is no section.",
        "Arguments\n--\ntoo short a line to underline",
        "Returns: what it says on the same line",
        "args without a colon",
        "Time is 12:30: noon",
    ],
)
def test_section_lookalike_is_text(text: str) -> None:
    assert parse_docstring(text).description == text


def test_section_without_text_before_it() -> None:
    parsed = parse_docstring("Args:\n    a: one\n    a: two\n\n\nEnd.")
    assert parsed.description is None
    assert parsed.parameters == {"a": "one"}


def test_empty_section_at_the_end() -> None:
    assert parse_docstring("Text.\n\nArgs:").parameters == {}


@given(st.text(alphabet=st.sampled_from(" \n:-*(),aArgsParmet")))
def test_any_text_is_parsed(text: str) -> None:
    parsed = parse_docstring(text)
    assert all(name.isidentifier() and description for name, description in parsed.parameters.items())
