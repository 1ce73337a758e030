/* Keys of the core's own sections, and of tables inside them, that fill a member of a struct.
 *
 * Each key is described once, by a row of keys_<section>.inc: the key with its type, default,
 * range, unit and description, and the member that gets its value. A file that includes
 * keys_<section>.inc defines two macros, which decide what the rows become:
 *
 *     KEY(key, c_type, member, form, convert, type, flags, default, min, max, choices, unit, doc)
 *     KEY_ALONE(key, type, flags, default, min, max, choices, unit, doc)
 *
 * From the rows, core_schema.c makes the schema, a settings header makes the members of its struct
 * (LATHE_KEY_MEMBER), and the source beside that header makes the list for lathe_config_fill
 * (LATHE_KEY_OF). KEY_ALONE is for a key without a member. The macros below are short forms for
 * rows.
 */
#ifndef LATHE_PLUG_CONFIG_KEYS_H
#define LATHE_PLUG_CONFIG_KEYS_H

#include <stddef.h>

#include "lathe/schema.h"

typedef struct lathe_config lathe_config; /* config.h */
/** How a value is converted for its member. An unset value gives 0 or NULL, unless a line says
 *  otherwise. */
enum {
    LATHE_FILL_INT32,    /* int32_t: a whole number, or 0 and 1 for false and true */
    LATHE_FILL_INT64,    /* int64_t: a whole number */
    LATHE_FILL_DOUBLE,   /* double */
    LATHE_FILL_OPTIONAL, /* double; NAN if unset */
    LATHE_FILL_TEXT,     /* const char *: a string, or the JSON text of a table; NULL if empty */
    LATHE_FILL_STRING,   /* const char *: a string, which may be empty */
    LATHE_FILL_TEXTS,    /* lathe_texts: a list of strings */
    LATHE_FILL_CHOICE,   /* int32_t: index of the string among its choices */
    LATHE_FILL_OPTIONAL_CHOICE, /* as CHOICE; -1 if unset */
    LATHE_FILL_BYTES,  /* int64_t: bytes, from a number of MiB, GB or GiB as its unit says */
    LATHE_FILL_SEED,   /* uint64_t: the seed; train.seed if unset */
    LATHE_FILL_CONVERT /* written by convert() */
};

/** A list of strings, borrowed from the configuration. */
typedef struct lathe_texts {
    const char *const *strs;
    int64_t n;
} lathe_texts;

/** Destination of a key's value. */
typedef struct lathe_key {
    const char *key;
    int32_t form; /* LATHE_FILL_* */
    /** Writes *out_member from the value. NULL unless the form is LATHE_FILL_CONVERT. */
    void (*convert)(const lathe_config *config, const lathe_value *value, void *out_member);
    size_t offset; /* of the member in its struct */
} lathe_key;

#define LATHE_KEY_MEMBER(c_type, member) c_type member;
#define LATHE_KEY_OF(type, key, member, form, convert)                                             \
    {key, LATHE_FILL_##form, convert, offsetof(type, member)},

#define LATHE_ANY 1e18 /* no upper bound worth showing */

#define KEY_INT32(key, member, def, lo, hi, unit, doc)                                             \
    KEY(key, int32_t, member, INT32, NULL, LATHE_T_INT, 0, def, lo, hi, NULL, unit, doc)
#define KEY_INT64(key, member, def, lo, hi, unit, doc)                                             \
    KEY(key, int64_t, member, INT64, NULL, LATHE_T_INT, 0, def, lo, hi, NULL, unit, doc)
#define KEY_FLAG(key, member, def, doc)                                                            \
    KEY(key, int32_t, member, INT32, NULL, LATHE_T_BOOL, 0, def, 1.0, 0.0, NULL, NULL, doc)
#define KEY_DOUBLE(key, member, flags, def, lo, hi, unit, doc)                                     \
    KEY(key, double, member, DOUBLE, NULL, LATHE_T_FLOAT, flags, def, lo, hi, NULL, unit, doc)
#define KEY_OPTIONAL(key, member, lo, hi, unit, doc)                                               \
    KEY(key, double, member, OPTIONAL, NULL, LATHE_T_FLOAT, 0, NULL, lo, hi, NULL, unit, doc)
#define KEY_TEXTS(key, member, flags, doc)                                                         \
    KEY(key, lathe_texts, member, TEXTS, NULL, LATHE_T_STRING_LIST, flags, NULL, 1.0, 0.0, NULL,   \
        NULL, doc)
#define KEY_BYTES(key, member, flags, def, lo, hi, unit, doc)                                      \
    KEY(key, int64_t, member, BYTES, NULL, LATHE_T_FLOAT, flags, def, lo, hi, NULL, unit, doc)
#define KEY_SEED(key, member, def, doc)                                                            \
    KEY(key, uint64_t, member, SEED, NULL, LATHE_T_INT, 0, def, 0, LATHE_ANY, NULL, NULL, doc)
#define KEY_TEXT(key, member, def, doc)                                                            \
    KEY(key, const char *, member, TEXT, NULL, LATHE_T_STRING, 0, def, 1.0, 0.0, NULL, NULL, doc)
#define KEY_STRING(key, member, doc)                                                               \
    KEY(key, const char *, member, STRING, NULL, LATHE_T_STRING, 0, NULL, 1.0, 0.0, NULL, NULL, doc)
#define KEY_TABLE(key, member, doc)                                                                \
    KEY(key, const char *, member, TEXT, NULL, LATHE_T_TABLE, 0, NULL, 1.0, 0.0, NULL, NULL, doc)
#define KEY_CHOICE(key, member, def, choices, doc)                                                 \
    KEY(key, int32_t, member, CHOICE, NULL, LATHE_T_STRING, 0, def, 1.0, 0.0, choices, NULL, doc)
/* A string that convert() turns into a whole number. */
#define KEY_NAMED(key, member, convert, def, choices, doc)                                         \
    KEY(key, int32_t, member, CONVERT, convert, LATHE_T_STRING, 0, def, 1.0, 0.0, choices, NULL,   \
        doc)

#endif
