"""The version of this package; the build reads it here. Between releases it is the next one's, with ``.dev0``."""

__version__ = "0.1.0.dev0"
