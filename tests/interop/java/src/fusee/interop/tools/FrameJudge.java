package fusee.interop.tools;

import fusee.interop.client.Json;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.netty.NettyDecoder;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Reads one frame in hexadecimal per line through the server's own decoder, tells what it understood, and gives
 * the same command back in both of its own encodings.
 */
public final class FrameJudge {
    private FrameJudge() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader frames = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = frames.readLine(); line != null; line = frames.readLine()) {
            judge(Json.unhex(line.trim()));
        }
    }

    private static void judge(byte[] frame) {
        EmbeddedChannel channel = new EmbeddedChannel(new NettyDecoder());
        try {
            channel.writeInbound(Unpooled.wrappedBuffer(frame));
            RemotingCommand command = channel.readInbound();
            if (command == null || channel.readInbound() != null) {
                Json.event("rejected").with("error", "not exactly one frame").print();
                return;
            }
            Map<String, String> extFields = command.getExtFields() == null ? null : new TreeMap<>(command.getExtFields());
            Json.event("decoded")
                .with("form", command.getSerializeTypeCurrentRPC() == SerializeType.JSON ? "json" : "binary")
                .with("code", command.getCode())
                .with("language", command.getLanguage().name())
                .with("version", command.getVersion())
                .with("opaque", command.getOpaque())
                .with("flag", command.getFlag())
                .with("remark", command.getRemark())
                .with("extFields", extFields)
                .with("body", Json.hex(command.getBody()))
                .with("asJson", encode(command, SerializeType.JSON))
                .with("asBinary", encode(command, SerializeType.ROCKETMQ)).print();
        } catch (Exception failure) {
            Json.event("rejected").with("error", failure).print();
        } finally {
            channel.finishAndReleaseAll();
        }
    }

    private static String encode(RemotingCommand command, SerializeType form) {
        command.setSerializeTypeCurrentRPC(form);
        ByteBuffer frame = command.encode();
        byte[] bytes = new byte[frame.remaining()];
        frame.get(bytes);
        return Json.hex(bytes);
    }
}
