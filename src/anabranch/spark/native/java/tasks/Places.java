package anabranch;


import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.unsafe.types.UTF8String;

/** Knows to which bucket of which partition rows belong, and the folder of it. */
final class Places {
    private final DataFiles files;
    private final StructField[] keys;
    private final UnsafeProjection keyOf;
    private final BucketHash buckets;
    private final Place found = new Place(this, null, 0);

    Places(DataFiles files, MessageType message) {
        this.files = files;
        this.keys = new StructField[files.partitionKeys.length];
        java.util.ArrayList references = new java.util.ArrayList();
        for (int i = 0; i < keys.length; i++) {
            keys[i] = files.columns.fields()[files.partitionKeys[i]];
            int position = files.positions[files.partitionKeys[i]];
            references.add(position >= 0
                ? (Object) new BoundReference(position, keys[i].dataType(), true)
                : new Literal(null, keys[i].dataType()));
        }
        this.keyOf = keys.length == 0 ? null : UnsafeProjection.create(
            scala.jdk.javaapi.CollectionConverters.asScala((java.util.List) references).toSeq());
        this.buckets = files.bucketKeys.length == 0 ? null : new BucketHash(files, message);
    }

    /** Where a row belongs; the same object for every row. */
    Place of(InternalRow row) {
        found.partition = keyOf == null ? null : keyOf.apply(row);
        found.bucket = buckets == null ? 0 : buckets.of(row);
        return found;
    }

    /** A bucket of a partition. */
    static final class Place {
        private final Places places;
        private UnsafeRow partition;
        int bucket;

        Place(Places places, UnsafeRow partition, int bucket) {
            this.places = places;
            this.partition = partition;
            this.bucket = bucket;
        }

        public boolean equals(Object other) {
            if (!(other instanceof Place)) {
                return false;
            }
            Place that = (Place) other;
            return bucket == that.bucket && (partition == null || partition.equals(that.partition));
        }

        public int hashCode() {
            return 31 * bucket + (partition == null ? 0 : partition.hashCode());
        }

        Place copy() {
            return new Place(places, partition == null ? null : partition.copy(), bucket);
        }

        /** Relative to the table's folder. */
        String folder() {
            return places.folder(this);
        }

        /** The values of the partition columns, for Python: text as its bytes. */
        Object[] values() {
            Object[] made = new Object[places.keys.length];
            for (int i = 0; i < made.length; i++) {
                made[i] = places.value(partition, i);
            }
            return made;
        }
    }

    /** The same as `anabranch.format.rows.partition_path` for the types that it is asked of. */
    String folder(Place place) {
        StringBuilder made = new StringBuilder();
        for (int i = 0; i < keys.length; i++) {
            String text = text(place.partition, i);
            made.append(escaped(keys[i].name())).append('=');
            made.append(escaped(isBlank(text) ? files.defaultName : text)).append('/');
        }
        return made.append("bucket-").append(place.bucket).toString();
    }

    private Object value(UnsafeRow partition, int i) {
        DataType type = keys[i].dataType();
        if (partition.isNullAt(i)) {
            return null;
        } else if (type instanceof StringType) {
            return partition.getUTF8String(i).getBytes();
        } else if (type instanceof BooleanType) {
            return Boolean.valueOf(partition.getBoolean(i));
        } else if (type instanceof DecimalType) {
            return text(partition, i);
        }
        return Long.valueOf(number(partition, i, type));
    }

    private String text(UnsafeRow partition, int i) {
        DataType type = keys[i].dataType();
        if (partition.isNullAt(i)) {
            return "";
        } else if (type instanceof StringType) {
            UTF8String text = partition.getUTF8String(i);
            if (!text.isValid()) {
                throw new RowsRefused(
                    "column '" + keys[i].name() + "' is text, but a value is not UTF-8: " + text.toValidString(),
                    "Change these values first.");
            }
            return text.toString();
        } else if (type instanceof BooleanType) {
            return String.valueOf(partition.getBoolean(i));
        } else if (type instanceof DecimalType) {
            DecimalType decimal = (DecimalType) type;
            return partition.getDecimal(i, decimal.precision(), decimal.scale()).toJavaBigDecimal()
                .setScale(decimal.scale()).toPlainString();
        } else if (type instanceof DateType && !files.hasLegacyNames) {
            java.time.LocalDate day = java.time.LocalDate.ofEpochDay(partition.getInt(i));
            if (day.getYear() < 0 || day.getYear() > 9999) {
                throw new RowsRefused(
                    "the year " + day.getYear() + " of partition column '" + keys[i].name()
                        + "' has no folder name with four digits",
                    "Set partition.legacy-name to true, or keep the years within 0 to 9999.");
            }
            return day.toString();
        }
        return String.valueOf(number(partition, i, type));
    }

    private static long number(UnsafeRow partition, int i, DataType type) {
        if (type instanceof LongType) {
            return partition.getLong(i);
        } else if (type instanceof IntegerType || type instanceof DateType) {
            return partition.getInt(i);
        }
        return type instanceof ShortType ? partition.getShort(i) : partition.getByte(i);
    }

    private static boolean isBlank(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (!Character.isWhitespace(text.charAt(i))) {
                return false;
            }
        }
        return true;
    }

    private static String escaped(String text) {
        StringBuilder made = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c < 0x20 || c == 0x7f || "\"#%'*/:=?\\{}[]^".indexOf(c) >= 0) {
                made.append(String.format("%%%02X", new Object[] {Integer.valueOf(c)}));
            } else {
                made.append(c);
            }
        }
        return made.toString();
    }
}
