/* Holds back lines of the log. */
#include "session/held_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* lathe_log_sink */
static void hold(void *arg, int32_t level, const char *message)
{
    lathe_held_log *held = arg;
    char *line = held->n < LATHE_MAX_HELD ? strdup(message) : NULL;
    if (line) {
        held->levels[held->n] = level;
        held->lines[held->n++] = line;
        return;
    }
    lathe_log_set_sink(held->sink, held->sink_arg);
    lathe_log(level, "%s", message);
    lathe_log_set_sink(hold, held);
}

void lathe_held_log_begin(lathe_held_log *held)
{
    held->n = 0;
    held->sink = lathe_log_get_sink(&held->sink_arg);
    lathe_log_set_sink(hold, held);
}

void lathe_held_log_end(lathe_held_log *held, int32_t writes)
{
    lathe_log_set_sink(held->sink, held->sink_arg);
    for (int32_t i = 0; i < held->n; i++) {
        if (writes)
            lathe_log(held->levels[i], "%s", held->lines[i]);
        free(held->lines[i]);
    }
    held->n = 0;
}
