"""SpecForge at arm's length: what it needs is written for its version, what it leaves is read; it is never imported."""
