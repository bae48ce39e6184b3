package fusee.interop.matrix;

import fusee.interop.matrix.Client.Order;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer of any kind; its transactions end as each message was ordered to, and check-backs are counted. */
final class Sender implements TransactionListener {
    private static final long ASYNC_TIMEOUT_S = 20;

    private final DefaultMQProducer producer;
    private final Map<String, Order> transactions = new ConcurrentHashMap<>();
    private final Map<String, Integer> checks = new ConcurrentHashMap<>();

    Sender(Order order) throws Exception {
        String group = order.text("group");
        if (order.flag("transactional")) {
            TransactionMQProducer transactional = new TransactionMQProducer(group);
            transactional.setTransactionListener(this);
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(group, order.flag("trace"), null);
        }
        producer.setNamesrvAddr(order.text("nameServers"));
        producer.setInstanceName(order.text("name"));
        producer.setUseTLS(order.flag("tls"));
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(10000);
        producer.start();
    }

    Object send(String mode, List<Order> orders) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Order order : orders) {
            messages.add(message(order));
        }
        switch (mode) {
            case "batch":
                return Collections.singletonList(report(producer.send(messages)));
            case "async":
                return sendAsync(messages);
            default:
                break;
        }
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            Message message = messages.get(i);
            if (mode.equals("oneway")) {
                producer.sendOneway(message);
            } else if (mode.equals("ordered")) {
                results.add(report(producer.send(message,
                    (queues, each, shard) -> queues.get((Integer) shard % queues.size()), orders.get(i).number("shard"))));
            } else {
                results.add(report(producer.send(message)));
            }
        }
        return results;
    }

    Object transact(List<Order> orders) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Order order : orders) {
            transactions.put(order.text("keys"), order);
            TransactionSendResult result = producer.sendMessageInTransaction(message(order), null);
            Map<String, Object> report = report(result);
            report.put("state", result.getLocalTransactionState());
            results.add(report);
        }
        return results;
    }

    Object request(Order order, int timeoutMs) throws Exception {
        Message reply = producer.request(message(order), timeoutMs);
        Map<String, Object> report = new LinkedHashMap<>();
        report.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
        report.put("properties", reply.getProperties());
        return report;
    }

    Object checks() {
        return checks;
    }

    void close() {
        producer.shutdown();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return state(transactions.get(message.getKeys()).text("outcome"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        checks.merge(message.getKeys(), 1, Integer::sum);
        return state(transactions.get(message.getKeys()).text("check"));
    }

    private static LocalTransactionState state(String outcome) {
        switch (outcome) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private Object sendAsync(List<Message> messages) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < results.length; i++) {
            int index = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[index] = report(result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    results[index] = Collections.singletonMap("error", failure.toString());
                    open.countDown();
                }
            });
        }
        if (!open.await(ASYNC_TIMEOUT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " sends were not called back");
        }
        return Arrays.asList(results);
    }

    private static Message message(Order order) {
        Message message = new Message(order.text("topic"), order.text("tags"), order.text("keys"),
            order.text("body").getBytes(StandardCharsets.UTF_8));
        order.table("properties").forEach((name, value) -> message.putUserProperty(name.toString(), value.toString()));
        if (order.number("delayLevel") > 0) {
            message.setDelayTimeLevel(order.number("delayLevel"));
        }
        return message;
    }

    private static Map<String, Object> report(SendResult result) {
        Map<String, Object> report = new LinkedHashMap<>();
        report.put("status", result.getSendStatus());
        report.put("id", result.getMsgId());
        report.put("offsetId", result.getOffsetMsgId());
        if (result.getMessageQueue() != null) {
            report.put("queueId", result.getMessageQueue().getQueueId());
        }
        report.put("queueOffset", result.getQueueOffset());
        return report;
    }
}
