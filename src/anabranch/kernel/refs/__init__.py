"""References that hold moments: branches, tags, savepoints, consumers, points in time."""
