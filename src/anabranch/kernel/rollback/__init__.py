"""Rolling back to a moment: as a new snapshot, or by removing what came after it."""
