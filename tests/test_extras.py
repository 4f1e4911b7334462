"""Optional packages that are missing: the error names the extra to install."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import pytest

from mcpio._drivers.login import KeyringCredentials
from mcpio._extras import extra
from mcpio.auth import JwtVerifier, load_signer


def test_missing_package_names_the_extra_to_install() -> None:
    with pytest.raises(ImportError) as caught, extra("sparkle", "sparkle=True"):
        importlib.import_module("no_such_package.inner")
    assert str(caught.value) == "sparkle=True needs no_such_package: install mcpio[sparkle]"
    assert caught.value.name == "no_such_package"


def test_other_errors_pass_unchanged() -> None:
    fault = ImportError("cannot import name 'x'")
    with pytest.raises(ImportError) as caught, extra("sparkle", "sparkle=True"):
        raise fault
    assert caught.value is fault


def module(name: str) -> Callable[[], object]:
    return lambda: importlib.import_module(name)


@pytest.mark.parametrize(
    ("package", "use", "text"),
    [
        ("coredis", module("mcpio.stores.redis"), r"mcpio.stores.redis needs coredis: install mcpio\[redis\]"),
        (
            "opentelemetry",
            module("mcpio.telemetry"),
            r"mcpio.telemetry needs opentelemetry: .* mcpio\[opentelemetry\]",
        ),
        ("cryptography", module("mcpio.seals"), r"mcpio.seals needs cryptography: install mcpio\[seal\]"),
        ("joserfc", lambda: JwtVerifier("https://auth.example"), r"JwtVerifier needs joserfc: .* mcpio\[auth\]"),
        ("cryptography", lambda: load_signer("key"), r"load_signer needs cryptography: .* mcpio\[auth\]"),
        ("keyring", KeyringCredentials, r"KeyringCredentials needs keyring: install mcpio\[keyring\]"),
    ],
)
def test_missing_package_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, use: Callable[[], object], text: str
) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("mcpio.stores.redis", "mcpio.telemetry", "mcpio.seals"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=text):
        use()
