/* The calling thread's error record: message, the key that it is about, and the context added on
 * the way up. */
#ifndef LATHE_BASE_ERROR_H
#define LATHE_BASE_ERROR_H

#include <stddef.h>

#include "lathe/status.h"

/** Sets the thread's error to `code` with a formatted message; returns `code`. The message is kept
 * in its printable form (base/printable.h), so nothing that a foreign file says in it controls a
 *  terminal. */
__attribute__((format(printf, 2, 3))) lathe_status lathe_error(lathe_status code,
                                                               const char *format, ...);

#ifdef __clang_analyzer__ /* tells it that the code comes back unchanged */
#define lathe_error(code, ...) (lathe_error((code), __VA_ARGS__), (code))
#endif

/** Sets the thread's error to one of a key of the run file: "model" and "path"; of a table inside
 *  the section "rope_scaling.factor". section NULL: that of the component which is asked, which the
 *  core adds (lathe_error_about). The message names the key too, for readers; no code looks for it
 *  there. */
__attribute__((format(printf, 4, 5))) lathe_status
lathe_error_at(lathe_status code, const char *section, const char *key, const char *format, ...);

/** Gives the thread's error a section, unless it has one, and a key (NULL: none) likewise; returns
 *  `code`. */
lathe_status lathe_error_about(lathe_status code, const char *section, const char *key);

#ifdef __clang_analyzer__
#define lathe_error_at(code, ...) (lathe_error_at((code), __VA_ARGS__), (code))
#endif

/** Section and key of the thread's error; "": none. Borrowed until the thread's next error. */
const char *lathe_error_section(void);
const char *lathe_error_key(void);

/** Puts "context: " before the thread's message; returns `code`. For callers that know the place.
 */
__attribute__((format(printf, 2, 3))) lathe_status lathe_error_context(lathe_status code,
                                                                       const char *format, ...);

/** The thread's last message; "" when there is none. Borrowed until the thread's next error. */
const char *lathe_error_message(void);

/** Its first line, in out[0, capacity). Returns out. */
const char *lathe_error_line(char *out, size_t capacity);

/** Forgets the thread's error. */
void lathe_error_clear(void);

/** "shapes do not agree" for LATHE_E_SHAPE, and so on. */
const char *lathe_status_text(lathe_status code);

#endif
