package anabranch;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Map;

import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.format.Util;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** What the tasks of a write must know to put rows into data files. Travels to them. */
public final class DataFiles implements DataWriterFactory, StreamingDataWriterFactory {
    private static final long serialVersionUID = 1L;
    private static final long LEAST_BUFFER = 4 << 20;

    /** Folder of the table on this machine. */
    final String root;
    /** Columns of the table, as Spark has them. */
    final StructType columns;
    /** Columns of the rows that come. */
    final StructType given;
    /** For each column of the table its position in the rows that come; -1 if it is null in all of them. */
    final int[] positions;
    /** Encoded footer of a file of the table without rows: the columns as Parquet has them. */
    private final byte[] footer;
    /** For each leaf of the columns what a value must not exceed, or, of a moment, be divisible by. */
    final long[] limits;
    /** Positions of the partition columns. */
    final int[] partitionKeys;
    /** Positions of the columns of the bucket key; none if all rows are of bucket 0. */
    final int[] bucketKeys;
    final int buckets;
    /** Whether rows of one bucket come together, and one file is enough at a time. */
    final boolean isOrdered;
    /** Whether folders spell dates as numbers. */
    final boolean hasLegacyNames;
    /** What folders are called for null and blank values. */
    final String defaultName;
    /** Of Spark. */
    final String version;
    final String compression;
    final int compressionLevel;
    final boolean hasChecksums;
    /** A file is closed at about this many bytes. */
    final long targetSize;
    /** What the table's options allow of that. */
    private final long bufferSize;
    /** Of the column of event times; -1 if the table has none. */
    private final int timeColumn;
    private final long maxAhead;
    /** Rows of earlier batches of a stream are not written. */
    private final long firstBatch;
    /** Tasks that run side by side in one process; 0 for as many as there are cores. */
    private final int slots;

    public DataFiles(Map settings, byte[] footer) {
        this.footer = footer;
        root = (String) settings.get("root");
        columns = (StructType) DataType.fromJson((String) settings.get("columns"));
        given = (StructType) DataType.fromJson((String) settings.get("given"));
        positions = ints((String) settings.get("positions"));
        limits = longs((String) settings.get("limits"));
        partitionKeys = ints((String) settings.get("partition-keys"));
        bucketKeys = ints((String) settings.get("bucket-keys"));
        buckets = Integer.parseInt((String) settings.get("buckets"));
        isOrdered = "true".equals(settings.get("ordered"));
        hasLegacyNames = "true".equals(settings.get("legacy-names"));
        defaultName = (String) settings.get("default-name");
        version = (String) settings.get("version");
        compression = (String) settings.get("compression");
        compressionLevel = Integer.parseInt((String) settings.get("compression-level"));
        hasChecksums = "true".equals(settings.get("checksums"));
        targetSize = Long.parseLong((String) settings.get("target-size"));
        timeColumn = Integer.parseInt((String) settings.get("time-column"));
        maxAhead = Long.parseLong((String) settings.get("max-ahead"));
        firstBatch = Long.parseLong((String) settings.get("first-batch"));
        slots = Integer.parseInt((String) settings.get("slots"));
        bufferSize = Long.parseLong((String) settings.get("buffer-size"));
    }

    public DataWriter createWriter(int partition, long task) {
        return new TaskWriter(this);
    }

    public DataWriter createWriter(int partition, long task, long batch) {
        return batch < firstBatch ? (DataWriter) new Withheld() : new TaskWriter(this);
    }

    /** Takes rows that are in the table already: they are computed for the state that they leave behind. */
    static final class Withheld implements DataWriter {
        public void write(Object row) {
        }

        public WriterCommitMessage commit() throws IOException {
            return TaskWriter.message(new ArrayList(), null, null);
        }

        public void abort() {
        }

        public void close() {
        }
    }

    /** The most bytes of unfinished row groups that a task holds in memory: a share of what its process has. */
    long bufferSize() {
        int tasks = slots > 0 ? slots : Runtime.getRuntime().availableProcessors();
        return Math.max(LEAST_BUFFER, Math.min(bufferSize, Runtime.getRuntime().maxMemory() / 4 / tasks));
    }

    /** What looks at the event times of rows; null if the table has none. */
    EventTimes eventTimes() {
        return timeColumn < 0 ? null : new EventTimes(positions[timeColumn], maxAhead);
    }

    /** A file without rows. */
    FileMetaData empty() {
        try {
            return Util.readFileMetaData(new ByteArrayInputStream(footer));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The columns as Parquet's writer has them. */
    static MessageType message(FileMetaData empty) {
        try {
            return new ParquetMetadataConverter().fromParquetMetadata(empty).getFileMetaData().getSchema();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static long[] longs(String text) {
        if (text.isEmpty()) {
            return new long[0];
        }
        String[] parts = text.split(",");
        long[] made = new long[parts.length];
        for (int i = 0; i < parts.length; i++) {
            made[i] = Long.parseLong(parts[i]);
        }
        return made;
    }

    private static int[] ints(String text) {
        long[] found = longs(text);
        int[] made = new int[found.length];
        for (int i = 0; i < found.length; i++) {
            made[i] = (int) found[i];
        }
        return made;
    }
}
