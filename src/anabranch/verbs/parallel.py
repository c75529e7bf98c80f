"""Requests of a store side by side, for whoever stands on the verbs."""

from anabranch.kernel.log.parallel import each

__all__ = ["each"]
