/* Logs a message once per process, for what is found again whenever something is opened again. */
#ifndef LATHE_BASE_LOG_ONCE_H
#define LATHE_BASE_LOG_ONCE_H

#include "base/log.h"

/** Logs the text, unless this function has logged the same text before. It remembers the first 64
 *  texts. Any thread. */
void lathe_log_once(int32_t level, const char *text);

#endif
