/* The filters on text and numbers, and the table of all filters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja/jinja_vm.h"

static const char *const no_params[] = {NULL};

/* ---- text ---- */

static lathe_status filter_trim(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                jinja_value *out)
{
    static const char *const params[] = {"chars", NULL};
    jinja_value chars = jinja_none();
    LATHE_TRY(lathe__jinja_bind(vm, "trim", args, params, 0, &chars));
    LATHE_TRY(lathe__jinja_str(vm, x, &x));
    return lathe__jinja_strip(vm, x, chars, 3, out);
}

static lathe_status in_case(jinja_vm *vm, jinja_value x, const jinja_args *args, int how,
                            jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "a filter of the case", args, no_params, 0, out));
    LATHE_TRY(lathe__jinja_str(vm, x, &x));
    return lathe__jinja_case(vm, x, how, out);
}

static lathe_status filter_upper(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    return in_case(vm, x, args, JINJA_UPPER, out);
}

static lathe_status filter_lower(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    return in_case(vm, x, args, JINJA_LOWER, out);
}

static lathe_status filter_capitalize(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                      jinja_value *out)
{
    return in_case(vm, x, args, JINJA_CAPITALIZE, out);
}

static lathe_status filter_title(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    return in_case(vm, x, args, JINJA_TITLE_FILTER, out);
}

static lathe_status filter_string(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "string", args, no_params, 0, out));
    return lathe__jinja_str(vm, x, out);
}

static lathe_status filter_safe(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "safe", args, no_params, 0, out));
    LATHE_TRY(lathe__jinja_str(vm, x, out));
    out->kind = JINJA_MARKUP;
    return LATHE_OK;
}

static lathe_status filter_escape(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "escape", args, no_params, 0, out));
    return lathe__jinja_escape(vm, x, out);
}

static lathe_status filter_replace(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                   jinja_value *out)
{
    static const char *const params[] = {"old", "new", "count", NULL};
    jinja_value given[] = {jinja_none(), jinja_none(), jinja_none()};
    LATHE_TRY(lathe__jinja_bind(vm, "replace", args, params, 2, given));
    if (given[2].type == JINJA_NONE)
        given[2] = jinja_int(-1);
    if (!jinja_is_whole(given[2]))
        return lathe__jinja_raise_type(vm, given[2], "the count of replace");
    LATHE_TRY(lathe__jinja_str(vm, x, &x));
    LATHE_TRY(lathe__jinja_str(vm, given[0], &given[0]));
    LATHE_TRY(lathe__jinja_str(vm, given[1], &given[1]));
    return lathe__jinja_replace(vm, x.u.s, given[0].u.s, given[1].u.s, given[2].u.i, out);
}

static lathe_status filter_center(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    static const char *const params[] = {"width", NULL};
    jinja_value width = jinja_int(80);
    LATHE_TRY(lathe__jinja_bind(vm, "center", args, params, 0, &width));
    LATHE_TRY(lathe__jinja_str(vm, x, &x));
    const jinja_args given = {&width, 1, NULL, NULL, 0};
    return lathe__jinja_string_method(vm, "center", x, &given, out);
}

static lathe_status indent_lines(jinja_vm *vm, const jinja_list *lines, const jinja_string *indent,
                                 int blank, int first, jinja_value *out)
{
    jinja_text text = {NULL, 0, 0};
    for (int64_t i = 0; i < lines->n; i++) {
        const jinja_string *line = lines->items[i].u.s;
        if (i)
            LATHE_TRY(lathe__jinja_put(vm, &text, "\n", 1));
        if (i ? blank || line->n : first)
            LATHE_TRY(lathe__jinja_put(vm, &text, indent->data, indent->n));
        LATHE_TRY(lathe__jinja_put(vm, &text, line->data, line->n));
    }
    return lathe__jinja_take(vm, &text, out);
}

static lathe_status filter_indent(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    static const char *const params[] = {"width", "first", "blank", NULL};
    jinja_value given[] = {jinja_int(4), jinja_bool(0), jinja_bool(0)}, lines, newline;
    jinja_text blanks = {NULL, 0, 0};
    const jinja_args none = {NULL, 0, NULL, NULL, 0};
    LATHE_TRY(lathe__jinja_bind(vm, "indent", args, params, 0, given));
    if (x.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, x, "indented");
    if (given[0].type != JINJA_STRING) {
        if (!jinja_is_whole(given[0]))
            return lathe__jinja_raise_type(vm, given[0], "the width of indent");
        for (int64_t i = 0; i < given[0].u.i; i++)
            LATHE_TRY(lathe__jinja_put(vm, &blanks, " ", 1));
        LATHE_TRY(lathe__jinja_take(vm, &blanks, &given[0]));
    }
    LATHE_TRY(lathe__jinja_borrow(vm, "\n", 1, &newline));
    LATHE_TRY(lathe__jinja_join2(vm, x.u.s, newline.u.s, &newline));
    LATHE_TRY(lathe__jinja_string_method(vm, "splitlines", newline, &none, &lines));
    return indent_lines(vm, lines.u.list, given[0].u.s, lathe__jinja_truth(given[2]),
                        lathe__jinja_truth(given[1]), out);
}

static lathe_status filter_wordcount(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                     jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "wordcount", args, no_params, 0, out));
    LATHE_TRY(lathe__jinja_str(vm, x, &x));
    int64_t n = 0, in_word = 0;
    for (int64_t i = 0; i < x.u.s->n; i++) { /* words of \w: letters, digits and _ */
        const char c = x.u.s->data[i];
        const int is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                            (c >= 'A' && c <= 'Z') || c == '_' || ((unsigned char)c & 0x80);
        n += is_word && !in_word;
        in_word = is_word;
    }
    *out = jinja_int(n);
    return lathe__jinja_charge(vm, x.u.s->n);
}

static lathe_status filter_format(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    jinja_value values = {0};
    if (args->n_named)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "format with named values");
    LATHE_TRY(lathe__jinja_str(vm, x, &x));
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_TUPLE, args->n, &values));
    if (args->n)
        memcpy(values.u.list->items, args->plain, (size_t)args->n * sizeof *args->plain);
    return lathe__jinja_percent(vm, x, values, out);
}

/* ---- numbers ---- */

/* A number from the text of a string, blanks and single underscores allowed; 0: there is none. */
static int read_number(const jinja_string *s, int base, int whole, jinja_value *out)
{
    char text[64], *end;
    int64_t begin = 0, stop = s->n, n = 0;
    while (begin < stop && lathe__jinja_is_space(s->data[begin]))
        begin++;
    while (stop > begin && lathe__jinja_is_space(s->data[stop - 1]))
        stop--;
    for (int64_t i = begin; i < stop; i++) {
        if (s->data[i] == '_' && i > begin && i + 1 < stop && s->data[i - 1] != '_')
            continue;
        if (n + 1 == (int64_t)sizeof text || (signed char)s->data[i] <= ' ')
            return 0;
        text[n++] = s->data[i];
    }
    text[n] = 0;
    if (n == 0 || (base == 10 && strpbrk(text, "xXpP")))
        return 0;
    *out = whole ? jinja_int(strtoll(text, &end, base)) : jinja_float(strtod(text, &end));
    return *end == 0;
}

static lathe_status float_to_int(jinja_vm *vm, double x, jinja_value fallback, jinja_value *out)
{
    if (isnan(x) || isinf(x)) {
        *out = fallback;
        return LATHE_OK;
    }
    if (!(x > -9.2e18 && x < 9.2e18))
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "an integer beyond 64 bits");
    *out = jinja_int((int64_t)x);
    return LATHE_OK;
}

static lathe_status filter_int(jinja_vm *vm, jinja_value x, const jinja_args *args,
                               jinja_value *out)
{
    static const char *const params[] = {"default", "base", NULL};
    jinja_value given[] = {jinja_int(0), jinja_int(10)};
    LATHE_TRY(lathe__jinja_bind(vm, "int", args, params, 0, given));
    if (jinja_is_undefined(x))
        return lathe__jinja_raise_undefined(vm, x);
    *out = given[0];
    if (x.type == JINJA_WIDE)
        *out = x;
    else if (jinja_is_whole(x))
        *out = jinja_int(x.u.i);
    else if (x.type == JINJA_FLOAT)
        return float_to_int(vm, x.u.f, given[0], out);
    if (x.type != JINJA_STRING)
        return LATHE_OK;
    if (!jinja_is_whole(given[1]) || given[1].u.i < 2 || given[1].u.i > 36)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "the base of int is not 2 to 36");
    if (read_number(x.u.s, (int)given[1].u.i, 1, out))
        return LATHE_OK;
    if (read_number(x.u.s, 10, 0, out))
        return float_to_int(vm, out->u.f, given[0], out);
    *out = given[0];
    return LATHE_OK;
}

static lathe_status filter_float(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    static const char *const params[] = {"default", NULL};
    jinja_value given = jinja_float(0.0);
    LATHE_TRY(lathe__jinja_bind(vm, "float", args, params, 0, &given));
    if (jinja_is_undefined(x))
        return lathe__jinja_raise_undefined(vm, x);
    if (x.type == JINJA_WIDE) /* the digits end with a NUL, as the JSON tree has them */
        *out = jinja_float(strtod(x.u.s->data, NULL));
    else if (jinja_is_number(x))
        *out = jinja_float(jinja_number(x));
    else if (x.type != JINJA_STRING || !read_number(x.u.s, 10, 0, out))
        *out = given;
    return LATHE_OK;
}

static lathe_status filter_abs(jinja_vm *vm, jinja_value x, const jinja_args *args,
                               jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "abs", args, no_params, 0, out));
    LATHE_TRY(lathe__jinja_refuse_wide(vm, x, x));
    if (!jinja_is_number(x))
        return lathe__jinja_raise_type(vm, x, "made positive by abs");
    if (x.type == JINJA_FLOAT)
        *out = jinja_float(fabs(x.u.f));
    else
        *out = jinja_int(x.u.i == INT64_MIN ? INT64_MAX : x.u.i < 0 ? -x.u.i : x.u.i);
    return LATHE_OK;
}

static lathe_status filter_round(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    static const char *const params[] = {"precision", "method", NULL};
    jinja_value given[] = {jinja_int(0), jinja_none()};
    char text[400];
    LATHE_TRY(lathe__jinja_bind(vm, "round", args, params, 0, given));
    if (x.type != JINJA_WIDE && !jinja_is_number(x))
        return lathe__jinja_raise_type(vm, x, "rounded");
    if (!jinja_is_whole(given[0]) || given[0].u.i < 0 || given[0].u.i > 20)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "the precision of round is not 0 to 20");
    const int is_common =
        given[1].type == JINJA_NONE || (given[1].type == JINJA_STRING && given[1].u.s->n == 6 &&
                                        memcmp(given[1].u.s->data, "common", 6) == 0);
    if (is_common && x.type != JINJA_FLOAT) {
        *out = x.type == JINJA_WIDE ? x : jinja_int(x.u.i);
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_refuse_wide(vm, x, x));
    if (is_common) {
        (void)snprintf(text, sizeof text, "%.*f", (int)given[0].u.i, x.u.f);
        *out = jinja_float(strtod(text, NULL));
        return LATHE_OK;
    }
    const int is_ceil = given[1].type == JINJA_STRING && given[1].u.s->n == 4 &&
                        memcmp(given[1].u.s->data, "ceil", 4) == 0;
    if (!is_ceil && (given[1].type != JINJA_STRING || given[1].u.s->n != 5 ||
                     memcmp(given[1].u.s->data, "floor", 5) != 0))
        return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                  "the method of round is none of common, ceil and floor");
    const double scale = pow(10.0, (double)given[0].u.i), scaled = jinja_number(x) * scale;
    *out = jinja_float((is_ceil ? ceil(scaled) : floor(scaled)) / scale);
    return LATHE_OK;
}

/* ---- any value ---- */

static lathe_status filter_default(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                   jinja_value *out)
{
    static const char *const params[] = {"default_value", "boolean", NULL};
    jinja_value given[] = {jinja_none(), jinja_bool(0)};
    LATHE_TRY(lathe__jinja_borrow(vm, "", 0, &given[0]));
    LATHE_TRY(lathe__jinja_bind(vm, "default", args, params, 0, given));
    const int takes =
        jinja_is_undefined(x) || (lathe__jinja_truth(given[1]) && !lathe__jinja_truth(x));
    *out = takes ? given[0] : x;
    return LATHE_OK;
}

static lathe_status filter_length(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "length", args, no_params, 0, out));
    if (x.type == JINJA_UNDEFINED)
        *out = jinja_int(0);
    else if (x.type == JINJA_STRING)
        *out = jinja_int(lathe__jinja_chars(x.u.s));
    else if (x.type == JINJA_LIST && x.kind != JINJA_SEQ_GENERATOR)
        *out = jinja_int(x.u.list->n);
    else if (x.type == JINJA_DICT)
        *out = jinja_int(x.u.dict->n);
    else
        return lathe__jinja_raise_type(vm, x, "counted by length");
    return LATHE_OK;
}

static lathe_status filter_attr(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                jinja_value *out)
{
    static const char *const params[] = {"name", NULL};
    jinja_value name = {0};
    LATHE_TRY(lathe__jinja_bind(vm, "attr", args, params, 1, &name));
    if (name.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, name, "the name of an attribute");
    if (x.type == JINJA_NAMESPACE)
        return lathe__jinja_getitem(vm, x, name, out);
    return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "attr on anything but a namespace");
}

static const jinja_filter filters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"float", filter_float},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"length", filter_length},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", lathe__jinja_tojson},
    {"trim", filter_trim},
    {"upper", filter_upper},
    {"wordcount", filter_wordcount},
    {NULL, NULL},
};

static jinja_filter_fn find_filter(const char *name)
{
    const jinja_filter *const tables[] = {filters, lathe__jinja_list_filters};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const jinja_filter *f = tables[t]; f->name; f++)
            if (strcmp(name, f->name) == 0)
                return f->run;
    return NULL;
}

int lathe__jinja_has_filter(const char *name)
{
    return find_filter(name) != NULL;
}

lathe_status lathe__jinja_filter(jinja_vm *vm, const char *name, jinja_value x,
                                 const jinja_args *args, jinja_value *out)
{
    const jinja_filter_fn run = find_filter(name);
    if (run == NULL)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "the filter '%s' is not supported",
                                  name);
    LATHE_TRY(lathe__jinja_enter(vm));
    LATHE_TRY(run(vm, x, args, out));
    vm->depth--;
    return LATHE_OK;
}
