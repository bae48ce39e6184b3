package fusee.interop.matrix;

import fusee.interop.matrix.Client.Order;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A consumer of any kind that keeps a record of every delivery and fails those that it was ordered to fail. */
abstract class Receiver {
    private final Map<?, ?> failures;
    private final Map<String, Integer> failed = new ConcurrentHashMap<>();
    private final List<Map<String, Object>> deliveries = new ArrayList<>();

    Receiver(Order order) {
        failures = order.table("failures");
    }

    static Receiver open(Order order) throws Exception {
        switch (order.text("kind")) {
            case "pull":
                return new Pull(order);
            case "lite":
                return new Lite(order);
            default:
                return new Push(order);
        }
    }

    Object received(int from) {
        synchronized (deliveries) {
            return new ArrayList<>(deliveries.subList(from, deliveries.size()));
        }
    }

    Object pull(String topic, String expression) throws Exception {
        throw new IllegalStateException("not a pull consumer");
    }

    abstract void close();

    /** Keeps the delivery; whether it is to succeed. */
    final boolean keep(MessageExt message) {
        Map<String, Object> record = describe(message);
        Number wanted = message.getKeys() == null ? null : (Number) failures.get(message.getKeys());
        boolean success = true;
        if (wanted != null) {
            int before = failed.merge(message.getKeys(), 1, Integer::sum) - 1;
            success = wanted.intValue() >= 0 && before >= wanted.intValue();
        }
        record.put("success", success);
        synchronized (deliveries) {
            deliveries.add(record);
        }
        return success;
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> record = new LinkedHashMap<>();
        record.put("id", message.getMsgId());
        record.put("offsetId", ((MessageClientExt) message).getOffsetMsgId());
        record.put("topic", message.getTopic());
        record.put("queueId", message.getQueueId());
        record.put("queueOffset", message.getQueueOffset());
        record.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        record.put("tags", message.getTags());
        record.put("keys", message.getKeys());
        record.put("properties", new LinkedHashMap<>(message.getProperties()));
        record.put("reconsumeTimes", message.getReconsumeTimes());
        record.put("bornMs", message.getBornTimestamp());
        record.put("storeMs", message.getStoreTimestamp());
        record.put("receivedMs", System.currentTimeMillis());
        return record;
    }

    /** The push consumer: concurrent, orderly, broadcast, filtering, answering requests. */
    private static final class Push extends Receiver {
        private final DefaultMQPushConsumer consumer;
        private final DefaultMQProducer replies;

        Push(Order order) throws Exception {
            super(order);
            consumer = new DefaultMQPushConsumer(order.text("group"), order.flag("trace"), null);
            consumer.setNamesrvAddr(order.text("nameServers"));
            consumer.setInstanceName(order.text("name"));
            consumer.setUseTLS(order.flag("tls"));
            consumer.setPollNameServerInterval(1000);
            consumer.setHeartbeatBrokerInterval(1000);
            consumer.setPersistConsumerOffsetInterval(1000);
            consumer.setSuspendCurrentQueueTimeMillis(200);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setMaxReconsumeTimes(order.number("maxReconsumes"));
            if (order.flag("broadcast")) {
                // The package of the enumeration differs between the versions, so it is not named.
                consumer.setMessageModel(
                    Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            }
            if (order.flag("sql")) {
                consumer.subscribe(order.text("topic"), MessageSelector.bySql(order.text("expression")));
            } else {
                consumer.subscribe(order.text("topic"), order.text("expression"));
            }
            replies = order.flag("reply") ? replyProducer(order) : null;
            if (order.text("kind").equals("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    keepAll(messages)
                        ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                    keepAll(messages)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
            }
            consumer.start();
        }

        private static DefaultMQProducer replyProducer(Order order) throws Exception {
            DefaultMQProducer producer = new DefaultMQProducer(order.text("group") + "_REPLY");
            producer.setNamesrvAddr(order.text("nameServers"));
            producer.setInstanceName(order.text("name") + "_reply");
            producer.setUseTLS(order.flag("tls"));
            producer.start();
            return producer;
        }

        private boolean keepAll(List<MessageExt> messages) {
            boolean success = true;
            for (MessageExt message : messages) {
                success &= keep(message);
                if (replies != null) {
                    answer(message);
                }
            }
            return success;
        }

        private void answer(MessageExt message) {
            try {
                byte[] body = ("reply to " + message.getKeys()).getBytes(StandardCharsets.UTF_8);
                replies.send(MessageUtil.createReplyMessage(message, body), 5000);
            } catch (Exception failure) {
                throw new IllegalStateException("could not reply", failure);
            }
        }

        @Override
        void close() {
            consumer.shutdown();
            if (replies != null) {
                replies.shutdown();
            }
        }
    }

    /** The lite pull consumer, polled by a thread of its own. */
    private static final class Lite extends Receiver {
        private final DefaultLitePullConsumer consumer;
        private final Thread poller;
        private volatile boolean open = true;

        Lite(Order order) throws Exception {
            super(order);
            consumer = new DefaultLitePullConsumer(order.text("group"));
            consumer.setNamesrvAddr(order.text("nameServers"));
            consumer.setInstanceName(order.text("name"));
            consumer.setUseTLS(order.flag("tls"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setAutoCommitIntervalMillis(1000);
            consumer.subscribe(order.text("topic"), order.text("expression"));
            consumer.start();
            poller = new Thread(() -> {
                while (open) {
                    consumer.poll(100).forEach(this::keep);
                }
            }, "poller");
            poller.start();
        }

        @Override
        void close() {
            open = false;
            try {
                poller.join();
            } catch (InterruptedException end) {
                Thread.currentThread().interrupt();
            }
            consumer.commitSync();
            consumer.shutdown();
        }
    }

    /** The old pull consumer: reads a topic from its beginning each time. */
    private static final class Pull extends Receiver {
        private final DefaultMQPullConsumer consumer;

        Pull(Order order) throws Exception {
            super(order);
            consumer = new DefaultMQPullConsumer(order.text("group"));
            consumer.setNamesrvAddr(order.text("nameServers"));
            consumer.setInstanceName(order.text("name"));
            consumer.setUseTLS(order.flag("tls"));
            consumer.start();
        }

        @Override
        Object pull(String topic, String expression) throws Exception {
            List<Object> found = new ArrayList<>();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                long next = consumer.minOffset(queue);
                for (long end = consumer.maxOffset(queue); next < end; ) {
                    PullResult result = consumer.pull(queue, expression, next, 32);
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        result.getMsgFoundList().forEach(message -> found.add(describe(message)));
                    } else if (result.getPullStatus() == PullStatus.OFFSET_ILLEGAL) {
                        throw new IllegalStateException(queue + " at " + next + ": " + result);
                    }
                    next = result.getNextBeginOffset();
                }
            }
            return found;
        }

        @Override
        void close() {
            consumer.shutdown();
        }
    }
}
