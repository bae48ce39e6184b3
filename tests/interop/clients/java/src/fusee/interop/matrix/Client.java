package fusee.interop.matrix;

import fusee.interop.client.Hurry;
import fusee.interop.client.Json;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * The Java client behind the common orders of the client matrix: a JSON object per line in, one per line out.
 * Producers and consumers are named by the orders and live until they are closed; the end of the input ends all.
 */
public final class Client {
    private final Map<String, Sender> senders = new LinkedHashMap<>();
    private final Map<String, Receiver> receivers = new LinkedHashMap<>();

    private Client() {
    }

    public static void main(String[] args) throws Exception {
        Hurry.watch();
        Client client = new Client();
        Json.event("ready").print();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            try {
                Object result = client.obey(new Order(RemotingSerializable.fromJson(line, Map.class)));
                Json.event("done").with("result", result).print();
            } catch (Exception failure) {
                Json.event("failed").with("error", failure.toString()).with("code", codeOf(failure)).print();
            }
        }
        System.exit(0);
    }

    private Object obey(Order order) throws Exception {
        switch (order.text("do")) {
            case "producer":
                senders.put(order.text("name"), new Sender(order));
                return null;
            case "consumer":
                receivers.put(order.text("name"), Receiver.open(order));
                return null;
            case "send":
                return senders.get(order.text("producer")).send(order.text("mode"), order.items("messages"));
            case "transact":
                return senders.get(order.text("producer")).transact(order.items("messages"));
            case "checks":
                return senders.get(order.text("producer")).checks();
            case "request":
                return senders.get(order.text("producer")).request(order.item("message"), order.number("timeoutMs"));
            case "received":
                return receivers.get(order.text("consumer")).received(order.number("from"));
            case "pull":
                return receivers.get(order.text("consumer")).pull(order.text("topic"), order.text("expression"));
            case "close":
                return close(order.text("name"));
            default:
                throw new IllegalArgumentException("unknown order " + order.text("do"));
        }
    }

    private Object close(String name) {
        Sender sender = senders.remove(name);
        if (sender != null) {
            sender.close();
        }
        Receiver receiver = receivers.remove(name);
        if (receiver != null) {
            receiver.close();
        }
        return null;
    }

    private static Integer codeOf(Exception failure) {
        if (failure instanceof MQBrokerException) {
            return ((MQBrokerException) failure).getResponseCode();
        }
        return failure instanceof MQClientException ? ((MQClientException) failure).getResponseCode() : null;
    }

    /** One order, with its fields in the types that they are used in. */
    static final class Order {
        private final Map<?, ?> fields;

        Order(Map<?, ?> fields) {
            this.fields = fields;
        }

        String text(String name) {
            Object value = fields.get(name);
            return value == null ? null : value.toString();
        }

        int number(String name) {
            return ((Number) fields.get(name)).intValue();
        }

        boolean flag(String name) {
            return Boolean.TRUE.equals(fields.get(name));
        }

        Order item(String name) {
            return new Order((Map<?, ?>) fields.get(name));
        }

        List<Order> items(String name) {
            List<Order> items = new ArrayList<>();
            ((List<?>) fields.get(name)).forEach(item -> items.add(new Order((Map<?, ?>) item)));
            return items;
        }

        Map<?, ?> table(String name) {
            return (Map<?, ?>) fields.get(name);
        }
    }
}
