package fusee.interop.tools;

import fusee.interop.client.Hurry;
import org.apache.rocketmq.broker.BrokerStartup;

/** The real broker, started as it starts itself, which loses no time when it is asked to end. */
public final class Serve {
    private Serve() {
    }

    public static void main(String[] args) {
        Hurry.watchTheEnd();
        BrokerStartup.main(args);
    }
}
