"""Conversion of columns and values between Spark and a table."""
