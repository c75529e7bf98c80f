"""Columns and values between Spark and a table."""
