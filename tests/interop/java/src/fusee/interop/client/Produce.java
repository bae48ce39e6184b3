package fusee.interop.client;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer driven line by line: {@code Produce NAMESRV GROUP}, then on standard input
 * {@code send TOPIC COUNT PREFIX}. Every message is reported as {@code sent} or {@code failed}, every line ends
 * with {@code done}; the end of the input stops the producer.
 */
public final class Produce {
    private Produce() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(10000);
        Hurry.watch();
        producer.start();
        Json.event("ready").print();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            int count = Integer.parseInt(words[2]);
            for (int i = 0; i < count; i++) {
                send(producer, words[1], words[3] + "-" + i);
            }
            Json.event("done").print();
        }
        producer.shutdown();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, String name) {
        Message message = new Message(topic, "TagA", name, ("body of " + name + " é").getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("origin", name);
        try {
            SendResult result = producer.send(message);
            Json.event("sent").with("name", name).with("status", result.getSendStatus())
                .with("topic", result.getMessageQueue().getTopic())
                .with("brokerName", result.getMessageQueue().getBrokerName())
                .with("queueId", result.getMessageQueue().getQueueId())
                .with("queueOffset", result.getQueueOffset())
                .with("msgId", result.getMsgId()).print();
        } catch (Exception failure) {
            Json.event("failed").with("name", name).with("error", failure).print();
        }
    }
}
