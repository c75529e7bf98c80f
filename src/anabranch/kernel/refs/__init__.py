"""What names a moment and holds on to it: branches, tags, savepoints, consumers, points in time."""
