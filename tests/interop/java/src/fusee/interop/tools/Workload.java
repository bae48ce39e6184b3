package fusee.interop.tools;

import fusee.interop.client.Hurry;
import fusee.interop.client.Json;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Fills a broker with messages of every kind: {@code Workload NAMESRV BROKER PREFIX}. Orders: {@code begin}, when the
 * broker is there, makes the topics {@code PREFIX_plain}, {@code _batch}, {@code _inner}, {@code _delay} and
 * {@code _tx}; {@code mix COUNT} sends mixed kinds, {@code consume GROUP} reads the plain topic and sends some of it
 * back, {@code flood THREADS} sends until the broker is gone. Every message that the broker took is reported as
 * {@code sent}, every order ends with {@code done}.
 */
public final class Workload {
    private static final String[] TAGS = {"TagA", "TagB", "标签", null};
    private static final CompressionType[] COMPRESSIONS = {
        CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD};
    private static final LocalTransactionState[] ENDS = {
        LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW};
    private static final int BATCH_SIZE = 8;
    private static final int CONSUME_TIMEOUT_S = 120;

    private final String nameServers;
    private final String prefix;
    private final DefaultMQProducer producer;
    private final TransactionMQProducer transactions;
    private final Random random = new Random(7);
    private int number;
    private int plainCount;

    private Workload(String nameServers, String prefix) {
        this.nameServers = nameServers;
        this.prefix = prefix;
        producer = new DefaultMQProducer("P_" + prefix);
        transactions = new TransactionMQProducer("PT_" + prefix);
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object end) {
                return (LocalTransactionState) end;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
    }

    public static void main(String[] args) throws Exception {
        Hurry.watch();
        Workload workload = new Workload(args[0], args[2]);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            if (words[0].equals("begin")) {
                workload.start(args[1]);
            } else if (words[0].equals("mix")) {
                for (int left = Integer.parseInt(words[1]); left > 0; left--) {
                    workload.sendNext();
                }
            } else if (words[0].equals("consume")) {
                workload.consume(words[1]);
            } else {
                workload.flood(Integer.parseInt(words[1]));
            }
            Json.event("done").print();
        }
        System.exit(0);
    }

    private void start(String broker) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServers);
        admin.start();
        makeTopic(admin, broker, "plain", 4, null);
        makeTopic(admin, broker, "batch", 2, null);
        makeTopic(admin, broker, "inner", 1, "BatchCQ");
        makeTopic(admin, broker, "delay", 2, null);
        makeTopic(admin, broker, "tx", 2, null);
        for (DefaultMQProducer each : Arrays.asList(producer, transactions)) {
            each.setNamesrvAddr(nameServers);
            each.setSendMsgTimeout(10000);
            each.start();
        }
    }

    private void makeTopic(DefaultMQAdminExt admin, String broker, String name, int queues, String queueType)
        throws Exception {
        TopicConfig config = new TopicConfig(prefix + "_" + name, queues, queues);
        if (queueType != null) {
            config.getAttributes().put("+queue.type", queueType);
        }
        admin.createAndUpdateTopicConfig(broker, config);
    }

    private void sendNext() throws Exception {
        int place = number++;
        String name = prefix + "-" + place;
        int round = place / 16;
        switch (place % 16) {
            case 7:
                sendBatch(name);
                break;
            case 8:
                sendInnerBatch(name);
                break;
            case 9:
                Message large = message("plain", name, 5000 + random.nextInt(5000));
                producer.setCompressType(COMPRESSIONS[round % COMPRESSIONS.length]);
                report("plain", large, producer.send(large));
                plainCount++;
                break;
            case 10:
                Message delayed = message("delay", name, 50);
                delayed.setDelayTimeLevel(round % 2 == 0 ? 1 : 18);
                report(round % 2 == 0 ? "delayDelivered" : "delayPending", delayed, producer.send(delayed));
                break;
            case 11:
                Message timed = message("delay", name, 50);
                timed.setDelayTimeMs(round % 2 == 0 ? 1000 : TimeUnit.DAYS.toMillis(1));
                report(round % 2 == 0 ? "timerDelivered" : "timerPending", timed, producer.send(timed));
                break;
            case 12:
            case 13:
                LocalTransactionState end = ENDS[(round + place) % ENDS.length];
                Message prepared = message("tx", name, 200);
                SendResult half = transactions.sendMessageInTransaction(prepared, end);
                report(end.name(), prepared, half);
                break;
            case 14:
                Message hasty = message("plain", name, 100);
                hasty.setWaitStoreMsgOK(false);
                hasty.setFlag(-7 - place);
                report("plain", hasty, producer.send(hasty));
                plainCount++;
                break;
            case 15:
                Message bare = new Message(prefix + "_plain", new byte[] {0});
                report("plain", bare, producer.send(bare));
                plainCount++;
                break;
            default:
                Message plain = message("plain", name, random.nextInt(3000));
                report("plain", plain, producer.send(plain));
                plainCount++;
        }
    }

    private void sendBatch(String name) throws Exception {
        List<Message> batch = batch("batch", name);
        SendResult result = producer.send(batch);
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < BATCH_SIZE; i++) {
            Message each = batch.get(i);
            event("batch", each, result).with("queueOffset", result.getQueueOffset() + i)
                .with("offsetId", offsetIds[i]).with("uniqueKey", unique(each)).print();
        }
    }

    private void sendInnerBatch(String name) throws Exception {
        List<Message> batch = batch("inner", name);
        SendResult result = producer.send(batch);
        for (int i = 0; i < BATCH_SIZE; i++) {
            Message each = batch.get(i);
            event("inner", each, result).with("queueOffset", result.getQueueOffset() + i)
                .with("offsetId", result.getOffsetMsgId()).with("uniqueKey", unique(each)).print();
        }
    }

    private List<Message> batch(String topic, String name) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < BATCH_SIZE; i++) {
            batch.add(message(topic, name + "." + i, 100));
        }
        return batch;
    }

    private Message message(String topic, String name, int size) {
        byte[] body = (name + " é 消息 ").repeat(size / 16 + 1).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(prefix + "_" + topic, TAGS[Math.floorMod(name.hashCode(), TAGS.length)],
            name + " shared-" + Math.floorMod(name.hashCode(), 5) + " clé-" + name, body);
        message.putUserProperty("origin", name + " 🚀");
        return message;
    }

    /** Reads everything; each tenth message goes round once more, and one goes to the dead letters. */
    private void consume(String group) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicInteger sentBack = new AtomicInteger();
        AtomicInteger returned = new AtomicInteger();
        CountDownLatch complete = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(1000);
        // The topic for what is sent back comes into being only now, and must be found.
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.subscribe(prefix + "_plain", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            boolean isNew = seen.add(unique(message));
            if (message.getReconsumeTimes() > 0) {
                returned.incrementAndGet();
            } else if (isNew && message.getQueueOffset() % 10 == 3) {
                // To the dead letters, or round once more after the shortest delay.
                boolean toDead = message.getQueueOffset() == 3;
                context.setDelayLevelWhenNextConsume(toDead ? -1 : 1);
                if (!toDead) {
                    sentBack.incrementAndGet();
                }
                Json.event(toDead ? "dead" : "sentBack").with("uniqueKey", unique(message)).print();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            if (seen.size() >= plainCount && returned.get() >= sentBack.get()) {
                complete.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean isComplete = complete.await(CONSUME_TIMEOUT_S, TimeUnit.SECONDS);
        consumer.shutdown();
        Json.event("consumed").with("complete", isComplete).with("seen", seen.size()).with("of", plainCount)
            .with("sentBack", sentBack.get()).with("returned", returned.get()).print();
    }

    private void flood(int threads) throws Exception {
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(3000);
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            String name = prefix + "-flood" + i;
            Thread sender = new Thread(() -> {
                try {
                    for (int place = 0; ; place++) {
                        if (place % 5 == 4) {
                            sendBatch(name + "-" + place);
                        } else {
                            Message message = message("plain", name + "-" + place, 500 * (place % 7));
                            report("plain", message, producer.send(message));
                        }
                    }
                } catch (Exception end) {
                    Json.event("ended").with("error", end).print();
                }
            });
            senders.add(sender);
            sender.start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
    }

    private static void report(String kind, Message message, SendResult result) {
        event(kind, message, result).with("queueOffset", result.getQueueOffset())
            .with("offsetId", result.getOffsetMsgId()).with("uniqueKey", result.getMsgId()).print();
    }

    private static Json event(String kind, Message message, SendResult result) {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        return Json.event("sent").with("kind", kind).with("status", result.getSendStatus())
            .with("topic", message.getTopic()).with("queueId", result.getMessageQueue().getQueueId())
            .with("keys", message.getKeys()).with("tag", message.getTags()).with("flag", message.getFlag())
            .with("origin", message.getUserProperty("origin"))
            .with("bodySize", message.getBody().length).with("bodyCrc", crc.getValue());
    }

    private static String unique(Message message) {
        return message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
    }
}
