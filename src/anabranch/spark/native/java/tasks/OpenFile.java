package anabranch;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;

/** A data file that gets rows, and what is to be told of it. */
final class OpenFile {
    private static final long LARGEST_ROW_GROUP = 128L << 20;
    private static final int PAGE_ROWS = 1 << 20;

    final Places.Place place;
    private final DataFile file;
    private final ParquetWriter writer;
    private final MessageType message;
    long rows = 0;
    /** How many rows there are when its size is looked at again. */
    long nextCheck = 100;
    /** What the task counts it for. */
    long counted = 0;

    OpenFile(
            DataFiles files, FileMetaData empty, MessageType message, List withoutDictionary, Places.Place place,
            String name) throws IOException {
        this.place = place;
        this.message = message;
        this.file = new DataFile(files.root, place.folder(), name, empty.getSchema());
        ParquetWriter made = null;
        try {
            made = new Builder(file, new RowSupport(files, message, file)).with(files, withoutDictionary).build();
        } finally {
            if (made == null) {
                file.abandon();
            }
        }
        this.writer = made;
    }

    void write(Object row) throws IOException {
        writer.write(row);
        rows++;
    }

    /** About how large the file would be if it ended now. */
    long size() {
        return writer.getDataSize();
    }

    /** Bytes of it that are in memory. */
    long held() {
        return writer.getDataSize() - file.getPos();
    }

    /** End it; what the driver is told of it. */
    Object[] finish() throws IOException {
        writer.close();
        long size = file.finish();
        Object[] partition = place.values();
        return new Object[] {
            file.path, partition, Integer.valueOf(place.bucket), Long.valueOf(rows), Long.valueOf(size),
            Long.valueOf(System.currentTimeMillis()), statistics()
        };
    }

    /** Leave nothing behind. */
    void abandon() {
        file.abandon();
    }

    /** Of each column the nulls, the least and the greatest value; null for columns of which nothing is known. */
    private List statistics() {
        Map found = new HashMap();
        for (Iterator blocks = writer.getFooter().getBlocks().iterator(); blocks.hasNext();) {
            for (Iterator each = ((BlockMetaData) blocks.next()).getColumns().iterator(); each.hasNext();) {
                ColumnChunkMetaData chunk = (ColumnChunkMetaData) each.next();
                String[] path = chunk.getPath().toArray();
                Statistics part = chunk.getStatistics();
                if (path.length > 1 || part == null) {
                    continue;
                }
                Statistics known = (Statistics) found.get(path[0]);
                if (known == null) {
                    found.put(path[0], part.copy());
                } else {
                    known.mergeStatistics(part);
                }
            }
        }
        List made = new ArrayList();
        for (Iterator each = message.getFields().iterator(); each.hasNext();) {
            Type column = (Type) each.next();
            Statistics known = column.isPrimitive() ? (Statistics) found.get(column.getName()) : null;
            boolean isBounded = known != null && known.hasNonNullValue();
            made.add(known == null || !known.isNumNullsSet() ? null : new Object[] {
                Long.valueOf(known.getNumNulls()),
                isBounded ? known.getMinBytes() : null,
                isBounded ? known.getMaxBytes() : null
            });
        }
        return made;
    }

    static final class Builder extends ParquetWriter.Builder {
        private final RowSupport rows;

        Builder(DataFile file, RowSupport rows) {
            super(file);
            this.rows = rows;
        }

        protected ParquetWriter.Builder self() {
            return this;
        }

        protected WriteSupport getWriteSupport(Configuration conf) {
            return rows;
        }

        /** As the files of `anabranch.arrow` are, which every Paimon reader reads. */
        ParquetWriter.Builder with(DataFiles files, List withoutDictionary) {
            Configuration conf = new Configuration(false);
            conf.setInt("parquet.compression.codec.zstd.level", files.compressionLevel);
            this.withConf(conf);
            this.withCompressionCodec(CompressionCodecName.valueOf(files.compression));
            this.withWriterVersion(ParquetProperties.WriterVersion.PARQUET_1_0);
            this.withPageWriteChecksumEnabled(files.hasChecksums);
            this.withPageRowCountLimit(PAGE_ROWS);
            this.withRowGroupSize(Math.min(LARGEST_ROW_GROUP, Math.min(files.targetSize, files.bufferSize())));
            for (Iterator each = withoutDictionary.iterator(); each.hasNext();) {
                this.withDictionaryEncoding((String) each.next(), false);
            }
            return this;
        }
    }
}
