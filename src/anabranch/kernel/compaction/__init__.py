"""Which small files to rewrite into larger ones; how they are rewritten is the engine's."""
