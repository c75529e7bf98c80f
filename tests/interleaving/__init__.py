"""Two pieces of work on one table, interleaved in every way that can make a difference.

The simulator draws worlds; what needs one particular order of two calls among many may never be drawn. Here two works
are taken, and each order is tried in which one stands still before a call, the other gets as far as one of its own,
and the first then ends before the other goes on.
"""
