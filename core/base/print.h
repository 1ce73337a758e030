/* Prints: the only way by which text reaches standard output and standard error.
 *
 * Text is printed in its printable form (base/printable.h), since any name in it may come from a
 * foreign file. Output that the user asked for byte by byte, such as a generated text, stays as it
 * is where it goes into a file or a pipe. lathe_print_raw is for the program's own control
 * sequences. tests/house/check_sources.sh refuses printf and its kin elsewhere.
 */
#ifndef LATHE_BASE_PRINT_H
#define LATHE_BASE_PRINT_H

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/buffer.h"

/** Prints to standard output, like printf; each call is one write to the stream. */
__attribute__((format(printf, 1, 2))) void lathe_print(const char *format, ...);
__attribute__((format(printf, 2, 3))) void lathe_print_to(FILE *to, const char *format, ...);
__attribute__((format(printf, 2, 0))) void lathe_print_list(FILE *to, const char *format,
                                                            va_list args);

/** Prints a text as it is, except for its printable form; NULL is an empty one. */
void lathe_print_text(FILE *to, const char *text);
void lathe_print_bytes(FILE *to, const char *text, int64_t n);

/** Prints a value as JSON with jansson's flags, and a line end. */
void lathe_print_json(FILE *to, const json_t *value, size_t flags);

/** Prints a text in which LATHE_DIM and LATHE_PLAIN switch to dim text and back. Unicode keeps
 * these two code points free for such internal use; the printable form of foreign text has none. */
#define LATHE_DIM "\xef\xb7\x90"
#define LATHE_PLAIN "\xef\xb7\x91"
void lathe_print_styled(FILE *to, const char *text, int64_t n);

/** Writes what the user asked for: as it is into a file or a pipe, in printable form on a terminal.
 */
void lathe_print_output(FILE *to, const char *bytes, int64_t n);

/** Writes bytes as they are. */
void lathe_print_raw(FILE *to, const char *bytes, int64_t n);

#endif
