"""The names of ``mcpio.websocket``, each imported when it is first used."""

from __future__ import annotations

from packages import check_names, loaded_by

import mcpio.websocket


def test_every_name_is_there_and_no_other() -> None:
    check_names(mcpio.websocket)


def test_the_package_itself_loads_nothing() -> None:
    assert loaded_by("mcpio.websocket") == ["mcpio", "mcpio._lazy", "mcpio.websocket"]
