"""Lineage of writes by Spark: the sources of rows, found from Spark's plans and checkpoints."""
