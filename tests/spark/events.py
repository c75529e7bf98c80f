"""Tables of events, for tests of streams in event time."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = "id BIGINT, at TIMESTAMP(3) WITH LOCAL TIME ZONE, WATERMARK FOR at AS at - INTERVAL '5' MINUTE"


def at(minutes):
    """Epoch milliseconds of so many minutes after the start."""
    return round((START.timestamp() + 60 * minutes) * 1000)


def add(table, *minutes):
    """One snapshot with events at these minutes, each with ten times its minute as id."""
    zone = UTC if "LOCAL" in str(table.schema.field("at").type) else None
    table.append([{"id": 10 * m, "at": (START + timedelta(minutes=m)).replace(tzinfo=zone)} for m in minutes])


def from_first(**options):
    """Options of a stream that delivers each snapshot, from the first on."""
    given = {key.replace("__", "."): str(value) for key, value in options.items()}
    return {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", **given}
