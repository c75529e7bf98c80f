"""Making changes permanent: the base, the conflict table, the attempts, and exactly-once."""
