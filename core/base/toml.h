/* Reads TOML into a plain tree in an arena, with the line and column of every key and value.
 *
 * The parser is toml++; toml_shim.cpp wraps it in C functions and catches its exceptions.
 */
#ifndef LATHE_BASE_TOML_H
#define LATHE_BASE_TOML_H

#include "base/arena.h"
#include "base/buffer.h"

enum {
    LATHE_TOML_TABLE = 1,
    LATHE_TOML_ARRAY = 2,
    LATHE_TOML_STRING = 3,
    LATHE_TOML_INT = 4,
    LATHE_TOML_FLOAT = 5,
    LATHE_TOML_BOOL = 6,
    LATHE_TOML_TIME = 7, /* date, time or both, as text in `s` */
    LATHE_TOML_BIG = 8,  /* a number that does not fit in 64 bits, as text in `s`; near it: `f` */
};

/** One value and, in a table, its key. Lines and columns count from 1; 0: no place. */
typedef struct lathe_toml_node {
    int32_t kind;                 /* LATHE_TOML_* */
    int32_t line, column;         /* of the value; of a [table]: its header */
    int32_t key_line, key_column; /* of the key; 0 in arrays and at the root */
    const char *key;              /* NULL in arrays and at the root */
    const char *origin; /* not from a file: what the user typed ("--train.seed"), or NULL */
    const char *s;      /* STRING, TIME, BIG: UTF-8 without NUL inside; with origin: as typed */
    int64_t i;          /* INT; BOOL (0/1) */
    double f;           /* FLOAT; also set for INT */
    struct lathe_toml_node **children; /* TABLE, ARRAY: in the order of the file */
    int64_t n_children;
} lathe_toml_node;

/** Parses `bytes` of text into arena; `name` is the file name in errors. A number that does not
 *  fit in 64 bits becomes a LATHE_TOML_BIG node, so that the caller can report it together with
 *  other errors; the parser refuses files with more than 16 such numbers. LATHE_E_PARSE
 *  "run.toml:3:7: ...": bad syntax, duplicate keys, bad UTF-8, or more than 64 levels. */
lathe_status lathe_toml_load(const char *name, const char *text, int64_t bytes, lathe_arena *arena,
                             lathe_toml_node **out);

/** Parses a file of at most 4 MiB. */
lathe_status lathe_toml_load_file(const char *path, lathe_arena *arena, lathe_toml_node **out);

/** Parses one value as written after "key =": 0.9, true, "sgd", [1, 2]. LATHE_E_PARSE. */
lathe_status lathe_toml_literal(const char *text, lathe_arena *arena, lathe_toml_node **out);

/** A value that stands in no file: a table or an array without children, or a text; key: in its
 *  table, NULL in an array. Texts are copied. NULL: no memory. */
lathe_toml_node *lathe_toml_new(int32_t kind, const char *key, const char *s, lathe_arena *arena);

/** The value of `key` in a table; NULL if there is none, or if the node is not a table. */
lathe_toml_node *lathe_toml_find(const lathe_toml_node *table, const char *key);

/** Sets table[node->key] = node: replaces the node with that key, or appends. LATHE_E_NOMEM. */
lathe_status lathe_toml_set(lathe_toml_node *table, lathe_toml_node *node, lathe_arena *arena);

/** "a table", "an integer", ...: for messages. */
const char *lathe_toml_kind_text(int32_t kind);

/** Appends the value as JSON, keys in order of the file; not-finite numbers become null. */
void lathe_toml_json(const lathe_toml_node *node, lathe_buffer *out);

/** A double as the shortest JSON number that reads back as the same double. */
void lathe_buffer_json_double(lathe_buffer *out, double x);

#endif
