"""The command that starts a headless browser."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["chromium"]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def chromium(profile: Path) -> list[str]:
    """Return the command that starts Chromium with a profile of its own; options and a URL follow."""
    return [shutil.which("chromium") or "chromium", *FLAGS, f"--user-data-dir={profile}"]
