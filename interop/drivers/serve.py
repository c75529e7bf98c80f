"""The loop every driver runs: one JSON request per line on stdin, one JSON answer per line on stdout.

A request is `{"op": name, ...arguments}`; an answer is `{"ok": result}` or `{"error": {"type", "message"}}`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any


class Unsupported(Exception):  # noqa: N818 - a statement about the peer, not a failure
    """The peer has no such ability."""


def serve(operations: Mapping[str, Callable[..., Any]]) -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not end up between the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": operations[request.pop("op")](**request)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": {"type": type(error).__name__, "message": str(error)}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
