from __future__ import annotations

import re
from functools import partial
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from work import steps_of

from mcpio.app.registry.resources import MAX_URI, UriTemplate, UriTemplateError, _decoded_items, _Text

# RFC 6570, section 3.2.
VALUES: dict[str, Any] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "empty_list": [],
    "undef": None,
    "true": True,
    "number": 2.5,
    "encoded": "a%20b%",
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{count}", "one,two,three"),
        ("{count*}", "one,two,three"),
        ("{/count}", "/one,two,three"),
        ("{/count*}", "/one/two/three"),
        ("{;count}", ";count=one,two,three"),
        ("{;count*}", ";count=one;count=two;count=three"),
        ("{?count}", "?count=one,two,three"),
        ("{?count*}", "?count=one&count=two&count=three"),
        ("{&count*}", "&count=one&count=two&count=three"),
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("O{empty}X", "OX"),
        ("O{undef}X", "OX"),
        ("{x,y}", "1024,768"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("?{x,empty}", "?1024,"),
        ("?{x,undef}", "?1024"),
        ("{var:3}", "val"),
        ("{var:30}", "value"),
        ("{keys}", "semi,%3B,dot,.,comma,%2C"),
        ("{keys*}", "semi=%3B,dot=.,comma=%2C"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{+encoded}", "a%20b%25"),
        ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
        ("{+base}index", "http://example.com/home/index"),
        ("{+path:6}/here", "/foo/b/here"),
        ("{+keys}", "semi,;,dot,.,comma,,"),
        ("{#path,x}/here", "#/foo/bar,1024/here"),
        ("{#path:6}here", "#/foo/bhere"),
        ("{#keys*}", "#semi=;,dot=.,comma=,"),
        ("foo{#empty}", "foo#"),
        ("foo{#undef}", "foo"),
        ("{.who,who}", ".fred.fred"),
        ("www{.dom*}", "www.example.com"),
        ("X{.empty}", "X."),
        ("X{.undef}", "X"),
        ("X{.list}", "X.red,green,blue"),
        ("X{.keys}", "X.semi,%3B,dot,.,comma,%2C"),
        ("X{.empty_keys*}", "X"),
        ("{/half,who}", "/50%25/fred"),
        ("{/list*,path:4}", "/red/green/blue/%2Ffoo"),
        ("{;v,empty,who}", ";v=6;empty;who=fred"),
        ("{;v,bar,who}", ";v=6;who=fred"),
        ("{;keys}", ";keys=semi,%3B,dot,.,comma,%2C"),
        ("{;keys*}", ";semi=%3B;dot=.;comma=%2C"),
        ("{;hello:5}", ";hello=Hello"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("{?x,y,undef}", "?x=1024&y=768"),
        ("{?keys*}", "?semi=%3B&dot=.&comma=%2C"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{&var:3}", "&var=val"),
        ("{&empty_list,empty_keys}", ""),
        ("{true,number}", "true,2.5"),
        ("ä{who}", "%C3%A4fred"),
        ("%41{who}", "%41fred"),
        ("", ""),
    ],
)
def test_template_is_expanded(template: str, uri: str) -> None:
    assert UriTemplate(template).expand(VALUES) == uri


@pytest.mark.parametrize("template", ["{list:3}", "{keys:3}"])
def test_prefix_modifier_requires_a_string(template: str) -> None:
    with pytest.raises(UriTemplateError, match="takes a prefix"):
        UriTemplate(template).expand(VALUES)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("a{b", "a brace is not closed"),
        ("a}b", "'}' cannot stand outside braces"),
        ("a b", "' ' cannot stand outside braces"),
        ("50%", "'%' cannot stand outside braces"),
        ("{}", "'' is not a variable"),
        ("{a,}", "'' is not a variable"),
        ("{=a}", "'=a' is not a variable"),
        ("{a:0}", "'a:0' is not a variable"),
        ("{a:10000}", "'a:10000' is not a variable"),
        ("{a:3*}", r"'a:3\*' is not a variable"),
        ("{a b}", "'a b' is not a variable"),
        ("{a..b}", "'a..b' is not a variable"),
    ],
)
def test_invalid_template_is_refused(template: str, reason: str) -> None:
    with pytest.raises(UriTemplateError, match=reason):
        UriTemplate(template)


def test_variables_are_listed_in_order() -> None:
    assert UriTemplate("{b}/{a.c,%20}{?b}").variables == ("b", "a.c", "%20")
    assert repr(UriTemplate("{b}")) == "UriTemplate('{b}')"


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("", "", {}),
        ("", "a", None),
        ("notes://all", "notes://all", {}),
        ("notes://all", "notes://all2", None),
        ("notes://{id}", "notes://5", {"id": "5"}),
        ("notes://{id}", "notes://a%20b", {"id": "a b"}),
        ("notes://{id}", "notes://a%2Fb", {"id": "a/b"}),
        ("notes://{id}", "notes://ä@b,c", {"id": "ä@b,c"}),
        ("notes://{id}", "notes://", None),
        ("notes://{id}", "notes://a/b", None),
        ("notes://{id}", "notes://a?b", None),
        ("notes://{id}", "notes://a%2", None),
        ("notes://{id}", "notes://%FF", None),
        ("notes://{id}", "NOTES://a", None),
        ("notes://{id}/text", "notes://a/text", {"id": "a"}),
        ("notes://{id}/text", "notes://a/texts", None),
        ("file:///{+path}", "file:///a/b%20c?d#e", {"path": "a/b c?d#e"}),
        ("file:///{+path}", "file:///", None),
        ("file:///{+path}{?q}", "file:///a/b?q=1", {"path": "a/b", "q": "1"}),
        ("file:///{+path}{?q}", "file:///a/b", {"path": "a/b"}),
        ("file:///{+path}{?q}", "file:///a/b?other=1", None),
        ("file:///{+path}{?q}{#part}", "file:///a?q=1#x", {"path": "a", "q": "1", "part": "x"}),
        ("file:///{+path}{?q}{#part}", "file:///a#x?y", {"path": "a", "part": "x?y"}),
        ("file:///{+path}{#part}", "file:///a?q=1#x", {"path": "a?q=1", "part": "x"}),
        ("file:///{+path}.md{?q}", "file:///a/b.md?q=.md", {"path": "a/b", "q": ".md"}),
        ("file:///{+a}/{+b}{?q}{&more}", "file:///x/y/z?q=1&more=2", {"a": "x/y", "b": "z", "q": "1", "more": "2"}),
        ("{name}.{kind}", "archive.tar.gz", {"name": "archive.tar", "kind": "gz"}),
        ("{+a}x{b}", "1x2x3", {"a": "1x2", "b": "3"}),
        ("{a}aa", "aaaa", {"a": "aa"}),
        ("{a}-{b}-{c}", "1-2", None),
        ("{x,y}", "1024,768", {"x": "1024", "y": "768"}),
        ("{x,y}", "1024", {"x": "1024"}),
        ("{x,y}", "1,2,3", None),
        ("{x,y*}", "1,2,3", {"x": "1", "y": ["2", "3"]}),
        ("{list*}", "a,b", {"list": ["a", "b"]}),
        ("{list*}", "a", {"list": ["a"]}),
        ("www{.dom*}", "www.example.com", {"dom": ["example", "com"]}),
        ("www{.dom}", "www.example.com", {"dom": "example.com"}),
        ("www{.dom}", "www", {}),
        ("a{/b}", "a/b", {"b": "b"}),
        ("a{/b}", "a/", {"b": ""}),
        ("a{/b}", "a", {}),
        ("a{/b}", "a/b/c", None),
        ("a{/b}{/c}", "a/b/c", {"b": "b", "c": "c"}),
        ("a{/b}{/c}", "a/b", {"b": "b"}),
        ("a{/b,c}", "a/b/c", {"b": "b", "c": "c"}),
        ("a{/b*}", "a/b/c", {"b": ["b", "c"]}),
        ("a{/b*}/end", "a/b/c/end", {"b": ["b", "c"]}),
        ("a{/b}b", "ab", {}),
        ("a{;x,y}", "a;y=2;x", {"x": "", "y": "2"}),
        ("a{;x}", "a;z=2", None),
        ("a{?q,lang}", "a", {}),
        ("a{?q,lang}", "a?", {}),
        ("a{?q,lang}", "a?lang=en&q=x%26y", {"q": "x&y", "lang": "en"}),
        ("a{?q,lang}", "a?q=x&other=1", None),
        ("a{?q,lang}", "a?q=x&q=y", None),
        ("a{?q,lang}", "a?q=%FF&lang=en", None),
        ("a{?q*}", "a?q=x&q=y", {"q": ["x", "y"]}),
        ("a{?q}{&lang}", "a?q=1&lang=en", {"q": "1", "lang": "en"}),
        ("a{?q}{&lang}{&more}", "a&lang=en", {"lang": "en"}),
        ("a{&q}{&lang}", "a&lang=en", {"lang": "en"}),
        ("a{&q}{&lang}", "a?lang=en", None),
        ("a{;q}{;lang}", "a;q=1;lang=en", {"q": "1", "lang": "en"}),
        ("a{;q}{;lang}", "a;lang=en", {"lang": "en"}),
        ("a?fixed=yes{&q}", "a?fixed=yes&q=1", {"q": "1"}),
        ("a{?q}{#part}", "a?q=1#x/y", {"q": "1", "part": "x/y"}),
        ("a{?q}{#part}", "a#x", {"part": "x"}),
        ("{id:3}", "abc", {"id": "abc"}),
        ("{id:3}", "abcd", None),
        ("{id:3}", "%C3%A4bc", {"id": "äbc"}),
    ],
)
def test_matching_extracts_values(template: str, uri: str, values: dict[str, Any] | None) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{a}{b}", "nothing stands between the values of a and the next"),
        ("{+a}{b}", "nothing stands between"),
        ("{a}/{a}", "'a' stands twice in the template"),
    ],
)
def test_ambiguous_template_is_refused_for_matching(template: str, reason: str) -> None:
    with pytest.raises(UriTemplateError, match=reason):
        UriTemplate(template).check_matching()


def test_template_can_be_reused() -> None:
    template = UriTemplate("{a}/{b}")
    template.check_matching()
    assert template.match("1/2") == template.match("1/2") == {"a": "1", "b": "2"}


def test_overlong_uri_matches_nothing() -> None:
    template = UriTemplate("{+a}")
    assert template.match("x" * MAX_URI) == {"a": "x" * MAX_URI}
    assert template.match("x" * (MAX_URI + 1)) is None


TEXTS = st.text(min_size=1, max_size=8)


@given(st.sampled_from(["n://{a}/{b}", "n://{a}{?b}", "{;a,b}", "{/a,b}", "{/a}{/b}", "x{#a}"]), TEXTS, TEXTS)
def test_expanded_uri_matches_its_template(template: str, a: str, b: str) -> None:
    # One of a kind as the marks go: in a fragment nothing is encoded that looks encoded already.
    values = {name: text.replace("%", "") or "x" for name, text in (("a", a), ("b", b)) if name in template}
    made = UriTemplate(template)
    assert made.match(made.expand(values)) == values


@pytest.mark.parametrize("uri", ["-" * (MAX_URI - 1) + "/", "a-" * (MAX_URI // 2)])
def test_matching_takes_linear_time(uri: str) -> None:
    """A matcher that tries every way to split the longest URI would not come back within the time a test has."""
    assert UriTemplate("{+a}-{+b}-{+c}-{+d}-{e}x").match(uri) is None


# The longest matches

PIECES = [
    *("{%}", "{+%}", "{#%}", "{.%}", "{/%}", "{/%*}", "{;%}", "{?%}", "{&%}", "{%*}", "{?%,%b}", "{%,%b}", "{.%*}"),
    *("a", "/", "-", ".", "?", "#", "x/", "a-", "&", "=", ";", "%41", "aa"),
]
TEMPLATES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(
    lambda pieces: "".join(piece.replace("%", f"v{n}") if "{" in piece else piece for n, piece in enumerate(pieces))
)
URIS = st.lists(st.sampled_from([*"aa-/.?#&;=x%", "a-", "x/"]), max_size=10).map("".join)


@pytest.mark.long
@given(TEMPLATES, st.lists(URIS, min_size=10, max_size=10), st.lists(st.sampled_from(["a", "a-a", "", "a/b", "."])))
@settings(max_examples=300)
def test_each_expression_takes_as_much_as_possible(template: str, uris: list[str], values: list[str]) -> None:
    made = UriTemplate(template)
    try:
        pieces: list[Any] = made._ready()._pieces
    except UriTemplateError:
        return
    uris.append(made.expand(dict(zip(made.variables, values, strict=False))))
    slow = re.compile("".join(map(pattern_of, pieces)), re.DOTALL)
    spans = [piece for piece in pieces if not isinstance(piece, _Text)]
    for uri in uris:
        ranges = found.groups() if (found := slow.fullmatch(uri)) else None
        parts = None if ranges is None else [span.values(text) for span, text in zip(spans, ranges, strict=True)]
        expected = None if parts is None or None in parts else {k: v for part in parts for k, v in part.items()}
        assert made.match(uri) == expected


def pattern_of(piece: Any) -> str:
    """Return a pattern for a piece that tries every way from the longest on: slow, and right."""
    if isinstance(piece, _Text):
        return re.escape(piece.data.decode())
    content = f"(?:(?!{piece.find_stop.__self__.pattern}).)"
    return f"((?:[{piece.marks}]{content}*)?)" if piece.marks else f"({content}+)"


@given(st.binary(), st.sampled_from(["/", "&", "=", None]))
def test_decoded_items_are_those_of_the_standard_library(data: bytes, separator: str | None) -> None:
    text = quote_from_bytes(data, safe="/&=")
    items = [text] if separator is None else text.split(separator)
    try:
        expected = [unquote_to_bytes(item).decode() for item in items]
    except UnicodeDecodeError:
        assert _decoded_items(text, separator) is None
    else:
        assert _decoded_items(text, separator) == expected


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(
    "template",
    [
        *("s://{a}", "s://{+a}", "s://{a}/{b}", "s://{a}-{b}-{c}", "s://{+a}/{b}", "s://{a}/{+b}", "{a}", "s://x{#a}"),
        *("s://{a}-{b}.{c}{?q}{#f}", "s://{a}{.b}", "s://{a}/x{;b}", "s://{/a}{/b}-{c}", "s://{a}--{+b}{&c}"),
    ],
)
@pytest.mark.parametrize("unit", ["a", "-", "a/", "a-", "/", "a,", "?", "#", "%41", "a.", ";a", "%", "ä"])
def test_work_for_a_match_does_not_grow_with_the_uri(template: str, unit: str) -> None:
    made = UriTemplate(template)
    made.match("s://a")
    short, long = (steps_of(partial(made.match, "s://" + unit * size)) for size in (10, 20_000))
    # A value with percent signs is decoded in a few more steps.
    assert long <= short + 100


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("template", ["s://{a*}", "s://{a}{/b*}", "s://{a}{?q,l}", "s://{a}{?q*}", "s://{a,b*}"])
@pytest.mark.parametrize("unit", ["a,", "/", "/%41", "&q", "&q=%41", "%2C,", "&l"])
def test_work_for_an_item_of_a_list_is_small(template: str, unit: str) -> None:
    made = UriTemplate(template)
    made.match("s://a")
    short, long = (steps_of(partial(made.match, "s://a?q" + unit * size)) for size in (10, 1_000))
    assert long <= short + 60 * 1_000
