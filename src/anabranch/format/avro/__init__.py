"""Avro container files, by rows and by columns."""
