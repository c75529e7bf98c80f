"""Intents, one a file. An action holds its inputs only and can be replayed on any base."""
