/* The state of one rendering of a template: its memory, its limits, its variables; and the
 * operations on values. */
#ifndef LATHE_CHAT_JINJA_VM_H
#define LATHE_CHAT_JINJA_VM_H

#include <jansson.h>

#include "base/arena.h"
#include "chat/jinja/jinja_value.h"
#include "lathe/status.h"

/* Operators: of two values, and of comparisons. */
enum { JINJA_ADD, JINJA_SUB, JINJA_MUL, JINJA_DIV, JINJA_FLOORDIV, JINJA_MOD, JINJA_POW };
enum {
    JINJA_CMP_EQ,
    JINJA_CMP_NE,
    JINJA_CMP_LT,
    JINJA_CMP_LE,
    JINJA_CMP_GT,
    JINJA_CMP_GE,
    JINJA_CMP_IN,
    JINJA_CMP_NOT_IN
};

/* A place in the template's text, from 1. */
typedef struct jinja_place {
    int32_t line, column;
} jinja_place;

/* Limits of one render. */
typedef struct jinja_limits {
    int64_t steps, memory_bytes, output_bytes;
    int32_t depth;
} jinja_limits;

/* Text under construction; its memory is the arena's. */
typedef struct jinja_text {
    char *data;
    int64_t n, capacity;
} jinja_text;

typedef struct jinja_binding {
    int32_t id;
    jinja_value value;
} jinja_binding;

typedef struct jinja_scope {
    struct jinja_scope *outer;
    jinja_binding *list;
    int32_t n, capacity;
} jinja_scope;

struct jinja_vm;

/* The variable `loop`: its attributes are found by the statement that runs the loop. */
typedef struct jinja_loop {
    lathe_status (*attr)(struct jinja_vm *vm, struct jinja_loop *loop, const char *name,
                         jinja_value *out);
} jinja_loop;

enum { JINJA_GO, JINJA_GO_BREAK, JINJA_GO_CONTINUE };

/* Bytes [begin, end) of the rendered text. */
typedef struct jinja_span {
    int64_t begin, end;
} jinja_span;

typedef struct jinja_vm {
    const char *name;         /* of the template, for messages */
    const char *const *names; /* of variables, by id */
    const jinja_place *at;    /* for messages; NULL: the begin */
    lathe_arena arena;
    jinja_limits limits;
    int64_t now, steps;
    int32_t depth;
    lathe_status failure; /* of the last allocation that gave NULL */
    int flow;             /* JINJA_GO_* */
    jinja_scope *scope;
    jinja_text root;   /* the rendered text */
    jinja_text *out;   /* what is written at present: root, or a macro's text */
    jinja_span *spans; /* of the parts that are marked */
    int64_t n_spans, spans_capacity;
} jinja_vm;

/* ---- jinja_heap.c: memory, strings, sequences, mappings ---- */

__attribute__((format(printf, 3, 4))) lathe_status
lathe__jinja_raise(jinja_vm *vm, lathe_status code, const char *format, ...);
/** The error for the use of an undefined value. */
lathe_status lathe__jinja_raise_undefined(jinja_vm *vm, jinja_value x);
/** "'list' cannot be <what>", or the error of an undefined value. */
lathe_status lathe__jinja_raise_type(jinja_vm *vm, jinja_value x, const char *what);
/** Python's name of the value's type. */
const char *lathe__jinja_type_name(jinja_value x);
/** A string in the arena with text[0, n), counted. NULL: out of memory. */
jinja_string *lathe__jinja_constant(lathe_arena *arena, const char *text, int64_t n);
/** Characters of UTF-8. */
int64_t lathe__jinja_count(const char *text, int64_t n);

/** Counts work on this many bytes. */
lathe_status lathe__jinja_charge(jinja_vm *vm, int64_t bytes);
/** Memory of the render; NULL: an error is raised, and vm->failure is its code. */
void *lathe__jinja_alloc(jinja_vm *vm, int64_t bytes);
/** The code of the allocation that just gave NULL: never LATHE_OK. */
static inline lathe_status lathe__jinja_failed(const jinja_vm *vm)
{
    return vm->failure != LATHE_OK ? vm->failure : LATHE_E_NOMEM;
}
/** Entered and left around every recursion. */
lathe_status lathe__jinja_enter(jinja_vm *vm);

lathe_status lathe__jinja_put(jinja_vm *vm, jinja_text *text, const char *data, int64_t n);
lathe_status lathe__jinja_puts(jinja_vm *vm, jinja_text *text, const char *data);
/** A string that takes the text over. */
lathe_status lathe__jinja_take(jinja_vm *vm, jinja_text *text, jinja_value *out);
/** A string that points to data, which lives as long as the render. */
lathe_status lathe__jinja_borrow(jinja_vm *vm, const char *data, int64_t n, jinja_value *out);
lathe_status lathe__jinja_join2(jinja_vm *vm, const jinja_string *a, const jinja_string *b,
                                jinja_value *out);
/** The number of its characters. */
int64_t lathe__jinja_chars(jinja_string *s);
/** The byte where character `index` (0 to the number of characters) begins. */
int64_t lathe__jinja_offset(jinja_string *s, int64_t index);

/** A sequence with room for n items, n of them; the caller fills items. */
lathe_status lathe__jinja_list(jinja_vm *vm, int kind, int64_t n, jinja_value *out);
/** Appends to a list that this caller alone holds. */
lathe_status lathe__jinja_append(jinja_vm *vm, jinja_list *list, jinja_value item);
lathe_status lathe__jinja_join_lists(jinja_vm *vm, jinja_value a, jinja_value b, jinja_value *out);
lathe_status lathe__jinja_dict(jinja_vm *vm, int type, int64_t capacity, jinja_value *out);
lathe_status lathe__jinja_dict_set(jinja_vm *vm, jinja_dict *dict, jinja_value key,
                                   jinja_value value);
/** *out: NULL when there is none. An unhashable key is an error. */
lathe_status lathe__jinja_dict_find(jinja_vm *vm, const jinja_dict *dict, jinja_value key,
                                    jinja_entry **out);
/** The value of a string key; NULL when there is none. */
jinja_value *lathe__jinja_dict_get(const jinja_dict *dict, const char *key, int64_t n);
/** The keys, values or items of a dict as a sequence of this kind. */
lathe_status lathe__jinja_view(jinja_vm *vm, const jinja_dict *dict, int kind, jinja_value *out);
/** The items that a loop over x sees. */
lathe_status lathe__jinja_iterate(jinja_vm *vm, jinja_value x, jinja_list *out);

/* ---- jinja_compare.c ---- */

int lathe__jinja_truth(jinja_value x);
lathe_status lathe__jinja_equal(jinja_vm *vm, jinja_value a, jinja_value b, int *out);
/** *out < 0, 0, > 0; values without an order are an error. */
lathe_status lathe__jinja_order(jinja_vm *vm, jinja_value a, jinja_value b, int *out);
lathe_status lathe__jinja_compare(jinja_vm *vm, int op, jinja_value a, jinja_value b, int *out);
lathe_status lathe__jinja_hash(jinja_vm *vm, jinja_value x, uint64_t *out);
uint64_t lathe__jinja_hash_bytes(const char *text, int64_t n);
/** Finds needle in text from byte `from` on; -1: not there. */
int64_t lathe__jinja_search(const char *text, int64_t n, const char *needle, int64_t n_needle,
                            int64_t from);

/* ---- jinja_text.c: str(), repr(), JSON ---- */

lathe_status lathe__jinja_put_str(jinja_vm *vm, jinja_text *text, jinja_value x);
lathe_status lathe__jinja_put_repr(jinja_vm *vm, jinja_text *text, jinja_value x);
/** str(x) as a string; a string stays what it is, its markup included. */
lathe_status lathe__jinja_str(jinja_vm *vm, jinja_value x, jinja_value *out);
/** Python's repr of a float. */
void lathe__jinja_float_text(double x, char out[64]);
/** &, <, >, ' and " as HTML entities; marked as markup. */
lathe_status lathe__jinja_escape(jinja_vm *vm, jinja_value x, jinja_value *out);

/* ---- jinja_wide.c: integers beyond 64 bits ---- */

/** The order of two numbers, one of which is a WIDE: -1, 0, 1; 2: the other is NaN. Exact. */
int lathe__jinja_order_wide(jinja_value a, jinja_value b);
/** Refuses to compute with a WIDE. */
lathe_status lathe__jinja_refuse_wide(jinja_vm *vm, jinja_value a, jinja_value b);

/* ---- jinja_json.c ---- */

lathe_status lathe__jinja_from_json(jinja_vm *vm, json_t *json, jinja_value *out);

/* ---- arguments of calls ---- */

enum { JINJA_MAX_PARAMS = 8 };

typedef struct jinja_args {
    jinja_value *plain;
    int32_t n;
    const char **names;
    jinja_value *named;
    int32_t n_named;
} jinja_args;

/** Gives each parameter its argument, or leaves out[i] as the caller set it. params: the names,
 * with NULL at the end; the first n_required must be there. */
lathe_status lathe__jinja_bind(jinja_vm *vm, const char *what, const jinja_args *args,
                               const char *const *params, int32_t n_required, jinja_value *out);

/* ---- jinja_member.c, jinja_string_methods.c ---- */

lathe_status lathe__jinja_getattr(jinja_vm *vm, jinja_value x, const char *name, jinja_value *out);
lathe_status lathe__jinja_getitem(jinja_vm *vm, jinja_value x, jinja_value key, jinja_value *out);
/** bounds: start, stop, step; NONE where there is none. */
lathe_status lathe__jinja_slice(jinja_vm *vm, jinja_value x, const jinja_value bounds[3],
                                jinja_value *out);
lathe_status lathe__jinja_call_method(jinja_vm *vm, const jinja_method *method,
                                      const jinja_args *args, jinja_value *out);
int lathe__jinja_has_string_method(const char *name);
lathe_status lathe__jinja_string_method(jinja_vm *vm, const char *name, jinja_value self,
                                        const jinja_args *args, jinja_value *out);
/** str.strip; ends: 1 left, 2 right, 3 both; chars: NONE for white space. */
lathe_status lathe__jinja_strip(jinja_vm *vm, jinja_value self, jinja_value chars, int ends,
                                jinja_value *out);
lathe_status lathe__jinja_replace(jinja_vm *vm, jinja_string *s, jinja_string *old,
                                  jinja_string *with, int64_t count, jinja_value *out);

/* ---- jinja_case.c ---- */

enum { JINJA_LOWER, JINJA_UPPER, JINJA_CAPITALIZE, JINJA_TITLE, JINJA_TITLE_FILTER, JINJA_SWAP };
lathe_status lathe__jinja_case(jinja_vm *vm, jinja_value self, int how, jinja_value *out);
/** str.isalpha and so on; -1: no such method. */
int lathe__jinja_is_kind(const jinja_string *s, const char *name);
/** 1 when repr shows the character as it is. */
int lathe__jinja_is_printable(int32_t c);

/* ---- jinja_format.c: str.format and % ---- */

lathe_status lathe__jinja_format(jinja_vm *vm, const jinja_string *format, const jinja_args *args,
                                 jinja_value *out);
lathe_status lathe__jinja_percent(jinja_vm *vm, jinja_value format, jinja_value x,
                                  jinja_value *out);

/* ---- jinja_math.c ---- */

lathe_status lathe__jinja_math(jinja_vm *vm, int token, jinja_value a, jinja_value b,
                               jinja_value *out);

/* ---- jinja_filters.c, jinja_list_filters.c, jinja_tests.c ---- */

typedef lathe_status (*jinja_filter_fn)(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                        jinja_value *out);
typedef struct jinja_filter {
    const char *name;
    jinja_filter_fn run;
} jinja_filter;

/** 1 when there is a filter or test of this name. */
int lathe__jinja_has_filter(const char *name);
int lathe__jinja_has_test(const char *name);

extern const jinja_filter lathe__jinja_list_filters[]; /* ends with NULL */
lathe_status lathe__jinja_filter(jinja_vm *vm, const char *name, jinja_value x,
                                 const jinja_args *args, jinja_value *out);
lathe_status lathe__jinja_test(jinja_vm *vm, const char *name, jinja_value x,
                               const jinja_args *args, int *out);
lathe_status lathe__jinja_tojson(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out);

/** strftime of the C locale at `now`, in local time. */
lathe_status lathe__jinja_strftime(jinja_vm *vm, const jinja_string *format, jinja_value *out);

#endif
