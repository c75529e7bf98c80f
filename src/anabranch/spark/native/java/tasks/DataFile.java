package anabranch;

import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.CRC32;

import org.apache.parquet.format.ColumnChunk;
import org.apache.parquet.format.ColumnMetaData;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.format.KeyValue;
import org.apache.parquet.format.RowGroup;
import org.apache.parquet.format.Statistics;
import org.apache.parquet.format.Type;
import org.apache.parquet.format.Util;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.PositionOutputStream;

/**
 * A data file on this machine that is being written: whole and on disk, or absent.
 *
 * It has a temporary name in its folder until `finish`. Its footer gets a checksum of itself and loses the bounds that
 * other readers would misread, exactly as in files of `anabranch.arrow`.
 */
final class DataFile extends PositionOutputStream implements OutputFile {
    private static final String CHECKSUM = "anabranch.footer-crc32";
    private static final String BLANK = "00000000";
    private static final int BUFFER = 1 << 16;
    private static final int ATTEMPTS = 16;
    private static final int MOST_FOLDERS = 10000;
    private static final byte[] MAGIC = new byte[] {'P', 'A', 'R', '1'};
    /** Folders that exist and survive a crash, so that each is made once. */
    private static final Set FOLDERS = ConcurrentHashMap.newKeySet();

    /** Relative to the table's folder. */
    final String path;
    private final Path root;
    private final Path target;
    private final Path temporary;
    private final List columns;
    private final FileChannel channel;
    private final OutputStream out;
    private long position = 0;
    /** What follows the last row group. */
    private ByteArrayOutputStream tail = null;

    /**
     * A file of these columns, as a footer has them: what Parquet's writer makes of them means the same, but is not, byte
     * by byte.
     */
    DataFile(String root, String folder, String name, List columns) throws IOException {
        this.path = folder + "/" + name;
        this.root = Paths.get(root, new String[0]);
        this.target = this.root.resolve(path);
        this.temporary = target.resolveSibling("." + name + "." + UUID.randomUUID() + ".tmp");
        this.columns = columns;
        this.channel = created();
        this.out = new BufferedOutputStream(Channels.newOutputStream(channel), BUFFER);
    }

    /** What is written from now on belongs to the footer, or stands before it. */
    void tailFollows() {
        tail = new ByteArrayOutputStream();
    }

    public long getPos() {
        return position;
    }

    public void write(int single) throws IOException {
        (tail == null ? out : (OutputStream) tail).write(single);
        position++;
    }

    public void write(byte[] bytes, int from, int count) throws IOException {
        (tail == null ? out : (OutputStream) tail).write(bytes, from, count);
        position += count;
    }

    public void flush() {
    }

    /** Parquet's word that all is written; the file ends with `finish`. */
    public void close() {
    }

    /** End the file, and give it its name; the size it has. */
    long finish() throws IOException {
        byte[] found = tail.toByteArray();
        int end = found.length - 8;
        int start = end - ByteBuffer.wrap(found).order(ByteOrder.LITTLE_ENDIAN).getInt(end);
        byte[] footer = sealed(Util.readFileMetaData(new ByteArrayInputStream(found, start, end - start)));
        out.write(found, 0, start);
        out.write(footer);
        out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(footer.length).array());
        out.write(MAGIC);
        out.flush();
        channel.force(true);
        long size = channel.position();
        channel.close();
        Files.move(temporary, target, new java.nio.file.CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
        sync(target.getParent());
        return size;
    }

    /** Leave nothing behind, as far as the disk allows, whether or not it was finished. */
    void abandon() {
        try {
            channel.close();
        } catch (IOException error) {
            // It is of no interest any more.
        }
        remove(temporary);
        remove(target);
    }

    /** Remove a file that nobody needs; one that cannot be removed is only litter. */
    static void remove(Path path) {
        try {
            Files.deleteIfExists(path);
        } catch (IOException error) {
            // As it says.
        }
    }

    public PositionOutputStream create(long blockSize) {
        return this;
    }

    public PositionOutputStream createOrOverwrite(long blockSize) {
        return this;
    }

    public boolean supportsBlockSize() {
        return false;
    }

    public long defaultBlockSize() {
        return 0L;
    }

    public String getPath() {
        return target.toString();
    }

    private byte[] sealed(FileMetaData footer) throws IOException {
        for (Iterator groups = footer.getRow_groups().iterator(); groups.hasNext();) {
            for (Iterator chunks = ((RowGroup) groups.next()).getColumns().iterator(); chunks.hasNext();) {
                withoutMisleadingBounds(((ColumnChunk) chunks.next()).getMeta_data());
            }
        }
        footer.setSchema(columns);
        List values = new ArrayList();
        if (footer.isSetKey_value_metadata()) {
            values.addAll(footer.getKey_value_metadata());
        }
        KeyValue checksum = new KeyValue(CHECKSUM);
        checksum.setValue(BLANK);
        values.add(checksum);
        footer.setKey_value_metadata(values);
        ByteArrayOutputStream encoded = new ByteArrayOutputStream();
        Util.writeFileMetaData(footer, encoded);
        byte[] bytes = encoded.toByteArray();
        CRC32 crc = new CRC32();
        crc.update(bytes, 0, bytes.length);
        byte[] digits = String.format("%08x", new Object[] {Long.valueOf(crc.getValue())})
            .getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(digits, 0, bytes, placeOfChecksum(bytes), digits.length);
        return bytes;
    }

    /** INT96 has no order; and to some readers NaN is above all numbers, to others it is not. */
    private static void withoutMisleadingBounds(ColumnMetaData column) {
        Type type = column.getType();
        boolean isFloating = type == Type.FLOAT || type == Type.DOUBLE;
        if (!column.isSetStatistics() || (!isFloating && type != Type.INT96)) {
            return;
        }
        Statistics found = column.getStatistics();
        if (!isFloating || column.getPath_in_schema().size() > 1 || isNan(type, found.getMin_value())
                || isNan(type, found.getMax_value())) {
            found.unsetMin();
            found.unsetMax();
            found.unsetMin_value();
            found.unsetMax_value();
        }
    }

    private static boolean isNan(Type type, byte[] value) {
        if (value == null) {
            return false;
        }
        ByteBuffer bytes = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
        return type == Type.FLOAT ? Float.isNaN(bytes.getFloat()) : Double.isNaN(bytes.getDouble());
    }

    /** Where the digits begin: behind the last place where the key, and of its value the kind and length, stand. */
    private static int placeOfChecksum(byte[] footer) {
        byte[] key = (CHECKSUM + "\u0018\u0008").getBytes(StandardCharsets.US_ASCII);
        for (int at = footer.length - key.length - BLANK.length(); at >= 0; at--) {
            int same = 0;
            while (same < key.length && footer[at + same] == key[same]) {
                same++;
            }
            if (same == key.length) {
                return at + same;
            }
        }
        throw new IllegalStateException("the footer is encoded in another way than expected");
    }

    /** The new file, in a folder that others may remove while we believe it is there. */
    private FileChannel created() throws IOException {
        Path folder = target.getParent();
        for (int attempt = 1;; attempt++) {
            ensure(folder);
            try {
                return FileChannel.open(
                    temporary, new OpenOption[] {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE});
            } catch (NoSuchFileException error) {
                if (attempt == ATTEMPTS) {
                    throw error;
                }
                FOLDERS.clear();
            }
        }
    }

    /** Make a folder and those above it that are missing, up to the table's, durably. */
    private void ensure(Path folder) throws IOException {
        if (folder.equals(root) || FOLDERS.contains(folder)) {
            return;
        }
        ensure(folder.getParent());
        try {
            Files.createDirectory(folder, new java.nio.file.attribute.FileAttribute[0]);
        } catch (java.nio.file.FileAlreadyExistsException error) {
            // Another task may have made it a moment ago, and not synced it yet.
        }
        sync(folder.getParent());
        if (FOLDERS.size() >= MOST_FOLDERS) {
            FOLDERS.clear();
        }
        FOLDERS.add(folder);
    }

    private static void sync(Path folder) throws IOException {
        FileChannel opened = FileChannel.open(folder, new OpenOption[] {StandardOpenOption.READ});
        try {
            opened.force(true);
        } finally {
            opened.close();
        }
    }
}
