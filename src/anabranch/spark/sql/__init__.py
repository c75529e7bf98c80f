"""Statements about a lake in the language of the proposals, translated into Spark's own SQL.

A statement's text is never written anew: what Spark does not know is found by its place in the text and replaced
there, everything else stays as it was typed.
"""

from anabranch.spark.sql.run import Statements

__all__ = ["Statements"]
