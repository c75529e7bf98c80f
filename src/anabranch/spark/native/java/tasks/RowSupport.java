package anabranch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;

import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Type;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Writes Spark's rows into one data file, in the types that the file has; refuses what these do not take. */
final class RowSupport extends WriteSupport {
    static final long NONE = Long.MAX_VALUE;
    static final long MICROS_PER_DAY = 86400000000L;
    static final long MOST_MICROS = Long.MAX_VALUE / 1000;
    static final int MILLIS_PER_DAY = 86400000;
    static final int JULIAN_EPOCH = 2440588;

    private final MessageType message;
    private final DataFile file;
    private final String version;
    private final int[] positions;
    private final Value[] columns;
    RecordConsumer to;

    RowSupport(DataFiles files, MessageType message, DataFile file) {
        this.message = message;
        this.file = file;
        this.version = files.version;
        this.positions = files.positions;
        this.columns = members(files.columns, message, "", new Limits(files.limits));
    }

    public WriteContext init(Configuration configuration) {
        HashMap metadata = new HashMap();
        metadata.put("org.apache.spark.version", version);
        return new WriteContext(message, metadata);
    }

    public void prepareForWrite(RecordConsumer consumer) {
        to = consumer;
    }

    public void write(Object row) {
        to.startMessage();
        for (int i = 0; i < columns.length; i++) {
            if (positions[i] >= 0) {
                writeMember((SpecializedGetters) row, positions[i], columns[i], i);
            } else if (columns[i].isRequired) {
                throw columns[i].isNull();
            }
        }
        to.endMessage();
    }

    public FinalizedWriteContext finalizeWrite() {
        file.tailFollows();
        return super.finalizeWrite();
    }

    void writeMembers(SpecializedGetters row, Value[] values) {
        for (int i = 0; i < values.length; i++) {
            writeMember(row, i, values[i], i);
        }
    }

    void writeMember(SpecializedGetters row, int at, Value value, int position) {
        if (row.isNullAt(at)) {
            if (value.isRequired) {
                throw value.isNull();
            }
            return;
        }
        to.startField(value.name, position);
        value.write(row, at);
        to.endField(value.name, position);
    }

    Value[] members(StructType type, GroupType group, String prefix, Limits limits) {
        StructField[] fields = type.fields();
        Value[] made = new Value[fields.length];
        for (int i = 0; i < made.length; i++) {
            made[i] = value(fields[i].dataType(), group.getType(i), prefix + fields[i].name(), limits);
        }
        return made;
    }

    private Value value(DataType type, Type stored, String path, Limits limits) {
        Value made = stored.isPrimitive()
            ? leaf(type, stored.asPrimitiveType(), limits.next())
            : group(type, stored.asGroupType(), path, limits);
        made.rows = this;
        made.name = stored.getName();
        made.path = path;
        made.isRequired = stored.isRepetition(Type.Repetition.REQUIRED);
        return made;
    }

    private Value group(DataType type, GroupType stored, String path, Limits limits) {
        if (type instanceof StructType) {
            return new Struct(members((StructType) type, stored, path + ".", limits));
        }
        GroupType repeated = stored.getType(0).asGroupType();
        if (type instanceof ArrayType) {
            DataType element = ((ArrayType) type).elementType();
            return new List(repeated.getName(), value(element, repeated.getType(0), path + ".element", limits));
        }
        MapType map = (MapType) type;
        Value key = value(map.keyType(), repeated.getType(0), path + ".key", limits);
        Value item = value(map.valueType(), repeated.getType(1), path + ".value", limits);
        return new Entries(repeated.getName(), key, item);
    }

    private static Value leaf(DataType type, PrimitiveType stored, long limit) {
        if (type instanceof BooleanType) {
            return new Truth();
        } else if (type instanceof ByteType) {
            return new Byte8();
        } else if (type instanceof ShortType) {
            return new Short16();
        } else if (type instanceof LongType) {
            return new Long64();
        } else if (type instanceof FloatType) {
            return new Float32();
        } else if (type instanceof DoubleType) {
            return new Float64();
        } else if (type instanceof StringType) {
            return new Text(limit);
        } else if (type instanceof BinaryType) {
            return new Bytes(limit);
        } else if (type instanceof DecimalType) {
            return new Number((DecimalType) type, stored);
        } else if (type instanceof TimestampType || type instanceof TimestampNTZType) {
            if (stored.getPrimitiveTypeName() == PrimitiveType.PrimitiveTypeName.INT96) {
                return new Int96();
            }
            LogicalTypeAnnotation.TimestampLogicalTypeAnnotation kind =
                (LogicalTypeAnnotation.TimestampLogicalTypeAnnotation) stored.getLogicalTypeAnnotation();
            return new Moment(kind.getUnit() == LogicalTypeAnnotation.TimeUnit.MILLIS ? 1000L : 1L, limit);
        }
        // Integers and dates, and times of day, which Spark has as numbers.
        boolean isTime = stored.getLogicalTypeAnnotation() instanceof LogicalTypeAnnotation.TimeLogicalTypeAnnotation;
        return isTime ? (Value) new TimeOfDay() : (Value) new Int32();
    }

    /** The limits of the leaves, one after the other. */
    static final class Limits {
        private final long[] all;
        private int at = 0;

        Limits(long[] all) {
            this.all = all;
        }

        long next() {
            return all[at++];
        }
    }

    /** Writes the values of one column at any depth, where they are not null. */
    abstract static class Value {
        RowSupport rows;
        String name;
        String path;
        boolean isRequired;

        abstract void write(SpecializedGetters row, int at);

        RecordConsumer to() {
            return rows.to;
        }

        RowsRefused isNull() {
            return new RowsRefused(
                "column '" + path + "' is NOT NULL, but a value is null", "Fill or drop these rows before writing them.");
        }

        RowsRefused refusal(String what) {
            return new RowsRefused("column '" + path + "' " + what, "Widen the column, or change these values first.");
        }
    }

    static final class Struct extends Value {
        private final Value[] members;

        Struct(Value[] members) {
            this.members = members;
        }

        void write(SpecializedGetters row, int at) {
            to().startGroup();
            rows.writeMembers(row.getStruct(at, members.length), members);
            to().endGroup();
        }
    }

    static final class List extends Value {
        private final String repeated;
        private final Value element;

        List(String repeated, Value element) {
            this.repeated = repeated;
            this.element = element;
        }

        void write(SpecializedGetters row, int at) {
            ArrayData items = row.getArray(at);
            int count = items.numElements();
            to().startGroup();
            if (count > 0) {
                to().startField(repeated, 0);
                for (int i = 0; i < count; i++) {
                    to().startGroup();
                    rows.writeMember(items, i, element, 0);
                    to().endGroup();
                }
                to().endField(repeated, 0);
            }
            to().endGroup();
        }
    }

    static final class Entries extends Value {
        private final String repeated;
        private final Value key;
        private final Value item;

        Entries(String repeated, Value key, Value item) {
            this.repeated = repeated;
            this.key = key;
            this.item = item;
        }

        void write(SpecializedGetters row, int at) {
            MapData entries = row.getMap(at);
            int count = entries.numElements();
            to().startGroup();
            if (count > 0) {
                ArrayData keys = entries.keyArray();
                ArrayData items = entries.valueArray();
                to().startField(repeated, 0);
                for (int i = 0; i < count; i++) {
                    to().startGroup();
                    rows.writeMember(keys, i, key, 0);
                    rows.writeMember(items, i, item, 1);
                    to().endGroup();
                }
                to().endField(repeated, 0);
            }
            to().endGroup();
        }
    }

    static final class Truth extends Value {
        void write(SpecializedGetters row, int at) {
            to().addBoolean(row.getBoolean(at));
        }
    }

    static final class Byte8 extends Value {
        void write(SpecializedGetters row, int at) {
            to().addInteger(row.getByte(at));
        }
    }

    static final class Short16 extends Value {
        void write(SpecializedGetters row, int at) {
            to().addInteger(row.getShort(at));
        }
    }

    static final class Int32 extends Value {
        void write(SpecializedGetters row, int at) {
            to().addInteger(row.getInt(at));
        }
    }

    static final class TimeOfDay extends Value {
        void write(SpecializedGetters row, int at) {
            int millis = row.getInt(at);
            if (millis < 0 || millis >= MILLIS_PER_DAY) {
                throw refusal("holds milliseconds of a day, and " + millis + " is none");
            }
            to().addInteger(millis);
        }
    }

    static final class Long64 extends Value {
        void write(SpecializedGetters row, int at) {
            to().addLong(row.getLong(at));
        }
    }

    static final class Float32 extends Value {
        void write(SpecializedGetters row, int at) {
            to().addFloat(row.getFloat(at));
        }
    }

    static final class Float64 extends Value {
        void write(SpecializedGetters row, int at) {
            to().addDouble(row.getDouble(at));
        }
    }

    static final class Text extends Value {
        private final long longest;

        Text(long longest) {
            this.longest = longest;
        }

        void write(SpecializedGetters row, int at) {
            UTF8String text = row.getUTF8String(at);
            if (longest < NONE && text.numChars() > longest) {
                throw refusal("takes at most " + longest + " characters, but a value has " + text.numChars());
            }
            if (!text.isValid()) {
                throw refusal("is text, but a value is not UTF-8: " + text.toValidString());
            }
            to().addBinary(Binary.fromReusedByteArray(text.getBytes()));
        }
    }

    static final class Bytes extends Value {
        private final long longest;

        Bytes(long longest) {
            this.longest = longest;
        }

        void write(SpecializedGetters row, int at) {
            byte[] bytes = row.getBinary(at);
            if (bytes.length > longest) {
                throw refusal("takes at most " + longest + " bytes, but a value has " + bytes.length);
            }
            to().addBinary(Binary.fromReusedByteArray(bytes));
        }
    }

    static final class Number extends Value {
        private final int precision;
        private final int scale;
        private final PrimitiveType.PrimitiveTypeName kind;
        private final byte[] fixed;

        Number(DecimalType type, PrimitiveType stored) {
            precision = type.precision();
            scale = type.scale();
            kind = stored.getPrimitiveTypeName();
            fixed = new byte[Math.max(0, stored.getTypeLength())];
        }

        void write(SpecializedGetters row, int at) {
            org.apache.spark.sql.types.Decimal value = row.getDecimal(at, precision, scale);
            if (kind == PrimitiveType.PrimitiveTypeName.INT32) {
                to().addInteger((int) value.toUnscaledLong());
            } else if (kind == PrimitiveType.PrimitiveTypeName.INT64) {
                to().addLong(value.toUnscaledLong());
            } else {
                byte[] bytes = value.toJavaBigDecimal().unscaledValue().toByteArray();
                int padding = fixed.length - bytes.length;
                java.util.Arrays.fill(fixed, 0, padding, (byte) (bytes[0] < 0 ? -1 : 0));
                System.arraycopy(bytes, 0, fixed, padding, bytes.length);
                to().addBinary(Binary.fromReusedByteArray(fixed));
            }
        }
    }

    /** A moment as a number of its unit. */
    static final class Moment extends Value {
        private final long unit;
        private final long step;

        Moment(long unit, long step) {
            this.unit = unit;
            this.step = step;
        }

        void write(SpecializedGetters row, int at) {
            long micros = row.getLong(at);
            if (step > 1 && Math.floorMod(micros, step) != 0) {
                throw refusal("would lose digits of the value " + micros / 1000000.0 + " (seconds since 1970)");
            }
            to().addLong(unit == 1 ? micros : Math.floorDiv(micros, unit));
        }
    }

    /** A moment as the nanosecond of a Julian day. */
    static final class Int96 extends Value {
        private final byte[] bytes = new byte[12];

        void write(SpecializedGetters row, int at) {
            long micros = row.getLong(at);
            if (micros > MOST_MICROS || micros < -MOST_MICROS) {
                throw refusal("holds nanoseconds in 64 bits, which end in the years 1677 and 2262");
            }
            ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
                .putLong(Math.floorMod(micros, MICROS_PER_DAY) * 1000L)
                .putInt((int) (Math.floorDiv(micros, MICROS_PER_DAY) + JULIAN_EPOCH));
            to().addBinary(Binary.fromReusedByteArray(bytes));
        }
    }
}
