"""Audits: checks that a branch must pass before its rows go anywhere, and their verdict."""

from anabranch.audit.document import Document
from anabranch.audit.run import audit
from anabranch.audit.sides import Sides
from anabranch.audit.verdict import Verdict

__all__ = ["Document", "Sides", "Verdict", "audit"]
