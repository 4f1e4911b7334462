from __future__ import annotations

from typing import Any

import pydantic
import pytest

from mcpio.app.schema import values as foreign
from mcpio.app.schema.values import Fault, foreign_for, read_foreign, register_type, write_foreign


class Model(pydantic.BaseModel):
    size: int = pydantic.Field(alias="theSize")
    names: list[str] = []


class Version:
    def __init__(self, text: str) -> None:
        self.text = text


class Versions:
    def matches(self, kind: Any) -> bool:
        return kind is Version

    def schema(self, kind: Any, *, output: bool) -> dict[str, Any]:
        return {"type": "string", "readOnly": output}

    def read(self, kind: Any, value: Any) -> Version:
        if not isinstance(value, str):
            raise ValueError("a version is a string")  # noqa: TRY004 - what a type's own code raises
        return Version(value)

    def write(self, kind: Any, value: Version) -> str:
        if not value.text:
            raise ValueError("no version")
        return value.text


class Loose:
    """A class with the methods of a model whose errors have no list of faults."""

    @staticmethod
    def model_json_schema(mode: str) -> dict[str, Any]:
        return {"title": mode}

    @staticmethod
    def model_validate(value: Any) -> Any:
        raise ValueError("never fits")


@pytest.fixture(autouse=True)
def _forget_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_registered", list(foreign._registered))


def test_type_is_unknown_until_registered() -> None:
    assert foreign_for(Version) is None
    versions = Versions()
    register_type(versions)
    assert foreign_for(Version) is versions
    assert foreign_for(int) is None


def test_latest_registration_wins() -> None:
    first, second = Versions(), Versions()
    register_type(first)
    register_type(second)
    assert foreign_for(Version) is second


def test_exception_of_a_foreign_type_becomes_a_fault() -> None:
    versions = Versions()
    assert read_foreign(versions, Version, "1").text == "1"
    assert write_foreign(versions, Version, Version("1")) == "1"
    with pytest.raises(Fault, match="a version is a string"):
        read_foreign(versions, Version, 5)
    with pytest.raises(Fault, match="no version"):
        write_foreign(versions, Version, Version(""))


def test_models_are_recognised_by_their_methods() -> None:
    models = foreign_for(Model)
    assert models is not None
    assert models.schema(Model, output=False)["properties"]["theSize"] == {"title": "Thesize", "type": "integer"}
    assert models.schema(Loose, output=True) == {"title": "serialization"}
    assert read_foreign(models, Model, {"theSize": 1}) == Model(theSize=1)
    assert write_foreign(models, Model, Model(theSize=1)) == {"theSize": 1, "names": []}


def test_dict_is_encoded_as_its_model() -> None:
    models = foreign_for(Model)
    assert models is not None
    assert write_foreign(models, Model, {"theSize": 1}) == {"theSize": 1, "names": []}
    with pytest.raises(Fault):
        write_foreign(models, Model, {"theSize": "x"})


@pytest.mark.parametrize(
    ("kind", "value", "path", "reason"),
    [
        (Model, {"theSize": 1, "names": ["a", 5]}, "x.names[1]", "Input should be a valid string"),
        (Model, {}, "x.theSize", "Field required"),
        (Loose, {}, "x", "never fits"),
    ],
)
def test_fault_of_a_model_has_its_path(kind: Any, value: Any, path: str, reason: str) -> None:
    models = foreign_for(kind)
    assert models is not None
    with pytest.raises(Fault) as caught:
        read_foreign(models, kind, value)
    error = caught.value.as_invalid("x")
    assert (error.path, error.reason) == (path, reason)
