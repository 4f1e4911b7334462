"""Tasks (2025-11-25): those that this side keeps for its peers, and those that a peer keeps for this side."""
