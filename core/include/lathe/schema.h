/* The schema of a component: the keys of its TOML table, and their checked values.
 *
 * A component lists its fields. The core parses the file, checks each key's name, type, range and
 * choice, and passes one lathe_value per field, in the order of the list. `lathe show`, the
 * generated documentation, the run manifest and the suggestions for misspelt keys use the same
 * list.
 */
#ifndef LATHE_SCHEMA_H
#define LATHE_SCHEMA_H

#include "abi.h"

enum {
    LATHE_T_BOOL = 1,
    LATHE_T_INT = 2,         /* int64_t */
    LATHE_T_FLOAT = 3,       /* double; an integer literal is accepted */
    LATHE_T_STRING = 4,      /* UTF-8; with `choices`, one of them */
    LATHE_T_STRING_LIST = 5, /* array of strings */
    LATHE_T_FLOAT_LIST = 6,  /* array of numbers */
    LATHE_T_TABLE = 7,       /* inline table or array of tables; handed over as JSON text in `s` */
};

enum {
    LATHE_FIELD_REQUIRED = 1,      /* no default: the file must set it */
    LATHE_FIELD_MIN_EXCLUSIVE = 2, /* value > min instead of >= */
    LATHE_FIELD_MAX_EXCLUSIVE = 4, /* value < max instead of <= */
    LATHE_FIELD_NULLABLE = 8,      /* config.json: null leaves it unset; else null is the default */
    LATHE_FIELD_WHOLE = 32,        /* FLOAT_LIST: whole numbers, which config.json gets as such */
    LATHE_FIELD_OR_TEXT = 64,      /* config.json: a text is accepted, too, as a STRING value */
};

/** One key of a component's table. Plain data: never grows. */
typedef struct lathe_field {
    const char *key;           /* snake_case, as in the file */
    int32_t type;              /* LATHE_T_* */
    int32_t flags;             /* LATHE_FIELD_* */
    const char *default_value; /* TOML literal ("0.9", "true", "\"sgd\"", "[]"); NULL: unset */
    double min, max;           /* numbers: inclusive range; min > max means no range */
    const char *choices;       /* strings: "a|b|c", or NULL for any */
    const char *unit;          /* "steps", "tokens", "1", ...; NULL when it has none */
    const char *doc;           /* one line, no full stop needed */
} lathe_field;
LATHE_ABI_SIZE(lathe_field, 64);

/** A checked value, in schema order. Borrowed; valid as long as the configuration. Plain data. */
typedef struct lathe_value {
    int32_t type;            /* LATHE_T_* of its field */
    int32_t is_set;          /* 0: neither in the file nor given a default */
    int32_t is_explicit;     /* 1: written in the file or on the command line */
    int32_t reserved;        /* 0 */
    int64_t i;               /* BOOL (0/1), INT */
    double f;                /* FLOAT; also set for INT */
    const char *s;           /* STRING, TABLE (JSON text) */
    const char *const *strs; /* STRING_LIST: n strings */
    const double *nums;      /* FLOAT_LIST: n numbers */
    int64_t n;               /* length of a list */
} lathe_value;
LATHE_ABI_SIZE(lathe_value, 64);

/* Shorthands for schema tables. */
#define LATHE_NO_RANGE 1.0, 0.0
#define LATHE_FIELD_FLOAT(key, def, lo, hi, unit, doc)                                             \
    {                                                                                              \
        key, LATHE_T_FLOAT, 0, def, lo, hi, NULL, unit, doc                                        \
    }
#define LATHE_FIELD_INT(key, def, lo, hi, unit, doc)                                               \
    {                                                                                              \
        key, LATHE_T_INT, 0, def, lo, hi, NULL, unit, doc                                          \
    }
#define LATHE_FIELD_BOOL(key, def, doc)                                                            \
    {                                                                                              \
        key, LATHE_T_BOOL, 0, def, LATHE_NO_RANGE, NULL, NULL, doc                                 \
    }
#define LATHE_FIELD_STRING(key, def, choices, doc)                                                 \
    {                                                                                              \
        key, LATHE_T_STRING, 0, def, LATHE_NO_RANGE, choices, NULL, doc                            \
    }

#endif
