package fusee.interop.tools;

import fusee.interop.client.Hurry;
import fusee.interop.client.Json;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Looks into a store through its broker, as a client does: {@code Lookup NAMESRV}, then orders whose words are
 * separated by tabs. {@code consume GROUP COUNT TOPIC...} reads that many messages in the order of their queues,
 * {@code key TOPIC KEY BEGIN END}, {@code id TOPIC OFFSETID}, {@code time TOPIC BROKERNAME QUEUE MS}, and
 * {@code send TOPIC BROKERNAME QUEUE COUNT PREFIX}. Every order ends with {@code done}.
 */
public final class Lookup {
    private static final int CONSUME_TIMEOUT_S = 120;

    private Lookup() {
    }

    public static void main(String[] args) throws Exception {
        Hurry.watch();
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args[0]);
        admin.start();
        DefaultMQProducer producer = new DefaultMQProducer("P_lookup");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10000);
        producer.start();
        Json.event("ready").print();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split("\t");
            switch (words[0]) {
                case "consume":
                    consume(args[0], words);
                    break;
                case "key":
                    byKey(admin, words);
                    break;
                case "id":
                    byId(admin, words);
                    break;
                case "time":
                    MessageQueue queue = new MessageQueue(words[1], words[2], Integer.parseInt(words[3]));
                    long queueOffset = admin.searchOffset(queue, Long.parseLong(words[4]));
                    Json.event("found").with("queueOffset", queueOffset).print();
                    break;
                default:
                    send(producer, words);
            }
            Json.event("done").print();
        }
        System.exit(0);
    }

    private static void byKey(DefaultMQAdminExt admin, String[] words) throws Exception {
        try {
            long begin = Long.parseLong(words[3]);
            long end = Long.parseLong(words[4]);
            admin.queryMessage(words[1], words[2], 64, begin, end).getMessageList().forEach(Lookup::report);
        } catch (MQClientException none) {
            Json.event("none").with("error", none.getErrorMessage()).print();
        }
    }

    private static void byId(DefaultMQAdminExt admin, String[] words) throws Exception {
        try {
            report(admin.viewMessage(words[1], words[2]));
        } catch (MQClientException none) {
            Json.event("none").with("error", none.getErrorMessage()).print();
        }
    }

    private static void consume(String nameServers, String[] words) throws Exception {
        CountDownLatch left = new CountDownLatch(Integer.parseInt(words[2]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[1]);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        for (int i = 3; i < words.length; i++) {
            consumer.subscribe(words[i], "*");
        }
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                report(message);
                left.countDown();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        left.await(CONSUME_TIMEOUT_S, TimeUnit.SECONDS);
        consumer.shutdown();
    }

    private static void send(DefaultMQProducer producer, String[] words) throws Exception {
        MessageQueue queue = new MessageQueue(words[1], words[2], Integer.parseInt(words[3]));
        for (int i = 0; i < Integer.parseInt(words[4]); i++) {
            String name = words[5] + "-" + i;
            Message message = new Message(words[1], "TagJ", name, ("body of " + name).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message, queue);
            Json.event("sent").with("name", name).with("status", result.getSendStatus())
                .with("queueOffset", result.getQueueOffset()).with("offsetId", result.getOffsetMsgId())
                .with("uniqueKey", result.getMsgId()).print();
        }
    }

    private static void report(MessageExt message) {
        // What a client calls the id of a message is its unique key, if it has one.
        String offsetId = message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
        Json.event("message").with("topic", message.getTopic()).with("queueId", message.getQueueId())
            .with("queueOffset", message.getQueueOffset()).with("logOffset", message.getCommitLogOffset())
            .with("keys", message.getKeys()).with("tag", message.getTags()).with("flag", message.getFlag())
            .with("storeTimestamp", message.getStoreTimestamp()).with("offsetId", offsetId)
            .with("msgId", message.getMsgId()).with("body", Json.hex(message.getBody()))
            .with("properties", new TreeMap<>(message.getProperties())).print();
    }
}
