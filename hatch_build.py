"""What a package index shows of README: the same text, with links and images that lead to the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"(!\[[^\]]*\]\()(?![a-z]+:)([^)]+)\)")
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)]+)\)")


def for_an_index(readme: str, repository: str) -> str:
    """Return README with absolute links: to pages as a forge shows them, and to images as they are."""
    raw = repository.replace("github.com", "raw.githubusercontent.com")
    return LINK.sub(rf"\g<1>{repository}/blob/main/\2)", IMAGE.sub(rf"\g<1>{raw}/main/\2)", readme))


class ReadmeHook(MetadataHookInterface):
    """Sets the field that ``pyproject.toml`` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add README to the metadata of the package."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = for_an_index(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
