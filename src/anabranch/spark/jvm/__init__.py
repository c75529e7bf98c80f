"""The bridge to the JVM: Python objects that it calls, and several calls combined into few."""
