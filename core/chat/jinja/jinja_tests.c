/* Implements Jinja's tests, such as "x is defined". */
#include <string.h>

#include "chat/jinja/jinja_vm.h"

/* Properties that a test without an argument checks; IS_NOTHING: the test has an argument. */
typedef enum jinja_is {
    IS_NOTHING,
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_SEQUENCE,
    IS_ITERABLE,
    IS_CALLABLE,
    IS_ESCAPED,
    IS_LOWER,
    IS_UPPER,
    IS_ODD,
    IS_EVEN
} jinja_is;

static const struct {
    const char *name;
    uint8_t is, cmp; /* cmp: JINJA_CMP_* for those with an argument; is = 0 then */
} tests[] = {
    {"defined", IS_DEFINED, 0},    {"undefined", IS_UNDEFINED, 0},
    {"none", IS_NONE, 0},          {"boolean", IS_BOOLEAN, 0},
    {"true", IS_TRUE, 0},          {"false", IS_FALSE, 0},
    {"integer", IS_INTEGER, 0},    {"float", IS_FLOAT, 0},
    {"number", IS_NUMBER, 0},      {"string", IS_STRING, 0},
    {"mapping", IS_MAPPING, 0},    {"sequence", IS_SEQUENCE, 0},
    {"iterable", IS_ITERABLE, 0},  {"callable", IS_CALLABLE, 0},
    {"escaped", IS_ESCAPED, 0},    {"lower", IS_LOWER, 0},
    {"upper", IS_UPPER, 0},        {"odd", IS_ODD, 0},
    {"even", IS_EVEN, 0},          {"in", 0, JINJA_CMP_IN},
    {"==", 0, JINJA_CMP_EQ},       {"eq", 0, JINJA_CMP_EQ},
    {"equalto", 0, JINJA_CMP_EQ},  {"!=", 0, JINJA_CMP_NE},
    {"ne", 0, JINJA_CMP_NE},       {">", 0, JINJA_CMP_GT},
    {"gt", 0, JINJA_CMP_GT},       {"greaterthan", 0, JINJA_CMP_GT},
    {">=", 0, JINJA_CMP_GE},       {"ge", 0, JINJA_CMP_GE},
    {"<", 0, JINJA_CMP_LT},        {"lt", 0, JINJA_CMP_LT},
    {"lessthan", 0, JINJA_CMP_LT}, {"<=", 0, JINJA_CMP_LE},
    {"le", 0, JINJA_CMP_LE},
};

enum { N_TESTS = sizeof tests / sizeof tests[0] };

static const char *const other_tests[] = {"divisibleby", "sameas", "filter", "test", NULL};

int lathe__jinja_has_test(const char *name)
{
    for (int i = 0; i < N_TESTS; i++)
        if (strcmp(name, tests[i].name) == 0)
            return 1;
    for (int i = 0; other_tests[i]; i++)
        if (strcmp(name, other_tests[i]) == 0)
            return 1;
    return 0;
}

static lathe_status is_parity(jinja_vm *vm, jinja_value x, int odd, int *out)
{
    if (x.type == JINJA_WIDE) {
        *out = (x.u.s->data[x.u.s->n - 1] - '0') % 2 == odd;
        return LATHE_OK;
    }
    if (!jinja_is_whole(x))
        return lathe__jinja_raise_type(vm, x, "odd or even");
    *out = (x.u.i % 2 != 0) == odd;
    return LATHE_OK;
}

static lathe_status is_in_case(jinja_vm *vm, jinja_value x, const char *method, int *out)
{
    LATHE_TRY(lathe__jinja_str(vm, x, &x));
    *out = lathe__jinja_is_kind(x.u.s, method);
    return lathe__jinja_charge(vm, x.u.s->n);
}

static lathe_status is_what(jinja_vm *vm, jinja_is what, jinja_value x, int *out)
{
    const int undefined = jinja_is_undefined(x);
    switch (what) {
    case IS_DEFINED:
    case IS_UNDEFINED:
        *out = undefined == (what == IS_UNDEFINED);
        return LATHE_OK;
    case IS_NONE:
        *out = x.type == JINJA_NONE;
        return LATHE_OK;
    case IS_BOOLEAN:
        *out = x.type == JINJA_BOOL;
        return LATHE_OK;
    case IS_TRUE:
    case IS_FALSE:
        *out = x.type == JINJA_BOOL && (x.u.i != 0) == (what == IS_TRUE);
        return LATHE_OK;
    case IS_INTEGER:
        *out = x.type == JINJA_INT || x.type == JINJA_WIDE;
        return LATHE_OK;
    case IS_FLOAT:
        *out = x.type == JINJA_FLOAT;
        return LATHE_OK;
    case IS_NUMBER:
        *out = jinja_is_number(x) || x.type == JINJA_WIDE;
        return LATHE_OK;
    case IS_STRING:
        *out = x.type == JINJA_STRING;
        return LATHE_OK;
    case IS_MAPPING:
        *out = x.type == JINJA_DICT;
        return LATHE_OK;
    case IS_SEQUENCE: /* what has a length and items; jinja2's undefined value has both */
        *out = undefined || x.type == JINJA_STRING || x.type == JINJA_DICT ||
               (x.type == JINJA_LIST && x.kind <= JINJA_SEQ_RANGE);
        return LATHE_OK;
    case IS_ITERABLE:
        *out = undefined || x.type == JINJA_STRING || x.type == JINJA_DICT ||
               x.type == JINJA_LIST || x.type == JINJA_LOOP;
        return LATHE_OK;
    case IS_CALLABLE:
        *out = undefined || x.type == JINJA_MACRO || x.type == JINJA_FUNCTION ||
               x.type == JINJA_METHOD || x.type == JINJA_LOOP;
        return LATHE_OK;
    case IS_ESCAPED:
        *out = x.type == JINJA_STRING && x.kind == JINJA_MARKUP;
        return LATHE_OK;
    case IS_LOWER:
    case IS_UPPER:
        return is_in_case(vm, x, what == IS_LOWER ? "islower" : "isupper", out);
    default:
        return is_parity(vm, x, what == IS_ODD, out);
    }
}

static lathe_status other_test(jinja_vm *vm, const char *name, jinja_value x, jinja_value y,
                               int *out)
{
    if (strcmp(name, "divisibleby") == 0) {
        LATHE_TRY(lathe__jinja_refuse_wide(vm, x, y));
        if (!jinja_is_whole(x) || !jinja_is_whole(y) || y.u.i == 0 || y.u.i == -1)
            return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                      "divisibleby compares two integers, the second not 0 or -1");
        *out = x.u.i % y.u.i == 0;
        return LATHE_OK;
    }
    if (strcmp(name, "sameas") == 0) {
        if (x.type > JINJA_BOOL || y.type > JINJA_BOOL || jinja_is_undefined(x))
            return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                      "sameas is supported for none, true and false only");
        *out = x.type == y.type && x.u.i == y.u.i;
        return LATHE_OK;
    }
    if (x.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, x, "the name of a filter or test");
    char text[40] = "";
    if (x.u.s->n < (int64_t)sizeof text)
        memcpy(text, x.u.s->data, (size_t)x.u.s->n);
    *out = name[0] == 'f' ? lathe__jinja_has_filter(text) : lathe__jinja_has_test(text);
    return LATHE_OK;
}

lathe_status lathe__jinja_test(jinja_vm *vm, const char *name, jinja_value x,
                               const jinja_args *args, int *out)
{
    static const char *const none[] = {NULL};
    static const char *const one[] = {".other", NULL};
    jinja_value other = jinja_none();
    int i = 0;
    while (i < N_TESTS && strcmp(name, tests[i].name) != 0)
        i++;
    if (i < N_TESTS && tests[i].is) {
        LATHE_TRY(lathe__jinja_bind(vm, name, args, none, 0, &other));
        return is_what(vm, (jinja_is)tests[i].is, x, out);
    }
    if (i == N_TESTS && !lathe__jinja_has_test(name))
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "the test '%s' is not supported", name);
    const int alone = i == N_TESTS && (name[0] == 'f' || name[0] == 't');
    LATHE_TRY(lathe__jinja_bind(vm, name, args, alone ? none : one, !alone, &other));
    return i < N_TESTS ? lathe__jinja_compare(vm, tests[i].cmp, x, other, out)
                       : other_test(vm, name, x, other, out);
}
