"""Exact start of a new stream: the option `scan.start-offset`.

`scan.mode` names snapshots. A stream may stand between two files of one, and it may stand on a branch that has been
main since; an offset says both, and the stamp of the snapshot tells if history was rewritten meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anabranch.errors import OptionError
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.option_kinds import Option
from anabranch.options import CONSUMER_ID, SCAN_MODE, SCAN_START_OFFSET
from anabranch.streaming.offsets import Offset

_OTHERS: tuple[Option[Any], ...] = (SCAN_MODE, CONSUMER_ID, *MOMENT_OPTIONS)


def start_offset(options: Mapping[str, str]) -> Offset | None:
    """Return the offset that a new stream begins at; None if other options define the start.

    Raises `OptionError` if it is said twice, `InvalidInputError` if the text is no offset.
    """
    text = SCAN_START_OFFSET.of(options)
    if text is None:
        return None
    for other in _OTHERS:
        if other.key in options:
            raise OptionError(
                f"{SCAN_START_OFFSET.key} says where the stream begins, and so does {other.key}",
                hint="give one of them only.",
            )
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(
            f"{SCAN_START_OFFSET.key} is '{text[:120]}', which is no JSON",
            hint="it takes an offset as a checkpoint has it, or as `lineage positions` shows it.",
        ) from error
    return Offset.from_dict(value)
