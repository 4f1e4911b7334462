"""What packages for RFC 6570 do of what resources need: expanding a template, and taking a URI apart by it.

pip install uritemplate uri-template std-uritemplate
python benchmarks/uri_template_packages.py
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from mcpio.app import UriTemplate

VALUES: dict[str, Any] = {
    "var": "value",
    "hello": "Hello World!",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "empty": "",
    "x": "1024",
}
EXPANDED = {
    "{var}": "value",
    "{hello}": "Hello%20World%21",
    "{+path}/here": "/foo/bar/here",
    "{#path,x}": "#/foo/bar,1024",
    "{/list*}": "/red/green/blue",
    "{;keys*}": ";semi=%3B;dot=.;comma=%2C",
    "{?x,empty}": "?x=1024&empty=",
    "{&list*}": "&list=red&list=green&list=blue",
    "{var:3}": "val",
    "a{undef}b": "ab",
}
MALFORMED = ["{", "{}", "{a b}", "{=a}", "{a:0}", "a}b"]


def main() -> None:
    """Compare and print."""
    uritemplate: Any = import_module("uritemplate")
    uri_template: Any = import_module("uri_template")
    std: Any = import_module("stduritemplate").StdUriTemplate
    ways: dict[str, Callable[[str], str]] = {
        "ours": lambda template: UriTemplate(template).expand(VALUES),
        "uritemplate": lambda template: str(uritemplate.expand(template, VALUES)),
        "uri-template": lambda template: str(uri_template.expand(template, **VALUES)),
        "std-uritemplate": lambda template: str(std.expand(template, VALUES)),
    }
    for name, expand in ways.items():
        right = sum(expand(template) == uri for template, uri in EXPANDED.items())
        refused = 0
        for template in MALFORMED:
            try:
                expand(template)
            except Exception:  # whatever says that the template is malformed
                refused += 1
        time = min(timeit.repeat(partial(expand, "{?x,empty}"), number=1000, repeat=7)) * 1000
        print(f"{name:16} expands {right} of {len(EXPANDED)}, refuses {refused} of {len(MALFORMED)}, {time:5.1f} µs")
    for name, kind in (
        ("uritemplate", uritemplate.URITemplate),
        ("uri-template", uri_template.URITemplate),
        ("std", std),
    ):
        print(f"{name:16} can match a URI: {any('match' in each or 'extract' in each for each in dir(kind))}")


if __name__ == "__main__":
    main()
