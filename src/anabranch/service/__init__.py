"""Use cases with typed results, shared by the command line and, later, the web page."""
