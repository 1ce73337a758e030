/* Writes log messages, one line each, to stderr or a sink. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/print.h"
#include "base/printable.h"

static atomic_int lowest = LATHE_LOG_INFO;
static char rank_text[24]; /* "rank 3: " */
static lathe_log_sink log_sink;
static void *log_arg;

/* The thread's catcher of warnings (lathe_log_catch_warnings). */
static _Thread_local lathe_warning_catcher warning_catcher;
static _Thread_local void *catcher_arg;

void lathe_log_catch_warnings(lathe_warning_catcher catcher, void *arg)
{
    warning_catcher = catcher;
    catcher_arg = arg;
}

/* Gives a warning to the thread's catcher. Returns 1 if there is one: the warning is not printed.
 */
static int is_caught(int32_t level, const char *key, const char *text)
{
    const lathe_warning_catcher catcher = warning_catcher;
    if (level != LATHE_LOG_WARN || catcher == NULL)
        return 0;
    warning_catcher = NULL; /* it may log itself */
    catcher(catcher_arg, key, text);
    warning_catcher = catcher;
    return 1;
}

/* The tap also gets every warning and error, for run.json. Those that come before it is set are
 * stored, the last LATHE_LOG_KEPT of them. The lock protects all of this. */
static pthread_mutex_t tap_lock = PTHREAD_MUTEX_INITIALIZER;
static lathe_log_sink log_tap;
static void *tap_arg;
static struct stored {
    int32_t level;
    char text[512];
} stored[LATHE_LOG_KEPT];
static int64_t n_stored; /* since the process began, also those that were overwritten */

static void send_to_tap(int32_t level, const char *text)
{
    (void)pthread_mutex_lock(&tap_lock);
    if (log_tap != NULL) {
        log_tap(tap_arg, level, text);
    } else {
        struct stored *k = &stored[n_stored++ % LATHE_LOG_KEPT];
        k->level = level;
        (void)snprintf(k->text, sizeof k->text, "%.*s", (int)sizeof k->text - 1, text);
    }
    (void)pthread_mutex_unlock(&tap_lock);
}

void lathe_log_set_tap(lathe_log_sink tap, void *arg)
{
    (void)pthread_mutex_lock(&tap_lock);
    log_tap = tap;
    tap_arg = arg;
    if (tap != NULL) {
        const int64_t first = n_stored > LATHE_LOG_KEPT ? n_stored - LATHE_LOG_KEPT : 0;
        for (int64_t i = first; i < n_stored; i++)
            tap(arg, stored[i % LATHE_LOG_KEPT].level, stored[i % LATHE_LOG_KEPT].text);
        n_stored = 0;
    }
    (void)pthread_mutex_unlock(&tap_lock);
}

void lathe_log_set_sink(lathe_log_sink sink, void *arg)
{
    log_sink = sink;
    log_arg = arg;
}

lathe_log_sink lathe_log_get_sink(void **out_arg)
{
    *out_arg = log_arg;
    return log_sink;
}

void lathe_log_set_rank(int32_t rank)
{
    rank_text[0] = '\0';
    if (rank >= 0)
        (void)snprintf(rank_text, sizeof rank_text, "rank %d: ", rank);
}

void lathe_log_set_level(int32_t level)
{
    atomic_store(&lowest, level);
}

/* One call per line: stdio locks the stream, so lines of several threads do not mix. */
static void log_line(int32_t level, const char *format, va_list args)
{
    static const char *const prefix[] = {"debug: ", "", "warning: ", "error: "};
    char given[4096], text[4096];
    const int shown = level >= atomic_load(&lowest);
    if (!shown && level < LATHE_LOG_WARN)
        return;
    (void)vsnprintf(given, sizeof given, format, args);
    lathe_printable_copy(text, sizeof text, given); /* for sink, tap and catcher, too */
    if (is_caught(level, "", text))
        return;
    if (level >= LATHE_LOG_WARN)
        send_to_tap(level, text);
    if (!shown)
        return;
    if (log_sink != NULL)
        log_sink(log_arg, level, text);
    else
        lathe_print_to(stderr, "lathe: %s%s%s\n", rank_text,
                       level >= 0 && level < 4 ? prefix[level] : "", text);
}

void lathe_log_warn_at(const char *key, const char *message)
{
    char text[4096];
    lathe_printable_copy(text, sizeof text, message);
    if (!is_caught(LATHE_LOG_WARN, key, text))
        lathe_log(LATHE_LOG_WARN, "%s", message);
}

void lathe_log(int32_t level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_line(level, format, args);
    va_end(args);
}

void lathe_log_alike(int32_t level, const char *format, ...)
{
    va_list args;
    if (rank_text[0] != '\0')
        return;
    va_start(args, format);
    log_line(level, format, args);
    va_end(args);
}
