"""Benchmarks beside other table formats and clients, in one run: `python -m benchmarks`."""
