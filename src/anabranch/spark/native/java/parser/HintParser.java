package anabranch;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkSqlParser;

/**
 * Spark's parser, which also understands FROM t /*+ OPTIONS('k' = 'v') *&#47;: to Spark that is FROM t WITH ('k' = 'v').
 * So is FROM paimon_incremental_query('t', 'a', 'b'), with the option that the function stands for. What is a text, a name or a comment is told as Spark's lexer does, and as scanner.py does for lake.sql.
 */
public class HintParser extends SparkSqlParser {
    /** Texts, raw texts, names and comments to the end of a line, in which a hint is none; and words. Without backtracking. */
    private static final Pattern TOKEN = Pattern.compile(
        "--(?:\\\\\\n|[^\\r\\n])*+|[rR]'[^']*+'|[rR]\"[^\"]*+\"|'(?:[^'\\\\]++|\\\\.|'')*+'|\"(?:[^\"\\\\]++|\\\\.|\"\")*+\""
            + "|`(?:[^`]++|``)*+`|\\w++|\\s++|.",
        Pattern.DOTALL);

    private static final Pattern OPTIONS =
        Pattern.compile("/\\*\\+\\s*OPTIONS\\s*(\\(.*\\))\\s*\\*/", Pattern.DOTALL | Pattern.CASE_INSENSITIVE);

    private static final String LITERAL = "\\s*(?:'([^'\"\\\\]*+)'|\"([^'\"\\\\]*+)\"|(\\d++))\\s*";

    /** What follows the name of a function of what was added between two moments. */
    private static final Pattern ARGUMENTS =
        Pattern.compile("\\s*\\(" + LITERAL + "," + LITERAL + "," + LITERAL + "\\)");

    private static final Pattern PART = Pattern.compile("`(?:[^`]|``)+`|[^.`]+");

    public LogicalPlan parsePlan(String text) {
        return super.parsePlan(rewritten(text));
    }

    public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) {
        return super.parsePlanWithParameters(rewritten(text), parameters);
    }

    /** The text with its hints as Spark understands them; as it is if something in it is never closed. */
    public static String rewritten(String text) {
        if (text.indexOf("/*+") < 0 && !text.toLowerCase(Locale.ROOT).contains("paimon_incremental_")) {
            return text;
        }
        StringBuilder made = new StringBuilder();
        boolean isAfterSelect = false;
        Matcher token = TOKEN.matcher(text);
        int end;
        for (int place = 0; place < text.length(); place = end) {
            end = endOf(text, place, token);
            if (end < 0) {
                return text;
            }
            String found = text.substring(place, end);
            String option = optionOf(found);
            Matcher arguments = ARGUMENTS.matcher(text).region(end, text.length());
            if (option != null && arguments.lookingAt()) {
                found = between(option, arguments);
                end = arguments.end();
            }
            Matcher options = OPTIONS.matcher(found);
            if (found.startsWith("/*+") && options.matches()) {
                if (isAfterSelect) {
                    throw new IllegalArgumentException(
                        "a hint OPTIONS stands after SELECT, where it would not be heeded\n"
                            + "  hint: write it after the table: FROM lake.db.t /*+ OPTIONS('scan.snapshot-id' = '1') */");
                }
                boolean isApart = place > 0 && Character.isWhitespace(text.charAt(place - 1));
                found = (isApart ? "WITH " : " WITH ") + options.group(1);
            }
            if (!found.isBlank() && !found.startsWith("--") && !found.startsWith("/*")) {
                isAfterSelect = found.equalsIgnoreCase("SELECT");
            }
            made.append(found);
        }
        return made.toString();
    }

    private static String optionOf(String word) {
        if ("paimon_incremental_query".equalsIgnoreCase(word)) {
            return "incremental-between";
        }
        return "paimon_incremental_between_timestamp".equalsIgnoreCase(word) ? "incremental-between-timestamp" : null;
    }

    private static String between(String option, Matcher arguments) {
        StringBuilder made = new StringBuilder();
        Matcher part = PART.matcher(literal(arguments, 0));
        while (part.find()) {
            String name = part.group();
            made.append(made.length() == 0 ? "" : ".").append(name.startsWith("`") ? name : "`" + name + "`");
        }
        return made + " WITH ('" + option + "' = '" + literal(arguments, 1) + "," + literal(arguments, 2) + "')";
    }

    private static String literal(Matcher arguments, int number) {
        String text = null;
        for (int kind = 1; text == null && kind <= 3; kind++) {
            text = arguments.group(3 * number + kind);
        }
        return text;
    }

    /** The end of a token; -1 if it has none. */
    private static int endOf(String text, int place, Matcher token) {
        if (text.startsWith("/*+", place)) {
            return endOfHint(text, place + 3, token);
        }
        if (text.startsWith("/*", place)) {
            return endOfComment(text, place);
        }
        token.region(place, text.length());
        boolean isOpen = token.lookingAt() && token.end() == place + 1 && "'\"`".indexOf(text.charAt(place)) >= 0;
        return isOpen ? -1 : token.end();
    }

    /** The end of a hint, whose inside is tokens again. */
    private static int endOfHint(String text, int place, Matcher token) {
        while (place >= 0 && place < text.length()) {
            if (text.startsWith("*/", place)) {
                return place + 2;
            }
            place = endOf(text, place, token);
        }
        return -1;
    }

    /** The end of a comment; comments may be nested, and what looks like a hint in one is no comment of its own. */
    private static int endOfComment(String text, int place) {
        int depth = 0;
        while (place < text.length()) {
            if (text.startsWith("/*", place) && !text.startsWith("/*+", place)) {
                depth++;
                place += 2;
            } else if (text.startsWith("*/", place)) {
                depth--;
                place += 2;
                if (depth == 0) {
                    return place;
                }
            } else {
                place++;
            }
        }
        return -1;
    }
}
