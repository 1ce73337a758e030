/* The calling thread's error record: message, the key that it is about, and the context added on
 * the way up. */
#ifndef LATHE_BASE_ERROR_H
#define LATHE_BASE_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include "lathe/status.h"

/** A place in a file or on the command line. line 0: the file (or the override) as a whole; column
 *  0: the line as a whole. */
typedef struct lathe_place {
    const char *file; /* path, or the override as typed ("--train.seed"); NULL: no place */
    int32_t line, column;
    int64_t record; /* from 1, in a file whose records have no lines, such as Parquet; 0: none */
} lathe_place;

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

/** Sets the thread's error to one at a place in a file, which is kept beside the message. The
 * message is "FILE:LINE:COLUMN: TEXT", without a column or line that is 0. */
__attribute__((format(printf, 5, 6))) lathe_status lathe_error_in(lathe_status code,
                                                                  const char *file, int64_t line,
                                                                  int64_t column,
                                                                  const char *format, ...);

/** Puts "FILE:LINE:COLUMN: " before the thread's message as its place; returns `code`. Where the
 *  error has a place already, this one is only told. */
lathe_status lathe_error_from(lathe_status code, const char *file, int64_t line, int64_t column);

/** Makes record `number` of a file of data the place of the thread's error: puts "FILE: UNIT
 * NUMBER: " before the message, or with unit NULL "FILE:NUMBER: ", whose number is a line. A place
 * in another file, such as one in the chat template, is then only told. An error that has a place
 * in this file keeps it: it may be that of a column. Returns `code`. */
lathe_status lathe_error_in_record(lathe_status code, const char *file, const char *unit,
                                   int64_t number);

/** Appends " (did you mean 'WORD'?)" and keeps the word; NULL appends nothing. Returns `code`. */
lathe_status lathe_error_suggest(lathe_status code, const char *word);

/** Gives the thread's error a section, unless it has one, and a key (NULL: none) likewise; returns
 *  `code`. */
lathe_status lathe_error_about(lathe_status code, const char *section, const char *key);

#ifdef __clang_analyzer__
#define lathe_error_at(code, ...) (lathe_error_at((code), __VA_ARGS__), (code))
#define lathe_error_in(code, ...) (lathe_error_in((code), __VA_ARGS__), (code))
#endif

/** Section and key of the thread's error; "": none. Borrowed until the thread's next error. */
const char *lathe_error_section(void);
const char *lathe_error_key(void);

/** Place of the thread's error; file NULL: it has none. Borrowed until the thread's next error. */
lathe_place lathe_error_place(void);

/** The word that was probably meant; NULL: none. Borrowed until the thread's next error. */
const char *lathe_error_suggestion(void);

/** The thread's message without its place and its suggestion, in out[0, capacity). Returns out. */
const char *lathe_error_words(char *out, size_t capacity);

/** Bytes at the beginning of the message that lathe_error_context put there. */
size_t lathe_error_context_bytes(void);

/** An error that is carried to another thread: its message with the bytes of its parts, place, key
 *  and suggestion. */
typedef struct lathe_kept_error {
    char message[1024], file[512], section[128], key[128], suggestion[128]; /* "": none */
    size_t n_context, n_place, n_suggestion;
    int32_t line, column;
    int64_t record;
} lathe_kept_error;

/** Copies the thread's error. A longer message loses its end, and a longer path of a file is kept
 *  in the message alone. */
void lathe_error_keep(lathe_kept_error *out);
/** Makes it the calling thread's error; returns `code`. */
lathe_status lathe_error_raise(lathe_status code, const lathe_kept_error *kept);

/** A number that is another one after each new error of the thread, and the same while context, key
 *  or place are added: a list that belongs to an error (base/diag.h) remembers it. */
uint64_t lathe_error_serial(void);

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
