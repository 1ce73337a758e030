/* Holds back the lines of the log until it is known whether they are wanted. */
#ifndef LATHE_APP_HELD_LOG_H
#define LATHE_APP_HELD_LOG_H

#include <stdint.h>

enum { LATHE_MOST_HELD = 64 };

/* Lines of the log. Lines after the first LATHE_MOST_HELD are written at once, so before those. */
typedef struct lathe_held_log {
    char *lines[LATHE_MOST_HELD];
    int32_t levels[LATHE_MOST_HELD];
    int32_t n;
} lathe_held_log;

/** Holds back what is logged from now on. Not while another sink of the log is set. */
void lathe_held_log_begin(lathe_held_log *held);

/** Stops holding back. writes 1: writes the held lines to stderr; 0: drops them. */
void lathe_held_log_end(lathe_held_log *held, int32_t writes);

#endif
