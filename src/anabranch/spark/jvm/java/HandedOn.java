package anabranch;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Function1;
import scala.runtime.AbstractFunction1;

/** Makes for each session a rule that changes no plan, and tells of the session when it first looks at one. */
public class HandedOn extends AbstractFunction1 {
    private final Function1 tell;

    public HandedOn(Function1 tell) {
        this.tell = tell;
    }

    public Object apply(Object session) {
        return new First(session, tell);
    }

    public static class First extends Rule {
        private final Object session;
        private final Function1 tell;
        private volatile boolean isTold = false;
        private boolean isTelling = false;

        public First(Object session, Function1 tell) {
            this.session = session;
            this.tell = tell;
        }

        public TreeNode apply(TreeNode plan) {
            if (!isTold) {
                first();
            }
            return plan;
        }

        /** Others wait for it: what they ask for may be what is being given. */
        private synchronized void first() {
            if (isTold || isTelling) {
                return;
            }
            isTelling = true;
            try {
                tell.apply(session);
            } finally {
                isTold = true;
            }
        }
    }
}
