"""Resolution of warehouse, table and options for a session, a read or a write."""
