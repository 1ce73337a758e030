/* Reads JSON with jansson, with limited depth, no duplicate keys, and errors that name
 * file:line:column. Callers use jansson's accessors on the result and json_decref it.
 *
 * RFC 8259, which leaves some choices to the implementation: UTF-8 without a byte order mark; no
 * NUL, raw or escaped, except where a function says so; lone surrogates refused; an integer
 * beyond 64 bits is a real number (tokenizer_config.json has 10^30 for "no limit"), a real
 * beyond a double is refused; at most 256 levels. Text and tree take at most 2 x the text + 64
 * MiB; a text that needs more is refused (LATHE_E_UNSUPPORTED). */
#ifndef LATHE_JSON_H
#define LATHE_JSON_H

#include <jansson.h>

#include "lathe/status.h"

/** Parses a whole file. LATHE_E_IO, LATHE_E_PARSE. */
lathe_status lathe_json_load_file(const char *path, json_t **out);

/** Parses `bytes` of text; `name` is used instead of a path in errors. */
lathe_status lathe_json_load(const char *name, const char *text, int64_t bytes, json_t **out);

/** Like lathe_json_load, for callers that use json_string_length for every string: string values
 *  may contain "\u0000", keys may not. */
lathe_status lathe_json_load_with_nul(const char *name, const char *text, int64_t bytes,
                                      json_t **out);

/** For what is written out again: integers beyond 64 bits keep their digits, as values that only
 *  the functions of json_wide.h read. with_nul 1: as lathe_json_load_with_nul. */
lathe_status lathe_json_load_exact(const char *name, const char *text, int64_t bytes, int with_nul,
                                   json_t **out);

/** Like lathe_json_load_exact, for line `line` of a file: errors are at "FILE:LINE:COLUMN". The
 *  line's end may be part of the text. */
lathe_status lathe_json_load_line(const char *file, int64_t line, const char *text, int64_t bytes,
                                  int with_nul, json_t **out);

/** A JSON string; bytes that are not UTF-8 become U+FFFD. */
json_t *lathe__json_text(const char *text);

#endif
