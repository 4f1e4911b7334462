from __future__ import annotations

import pytest

from mcpio.types import meta


@pytest.mark.req("META-06")
def test_the_protocols_keys_have_its_prefix_but_for_the_oldest() -> None:
    keys = [getattr(meta, name) for name in meta.__all__]
    assert len(set(keys)) == len(keys)
    assert [key for key in keys if not key.startswith("io.modelcontextprotocol/")] == ["progressToken"]
    assert meta.META_RELATED_TASK == "io.modelcontextprotocol/related-task"
    assert meta.META_MODEL_IMMEDIATE_RESPONSE == "io.modelcontextprotocol/model-immediate-response"
