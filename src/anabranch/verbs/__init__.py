"""Every verb, declared once: from it come the command, the procedure of SQL and the entry in the reference."""
