/* The values of a template. They behave like Python's values in everything that a template can
 * observe.
 *
 * All memory is the render's arena; nothing is freed before its end. Values never change once they
 * are made, except namespaces and what generators have given. Appending to the string or list that
 * was made last from the same block extends the block in place, so that a loop of `x = x + y` takes
 * linear memory.
 */
#ifndef LATHE_CHAT_JINJA_VALUE_H
#define LATHE_CHAT_JINJA_VALUE_H

#include <stdint.h>

enum {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST, /* all of Python's sequences but strings: see JINJA_SEQ_* */
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a global function; kind: JINJA_FN_* */
    JINJA_METHOD,   /* a method bound to its value */
    JINJA_LOOP,     /* the variable `loop` */
    JINJA_WIDE,     /* an integer beyond 64 bits, which is only compared and written: its digits */
    JINJA_UNSAFE /* an attribute that the sandbox keeps back: undefined, and an error when used */
};

/* kind of a JINJA_LIST */
enum {
    JINJA_SEQ_LIST,
    JINJA_SEQ_TUPLE,
    JINJA_SEQ_RANGE,
    JINJA_SEQ_KEYS, /* the views of a dict */
    JINJA_SEQ_VALUES,
    JINJA_SEQ_ITEMS,
    JINJA_SEQ_GENERATOR /* can be passed through once */
};

/* kind of a JINJA_UNDEFINED: what its name names */
enum { JINJA_MISSING_NAME, JINJA_MISSING_MEMBER, JINJA_MISSING_OTHER };

enum { JINJA_MARKUP = 1 }; /* kind of a JINJA_STRING: went through `safe` */

struct jinja_macro;
struct jinja_loop;
struct jinja_value;

/* Bytes or items that several values share; [0, used) is taken. */
typedef struct jinja_block {
    int64_t used, capacity;
    char *data;
} jinja_block;

typedef struct jinja_string {
    const char *data; /* UTF-8 */
    int64_t n;
    int64_t n_chars;    /* -1: not counted yet (never in a constant, which threads share) */
    jinja_block *block; /* NULL: the data cannot be extended */
} jinja_string;

typedef struct jinja_list {
    struct jinja_value *items;
    int64_t n;
    int64_t consumed; /* of a generator */
    jinja_block *block;
} jinja_list;

typedef struct jinja_value {
    uint8_t type, kind;
    union {
        int64_t i; /* BOOL: 0 or 1 */
        double f;
        jinja_string *s; /* also of a WIDE */
        jinja_list *list;
        struct jinja_dict *dict; /* also of a NAMESPACE */
        struct jinja_macro *macro;
        struct jinja_method *method;
        struct jinja_loop *loop;
        const char *name; /* UNDEFINED, UNSAFE */
    } u;
} jinja_value;

/* Entries in the order of their insertion, with an open hash table of their indices. */
typedef struct jinja_entry {
    jinja_value key, value;
    uint64_t hash;
} jinja_entry;

typedef struct jinja_dict {
    jinja_entry *entries;
    int64_t n, capacity;
    int32_t *table; /* 2 x capacity, -1: empty */
} jinja_dict;

typedef struct jinja_method {
    jinja_value self;
    const char *name;
} jinja_method;

static inline jinja_value jinja_none(void)
{
    return (jinja_value){.type = JINJA_NONE};
}

static inline jinja_value jinja_bool(int x)
{
    return (jinja_value){.type = JINJA_BOOL, .u.i = x != 0};
}

static inline jinja_value jinja_int(int64_t x)
{
    return (jinja_value){.type = JINJA_INT, .u.i = x};
}

static inline jinja_value jinja_float(double x)
{
    return (jinja_value){.type = JINJA_FLOAT, .u.f = x};
}

static inline jinja_value jinja_undefined(int kind, const char *name)
{
    return (jinja_value){.type = JINJA_UNDEFINED, .kind = (uint8_t)kind, .u.name = name};
}

static inline int jinja_is_undefined(jinja_value x)
{
    return x.type == JINJA_UNDEFINED || x.type == JINJA_UNSAFE;
}

/** 1 for int, float and bool. */
static inline int jinja_is_number(jinja_value x)
{
    return x.type == JINJA_BOOL || x.type == JINJA_INT || x.type == JINJA_FLOAT;
}

/** 1 for int and bool. */
static inline int jinja_is_whole(jinja_value x)
{
    return x.type == JINJA_BOOL || x.type == JINJA_INT;
}

static inline double jinja_number(jinja_value x)
{
    return x.type == JINJA_FLOAT ? x.u.f : (double)x.u.i;
}

/** 1: str.isspace is true for c, that is, White_Space or one of the four separators of ASCII. */
int lathe__jinja_is_space(int32_t c);

#endif
