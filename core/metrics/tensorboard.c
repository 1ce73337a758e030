/* Writes TensorBoard event files. The messages are encoded without a protobuf library: they have
 * only seven fields. */
#include "metrics/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"

#define MAX_BYTES (16 * 1024) /* largest record in bytes: a few hundred scalars */
#define MAX_FILES 1000        /* files that one process can begin in one second */

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
enum { SESSION_START = 1 };

/* A message being written; what does not fit sets `full`. */
typedef struct message {
    uint8_t bytes[MAX_BYTES];
    int32_t n, full;
} message;

static void put(message *m, const void *data, int64_t bytes)
{
    if (m->n + bytes > MAX_BYTES) {
        m->full = 1;
        return;
    }
    memcpy(m->bytes + m->n, data, (size_t)bytes);
    m->n += (int32_t)bytes;
}

static void put_varint(message *m, uint64_t x)
{
    uint8_t one;
    for (; x >= 0x80; x >>= 7) {
        one = (uint8_t)(x | 0x80);
        put(m, &one, 1);
    }
    one = (uint8_t)x;
    put(m, &one, 1);
}

static void put_key(message *m, uint32_t field, uint32_t wire)
{
    put_varint(m, field << 3 | wire);
}

/* Little-endian, whatever the machine is. */
static void store(uint8_t *to, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(x >> 8 * i);
}

static void put_fixed(message *m, uint64_t x, int bytes)
{
    uint8_t raw[8];
    store(raw, x, bytes);
    put(m, raw, bytes);
}

static void put_text(message *m, uint32_t field, const char *prefix, const char *text)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, strlen(prefix) + strlen(text));
    put(m, prefix, (int64_t)strlen(prefix));
    put(m, text, (int64_t)strlen(text));
}

static int varint_bytes(uint64_t x)
{
    int n = 1;
    for (; x >= 0x80; x >>= 7)
        n++;
    return n;
}

static void begin_event(message *m, int64_t step)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    m->n = m->full = 0;
    put_key(m, 1, WIRE_FIXED64);
    put_fixed(m, bits, 8);
    if (step != 0) {
        put_key(m, 2, WIRE_VARINT);
        put_varint(m, (uint64_t)step);
    }
}

/* "eval_loss" -> "eval/" "loss"; "rewards/margins" is kept; "loss" -> "train/" "loss". */
static const char *tag_of(const char *key, const char **out_prefix)
{
    *out_prefix = "";
    if (strchr(key, '/'))
        return key;
    *out_prefix = strncmp(key, "eval_", 5) == 0 ? "eval/" : "train/";
    return strncmp(key, "eval_", 5) == 0 ? key + 5 : key;
}

static int64_t value_bytes(const char *key)
{
    const char *prefix, *tag = tag_of(key, &prefix);
    const uint64_t text = strlen(prefix) + strlen(tag);
    return 1 + varint_bytes(text) + (int64_t)text + 1 + 4;
}

static void put_value(message *m, const char *key, double value)
{
    const char *prefix, *tag = tag_of(key, &prefix);
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    put_key(m, 1, WIRE_BYTES);
    put_varint(m, (uint64_t)value_bytes(key));
    put_text(m, 1, prefix, tag);
    put_key(m, 2, WIRE_FIXED32);
    put_fixed(m, bits, 4);
}

static uint32_t masked(const void *data, int64_t bytes)
{
    const uint32_t crc = lathe_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static lathe_status write_record(lathe_tensorboard *b, const message *m, int64_t step)
{
    uint8_t head[12], tail[4];
    store(head, (uint64_t)m->n, 8);
    store(head + 8, masked(head, 8), 4);
    store(tail, masked(m->bytes, m->n), 4);
    errno = m->full ? EMSGSIZE : 0;
    if (m->full || fwrite(head, sizeof head, 1, b->file) != 1 ||
        fwrite(m->bytes, (size_t)m->n, 1, b->file) != 1 ||
        fwrite(tail, sizeof tail, 1, b->file) != 1 || fflush(b->file) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot write the figures of step %lld: %s", b->path,
                           (long long)step, strerror(errno));
    return LATHE_OK;
}

static lathe_status create_file(lathe_tensorboard *b, const char *folder)
{
    char host[256] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    const size_t size = strlen(folder) + sizeof host + 96;
    b->path = malloc(size);
    if (b->path == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for an event file");
    for (int n = 0; n < MAX_FILES && b->file == NULL; n++) {
        (void)snprintf(b->path, size, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder,
                       (long long)time(NULL), host, (long)getpid(), n);
        const int fd = open(b->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            b->file = fdopen(fd, "w");
        else if (errno != EEXIST)
            break;
    }
    return b->file ? LATHE_OK
                   : lathe_error(LATHE_E_IO, "%s: cannot create: %s", b->path, strerror(errno));
}

static lathe_status write_opening(lathe_tensorboard *b, int64_t step)
{
    message m;
    begin_event(&m, 0);
    put_text(&m, 3, "", "brain.Event:2");
    LATHE_TRY(write_record(b, &m, step));
    begin_event(&m, step + 1);
    put_key(&m, 7, WIRE_BYTES);
    put_varint(&m, 2);
    put_key(&m, 1, WIRE_VARINT);
    put_varint(&m, SESSION_START);
    return write_record(b, &m, step);
}

lathe_status lathe_tensorboard_open(lathe_tensorboard *b, const char *dir, int64_t step)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    *b = (lathe_tensorboard){NULL, NULL};
    const char *folder = lathe_path_join(&arena, dir, "tensorboard");
    lathe_status status = folder ? lathe_dir_create(folder) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = create_file(b, folder);
    if (status == LATHE_OK)
        status = write_opening(b, step);
    lathe_arena_fini(&arena);
    if (status != LATHE_OK)
        lathe_tensorboard_close(b);
    return status;
}

lathe_status lathe_tensorboard_write(lathe_tensorboard *b, int64_t step, int32_t n,
                                     const char *const *keys, const double *values)
{
    message m;
    int64_t bytes = 0;
    if (b->file == NULL)
        return LATHE_OK;
    begin_event(&m, step);
    for (int32_t i = 0; i < n; i++)
        bytes += 1 + varint_bytes((uint64_t)value_bytes(keys[i])) + value_bytes(keys[i]);
    put_key(&m, 5, WIRE_BYTES);
    put_varint(&m, (uint64_t)bytes);
    for (int32_t i = 0; i < n; i++)
        put_value(&m, keys[i], values[i]);
    return write_record(b, &m, step);
}

void lathe_tensorboard_close(lathe_tensorboard *b)
{
    if (b->file)
        (void)fclose(b->file);
    free(b->path);
    *b = (lathe_tensorboard){NULL, NULL};
}
