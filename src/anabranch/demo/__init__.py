"""The demo: real flights stream through tables, and a mistake in a job is found, corrected on a branch and put in place."""
