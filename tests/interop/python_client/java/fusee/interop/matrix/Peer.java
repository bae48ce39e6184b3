package fusee.interop.matrix;

import fusee.interop.client.Hurry;
import fusee.interop.client.Json;
import fusee.interop.matrix.Client.Order;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * The Java client where the common orders do not reach: members of a group with a strategy of their own that tell which
 * queues they own, and producers that compress by a codec of choice. Takes the same orders, line by line.
 */
public final class Peer {
    private final Map<String, DefaultMQProducer> producers = new LinkedHashMap<>();
    private final Map<String, Member> members = new LinkedHashMap<>();

    private Peer() {
    }

    public static void main(String[] args) throws Exception {
        Hurry.watch();
        Peer peer = new Peer();
        Json.event("ready").print();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            try {
                Object result = peer.obey(new Order(RemotingSerializable.fromJson(line, Map.class)));
                Json.event("done").with("result", result).print();
            } catch (Exception failure) {
                Json.event("failed").with("error", failure.toString()).print();
            }
        }
        System.exit(0);
    }

    private Object obey(Order order) throws Exception {
        switch (order.text("do")) {
            case "producer":
                producers.put(order.text("name"), producer(order));
                return null;
            case "consumer":
                members.put(order.text("name"), new Member(order));
                return null;
            case "send":
                return send(producers.get(order.text("producer")), order.items("messages"));
            case "received":
                return members.get(order.text("consumer")).received(order.number("from"));
            case "queues":
                return members.get(order.text("consumer")).queues();
            case "close":
                return close(order.text("name"));
            default:
                throw new IllegalArgumentException("unknown order " + order.text("do"));
        }
    }

    private static DefaultMQProducer producer(Order order) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(order.text("group"));
        producer.setNamesrvAddr(order.text("nameServers"));
        producer.setInstanceName(order.text("name"));
        producer.setSendMsgTimeout(20000);
        if (order.text("compressType") != null) {
            producer.setCompressType(CompressionType.of(order.text("compressType")));
        }
        producer.start();
        return producer;
    }

    private static Object send(DefaultMQProducer producer, List<Order> orders) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Order order : orders) {
            Message message = new Message(order.text("topic"), order.text("tags"), order.text("keys"),
                order.text("body").getBytes(StandardCharsets.UTF_8));
            order.table("properties").forEach(
                (name, value) -> message.putUserProperty(name.toString(), value.toString()));
            SendResult result = producer.send(message);
            Map<String, Object> report = new LinkedHashMap<>();
            report.put("status", result.getSendStatus());
            report.put("id", result.getMsgId());
            report.put("offsetId", result.getOffsetMsgId());
            report.put("queueId", result.getMessageQueue().getQueueId());
            report.put("queueOffset", result.getQueueOffset());
            results.add(report);
        }
        return results;
    }

    private Object close(String name) {
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        Member member = members.remove(name);
        if (member != null) {
            member.consumer.shutdown();
        }
        return null;
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            default:
                throw new IllegalArgumentException("unknown strategy " + name);
        }
    }

    /** A push consumer that keeps what it is given. */
    private static final class Member {
        private final DefaultMQPushConsumer consumer;
        private final List<Map<String, Object>> deliveries = new ArrayList<>();
        private final Path journal;

        Member(Order order) throws Exception {
            journal = Path.of(order.text("journal"));
            consumer = new DefaultMQPushConsumer(order.text("group"));
            consumer.setNamesrvAddr(order.text("nameServers"));
            consumer.setInstanceName(order.text("name"));
            consumer.setPollNameServerInterval(1000);
            consumer.setHeartbeatBrokerInterval(1000);
            consumer.setPersistConsumerOffsetInterval(1000);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setAllocateMessageQueueStrategy(strategy(order.text("strategy")));
            consumer.subscribe(order.text("topic"), "*");
            if (order.text("kind").equals("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    messages.forEach(this::keep);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    messages.forEach(this::keep);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
        }

        private void keep(MessageExt message) {
            Map<String, Object> record = Receiver.describe(message);
            synchronized (deliveries) {
                deliveries.add(record);
                try {
                    Files.writeString(journal, message.getKeys() + "\n",
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                } catch (IOException failure) {
                    throw new UncheckedIOException(failure);
                }
            }
        }

        Object received(int from) {
            synchronized (deliveries) {
                return new ArrayList<>(deliveries.subList(from, deliveries.size()));
            }
        }

        Object queues() {
            List<Object> owned = new ArrayList<>();
            for (MessageQueue queue : new TreeSet<>(
                consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet())) {
                Map<String, Object> fields = new LinkedHashMap<>();
                fields.put("topic", queue.getTopic());
                fields.put("brokerName", queue.getBrokerName());
                fields.put("queueId", queue.getQueueId());
                owned.add(fields);
            }
            return owned;
        }
    }
}
