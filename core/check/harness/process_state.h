/* Reads and compares state that a plugin shares with the rest of the process and must not
 * change. */
#ifndef LATHE_CHECK_PROCESS_STATE_H
#define LATHE_CHECK_PROCESS_STATE_H

#include <signal.h>

#include "lathe/status.h"

enum { LATHE__N_SIGNALS = 32 };

typedef struct lathe__process_state {
    void (*handlers[LATHE__N_SIGNALS])(int);
    char folder[512], locale[256];
    unsigned rounding; /* rounding mode of floating point, and flushing to zero */
    unsigned umask;
    unsigned long environment; /* a hash of every variable */
    int64_t descriptors;       /* open files; 0: not counted */
    int64_t prints, starts;    /* calls of printf and of pthread_create by watched plugins */
} lathe__process_state;

/** counts: 1 counts open files and started threads too. */
void lathe__process_state_read(lathe__process_state *out, int counts);

/** LATHE_E_PLUGIN: the two states differ; the message says what the plugin changed. */
lathe_status lathe__process_state_compare(const lathe__process_state *before,
                                          const lathe__process_state *after);

/** Restores the rounding and the signal handlers, so that the next check does not fail because of
 *  them. */
void lathe__process_state_restore(const lathe__process_state *s);

#endif
