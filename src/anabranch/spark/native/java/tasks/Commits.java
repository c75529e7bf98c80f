package anabranch;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Paths;
import java.util.Iterator;
import java.util.List;

import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;

/** A write of one query whose files nobody knows of yet: on the driver, for Python to ask what was written. */
public final class Commits implements BatchWrite {
    private final DataFiles files;
    private WriterCommitMessage[] messages = new WriterCommitMessage[0];

    public Commits(Object files) {
        this.files = (DataFiles) files;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        return files;
    }

    public boolean useCommitCoordinator() {
        return true;
    }

    public void onDataWriterCommit(WriterCommitMessage message) {
    }

    public void commit(WriterCommitMessage[] written) {
        messages = written;
    }

    /** The query failed. Tasks that failed have removed their files; these are those of the others. */
    public void abort(WriterCommitMessage[] written) {
        for (int i = 0; i < written.length; i++) {
            if (written[i] != null) {
                discard(files.root, written[i]);
            }
        }
    }

    /** Remove what was written. */
    public void discard() {
        abort(messages);
    }

    /** What each task said, in the order of the tasks: the length of it in 4 bytes, and it. */
    public byte[] told() throws IOException {
        ByteArrayOutputStream made = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(made);
        for (int i = 0; i < messages.length; i++) {
            byte[] message = ((PythonWriterCommitMessage) messages[i]).pickledMessage();
            out.writeInt(message.length);
            out.write(message);
        }
        return made.toByteArray();
    }

    private static void discard(String root, WriterCommitMessage message) {
        try {
            byte[] pickled = ((PythonWriterCommitMessage) message).pickledMessage();
            Object[] told = (Object[]) new Unpickler().loads(pickled);
            for (Iterator each = ((List) told[0]).iterator(); each.hasNext();) {
                Object[] file = (Object[]) each.next();
                DataFile.remove(Paths.get(root, new String[] {(String) file[0]}));
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
