package fusee.interop.tools;

import fusee.interop.client.Hurry;
import fusee.interop.client.Json;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin without a new virtual machine per command: each line of standard input holds the arguments, separated by
 * tabs, and is answered with what the command printed.
 */
public final class Admin {
    private Admin() {
    }

    public static void main(String[] args) throws Exception {
        Hurry.watch();
        Json.event("ready").print();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            MQAdminStartup.main0(order.split("\t"), null);
            Json.event("ran").with("out", out.toString(StandardCharsets.UTF_8))
                .with("err", err.toString(StandardCharsets.UTF_8)).print();
        }
        System.exit(0);
    }
}
