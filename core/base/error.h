/* The calling thread's error record: code, message, and the context added on the way up. */
#ifndef LATHE_BASE_ERROR_H
#define LATHE_BASE_ERROR_H

#include "lathe/status.h"

/** Sets the thread's error to `code` with a formatted message; returns `code`. The message is kept
 * in its printable form (base/printable.h), so nothing that a foreign file says in it controls a
 *  terminal. */
__attribute__((format(printf, 2, 3))) lathe_status lathe_error(lathe_status code,
                                                               const char *format, ...);

#ifdef __clang_analyzer__ /* tells it that the code comes back unchanged */
#define lathe_error(code, ...) (lathe_error((code), __VA_ARGS__), (code))
#endif

/** Puts "context: " before the thread's message; returns `code`. For callers that know the place.
 */
__attribute__((format(printf, 2, 3))) lathe_status lathe_error_context(lathe_status code,
                                                                       const char *format, ...);

/** The thread's last message; "" when there is none. Borrowed until the thread's next error. */
const char *lathe_error_message(void);

/** Forgets the thread's error. */
void lathe_error_clear(void);

/** "shapes do not agree" for LATHE_E_SHAPE, and so on. */
const char *lathe_status_text(lathe_status code);

#endif
