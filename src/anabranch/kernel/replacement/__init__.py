"""Replacing main: making another branch the main branch."""
