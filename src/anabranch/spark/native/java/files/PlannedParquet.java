package anabranch;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Spark's Parquet format for files that a plan of ours names. Spark asks it of every file whether that may be split, and
 * reads all its settings anew to say yes, which takes a large part of planning many files.
 */
public final class PlannedParquet extends ParquetFileFormat {
    private static final long serialVersionUID = 1L;

    public boolean isSplitable(SparkSession session, Map options, Path path) {
        return true;
    }

    /** What tasks are given is Spark's own: they do not know this class. */
    public Function1 buildReaderWithPartitionValues(
            SparkSession session, StructType columns, StructType partitionColumns, StructType read, Seq filters, Map options,
            Configuration settings) {
        return new ParquetFileFormat().buildReaderWithPartitionValues(
                session, columns, partitionColumns, read, filters, options, settings);
    }
}
