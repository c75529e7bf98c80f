package anabranch;

/** A row has a value that its column does not take. */
final class RowsRefused extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** What to do about it. */
    final String hint;

    RowsRefused(String message, String hint) {
        super(message);
        this.hint = hint;
    }
}
