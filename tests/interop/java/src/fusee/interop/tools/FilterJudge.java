package fusee.interop.tools;

import fusee.interop.client.Json;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/**
 * Says what the broker makes of a subscription. One order per line, its words separated by blanks, all texts in
 * hexadecimal behind an x: {@code sql EXPRESSION PROPERTIES...} gives the value of the expression for each property
 * string; {@code tags TYPE EXPRESSION} gives the tags and their codes, where a bare minus is null.
 */
public final class FilterJudge {
    private FilterJudge() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.trim().split(" ");
            try {
                if (words[0].equals("sql")) {
                    judgeSql(words);
                } else {
                    judgeTags(text(words[1]), text(words[2]));
                }
            } catch (Throwable failure) {
                Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                Json.event("rejected").with("error", cause).print();
            }
        }
    }

    private static void judgeSql(String[] words) throws Exception {
        Expression expression = FilterFactory.INSTANCE.get("SQL92").compile(text(words[1]));
        List<Object> values = new ArrayList<>();
        for (int i = 2; i < words.length; i++) {
            Map<String, String> properties = MessageDecoder.string2messageProperties(text(words[i]));
            try {
                values.add(expression.evaluate(new Properties(properties)));
            } catch (Throwable failure) {
                values.add("error");
            }
        }
        Json.event("compiled").with("values", values).print();
    }

    private static void judgeTags(String type, String expression) throws Exception {
        SubscriptionData subscription = FilterAPI.build("topic", expression, type);
        Json.event("subscription")
            .with("expression", subscription.getSubString())
            .with("type", subscription.getExpressionType())
            .with("tags", new TreeSet<>(subscription.getTagsSet()))
            .with("codes", new TreeSet<>(subscription.getCodeSet())).print();
    }

    private static String text(String word) {
        return word.equals("-") ? null : new String(Json.unhex(word.substring(1)), StandardCharsets.UTF_8);
    }

    /** What a message offers to an expression. */
    private static final class Properties implements EvaluationContext {
        private final Map<String, String> properties;

        Properties(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public Map<String, Object> keyValues() {
            return (Map) properties;
        }
    }
}
