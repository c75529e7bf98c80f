package anabranch;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkSqlParser;

/** Spark's parser, which also understands FROM t /*+ OPTIONS('k' = 'v') *&#47;: to Spark that is FROM t WITH ('k' = 'v'). */
public class HintParser extends SparkSqlParser {
    /** A hint, or what a hint in it would be none: comments, texts, names; and words. Without backtracking. */
    private static final Pattern TOKEN = Pattern.compile(
        "--[^\\n]*+|/\\*\\+(.*?)\\*/|/\\*.*?\\*/|[rR]?'(?:[^'\\\\]++|\\\\.|'')*+'|[rR]?\"(?:[^\"\\\\]++|\\\\.|\"\")*+\""
            + "|`(?:[^`]++|``)*+`|(\\w++)|.",
        Pattern.DOTALL);

    private static final Pattern OPTIONS =
        Pattern.compile("\\s*OPTIONS\\s*(\\(.*\\))\\s*", Pattern.DOTALL | Pattern.CASE_INSENSITIVE);

    public LogicalPlan parsePlan(String text) {
        return super.parsePlan(rewritten(text));
    }

    public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) {
        return super.parsePlanWithParameters(rewritten(text), parameters);
    }

    static String rewritten(String text) {
        if (text.indexOf("/*+") < 0) {
            return text;
        }
        StringBuilder made = new StringBuilder();
        String word = "";
        Matcher token = TOKEN.matcher(text);
        while (token.find()) {
            String hint = token.group(1);
            Matcher options = hint == null ? null : OPTIONS.matcher(hint);
            if (options == null || !options.matches()) {
                made.append(token.group());
            } else if (word.equalsIgnoreCase("SELECT")) {
                throw new IllegalArgumentException(
                    "a hint OPTIONS stands after SELECT, where it would not be heeded\n"
                        + "  hint: write it after the table: FROM lake.db.t /*+ OPTIONS('scan.snapshot-id' = '1') */");
            } else {
                made.append("WITH ").append(options.group(1));
            }
            word = token.group(2) == null ? word : token.group(2);
        }
        return made.toString();
    }
}
