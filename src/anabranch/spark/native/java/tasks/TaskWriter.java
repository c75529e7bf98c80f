package anabranch;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;

import net.razorvine.pickle.Pickler;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BaseOrdering;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;

/**
 * Writes the rows of one task, each to the file of its partition and bucket.
 *
 * So many files are open at once. Rows that come when they are too many, or hold too much memory, are sorted by Spark's
 * own sorter, which spills to disk, and written at the end, one partition and bucket after the other.
 *
 * Rows of a query into a queue come with those of one bucket together: then one file is open at a time.
 *
 * A row that is refused is an answer and no failure of the task: Spark would try it again, and the answers of the other
 * tasks would be lost with their files.
 */
final class TaskWriter implements DataWriter {
    private static final int MOST_OPEN = 64;
    private static final long LARGEST_SAMPLE = 4 << 20;
    private static final long FIRST_CHECK = 1000;
    private static final long SORTED_AT_A_TIME = 4 << 20;
    private static final long LAST_CHECK = 20000;

    private final DataFiles files;
    private final FileMetaData empty;
    private final MessageType message;
    private final Places places;
    private final EventTimes times;
    private final long bufferSize;
    private final Map open = new HashMap();
    private final List done = new ArrayList();
    private final String id = UUID.randomUUID().toString();
    /** The first rows, until it is decided what is written with dictionaries. */
    private List first = new ArrayList();
    private long firstSize = 0;
    private List withoutDictionary = null;
    /** That of the last row. */
    private OpenFile file = null;
    /** Bytes of all open files that are not on their way to the disk. */
    private long held = 0;
    private int opened = 0;
    private UnsafeExternalRowSorter sorter = null;
    private UnsafeProjection toUnsafe = null;
    private RowsRefused refused = null;

    TaskWriter(DataFiles files) {
        this.files = files;
        this.empty = files.empty();
        this.message = DataFiles.message(empty);
        this.places = new Places(files, message);
        this.times = files.eventTimes();
        this.bufferSize = files.bufferSize();
    }

    public void write(Object record) throws IOException {
        if (refused != null) {
            return;
        }
        if (times != null) {
            times.look((InternalRow) record);
        }
        try {
            if (first == null) {
                take((InternalRow) record);
                return;
            }
            UnsafeRow row = unsafe((InternalRow) record).copy();
            first.add(row);
            firstSize += row.getSizeInBytes();
            if (first.size() >= Dictionaries.SAMPLE || firstSize >= LARGEST_SAMPLE) {
                begin();
            }
        } catch (RowsRefused error) {
            refuse(error);
        }
    }

    /** Decide of dictionaries by the first rows, and write these. */
    private void begin() throws IOException {
        List rows = first;
        first = null;
        withoutDictionary = Dictionaries.useless(files, rows);
        for (Iterator each = rows.iterator(); each.hasNext();) {
            take((InternalRow) each.next());
        }
    }

    private void take(InternalRow row) throws IOException {
        if (sorter == null) {
            if (hasFileFor(row)) {
                put(row);
                return;
            }
            sorter = sorter();
        }
        sorter.insertRow(unsafe(row));
    }

    private void refuse(RowsRefused error) {
        refused = error;
        first = null;
        abort();
    }

    public WriterCommitMessage commit() throws IOException {
        if (refused == null) {
            try {
                if (first != null) {
                    begin();
                }
                writeSorted();
                for (Iterator each = open.values().iterator(); each.hasNext();) {
                    end((OpenFile) each.next());
                }
                open.clear();
            } catch (RowsRefused error) {
                refuse(error);
            }
        }
        return message(done, refused, times);
    }

    /** What the driver is told: Spark's own class, which it has. */
    static WriterCommitMessage message(List files, RowsRefused refused, EventTimes times) throws IOException {
        Object[] said = refused == null ? null : new Object[] {refused.getMessage(), refused.hint};
        return new PythonWriterCommitMessage(new Pickler().dumps(new Object[] {files, said, times == null ? null : times.told()}));
    }

    public void abort() {
        for (Iterator each = open.values().iterator(); each.hasNext();) {
            ((OpenFile) each.next()).abandon();
        }
        open.clear();
        for (Iterator each = done.iterator(); each.hasNext();) {
            String path = (String) ((Object[]) each.next())[0];
            DataFile.remove(java.nio.file.Paths.get(files.root, new String[] {path}));
        }
        done.clear();
        close();
    }

    public void close() {
        if (sorter != null) {
            sorter.cleanupResources();
            sorter = null;
        }
    }

    /** Have the file for the row, if it is open or there may be one more; whether it is there. */
    private boolean hasFileFor(InternalRow row) throws IOException {
        Places.Place place = places.of(row);
        if (file != null && file.place.equals(place)) {
            return true;
        }
        OpenFile known = (OpenFile) open.get(place);
        if (known == null) {
            if (files.isOrdered && file != null) {
                endLast();
            } else if (open.size() >= MOST_OPEN || held > bufferSize) {
                return false;
            }
            known = opened(place);
        }
        file = known;
        return true;
    }

    private OpenFile opened(Places.Place place) throws IOException {
        String name = "data-" + id + "-" + opened++ + ".parquet";
        OpenFile made = new OpenFile(files, empty, message, withoutDictionary, place.copy(), name);
        open.put(made.place, made);
        return made;
    }

    private void put(InternalRow row) throws IOException {
        file.write(row);
        if (file.rows < file.nextCheck) {
            return;
        }
        long size = file.size();
        held += file.held() - file.counted;
        file.counted = file.held();
        long left = (files.targetSize - size) * file.rows / Math.max(1, size) / 2;
        file.nextCheck = file.rows + Math.max(1, Math.min(left, file.rows < FIRST_CHECK ? FIRST_CHECK : LAST_CHECK));
        if (size >= files.targetSize) {
            endLast();
        }
    }

    /** End the file of the last row. */
    private void endLast() throws IOException {
        OpenFile ended = file;
        file = null;
        end(ended);
        held -= ended.counted;
        open.remove(ended.place);
    }

    private void end(OpenFile ended) throws IOException {
        done.add(ended.finish());
    }

    private UnsafeRow unsafe(InternalRow row) {
        if (row instanceof UnsafeRow) {
            return (UnsafeRow) row;
        }
        if (toUnsafe == null) {
            toUnsafe = UnsafeProjection.create(files.given);
        }
        return toUnsafe.apply(row);
    }

    private void writeSorted() throws IOException {
        if (sorter == null) {
            return;
        }
        scala.collection.Iterator rows = sorter.sort();
        file = null; // its turn may come later
        while (rows.hasNext()) {
            InternalRow row = (InternalRow) rows.next();
            Places.Place place = places.of(row);
            if (file == null || !file.place.equals(place)) {
                if (file != null) {
                    endLast();
                }
                file = (OpenFile) open.get(place);
                if (file == null) {
                    file = opened(place);
                }
            }
            put(row);
        }
    }

    private UnsafeExternalRowSorter sorter() throws IOException {
        return UnsafeExternalRowSorter.create(
            files.given, new NoOrder(), PrefixComparators.LONG, new ByPlace(places),
            SORTED_AT_A_TIME, true);
    }

    /** The sorter asks only where prefixes are equal, and no two are. */
    static final class NoOrder extends BaseOrdering {
        public int compare(InternalRow first, InternalRow second) {
            return 0;
        }
    }

    /** Rows go by the number of their place, and those of one place in the order in which they came. */
    static final class ByPlace extends UnsafeExternalRowSorter.PrefixComputer {
        private static final int BITS_OF_ORDER = 40;

        private final Places places;
        private final Map numbers = new HashMap();
        private long count = 0;
        private final UnsafeExternalRowSorter.PrefixComputer.Prefix prefix =
            new UnsafeExternalRowSorter.PrefixComputer.Prefix();

        ByPlace(Places places) {
            this.places = places;
        }

        public UnsafeExternalRowSorter.PrefixComputer.Prefix computePrefix(InternalRow row) {
            Places.Place place = places.of(row);
            Integer number = (Integer) numbers.get(place);
            if (number == null) {
                number = Integer.valueOf(numbers.size());
                numbers.put(place.copy(), number);
            }
            prefix.isNull = false;
            prefix.value = (number.longValue() << BITS_OF_ORDER) + count++;
            return prefix;
        }
    }
}
