/* Logs a message once per process. A run that is planned several times opens the same files again
 * and finds the same faults in them; each is told once. */
#ifndef LATHE_BASE_LOG_ONCE_H
#define LATHE_BASE_LOG_ONCE_H

#include "base/log.h"

/** Logs the text, unless this function has logged an equal text before. It remembers the first 64
 *  texts; others are logged every time. May be called from any thread. */
void lathe_log_once(int32_t level, const char *text);

#endif
