package anabranch;

import org.apache.spark.sql.catalyst.InternalRow;

/** The newest event time among the rows of a task, as `anabranch.arrow.event_times` finds it. */
final class EventTimes {
    private final int position;
    private final long maxAhead;
    private long latestAllowed = Long.MIN_VALUE;
    private long newest = Long.MIN_VALUE;
    private long ahead = 0;

    /** Of the column at that position, -1 if it does not come; a time may be so many milliseconds ahead of the clock. */
    EventTimes(int position, long maxAhead) {
        this.position = position;
        this.maxAhead = maxAhead;
    }

    void look(InternalRow row) {
        if (position < 0 || row.isNullAt(position)) {
            return;
        }
        long millis = Math.floorDiv(row.getLong(position), 1000L);
        if (millis > newest) {
            if (millis > latestAllowed) {
                latestAllowed = System.currentTimeMillis() + maxAhead;
            }
            if (millis > latestAllowed) {
                ahead++;
            } else {
                newest = millis;
            }
        }
    }

    /** The newest time in epoch milliseconds, null if there is none, and how many rows are too far ahead. */
    Object[] told() {
        return new Object[] {newest == Long.MIN_VALUE ? null : Long.valueOf(newest), Long.valueOf(ahead)};
    }
}
