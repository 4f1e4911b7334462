"""Tasks that the peer keeps, for whoever asked for them (2025-11-25)."""
