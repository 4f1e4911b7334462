"""The relay between a host and its server: what passes is shown, recorded, and on request disturbed."""
