"""The demo: real flights stream through tables, and a job's mistake is found, corrected on a branch and published."""
