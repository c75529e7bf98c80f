package anabranch;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import scala.collection.Iterator;
import scala.collection.Seq;

/** The rows of a query that were known when it was planned: a read of one task. */
public final class KnownRows implements Batch, PartitionReaderFactory, InputPartition {
    private static final long serialVersionUID = 1L;

    private final InternalRow[] rows;

    public KnownRows(Object given) {
        List found = new ArrayList();
        for (Iterator each = ((Seq) given).iterator(); each.hasNext();) {
            found.add(((InternalRow) each.next()).copy());
        }
        rows = (InternalRow[]) found.toArray(new InternalRow[0]);
    }

    public InputPartition[] planInputPartitions() {
        return new InputPartition[] {this};
    }

    public PartitionReaderFactory createReaderFactory() {
        return this;
    }

    public PartitionReader createReader(InputPartition partition) {
        return new Reader(((KnownRows) partition).rows);
    }

    private static final class Reader implements PartitionReader {
        private final InternalRow[] rows;
        private int next = 0;

        Reader(InternalRow[] rows) {
            this.rows = rows;
        }

        public boolean next() {
            return next++ < rows.length;
        }

        public Object get() {
            return rows[next - 1];
        }

        public void close() {
        }
    }
}
