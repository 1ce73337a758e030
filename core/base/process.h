/* Whether a process of this machine is still the one that it was. */
#ifndef LATHE_BASE_PROCESS_H
#define LATHE_BASE_PROCESS_H

#include <stdint.h>

/** When a process started, in clock ticks after boot: it tells the process from a later one with
 *  the same number. 0: there is none, it has ended and nobody has waited for it (a zombie), or
 *  /proc cannot be read. Source: field 22 of /proc/PID/stat, proc(5). [any thread] */
int64_t lathe_process_born(int64_t pid);
/** 1: it is stopped by a signal. [any thread] */
int32_t lathe_process_is_stopped(int64_t pid);

#endif
