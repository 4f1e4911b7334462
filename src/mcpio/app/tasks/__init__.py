"""Tasks that are kept here for the peer who asked for them (2025-11-25)."""
