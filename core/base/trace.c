/* Writes the process's Chrome trace. */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/trace_text.h"

#define BUFFER_BYTES (256 * 1024)
#define EVENT_BYTES 2048 /* largest event; longer ones are dropped */
#define FLUSH_SECONDS 1.0

static const char closing[] = LATHE__TRACE_CLOSING;

typedef struct trace {
    int fd;
    char *path, *buffer;
    int64_t used, at; /* bytes in the buffer; their offset in the file */
    int64_t n_events, n_left_out;
    double origin, flushed;
    long pid; /* of the events */
    int32_t n_threads;
} trace;

static atomic_int is_on;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static trace current; /* guarded by the mutex */
static atomic_int generation;

static _Thread_local int32_t thread_number;
static _Thread_local int thread_generation;
static _Thread_local const char *thread_name;

double lathe_trace_now(void)
{
    struct timespec t = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int32_t lathe_trace_on(void)
{
    return atomic_load_explicit(&is_on, memory_order_relaxed);
}

static int write_at(const char *data, int64_t bytes, int64_t at)
{
    while (bytes > 0) {
        const ssize_t n = pwrite(current.fd, data, (size_t)bytes, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        data += n;
        at += n;
        bytes -= n;
    }
    return 1;
}

/* Writes the buffer and the closing brackets at once; the next write overwrites the brackets. */
static void flush(void)
{
    const int64_t n = (int64_t)sizeof closing - 1;
    current.flushed = lathe_trace_now();
    if (current.used == 0)
        return;
    memcpy(current.buffer + current.used, closing, (size_t)n);
    if (!write_at(current.buffer, current.used + n, current.at)) {
        lathe_log(LATHE_LOG_WARN, "%s: cannot write: %s; the trace ends here", current.path,
                  strerror(errno));
        atomic_store(&is_on, 0);
        /* removes what was written incompletely, and closes the brackets again */
        if (ftruncate(current.fd, current.at) == 0)
            (void)write_at(closing, n, current.at);
    }
    current.at += current.used;
    current.used = 0;
}

/* Appends an event's text. */
static void append(const char *text, int64_t bytes)
{
    if (current.used + bytes + 2 + (int64_t)sizeof closing > BUFFER_BYTES)
        flush();
    if (current.n_events++ > 0) {
        memcpy(current.buffer + current.used, ",\n", 2);
        current.used += 2;
    }
    memcpy(current.buffer + current.used, text, (size_t)bytes);
    current.used += bytes;
}

/* Escapes text for use inside a JSON string; truncates it at `capacity`. */
static void escape(const char *from, char *to, size_t capacity)
{
    size_t n = 0;
    for (; *from && n + 7 < capacity; from++) {
        const unsigned char c = (unsigned char)*from;
        if (c == '"' || c == '\\') {
            to[n++] = '\\';
            to[n++] = (char)c;
        } else if (c < 0x20) {
            n += (size_t)snprintf(to + n, 7, "\\u%04x", c);
        } else {
            to[n++] = (char)c;
        }
    }
    to[n] = '\0';
}

/* Gives the thread its number in this trace, and writes its name. The caller holds the mutex. */
static int32_t number_of_thread(void)
{
    const int now = atomic_load(&generation);
    char text[256], name[128];
    if (thread_generation == now)
        return thread_number;
    thread_generation = now;
    thread_number = ++current.n_threads;
    if (thread_name) {
        escape(thread_name, name, sizeof name);
        const int n =
            snprintf(text, sizeof text,
                     "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %ld, \"tid\": %d, "
                     "\"args\": {\"name\": \"%s\"}}",
                     current.pid, thread_number, name);
        append(text, n);
    }
    return thread_number;
}

void lathe_trace_thread(const char *name)
{
    thread_name = name;
    thread_generation = 0;
}

void lathe_trace_span(const char *category, const char *name, double begin, double end,
                      const char *args)
{
    char text[EVENT_BYTES], quoted[256];
    if (!lathe_trace_on())
        return;
    escape(name, quoted, sizeof quoted);
    (void)pthread_mutex_lock(&mutex);
    if (lathe_trace_on()) {
        const int32_t tid = number_of_thread();
        const int n = snprintf(
            text, sizeof text,
            "{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %ld, \"tid\": %d, "
            "\"ts\": %.3f, \"dur\": %.3f%s%s}",
            category, quoted, current.pid, tid, 1e6 * (begin - current.origin),
            1e6 * (end > begin ? end - begin : 0.0), args ? ", \"args\": " : "", args ? args : "");
        if (n > 0 && n < (int)sizeof text)
            append(text, n);
        else
            current.n_left_out++;
        if (end - current.flushed > FLUSH_SECONDS)
            flush();
    }
    (void)pthread_mutex_unlock(&mutex);
}

void lathe_trace_since(const char *category, const char *name, double begin)
{
    if (lathe_trace_on())
        lathe_trace_span(category, name, begin, lathe_trace_now(), NULL);
}

static void release(void)
{
    if (current.fd >= 0)
        (void)close(current.fd);
    free(current.buffer);
    free(current.path);
    current = (trace){.fd = -1};
}

static lathe_status begin(const char *path)
{
    static const char opening[] = LATHE__TRACE_OPENING;
    char whole[sizeof opening + sizeof closing];
    const int64_t n = (int64_t)sizeof opening - 1;
    current = (trace){.fd = -1, .at = n, .origin = lathe_trace_now(), .pid = (long)getpid()};
    current.flushed = current.origin;
    current.buffer = malloc(BUFFER_BYTES);
    current.path = strdup(path);
    if (!current.buffer || !current.path)
        return lathe_error(LATHE_E_NOMEM, "no memory for a trace");
    current.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    (void)snprintf(whole, sizeof whole, "%s%s", opening, closing);
    if (current.fd < 0 || !write_at(whole, (int64_t)strlen(whole), 0))
        return lathe_error(LATHE_E_IO, "%s: cannot write a trace: %s", path, strerror(errno));
    return LATHE_OK;
}

/* Gives the events the process's number, and writes its name. */
static void name_process(const lathe_trace_process *process)
{
    char text[512], name[256];
    current.pid = process->number;
    current.origin = process->origin;
    escape(process->name, name, sizeof name);
    int n = snprintf(text, sizeof text,
                     "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %ld, \"args\": "
                     "{\"name\": \"%s\"}}",
                     current.pid, name);
    append(text, n);
    n = snprintf(text, sizeof text,
                 "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": %ld, \"args\": "
                 "{\"sort_index\": %ld}}",
                 current.pid, current.pid);
    append(text, n);
}

lathe_status lathe_trace_begin_as(const char *path, const lathe_trace_process *process)
{
    if (lathe_trace_on())
        return lathe_error(LATHE_E_STATE, "%s: a trace is being written already", path);
    (void)pthread_mutex_lock(&mutex);
    lathe_status status = begin(path);
    if (status == LATHE_OK) {
        if (process)
            name_process(process);
        atomic_fetch_add(&generation, 1);
        atomic_store(&is_on, 1);
    } else {
        release();
    }
    (void)pthread_mutex_unlock(&mutex);
    return status;
}

lathe_status lathe_trace_begin(const char *path)
{
    return lathe_trace_begin_as(path, NULL);
}

void lathe_trace_end(void)
{
    (void)pthread_mutex_lock(&mutex);
    if (lathe_trace_on())
        flush();
    if (current.n_left_out > 0)
        lathe_log(LATHE_LOG_WARN, "%s: %lld events were too long and are left out", current.path,
                  (long long)current.n_left_out);
    atomic_store(&is_on, 0);
    if (current.path)
        release();
    (void)pthread_mutex_unlock(&mutex);
}
