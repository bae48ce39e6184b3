package fusee.interop.client;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that reports what it gets: {@code Consume NAMESRV GROUP TOPIC...}, then on standard input
 * {@code subscribe TOPIC}. It reads from the first message on; the end of the input stops it.
 */
public final class Consume {
    private Consume() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (int i = 2; i < args.length; i++) {
            consumer.subscribe(args[i], "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(Consume::report);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Hurry.watch();
        consumer.start();
        Json.event("ready").print();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            consumer.subscribe(order.split(" ")[1], "*");
            Json.event("done").print();
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static void report(MessageExt message) {
        Json.event("message").with("name", message.getKeys()).with("topic", message.getTopic())
            .with("brokerName", message.getBrokerName())
            .with("tags", message.getTags()).with("origin", message.getUserProperty("origin"))
            .with("body", new String(message.getBody(), StandardCharsets.UTF_8))
            .with("queueId", message.getQueueId()).with("queueOffset", message.getQueueOffset())
            .with("reconsumeTimes", message.getReconsumeTimes())
            .with("msgId", message.getMsgId()).print();
    }
}
