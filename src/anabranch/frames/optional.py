"""Imports of optional libraries."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anabranch.errors import UnsupportedFeatureError


def needed(module: str, what: str) -> Any:
    """Import a library that is installed by the extra of the same name.

    Args:
        module: its name, ``duckdb`` or ``pandas``.
        what: what it is needed for, to be followed by "needs".

    Raises `UnsupportedFeatureError` if it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"{what} needs {module}, which is not installed",
            feature=module,
            hint=f"pip install 'anabranch[{module}]'",
        ) from error
