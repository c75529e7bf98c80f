package anabranch;

import java.io.IOException;
import java.net.InetAddress;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;

import py4j.ClientServerConnection;
import py4j.Py4JClientConnection;
import py4j.Py4JPythonClient;
import py4j.PythonClient;

/**
 * Lends the connections by which threads of the JVM call Python, and takes them back after each call.
 *
 * Py4J's own client opens a connection for every thread that ever calls, and closes none: Spark, which starts new
 * threads for the stages of a query, would leave a socket here and a thread in Python behind for each of them. A thread
 * that Python itself calls with keeps its connection, by which Python waits for it.
 */
public class LentConnections extends PythonClient {
    /** Connections that are kept open while nobody calls. */
    private static final int KEPT = 4;

    private final ArrayDeque idle = new ArrayDeque();
    /** All that are open; nothing else holds those that are lent. */
    private final HashSet open = new HashSet();
    private boolean isClosed = false;

    public LentConnections(PythonClient former, int port, InetAddress address, ThreadLocal ofThreads, String token) {
        super(former.getGateway(), null, port, address, 0L, java.util.concurrent.TimeUnit.SECONDS,
            javax.net.SocketFactory.getDefault(), former.getJavaServer(), former.isMemoryManagementEnabled(),
            former.getReadTimeout(), token);
        if (ofThreads != null) {
            this.threadConnection = ofThreads;
        }
    }

    public String sendCommand(String command, boolean blocking) {
        ClientServerConnection own = getPerThreadConnection();
        if (own != null && own.getSocket() != null) {
            return super.sendCommand(command, blocking);
        }
        ClientServerConnection lent = null;
        synchronized (idle) {
            lent = (ClientServerConnection) idle.pollLast();
        }
        if (lent != null) {
            setPerThreadConnection(lent);
        } else {
            threadConnection.remove();
        }
        try {
            return super.sendCommand(command, blocking);
        } finally {
            ClientServerConnection used = getPerThreadConnection();
            threadConnection.remove();
            takeBack(used);
        }
    }

    protected Py4JClientConnection getConnection() throws IOException {
        Py4JClientConnection found = super.getConnection();
        if (((ClientServerConnection) found).isInitiatedFromClient()) {
            synchronized (idle) {
                if (open.add(found)) {
                    forgetBroken();
                }
            }
        }
        return found;
    }

    /** Called after each call, also after one within another; `sendCommand` knows which is which. */
    protected void giveBackConnection(Py4JClientConnection connection) {
    }

    public Py4JPythonClient copyWith(InetAddress address, int port) {
        return new LentConnections(this, port, address, threadConnection, authToken);
    }

    public void shutdown() {
        super.shutdown();
        List all = null;
        synchronized (idle) {
            isClosed = true;
            all = new ArrayList(open);
            idle.clear();
            open.clear();
        }
        for (Iterator each = all.iterator(); each.hasNext();) {
            ((ClientServerConnection) each.next()).shutdown();
        }
    }

    private void takeBack(ClientServerConnection used) {
        if (used == null) {
            return;
        }
        synchronized (idle) {
            if (used.getSocket() != null && !isClosed && idle.size() < KEPT) {
                idle.addLast(used);
                return;
            }
            open.remove(used);
        }
        if (used.getSocket() != null) {
            used.shutdown();
        }
    }

    private void forgetBroken() {
        for (Iterator each = open.iterator(); each.hasNext();) {
            if (((ClientServerConnection) each.next()).getSocket() == null) {
                each.remove();
            }
        }
    }
}
