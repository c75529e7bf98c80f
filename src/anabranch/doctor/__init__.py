"""Checks whether a machine, Spark, a warehouse and its store are ready for a deployment."""
