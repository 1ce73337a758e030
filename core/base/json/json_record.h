/* Finds given members of one JSON object (a record), without a tree of values.
 *
 * The whole record is checked: RFC 8259 in UTF-8, at most LATHE_JSON_DEPTH levels, no duplicate
 * keys in an object, no NUL in a key. Memory: four bytes per key of the objects that are open at
 * the same time.
 */
#ifndef LATHE_JSON_RECORD_H
#define LATHE_JSON_RECORD_H

#include "base/json/json_walk.h"
#include "lathe/status.h"

enum { LATHE_JSON_DEPTH = 2048, LATHE_JSON_WANTED = 32 };

/** The value of a wanted member in a record. */
typedef struct lathe_json_member {
    int32_t found;     /* 0: no such member */
    int32_t is_string; /* 0: any other value */
    /* In the record's text: the string, or a number, true, false or null as it is written; an
     * object or array has no text. */
    lathe_json_string string;
} lathe_json_member;

/** The reader's memory, for one thread; all zeros at first. */
typedef struct lathe_json_record {
    lathe_json_walk walk;
    const char *begin;
    const char *const *names; /* wanted members, [n_names]; NULL: not wanted */
    lathe_json_member *members;
    int32_t n_names, depth;
    uint32_t wanted; /* bit k: the member being read is names[k] */
    uint32_t
        first[LATHE_JSON_DEPTH]; /* by level: the object's first in keys; an array: UINT32_MAX */
    uint32_t *keys;              /* where keys begin, of all open objects */
    int64_t n_keys, capacity;
    int32_t takes_nan;  /* set by the caller; 1: NaN and infinities are values (json_text.h) */
    int32_t nul_in_key; /* 1: it stopped at a key with \u0000 */
    int64_t n_own_keys; /* after a read: keys[0, n_own_keys) are those of the record */
} lathe_json_record;

/** Reads the object text[0, n), n < 4 GiB, and fills in members[k] for each names[k], at most
 *  LATHE_JSON_WANTED. Returns 1 on success; 0 for an error, with its position in walk.at and the
 * reason in walk.what; -1 when out of memory. */
int lathe_json_record_read(lathe_json_record *record, const char *text, int64_t n,
                           const char *const *names, int32_t n_names, lathe_json_member *members);

/** The position of walk.at after a failed read: the line in the record and the byte in that
 *  line, both from 1. */
void lathe_json_record_place(const lathe_json_record *record, int64_t *out_line,
                             int64_t *out_column);

/** Gives the next member of a record that was read successfully; its value is the raw text. *at:
 *  `text` for the first member. Returns 1, or 0 at the end. */
int lathe_json_record_next(const char **at, const char *end, lathe_json_string *out_key,
                           const char **out_value, int64_t *out_n);

/** Key i of the n_own_keys of a record that was read successfully. Returns 1 if it holds something:
 * it is not null, "", [] or {}. */
int lathe_json_record_key(const lathe_json_record *record, const char *text, int64_t n, int64_t i,
                          lathe_json_string *out_key);

/** Writes the keys of a record that was read successfully into out: "a, b, c", still escaped,
 *  with "..." if they do not fit in `room` bytes; "" if there are none. */
void lathe_json_record_keys(const char *text, int64_t n, char *out, int64_t room);

void lathe_json_record_fini(lathe_json_record *record);

#endif
