package fusee.interop.client;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** One answer to the test that drives this program: a JSON object on one line of the real standard output. */
public final class Json {
    private static final java.io.PrintStream OUT = new java.io.PrintStream(
        new java.io.FileOutputStream(java.io.FileDescriptor.out), true, java.nio.charset.StandardCharsets.UTF_8);

    private final Map<String, Object> fields = new LinkedHashMap<>();

    public static Json event(String name) {
        return new Json().with("event", name);
    }

    public Json with(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    public void print() {
        StringBuilder line = new StringBuilder();
        write(line, fields);
        synchronized (OUT) {
            OUT.println(line);
        }
    }

    public static String hex(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        StringBuilder digits = new StringBuilder(bytes.length * 2);
        for (byte each : bytes) {
            digits.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return digits.toString();
    }

    public static byte[] unhex(String digits) {
        byte[] bytes = new byte[digits.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(digits.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static void write(StringBuilder line, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            line.append(value);
        } else if (value instanceof Map) {
            line.append('{');
            Iterator<? extends Map.Entry<?, ?>> entries = ((Map<?, ?>) value).entrySet().iterator();
            while (entries.hasNext()) {
                Map.Entry<?, ?> entry = entries.next();
                writeText(line, String.valueOf(entry.getKey()));
                line.append(':');
                write(line, entry.getValue());
                line.append(entries.hasNext() ? "," : "");
            }
            line.append('}');
        } else if (value instanceof Iterable) {
            line.append('[');
            Iterator<?> items = ((Iterable<?>) value).iterator();
            while (items.hasNext()) {
                write(line, items.next());
                line.append(items.hasNext() ? "," : "");
            }
            line.append(']');
        } else {
            writeText(line, value.toString());
        }
    }

    private static void writeText(StringBuilder line, String text) {
        line.append('"');
        for (int i = 0; i < text.length(); i++) {
            char each = text.charAt(i);
            if (each == '"' || each == '\\') {
                line.append('\\').append(each);
            } else if (each < ' ' || each > '~') {
                line.append(String.format("\\u%04x", (int) each));
            } else {
                line.append(each);
            }
        }
        line.append('"');
    }
}
