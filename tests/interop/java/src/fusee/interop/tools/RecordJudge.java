package fusee.interop.tools;

import fusee.interop.client.Json;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/**
 * Reads one stored record in hexadecimal per line with the client's decoder: checksum of the body verified, body
 * decompressed, a batch that was stored whole taken apart.
 */
public final class RecordJudge {
    private RecordJudge() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader records = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = records.readLine(); line != null; line = records.readLine()) {
            byte[] record = Json.unhex(line.trim());
            ByteBuffer buffer = ByteBuffer.wrap(record);
            MessageExt message = MessageDecoder.decode(buffer, true, true, false, false, true);
            if (message == null) {
                Json.event("rejected").with("error", "the decoder returned nothing").print();
                continue;
            }
            Json.event("decoded").with("topic", message.getTopic())
                .with("unread", buffer.remaining())
                .with("storeSize", message.getStoreSize())
                .with("bodyCrc", message.getBodyCRC())
                .with("queueId", message.getQueueId())
                .with("flag", message.getFlag())
                .with("queueOffset", message.getQueueOffset())
                .with("logOffset", message.getCommitLogOffset())
                .with("sysFlag", message.getSysFlag())
                .with("bornTimestamp", message.getBornTimestamp())
                .with("bornHost", host(message.getBornHost()))
                .with("storeTimestamp", message.getStoreTimestamp())
                .with("storeHost", host(message.getStoreHost()))
                .with("reconsumeTimes", message.getReconsumeTimes())
                .with("preparedTransactionOffset", message.getPreparedTransactionOffset())
                .with("body", Json.hex(message.getBody()))
                .with("msgId", message.getMsgId())
                .with("properties", properties(message))
                .with("inner", inner(message)).print();
        }
    }

    private static List<Object> inner(MessageExt message) throws Exception {
        int kept = MessageSysFlag.NEED_UNWRAP_FLAG | MessageSysFlag.INNER_BATCH_FLAG;
        if ((message.getSysFlag() & kept) != kept) {
            return null;
        }
        List<MessageExt> messages = new ArrayList<>();
        MessageDecoder.decodeMessage(message, messages);
        List<Object> inner = new ArrayList<>();
        for (MessageExt each : messages) {
            Map<String, Object> fields = new TreeMap<>();
            fields.put("body", Json.hex(each.getBody()));
            fields.put("flag", each.getFlag());
            fields.put("properties", properties(each));
            fields.put("queueOffset", each.getQueueOffset());
            inner.add(fields);
        }
        return inner;
    }

    private static Map<String, String> properties(MessageExt message) {
        return message.getProperties() == null ? new TreeMap<>() : new TreeMap<>(message.getProperties());
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + "|" + inet.getPort();
    }
}
