package anabranch;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.BiFunction;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The class that Spark finds for format("anabranch"), as it takes "a" to mean "a.DefaultSource". It gives the tables that
 * the session's function opens, and what that leaves out, or sessions without one ask for, to the Python data source.
 */
public class DefaultSource implements TableProvider {
    /** For each session a function of the columns, or null where the table has to say them, and of the options. */
    private static final Map OPENERS = Collections.synchronizedMap(new WeakHashMap());

    private final PythonDataSourceV2 python = new PythonDataSourceV2();
    private Table found;

    public DefaultSource() {
        python.setShortName("anabranch");
    }

    public static void register(SparkSession session, BiFunction open) {
        OPENERS.put(session, open);
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        found = opened(null, options.asCaseSensitiveMap());
        return found == null ? python.inferSchema(options) : found.schema();
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map options) {
        if (found == null) {
            found = opened(schema, options);
        }
        return found == null ? python.getTable(schema, partitioning, options) : found;
    }

    public boolean supportsExternalMetadata() {
        return true;
    }

    private static Table opened(StructType schema, Map options) {
        BiFunction open = (BiFunction) OPENERS.get(SparkSession.active());
        return open == null ? null : (Table) open.apply(schema, options);
    }
}
