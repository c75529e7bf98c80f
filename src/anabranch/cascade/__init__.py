"""Correcting what was derived from a table, once the table itself has been corrected."""
