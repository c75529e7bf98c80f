package anabranch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** The bucket of a row: Murmur3 of its bucket key as a BinaryRow of Paimon, as `anabranch.format.rows.bucket` computes it. */
final class BucketHash {
    private static final int INLINE = 7;
    private static final int WIDE = 16;

    private final int[] places;
    private final DataType[] types;
    private final boolean[] isMillis;
    private final int buckets;
    private ByteBuffer key = ByteBuffer.allocate(256).order(ByteOrder.LITTLE_ENDIAN);
    /** Where the variable part ends. */
    private int end = 0;

    BucketHash(DataFiles files, MessageType message) {
        places = new int[files.bucketKeys.length];
        buckets = files.buckets;
        types = new DataType[places.length];
        isMillis = new boolean[places.length];
        for (int i = 0; i < places.length; i++) {
            int column = files.bucketKeys[i];
            places[i] = files.positions[column];
            types[i] = files.columns.fields()[column].dataType();
            PrimitiveType stored = message.getType(column).asPrimitiveType();
            LogicalTypeAnnotation kind = stored.getLogicalTypeAnnotation();
            isMillis[i] = kind instanceof LogicalTypeAnnotation.TimestampLogicalTypeAnnotation
                && ((LogicalTypeAnnotation.TimestampLogicalTypeAnnotation) kind).getUnit()
                    == LogicalTypeAnnotation.TimeUnit.MILLIS;
        }
    }

    int of(InternalRow row) {
        int slots = (places.length + 8 + 63) / 64 * 8;
        end = slots + 8 * places.length;
        if (end > key.capacity()) {
            grow(end);
        }
        Arrays.fill(key.array(), 0, end, (byte) 0);
        for (int i = 0; i < places.length; i++) {
            if (places[i] < 0 || row.isNullAt(places[i])) {
                int bit = i + 8;
                key.put(bit / 8, (byte) (key.get(bit / 8) | 1 << bit % 8));
                putNull(i, slots + 8 * i);
            } else {
                put(row, places[i], i, slots + 8 * i);
            }
        }
        return (int) (Math.abs((long) hash(key, end)) % buckets);
    }

    private void put(InternalRow row, int place, int i, int slot) {
        DataType type = types[i];
        if (type instanceof StringType) {
            putBytes(row.getUTF8String(place).getBytes(), slot);
        } else if (type instanceof BinaryType) {
            putBytes(row.getBinary(place), slot);
        } else if (type instanceof LongType) {
            key.putLong(slot, row.getLong(place));
        } else if (type instanceof BooleanType) {
            key.put(slot, (byte) (row.getBoolean(place) ? 1 : 0));
        } else if (type instanceof ByteType) {
            key.put(slot, row.getByte(place));
        } else if (type instanceof ShortType) {
            key.putShort(slot, row.getShort(place));
        } else if (type instanceof FloatType) {
            key.putFloat(slot, row.getFloat(place));
        } else if (type instanceof DoubleType) {
            key.putDouble(slot, row.getDouble(place));
        } else if (type instanceof DecimalType) {
            putDecimal(row, place, (DecimalType) type, slot);
        } else if (type instanceof TimestampType || type instanceof TimestampNTZType) {
            long micros = row.getLong(place);
            if (isMillis[i]) {
                key.putLong(slot, Math.floorDiv(micros, 1000L));
            } else {
                int at = reserve(8);
                key.putInt(slot, (int) Math.floorMod(micros, 1000L) * 1000);
                key.putInt(slot + 4, at);
                key.putLong(at, Math.floorDiv(micros, 1000L));
            }
        } else {
            key.putInt(slot, row.getInt(place));
        }
    }

    private void putDecimal(InternalRow row, int place, DecimalType type, int slot) {
        Decimal value = row.getDecimal(place, type.precision(), type.scale());
        if (type.precision() <= Decimal.MAX_LONG_DIGITS()) {
            key.putLong(slot, value.toUnscaledLong());
            return;
        }
        byte[] bytes = value.toJavaBigDecimal().unscaledValue().toByteArray();
        int at = reserve(WIDE);
        key.putInt(slot, bytes.length);
        key.putInt(slot + 4, at);
        System.arraycopy(bytes, 0, key.array(), at, bytes.length);
    }

    private void putBytes(byte[] bytes, int slot) {
        if (bytes.length <= INLINE) {
            System.arraycopy(bytes, 0, key.array(), slot, bytes.length);
            key.put(slot + INLINE, (byte) (0x80 + bytes.length));
            return;
        }
        int at = reserve((bytes.length + 7) / 8 * 8);
        key.putInt(slot, bytes.length);
        key.putInt(slot + 4, at);
        System.arraycopy(bytes, 0, key.array(), at, bytes.length);
    }

    /** Nulls of types whose values have a fixed place in the variable part have it too. */
    private void putNull(int i, int slot) {
        boolean isWide = types[i] instanceof DecimalType
            && ((DecimalType) types[i]).precision() > Decimal.MAX_LONG_DIGITS();
        boolean isMoment = types[i] instanceof TimestampType || types[i] instanceof TimestampNTZType;
        if (isWide || isMoment && !isMillis[i]) {
            key.putInt(slot + 4, reserve(isWide ? WIDE : 8));
        }
    }

    /** Zeros at the end of the variable part; where they begin. */
    private int reserve(int size) {
        int at = end;
        end += size;
        if (end > key.capacity()) {
            grow(end);
        }
        Arrays.fill(key.array(), at, end, (byte) 0);
        return at;
    }

    private void grow(int size) {
        key = ByteBuffer.wrap(Arrays.copyOf(key.array(), 2 * size)).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static int hash(ByteBuffer key, int size) {
        int state = 42;
        for (int i = 0; i < size; i += 4) {
            int word = Integer.rotateLeft(key.getInt(i) * 0xcc9e2d51, 15) * 0x1b873593;
            state = Integer.rotateLeft(state ^ word, 13) * 5 + 0xe6546b64;
        }
        state ^= size;
        state = (state ^ state >>> 16) * 0x85ebca6b;
        state = (state ^ state >>> 13) * 0xc2b2ae35;
        return state ^ state >>> 16;
    }
}
