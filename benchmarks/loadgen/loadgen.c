/* Closed-loop load for servers of RocketMQ remoting frames: C connections, W requests outstanding on each.
 *
 * Frame file: repeated [u32 length, big-endian][frame]. The frames are sent round robin. Each outstanding request
 * owns a slot, and the slot's number travels in the header's opaque (OPAQUE_BASE + slot), written over the one
 * in the file: four bytes in a binary header, exactly ten digits in a JSON header, so that lengths never change.
 * A response is matched by its opaque; its slot is free at once, and every slot that one read frees is filled by one
 * writev. Latency is the time from enqueueing a request to reading its response, kept in a log-linear histogram.
 *
 * The warm-up is not recorded. The server's CPU time is utime + stime of /proc/PID/stat over the recorded span, and
 * what neither it nor this program used of /proc/stat belongs to others, who should be idle. One JSON line goes to
 * stdout. Every wait is bounded: 100 ms polls until the end, and an alarm 15 s behind it.
 *
 * Only 127.0.0.1 is ever contacted. Build: cc -O2 -o loadgen loadgen.c (Linux: epoll).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    OPAQUE_BASE = 1000000000,
    OPAQUE_DIGITS = 10,
    FRAMES_MAX = 200000,
    CONNECTIONS_MAX = 4096,
    WINDOW_MAX = 4096,
    RECEIVE_BYTES = 1 << 20,
    WHOLE_FRAME_BYTES = 1 << 16, /* a longer response is matched by its header and its rest skipped */
    WRITEV_PARTS = 512,
    EVENTS = 256,
    CONNECT_TRIES = 100,
    HISTOGRAM_BUCKETS = 64 * 64, /* 64 steps per power of two: within 1.6 % */
};

typedef struct {
    const uint8_t *bytes;
    uint32_t size, header_end, opaque_at;
    int json;
} frame_t;

typedef struct {
    uint64_t sent_ns;
    uint8_t *header;
    int busy;
} slot_t;

typedef struct {
    int fd, writable_wanted;
    slot_t *slots;
    int *free_slots, free_count;
    uint8_t *received;
    size_t received_size, skip_bytes;
    struct iovec *parts;
    int part_count, part_next;
} connection_t;

static frame_t *frames;
static uint32_t frame_count, frame_next, window = 1;
static int poll_fd, recording, expected_code = -1;
static uint64_t responses, unexpected, bytes_in, histogram[HISTOGRAM_BUCKETS];

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void *grab(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        die("out of memory");
    return memory;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void histogram_add(uint64_t ns)
{
    int index = (int)ns;
    if (ns >= 64) {
        int shift = 63 - __builtin_clzll(ns) - 6;
        index = (shift + 1) * 64 + (int)((ns >> shift) & 63);
    }
    histogram[index]++;
}

static double percentile_us(double share)
{
    uint64_t rank = (uint64_t)((double)responses * share), seen = 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram[i];
        if (seen > rank)
            return (double)(i < 64 ? (uint64_t)i : (uint64_t)(64 + (i & 63)) << (i / 64 - 1)) / 1e3;
    }
    return 0;
}

static void write_opaque(uint8_t *header, const frame_t *frame, uint32_t slot)
{
    uint32_t opaque = OPAQUE_BASE + slot;
    uint8_t *at = header + frame->opaque_at;
    if (frame->json) {
        for (int i = OPAQUE_DIGITS - 1; i >= 0; i--, opaque /= 10)
            at[i] = (uint8_t)('0' + opaque % 10);
    } else {
        for (int i = 3; i >= 0; i--, opaque >>= 8)
            at[i] = (uint8_t)opaque;
    }
}

static void watch(connection_t *c, int writable)
{
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    if (c->writable_wanted != writable && epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event))
        die("epoll_ctl: %s", strerror(errno));
    c->writable_wanted = writable;
}

static void flush_parts(connection_t *c)
{
    while (c->part_next < c->part_count) {
        int count = c->part_count - c->part_next;
        ssize_t written = writev(c->fd, c->parts + c->part_next, count > WRITEV_PARTS ? WRITEV_PARTS : count);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                die("write: %s", strerror(errno));
            watch(c, 1);
            return;
        }
        while (c->part_next < c->part_count) {
            struct iovec *part = c->parts + c->part_next;
            if ((size_t)written < part->iov_len) {
                part->iov_base = (uint8_t *)part->iov_base + written;
                part->iov_len -= (size_t)written;
                break;
            }
            written -= (ssize_t)part->iov_len;
            c->part_next++;
        }
    }
    c->part_count = c->part_next = 0;
    watch(c, 0);
}

/* New requests wait until the last batch has left: the parts array holds one batch. */
static void fill(connection_t *c, uint64_t now)
{
    if (!c->free_count || c->part_count)
        return;
    for (int i = 0; i < c->free_count; i++) {
        const frame_t *frame = &frames[frame_next++ % frame_count];
        slot_t *slot = &c->slots[c->free_slots[i]];
        memcpy(slot->header, frame->bytes, frame->header_end);
        write_opaque(slot->header, frame, (uint32_t)c->free_slots[i]);
        slot->sent_ns = now;
        slot->busy = 1;
        c->parts[c->part_count++] = (struct iovec){slot->header, frame->header_end};
        if (frame->size > frame->header_end)
            c->parts[c->part_count++] =
                (struct iovec){(void *)(frame->bytes + frame->header_end), frame->size - frame->header_end};
    }
    c->free_count = 0;
    flush_parts(c);
}

static long json_number(const uint8_t *header, size_t size, const char *key)
{
    const uint8_t *at = memmem(header, size, key, strlen(key));
    if (!at)
        die("a response header has no %s %.*s", key, (int)size, (const char *)header);
    long value = 0, sign = 1;
    for (at += strlen(key); at < header + size; at++) {
        if (*at == '-')
            sign = -1;
        else if (*at >= '0' && *at <= '9')
            value = value * 10 + (*at - '0');
        else
            break;
    }
    return sign * value;
}

static void take_response(connection_t *c, const uint8_t *header, size_t size, int binary, uint64_t now)
{
    long code, opaque;
    if (binary) {
        if (size < 21)
            die("a binary response header of %zu bytes", size);
        code = (int16_t)(header[0] << 8 | header[1]);
        opaque = read_u32(header + 5);
    } else {
        code = json_number(header, size, "\"code\":");
        opaque = json_number(header, size, "\"opaque\":");
    }
    long slot = opaque - OPAQUE_BASE;
    if (slot < 0 || slot >= (long)window || !c->slots[slot].busy)
        die("a response with opaque %ld, which is not outstanding on its connection", opaque);
    if (expected_code >= 0 && code != expected_code && unexpected++ == 0)
        fprintf(stderr, "loadgen: expected code %d, got %ld: %.*s\n", expected_code, code,
                binary ? 0 : (int)size, (const char *)header);
    if (recording) {
        histogram_add(now - c->slots[slot].sent_ns);
        responses++;
    }
    c->slots[slot].busy = 0;
    c->free_slots[c->free_count++] = (int)slot;
}

static void take_bytes(connection_t *c)
{
    ssize_t got = recv(c->fd, c->received + c->received_size, RECEIVE_BYTES - c->received_size, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got < 0)
        die("read: %s", strerror(errno));
    if (got == 0)
        die("the server closed a connection");
    bytes_in += (uint64_t)got;
    c->received_size += (size_t)got;
    uint64_t now = now_ns();
    size_t at = c->skip_bytes < c->received_size ? c->skip_bytes : c->received_size;
    c->skip_bytes -= at;
    while (!c->skip_bytes && c->received_size - at >= 8) {
        const uint8_t *start = c->received + at;
        size_t available = c->received_size - at, frame_size = 4 + (size_t)read_u32(start);
        uint32_t word = read_u32(start + 4);
        size_t header_size = word & 0xffffff;
        if (header_size + 8 > frame_size || header_size + 8 > RECEIVE_BYTES)
            die("a response with a header of %zu bytes in a frame of %zu", header_size, frame_size);
        if (available < frame_size && (frame_size < WHOLE_FRAME_BYTES || available < 8 + header_size))
            break;
        take_response(c, start + 8, header_size, word >> 24 == 1, now);
        if (available < frame_size) {
            c->skip_bytes = frame_size - available;
            at = c->received_size;
        } else {
            at += frame_size;
        }
    }
    c->received_size -= at;
    if (at && c->received_size)
        memmove(c->received, c->received + at, c->received_size);
    fill(c, now);
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        die("%s: %s", path, strerror(errno));
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = grab(*size, 1);
    if (fread(bytes, 1, *size, file) != *size)
        die("%s: short read", path);
    fclose(file);
    return bytes;
}

/* Returns the size of the longest header. */
static uint32_t load_frames(const char *path)
{
    size_t size;
    uint32_t header_max = 0;
    const uint8_t *bytes = read_file(path, &size);
    frames = grab(FRAMES_MAX, sizeof *frames);
    for (size_t at = 0; at + 4 <= size && frame_count < FRAMES_MAX;) {
        frame_t *frame = &frames[frame_count++];
        frame->size = read_u32(bytes + at);
        frame->bytes = bytes + at + 4;
        if (frame->size < 8 || at + 4 + frame->size > size)
            die("%s: frame %u is cut short", path, frame_count);
        frame->header_end = 8 + (read_u32(frame->bytes + 4) & 0xffffff);
        if (frame->header_end > frame->size)
            die("%s: frame %u has a header longer than itself", path, frame_count);
        frame->json = frame->bytes[4] == 0;
        frame->opaque_at = 8 + 5;
        if (frame->json) {
            const uint8_t *key = memmem(frame->bytes, frame->header_end, "\"opaque\":1000000000", 19);
            if (!key)
                die("%s: frame %u has no \"opaque\":1000000000", path, frame_count);
            frame->opaque_at = (uint32_t)(key - frame->bytes) + 9;
        }
        if (frame->header_end > header_max)
            header_max = frame->header_end;
        at += 4 + frame->size;
    }
    if (!frame_count)
        die("%s holds no frame", path);
    return header_max;
}

static void open_connection(connection_t *c, uint16_t port, uint32_t header_max)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, tries = 0;
    for (;;) {
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (c->fd >= 0 && connect(c->fd, (struct sockaddr *)&address, sizeof address) == 0)
            break;
        if (++tries >= CONNECT_TRIES)
            die("127.0.0.1:%u: %s", port, strerror(errno));
        close(c->fd);
        usleep(50000);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->slots = grab(window, sizeof *c->slots);
    c->free_slots = grab(window, sizeof *c->free_slots);
    for (uint32_t slot = 0; slot < window; slot++) {
        c->slots[slot].header = grab(header_max, 1);
        c->free_slots[c->free_count++] = (int)slot;
    }
    c->received = grab(RECEIVE_BYTES, 1);
    c->parts = grab(2 * window, sizeof *c->parts);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event))
        die("epoll_ctl: %s", strerror(errno));
}

static double server_cpu_s(int pid)
{
    char path[64], line[1024];
    unsigned long user = 0, system = 0;
    if (pid <= 0)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        die("no process %d to account for", pid);
    /* The second field, the command, may hold blanks: count from its closing parenthesis. */
    char *rest = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        die("%s cannot be read", path);
    fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* User, nice, system and interrupt time of all cores together. */
static double machine_cpu_s(void)
{
    unsigned long long user = 0, nice_ = 0, system = 0, idle, wait, irq = 0, softirq = 0;
    FILE *file = fopen("/proc/stat", "r");
    if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice_, &system, &idle, &wait, &irq,
                        &softirq) != 7)
        die("/proc/stat cannot be read");
    fclose(file);
    return (double)(user + nice_ + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK);
}

static double own_cpu_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

int main(int count, char **values)
{
    int option, port = 0, connection_count = 1, pid = 0;
    double warm_s = 1, record_s = 5;
    const char *path = NULL;
    while ((option = getopt(count, values, "p:c:w:u:t:f:P:e:")) > 0) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'c': connection_count = atoi(optarg); break;
        case 'w': window = (uint32_t)atoi(optarg); break;
        case 'u': warm_s = atof(optarg); break;
        case 't': record_s = atof(optarg); break;
        case 'f': path = optarg; break;
        case 'P': pid = atoi(optarg); break;
        case 'e': expected_code = atoi(optarg); break;
        default: path = NULL; optind = count; break;
        }
    }
    if (!path || port < 1 || port > 65535 || connection_count < 1 || connection_count > CONNECTIONS_MAX ||
        window < 1 || window > WINDOW_MAX || warm_s < 0 || warm_s > 600 || record_s <= 0 || record_s > 600)
        die("usage: loadgen -p PORT -f FRAMES [-c CONNECTIONS] [-w OUTSTANDING] [-u WARM_UP_S] [-t SECONDS]"
            " [-P SERVER_PID] [-e EXPECTED_CODE]");
    alarm((unsigned)(warm_s + record_s) + 15);
    uint32_t header_max = load_frames(path);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    connection_t *connections = grab((size_t)connection_count, sizeof *connections);
    for (int i = 0; i < connection_count; i++)
        open_connection(&connections[i], (uint16_t)port, header_max);
    uint64_t begin = now_ns();
    for (int i = 0; i < connection_count; i++)
        fill(&connections[i], begin);

    uint64_t record_from = begin + (uint64_t)(warm_s * 1e9), record_until = UINT64_MAX, first_byte = 0;
    double server_cpu = 0, own_cpu = 0, machine_cpu = 0;
    struct epoll_event events[EVENTS];
    for (;;) {
        int ready = epoll_wait(poll_fd, events, EVENTS, 100);
        uint64_t now = now_ns();
        if (now >= record_until)
            break;
        if (!recording && now >= record_from) {
            recording = 1;
            unexpected = 0;
            first_byte = bytes_in;
            server_cpu = server_cpu_s(pid);
            own_cpu = own_cpu_s();
            machine_cpu = machine_cpu_s();
            record_from = now_ns();
            record_until = record_from + (uint64_t)(record_s * 1e9);
        }
        for (int i = 0; i < ready; i++) {
            connection_t *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                flush_parts(c);
                fill(c, now);
            }
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                take_bytes(c);
        }
    }
    double seconds = (double)(now_ns() - record_from) / 1e9;
    server_cpu = server_cpu_s(pid) - server_cpu;
    own_cpu = own_cpu_s() - own_cpu;
    double other_cpu = pid > 0 ? machine_cpu_s() - machine_cpu - server_cpu - own_cpu : 0;
    printf("{\"generator\":\"c\",\"connections\":%d,\"outstanding\":%u,\"seconds\":%.4f,\"requests\":%llu,"
           "\"unexpected\":%llu,\"per_second\":%.1f,\"server_cpu_us\":%.4f,\"server_cores\":%.4f,"
           "\"generator_cores\":%.4f,\"other_cores\":%.4f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"megabytes_in\":%.3f}\n",
           connection_count, window, seconds, (unsigned long long)responses, (unsigned long long)unexpected,
           (double)responses / seconds, responses ? server_cpu * 1e6 / (double)responses : 0, server_cpu / seconds,
           own_cpu / seconds, other_cpu > 0 ? other_cpu / seconds : 0, percentile_us(.5), percentile_us(.99), percentile_us(.999),
           (double)(bytes_in - first_byte) / 1e6);
    return 0;
}
