"""Correction of tables derived from a replaced main: which tables, from where, in what order, published at once."""

from anabranch.cascade.correct import plan_correction, run_correction, undo_correction
from anabranch.cascade.plan import plan_cascade
from anabranch.cascade.result import CascadeResult
from anabranch.cascade.run import CascadeOptions, Runner, check_options, on_spark, run_cascade
from anabranch.cascade.starts import SourceStart
from anabranch.cascade.undo import undo_cascade
from anabranch.cascade.values import CascadePlan, CascadeStep, JobPart

__all__ = [
    "CascadeOptions",
    "CascadePlan",
    "CascadeResult",
    "CascadeStep",
    "JobPart",
    "Runner",
    "SourceStart",
    "check_options",
    "on_spark",
    "plan_cascade",
    "plan_correction",
    "run_cascade",
    "run_correction",
    "undo_cascade",
    "undo_correction",
]
