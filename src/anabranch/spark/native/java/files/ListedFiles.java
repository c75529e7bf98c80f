package anabranch;

import java.net.URI;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * Files whose names and sizes are known, as Hadoop would list them. It costs a fraction of what a path from its text does:
 * the address of a folder is taken apart once, and a name that means itself is put behind it.
 */
public final class ListedFiles {
    private static final long BLOCK = 128L << 20;

    private final FileStatus[][] folders;
    private int count = 0;

    /** Of each folder its path, the names of its files between "/", their sizes between ",", and when they were made. */
    public ListedFiles(String[][] given) {
        folders = new FileStatus[given.length][];
        for (int i = 0; i < given.length; i++) {
            folders[i] = listed(given[i][0], given[i][1], given[i][2], Long.parseLong(given[i][3]));
            count += folders[i].length;
        }
    }

    public FileStatus[][] folders() {
        return folders;
    }

    public FileStatus[] all() {
        FileStatus[] found = new FileStatus[count];
        int at = 0;
        for (int i = 0; i < folders.length; i++) {
            System.arraycopy(folders[i], 0, found, at, folders[i].length);
            at += folders[i].length;
        }
        return found;
    }

    private static FileStatus[] listed(String folder, String names, String sizes, long millis) {
        if (names.isEmpty()) {
            return new FileStatus[0];
        }
        String address = new Path(folder).toUri().toString() + "/";
        FileStatus[] found = new FileStatus[1 + names.length() - names.replace("/", "").length()];
        int name = 0;
        int size = 0;
        for (int i = 0; i < found.length; i++) {
            int nameEnd = end(names, '/', name);
            int sizeEnd = end(sizes, ',', size);
            String text = names.substring(name, nameEnd);
            Path path = isPlain(text) ? new Path(URI.create(address + text)) : new Path(folder + "/" + text);
            long length = Long.parseLong(sizes.substring(size, sizeEnd));
            found[i] = new FileStatus(length, false, 0, BLOCK, millis, path);
            name = nameEnd + 1;
            size = sizeEnd + 1;
        }
        return found;
    }

    private static int end(String text, char mark, int from) {
        int found = text.indexOf(mark, from);
        return found < 0 ? text.length() : found;
    }

    /** Whether a name is spelled in an address as it is, and is not "." or "..". */
    private static boolean isPlain(String name) {
        boolean isName = false;
        for (int i = 0; i < name.length(); i++) {
            char c = name.charAt(i);
            boolean isWord = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
            if (!isWord && c != '-' && c != '.' && c != '_') {
                return false;
            }
            isName |= c != '.';
        }
        return isName;
    }
}
