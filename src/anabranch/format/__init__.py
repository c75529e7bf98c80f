"""The on-disk formats: pure data and codecs, no I/O."""
