"""Where the rows of a write come from, as Spark's plans and checkpoints tell it."""
