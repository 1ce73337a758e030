/* The run's log: one line per message, to stderr or a sink. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int lowest = LATHE_LOG_INFO;
static lathe_log_sink log_sink;
static void *log_arg;

void lathe_log_set_sink(lathe_log_sink sink, void *arg)
{
    log_sink = sink;
    log_arg = arg;
}

void lathe_log_set_level(int32_t level)
{
    atomic_store(&lowest, level);
}

/* One fprintf per line: stdio locks the stream, so lines of several threads do not mix. */
void lathe_log(int32_t level, const char *format, ...)
{
    static const char *const prefix[] = {"debug: ", "", "warning: ", "error: "};
    char text[4096];
    if (level < atomic_load(&lowest))
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (log_sink != NULL)
        log_sink(log_arg, level, text);
    else
        (void)fprintf(stderr, "lathe: %s%s\n", level >= 0 && level < 4 ? prefix[level] : "", text);
}
