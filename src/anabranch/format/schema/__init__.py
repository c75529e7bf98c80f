"""Schemas: columns, options and watermark of a table, and changes of them."""
