/* Holds back the lines of the log until it is known whether they are wanted. */
#ifndef LATHE_SESSION_HELD_LOG_H
#define LATHE_SESSION_HELD_LOG_H

#include <stdint.h>

enum { LATHE_MAX_HELD = 64 };

/* Lines of the log. Lines after the first LATHE_MAX_HELD are written at once, so before those. */
typedef struct lathe_held_log {
    char *lines[LATHE_MAX_HELD];
    int32_t levels[LATHE_MAX_HELD];
    int32_t n;
    void (*sink)(void *arg, int32_t level,
                 const char *message); /* of the application; NULL: none */
    void *sink_arg;
} lathe_held_log;

/** Holds back what is logged from now on, also from a sink that the application has set. */
void lathe_held_log_begin(lathe_held_log *held);

/** Stops holding back. writes 1: logs the held lines; 0: drops them. */
void lathe_held_log_end(lathe_held_log *held, int32_t writes);

#endif
