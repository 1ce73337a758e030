/* Holds back the lines of the log until it is known whether they are wanted. */
#ifndef LATHE_APP_HELD_LOG_H
#define LATHE_APP_HELD_LOG_H

#include <stdint.h>

enum { LATHE_MOST_HELD = 64 };

/* Lines of the log; after the first LATHE_MOST_HELD ones, further lines are written at once. */
typedef struct lathe_held_log {
    char *lines[LATHE_MOST_HELD];
    int32_t levels[LATHE_MOST_HELD];
    int32_t n;
} lathe_held_log;

/** Holds back what is logged from now on, on stderr; the log has no other sink. */
void lathe_held_log_begin(lathe_held_log *held);

/** Ends that, and writes the lines; with writes 0 it drops them. */
void lathe_held_log_end(lathe_held_log *held, int32_t writes);

#endif
