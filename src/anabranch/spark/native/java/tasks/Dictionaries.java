package anabranch;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Finds the columns of numbers for which Parquet's writer would build dictionaries in vain.
 *
 * It tries a dictionary for every column, and gives it up when it has grown too large: for numbers that hardly repeat this
 * costs more than all the rest of writing them.
 */
final class Dictionaries {
    /** Rows that are looked at. */
    static final int SAMPLE = 2000;
    /** Values of 8 bytes that fill a dictionary. */
    private static final long MOST_VALUES = (1 << 20) / 8;

    private Dictionaries() {
    }

    /** Names of the columns without dictionaries, from the first rows of a task. */
    static List useless(DataFiles files, List rows) {
        List found = new ArrayList();
        StructField[] columns = files.columns.fields();
        for (int i = 0; i < columns.length; i++) {
            if (files.positions[i] >= 0 && isLong(columns[i].dataType())
                    && distinct(rows, files.positions[i]) > MOST_VALUES) {
                found.add(columns[i].name());
            }
        }
        return found;
    }

    /** Whether values take 8 bytes, in rows of Spark and in files. */
    private static boolean isLong(DataType type) {
        if (type instanceof DecimalType) {
            int digits = ((DecimalType) type).precision();
            return digits > Decimal.MAX_INT_DIGITS() && digits <= Decimal.MAX_LONG_DIGITS();
        }
        return type instanceof LongType || type instanceof DoubleType || type instanceof TimestampType
            || type instanceof TimestampNTZType;
    }

    /** Chao's estimate of how many values a column has, from those that occur once and those that occur twice. */
    private static double distinct(List rows, int position) {
        Map counts = new HashMap();
        for (Iterator each = rows.iterator(); each.hasNext();) {
            InternalRow row = (InternalRow) each.next();
            if (!row.isNullAt(position)) {
                Long value = Long.valueOf(row.getLong(position));
                Integer count = (Integer) counts.get(value);
                counts.put(value, Integer.valueOf(count == null ? 1 : count.intValue() + 1));
            }
        }
        double once = 0;
        double twice = 0;
        for (Iterator each = counts.values().iterator(); each.hasNext();) {
            int count = ((Integer) each.next()).intValue();
            once += count == 1 ? 1 : 0;
            twice += count == 2 ? 1 : 0;
        }
        return counts.size() + once * once / 2 / Math.max(twice, 0.5);
    }
}
