package anabranch;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.Files;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Files of checkpoints on a local disk, as Spark lays them out, without a process for the permissions of each and without
 * files of checksums. Of two queries that write the same file one is refused, whatever the moment: the file gets its name
 * by a hard link. A query can go from Spark's own class to this one and back at any restart. Other file systems are used as
 * Spark does.
 */
public class LocalCheckpointFiles extends FileSystemBasedCheckpointFileManager {
    private final FileSystem files;
    private final RawLocalFileSystem local;

    public LocalCheckpointFiles(Path path, Configuration settings) {
        super(path, settings);
        FileSystem found = super.fs();
        FileSystem raw = found instanceof LocalFileSystem ? ((LocalFileSystem) found).getRawFileSystem() : found;
        files = raw;
        local = raw instanceof RawLocalFileSystem ? (RawLocalFileSystem) raw : null;
    }

    public FileSystem fs() {
        return files;
    }

    public FSDataOutputStream createTempFile(Path path) {
        try {
            if (local == null) {
                return super.createTempFile(path);
            }
            File file = local.pathToFile(path);
            File folder = file.getParentFile();
            if (!folder.isDirectory()) { // Spark makes it when a query starts; made again, it would lack what was in it
                throw new FileNotFoundException("folder " + folder + " of the checkpoint is not there: it was removed,"
                    + " or its disk is away. Start the query again when it is back.");
            }
            return new FSDataOutputStream(new BufferedOutputStream(new FileOutputStream(file)), null);
        } catch (IOException error) {
            throw raised(error);
        }
    }

    public FileStatus[] list(Path path, final PathFilter wanted) {
        return super.list(path, new PathFilter() {
            public boolean accept(Path found) {
                return !isChecksum(found) && wanted.accept(found);
            }
        });
    }

    public void delete(Path path) {
        super.delete(path);
        forgetChecksum(path);
    }

    public void renameTempFile(Path from, Path to, boolean overwrite) {
        forgetChecksum(to);
        if (local == null || overwrite) {
            super.renameTempFile(from, to, overwrite);
            return;
        }
        File written = local.pathToFile(from);
        try {
            Files.createLink(local.pathToFile(to).toPath(), written.toPath());
        } catch (java.nio.file.FileAlreadyExistsException taken) {
            written.delete();
            throw raised(new FileAlreadyExistsException(to + " exists already, and is not written again"));
        } catch (Exception noLinks) { // of this file system
            super.renameTempFile(from, to, overwrite);
            return;
        }
        written.delete();
    }

    /** Removes what another run, by Spark's own class, has left: it is wrong for what comes in the file's place. */
    private void forgetChecksum(Path path) {
        if (local != null) {
            local.pathToFile(new Path(path.getParent(), "." + path.getName() + ".crc")).delete();
        }
    }

    private boolean isChecksum(Path path) {
        return local != null && path.getName().startsWith(".") && path.getName().endsWith(".crc");
    }

    /** Throws it, though methods of Scala declare no exceptions. */
    private static RuntimeException raised(Exception error) {
        org.apache.spark.unsafe.Platform.throwException(error);
        return null;
    }
}
