/* Members of a tokenizer.json, checked while they are read. A place is the file and the path of a
 * member: "tokenizer.json: normalizer.normalizers[1]". */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_MEMBERS_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_MEMBERS_H

#include "base/json/json.h"
#include "tokenizer/encode/pipeline.h"

#define LATHE_MAX_ID (1 << 24) /* bounds the memory that a file can make the reader allocate */
#define LATHE_PLACE 4608       /* room for a place */

/** "PLACE.KEY is SEEN; expected ..." (LATHE_E_PARSE). key "": the node itself. */
lathe_status lathe__tj_expected(const char *place, const char *key, const json_t *seen,
                                const char *expected);
/** "PLACE.KEY is "SEEN"; supported: ..." (LATHE_E_UNSUPPORTED). */
lathe_status lathe__tj_unsupported(const char *place, const char *key, const char *seen,
                                   const char *supported);

/** Reads true or false; a member that is missing or null gives `missing`. */
lathe_status lathe__tj_flag(const char *place, const json_t *node, const char *key, int missing,
                            int32_t *out);
/** Reads a string; NULL if the member is missing or null. Refuses a string with \u0000. */
lathe_status lathe__tj_text(const char *place, const json_t *node, const char *key,
                            const char **out);
/** Reads the "type" of an object, which is required. */
lathe_status lathe__tj_type(const char *place, const json_t *node, const char **out);
/** Copies a string, which is required and may hold \u0000. */
lathe_status lathe__tj_copy(const char *place, const json_t *node, const char *key,
                            lathe_piece *out);

/** A malloc'ed copy of n bytes with a NUL after them; NULL: out of memory. */
char *lathe__tj_copy_text(const char *text, size_t n);

#endif
