"""Data types of columns: their values, text, JSON and Arrow forms, and the ids of fields."""
