"""The bridge to the JVM: Python objects that it calls, and calls put together to few."""
