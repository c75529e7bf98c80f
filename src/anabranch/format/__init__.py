"""What the bytes on disk mean: pure data and codecs, no I/O."""
