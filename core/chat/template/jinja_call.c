/* Calls of macros and of global functions: Jinja's, and those that transformers adds. */
#include <string.h>

#include "base/error.h"
#include "chat/template/jinja_run.h"

enum { FN_RANGE, FN_NAMESPACE, FN_DICT, FN_RAISE, FN_NOW, FN_CYCLER, FN_JOINER, FN_LIPSUM };

static const char *const globals[] = {
    [FN_RANGE] = "range",           [FN_NAMESPACE] = "namespace", [FN_DICT] = "dict",
    [FN_RAISE] = "raise_exception", [FN_NOW] = "strftime_now",    [FN_CYCLER] = "cycler",
    [FN_JOINER] = "joiner",         [FN_LIPSUM] = "lipsum"};

int lathe__jinja_global(const char *name, jinja_value *out)
{
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++)
        if (strcmp(name, globals[i]) == 0) {
            *out = (jinja_value){.type = JINJA_FUNCTION, .kind = (uint8_t)i};
            return 1;
        }
    return 0;
}

/* ---- functions ---- */

static lathe_status fn_range(jinja_vm *vm, const jinja_args *args, jinja_value *out)
{
    static const char *const params[] = {".start", ".stop", ".step", NULL};
    enum { MAX = 100000 }; /* MAX_RANGE of Jinja's sandbox */
    jinja_value given[] = {jinja_int(0), jinja_none(), jinja_int(1)};
    LATHE_TRY(lathe__jinja_bind(vm, "range", args, params, 1, given));
    if (given[1].type == JINJA_NONE && args->n == 1) {
        given[1] = given[0];
        given[0] = jinja_int(0);
    }
    for (int i = 0; i < 3; i++)
        if (!jinja_is_whole(given[i]))
            return lathe__jinja_raise_type(vm, given[i], "an argument of range");
    const int64_t start = given[0].u.i, stop = given[1].u.i, step = given[2].u.i;
    if (step == 0)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the step of range is 0");
    const uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t span = step > 0 ? (stop > start ? (uint64_t)stop - (uint64_t)start : 0)
                                   : (start > stop ? (uint64_t)start - (uint64_t)stop : 0);
    const uint64_t n = span / stride + (span % stride != 0);
    if (n > MAX)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the range has more than %d numbers", MAX);
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_RANGE, (int64_t)n, out));
    for (int64_t i = 0; i < (int64_t)n; i++)
        out->u.list->items[i] = /* unsigned: i * step may be above INT64_MAX */
            jinja_int((int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)step));
    return LATHE_OK;
}

static lathe_status add_pairs(jinja_vm *vm, jinja_value from, jinja_dict *to)
{
    jinja_list items;
    if (from.type == JINJA_DICT) {
        for (int64_t i = 0; i < from.u.dict->n; i++)
            LATHE_TRY(lathe__jinja_dict_set(vm, to, from.u.dict->entries[i].key,
                                            from.u.dict->entries[i].value));
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_iterate(vm, from, &items));
    for (int64_t i = 0; i < items.n; i++) {
        jinja_list pair;
        LATHE_TRY(lathe__jinja_iterate(vm, items.items[i], &pair));
        if (pair.n != 2)
            return lathe__jinja_raise(
                vm, LATHE_E_CONFIG, "a mapping is made from pairs, but item %lld has %lld members",
                (long long)i, (long long)pair.n);
        LATHE_TRY(lathe__jinja_dict_set(vm, to, pair.items[0], pair.items[1]));
    }
    return LATHE_OK;
}

/* dict(...) and namespace(...). */
static lathe_status fn_mapping(jinja_vm *vm, int type, const jinja_args *args, jinja_value *out)
{
    LATHE_TRY(lathe__jinja_dict(vm, type, args->n_named, out));
    if (args->n > 1)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                  "a mapping takes at most one argument without a name");
    if (args->n == 1)
        LATHE_TRY(add_pairs(vm, args->plain[0], out->u.dict));
    for (int32_t i = 0; i < args->n_named; i++) {
        jinja_value key = {0};
        LATHE_TRY(lathe__jinja_borrow(vm, args->names[i], (int64_t)strlen(args->names[i]), &key));
        LATHE_TRY(lathe__jinja_dict_set(vm, out->u.dict, key, args->named[i]));
    }
    for (int64_t i = 0; type == JINJA_NAMESPACE && i < out->u.dict->n; i++) {
        const jinja_value key = out->u.dict->entries[i].key;
        if (key.type == JINJA_STRING && key.u.s->n && key.u.s->data[0] == '_')
            return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                      "a namespace takes no name that begins with '_'");
    }
    return LATHE_OK;
}

static lathe_status fn_raise(jinja_vm *vm, const jinja_args *args)
{
    static const char *const params[] = {"message", NULL};
    jinja_value message = {0};
    LATHE_TRY(lathe__jinja_bind(vm, "raise_exception", args, params, 1, &message));
    LATHE_TRY(lathe__jinja_str(vm, message, &message));
    const int64_t n = message.u.s->n < 500 ? message.u.s->n : 500;
    return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the template refuses: %.*s", (int)n,
                              message.u.s->data);
}

static lathe_status fn_now(jinja_vm *vm, const jinja_args *args, jinja_value *out)
{
    static const char *const params[] = {"format", NULL};
    jinja_value format = {0};
    LATHE_TRY(lathe__jinja_bind(vm, "strftime_now", args, params, 1, &format));
    if (format.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, format, "the format of a date");
    return lathe__jinja_strftime(vm, format.u.s, out);
}

static lathe_status call_function(jinja_vm *vm, int which, const jinja_args *args, jinja_value *out)
{
    switch (which) {
    case FN_RANGE:
        return fn_range(vm, args, out);
    case FN_NAMESPACE:
        return fn_mapping(vm, JINJA_NAMESPACE, args, out);
    case FN_DICT:
        return fn_mapping(vm, JINJA_DICT, args, out);
    case FN_RAISE:
        return fn_raise(vm, args);
    case FN_NOW:
        return fn_now(vm, args, out);
    default:
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "the function '%s' is not supported",
                                  globals[which]);
    }
}

/* ---- macros ---- */

/* Binds the arguments beyond the parameters to varargs and kwargs if the macro uses these;
 * otherwise they are an error. */
static lathe_status bind_rest(jinja_vm *vm, const jinja_node *node, const jinja_args *args,
                              int32_t n_params, const uint8_t *taken)
{
    jinja_value rest = {0};
    const char *name = vm->names[node->id];
    if (node->sub & JINJA_CATCH_ARGS) {
        const int32_t n = args->n > n_params ? args->n - n_params : 0;
        LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_TUPLE, n, &rest));
        if (n)
            memcpy(rest.u.list->items, args->plain + n_params, (size_t)n * sizeof *args->plain);
        LATHE_TRY(lathe__jinja_set(vm, JINJA_ID_VARARGS, rest));
    } else if (args->n > n_params) {
        return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                  "the macro '%s' takes at most %d arguments, %d are given", name,
                                  n_params, args->n);
    }
    LATHE_TRY(lathe__jinja_dict(vm, JINJA_DICT, args->n_named, &rest));
    for (int32_t k = 0; k < args->n_named; k++) {
        jinja_value key = {0};
        if (taken[k])
            continue;
        if (strcmp(args->names[k], "caller") == 0 && node->sub & JINJA_CATCH_CALLER) {
            LATHE_TRY(lathe__jinja_set(vm, JINJA_ID_CALLER, args->named[k]));
            continue;
        }
        if (!(node->sub & JINJA_CATCH_KEYWORDS))
            return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the macro '%s' takes no argument '%s'",
                                      name, args->names[k]);
        LATHE_TRY(lathe__jinja_borrow(vm, args->names[k], (int64_t)strlen(args->names[k]), &key));
        LATHE_TRY(lathe__jinja_dict_set(vm, rest.u.dict, key, args->named[k]));
    }
    return node->sub & JINJA_CATCH_KEYWORDS ? lathe__jinja_set(vm, JINJA_ID_KWARGS, rest)
                                            : LATHE_OK;
}

/* Sets each parameter in the macro's scope: from the argument at its position, the argument with
 * its name, or its default. */
static lathe_status bind_macro(jinja_vm *vm, const jinja_node *node, const jinja_args *args)
{
    int32_t i = 0;
    uint8_t *taken = lathe__jinja_alloc(vm, args->n_named + 1);
    if (taken == NULL)
        return lathe__jinja_failed(vm);
    memset(taken, 0, (size_t)args->n_named + 1);
    if (node->sub & JINJA_CATCH_CALLER)
        LATHE_TRY(lathe__jinja_set(vm, JINJA_ID_CALLER,
                                   jinja_undefined(JINJA_MISSING_OTHER, "no caller is defined")));
    for (const jinja_node *param = node->a; param; param = param->next, i++) {
        const char *name = vm->names[param->id];
        jinja_value value = jinja_undefined(JINJA_MISSING_NAME, name);
        int32_t k = 0;
        while (k < args->n_named && strcmp(args->names[k], name) != 0)
            k++;
        if (i < args->n) {
            value = args->plain[i];
        } else if (k < args->n_named) {
            value = args->named[k];
            taken[k] = 1;
        } else if (param->a) {
            LATHE_TRY(lathe__jinja_eval(vm, param->a, &value));
        }
        LATHE_TRY(lathe__jinja_set(vm, param->id, value));
    }
    return bind_rest(vm, node, args, i, taken);
}

static lathe_status call_macro(jinja_vm *vm, const jinja_macro *macro, const jinja_args *args,
                               jinja_value *out)
{
    jinja_scope *outer = vm->scope;
    LATHE_TRY(lathe__jinja_push_scope(vm, macro->scope));
    LATHE_TRY(bind_macro(vm, macro->node, args));
    LATHE_TRY(lathe__jinja_capture(vm, macro->node->d, out));
    vm->scope = outer;
    return LATHE_OK;
}

lathe_status lathe__jinja_call(jinja_vm *vm, jinja_value callee, const jinja_args *args,
                               jinja_value *out)
{
    switch (callee.type) {
    case JINJA_FUNCTION:
        return call_function(vm, callee.kind, args, out);
    case JINJA_METHOD:
        return lathe__jinja_call_method(vm, callee.u.method, args, out);
    case JINJA_MACRO:
        return call_macro(vm, callee.u.macro, args, out);
    default:
        return lathe__jinja_raise_type(vm, callee, "called");
    }
}
