"""Audits: checks that a branch must pass before its rows go anywhere, and their verdict."""

from anabranch.audit.checks_file import Checks
from anabranch.audit.run import Verdict, audit
from anabranch.audit.sides import Sides

__all__ = ["Checks", "Sides", "Verdict", "audit"]
