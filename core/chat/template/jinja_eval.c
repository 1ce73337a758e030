/* Evaluates expressions. */
#include <string.h>

#include "chat/template/jinja_lexer.h"
#include "chat/template/jinja_run.h"

static lathe_status eval_name(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    for (const jinja_scope *scope = vm->scope; scope; scope = scope->outer)
        for (int32_t i = scope->n - 1; i >= 0; i--)
            if (scope->list[i].id == node->id) {
                *out = scope->list[i].value;
                return lathe__jinja_charge(vm, 0);
            }
    const char *name = vm->names[node->id];
    if (!lathe__jinja_global(name, out))
        *out = jinja_undefined(JINJA_MISSING_NAME, name);
    return LATHE_OK;
}

static lathe_status eval_list(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    int64_t n = 0;
    for (const jinja_node *item = node->a; item; item = item->next)
        n++;
    LATHE_TRY(lathe__jinja_list(vm, node->op == JINJA_OP_LIST ? JINJA_SEQ_LIST : JINJA_SEQ_TUPLE, n,
                                out));
    jinja_value *to = out->u.list->items;
    for (const jinja_node *item = node->a; item; item = item->next)
        LATHE_TRY(lathe__jinja_eval(vm, item, to++));
    return LATHE_OK;
}

static lathe_status eval_dict(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    LATHE_TRY(lathe__jinja_dict(vm, JINJA_DICT, 0, out));
    for (const jinja_node *item = node->a; item; item = item->next) {
        jinja_value key, value;
        LATHE_TRY(lathe__jinja_eval(vm, item->a, &key));
        LATHE_TRY(lathe__jinja_eval(vm, item->b, &value));
        vm->at = &item->place;
        LATHE_TRY(lathe__jinja_dict_set(vm, out->u.dict, key, value));
    }
    return LATHE_OK;
}

static lathe_status eval_sign(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    LATHE_TRY(lathe__jinja_eval(vm, node->a, out));
    vm->at = &node->place;
    LATHE_TRY(lathe__jinja_refuse_wide(vm, *out, *out));
    if (!jinja_is_number(*out))
        return lathe__jinja_raise_type(vm, *out, "given a sign");
    return node->op == JINJA_OP_NEG
               ? lathe__jinja_math(vm, JINJA_SUB,
                                   out->type == JINJA_FLOAT ? jinja_float(-0.0) : jinja_int(0),
                                   *out, out)
               : lathe__jinja_math(vm, JINJA_ADD,
                                   out->type == JINJA_FLOAT ? jinja_float(-0.0) : jinja_int(0),
                                   *out, out);
}

static lathe_status eval_logic(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    LATHE_TRY(lathe__jinja_eval(vm, node->a, out));
    if (node->op == JINJA_OP_NOT) {
        *out = jinja_bool(!lathe__jinja_truth(*out));
        return LATHE_OK;
    }
    if (lathe__jinja_truth(*out) == (node->op == JINJA_OP_OR))
        return LATHE_OK;
    return lathe__jinja_eval(vm, node->b, out);
}

static lathe_status eval_math(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value a, b;
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &a));
    LATHE_TRY(lathe__jinja_eval(vm, node->b, &b));
    vm->at = &node->place;
    return lathe__jinja_math(vm, node->sub, a, b, out);
}

static lathe_status eval_concat(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value item = {0};
    LATHE_TRY(lathe__jinja_borrow(vm, "", 0, out));
    for (const jinja_node *child = node->a; child; child = child->next) {
        LATHE_TRY(lathe__jinja_eval(vm, child, &item));
        vm->at = &child->place;
        LATHE_TRY(lathe__jinja_str(vm, item, &item));
        if (child == node->a)
            *out = item;
        else
            LATHE_TRY(lathe__jinja_join2(vm, out->u.s, item.u.s, out));
        out->kind = 0;
    }
    return LATHE_OK;
}

/* a < b < c: compares the pairs in order, until one comparison is false. */
static lathe_status eval_compare(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value left, right;
    int holds = 1;
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &left));
    for (const jinja_node *operand = node->b; operand && holds; operand = operand->next) {
        LATHE_TRY(lathe__jinja_eval(vm, operand->a, &right));
        vm->at = &operand->place;
        LATHE_TRY(lathe__jinja_compare(vm, operand->sub, left, right, &holds));
        left = right;
    }
    *out = jinja_bool(holds);
    return LATHE_OK;
}

static lathe_status eval_cond(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value test = {0};
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &test));
    if (lathe__jinja_truth(test))
        return lathe__jinja_eval(vm, node->b, out);
    if (node->c)
        return lathe__jinja_eval(vm, node->c, out);
    *out = jinja_undefined(JINJA_MISSING_OTHER, "the condition does not hold and has no else");
    return LATHE_OK;
}

static lathe_status eval_getitem(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value x, key;
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &x));
    if (node->op == JINJA_OP_GETATTR) {
        vm->at = &node->place;
        return lathe__jinja_getattr(vm, x, node->text, out);
    }
    LATHE_TRY(lathe__jinja_eval(vm, node->b, &key));
    vm->at = &node->place;
    return lathe__jinja_getitem(vm, x, key, out);
}

static lathe_status eval_slice(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    const jinja_node *const parts[3] = {node->b, node->c, node->d};
    jinja_value x, bounds[3];
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &x));
    for (int i = 0; i < 3; i++) {
        bounds[i] = jinja_none();
        if (parts[i])
            LATHE_TRY(lathe__jinja_eval(vm, parts[i], &bounds[i]));
    }
    vm->at = &node->place;
    return lathe__jinja_slice(vm, x, bounds, out);
}

/* ---- calls, filters, tests ---- */

static lathe_status spread(jinja_vm *vm, const jinja_node *arg, jinja_value x, jinja_args *out)
{
    jinja_list items;
    vm->at = &arg->place;
    if (arg->sub == JINJA_ARG_STAR) {
        LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
        for (int64_t i = 0; i < items.n; i++)
            out->plain[out->n++] = items.items[i];
        return LATHE_OK;
    }
    for (int64_t i = 0; i < x.u.dict->n; i++) {
        const jinja_value key = x.u.dict->entries[i].key;
        if (key.type != JINJA_STRING)
            return lathe__jinja_raise_type(vm, key, "the name of an argument");
        if (key.u.s->n && memchr(key.u.s->data, 0, (size_t)key.u.s->n))
            return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                      "the name of an argument with a NUL in it");
        char *name = lathe__jinja_alloc(vm, key.u.s->n + 1);
        if (name == NULL)
            return lathe__jinja_failed(vm);
        if (key.u.s->n)
            memcpy(name, key.u.s->data, (size_t)key.u.s->n);
        name[key.u.s->n] = 0;
        out->names[out->n_named] = name;
        out->named[out->n_named++] = x.u.dict->entries[i].value;
    }
    return LATHE_OK;
}

/* Adds to *n the number of arguments that x stands for after * or **. */
static lathe_status spread_size(jinja_vm *vm, const jinja_node *arg, jinja_value x, int64_t *n)
{
    vm->at = &arg->place;
    if (arg->sub == JINJA_ARG_STAR && x.type == JINJA_LIST)
        *n += x.u.list->n - 1; /* x itself is counted */
    else if (arg->sub == JINJA_ARG_STAR_STAR && x.type == JINJA_DICT)
        *n += x.u.dict->n - 1;
    else
        return lathe__jinja_raise_type(vm, x, "spread over arguments");
    return LATHE_OK;
}

lathe_status lathe__jinja_eval_args(jinja_vm *vm, const jinja_node *list, jinja_args *out)
{
    int64_t n = 0, k = 0;
    memset(out, 0, sizeof *out);
    for (const jinja_node *arg = list; arg; arg = arg->next)
        n++;
    if (n == 0)
        return LATHE_OK;
    jinja_value *values = lathe__jinja_alloc(vm, n * (int64_t)sizeof *values);
    if (values == NULL)
        return lathe__jinja_failed(vm);
    for (const jinja_node *arg = list; arg; arg = arg->next, k++) {
        LATHE_TRY(lathe__jinja_eval(vm, arg->a, &values[k]));
        if (arg->sub >= JINJA_ARG_STAR)
            LATHE_TRY(spread_size(vm, arg, values[k], &n));
    }
    if (n > 1000)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "a call with more than 1000 arguments");
    out->plain = lathe__jinja_alloc(vm, n * (int64_t)sizeof *out->plain);
    out->named = lathe__jinja_alloc(vm, n * (int64_t)sizeof *out->named);
    out->names = lathe__jinja_alloc(vm, n * (int64_t)sizeof *out->names);
    if (out->plain == NULL || out->named == NULL || out->names == NULL)
        return lathe__jinja_failed(vm);
    k = 0;
    for (const jinja_node *arg = list; arg; arg = arg->next, k++) {
        if (arg->sub == JINJA_ARG_PLAIN) {
            out->plain[out->n++] = values[k];
        } else if (arg->sub == JINJA_ARG_KEYWORD) {
            out->names[out->n_named] = arg->text;
            out->named[out->n_named++] = values[k];
        } else {
            LATHE_TRY(spread(vm, arg, values[k], out));
        }
    }
    return LATHE_OK;
}

static lathe_status eval_call(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value callee = {0};
    jinja_args args;
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &callee));
    LATHE_TRY(lathe__jinja_eval_args(vm, node->b, &args));
    vm->at = &node->a->place;
    return lathe__jinja_call(vm, callee, &args, out);
}

static lathe_status eval_filter(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value x = {0};
    jinja_args args;
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &x));
    LATHE_TRY(lathe__jinja_eval_args(vm, node->b, &args));
    vm->at = &node->place;
    return lathe__jinja_filter(vm, node->text, x, &args, out);
}

lathe_status lathe__jinja_eval_filters(jinja_vm *vm, const jinja_node *filter, jinja_value x,
                                       jinja_value *out)
{
    jinja_args args;
    if (filter == NULL) {
        *out = x;
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_enter(vm));
    LATHE_TRY(lathe__jinja_eval_filters(vm, filter->a, x, &x));
    LATHE_TRY(lathe__jinja_eval_args(vm, filter->b, &args));
    vm->at = &filter->place;
    LATHE_TRY(lathe__jinja_filter(vm, filter->text, x, &args, out));
    vm->depth--;
    return LATHE_OK;
}

static lathe_status eval_test(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_value x = {0};
    jinja_args args;
    int holds;
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &x));
    LATHE_TRY(lathe__jinja_eval_args(vm, node->b, &args));
    vm->at = &node->place;
    LATHE_TRY(lathe__jinja_test(vm, node->text, x, &args, &holds));
    *out = jinja_bool(holds);
    return LATHE_OK;
}

static lathe_status eval_any(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    switch (node->op) {
    case JINJA_OP_NAME:
        return eval_name(vm, node, out);
    case JINJA_OP_LIST:
    case JINJA_OP_TUPLE:
        return eval_list(vm, node, out);
    case JINJA_OP_DICT:
        return eval_dict(vm, node, out);
    case JINJA_OP_NEG:
    case JINJA_OP_POS:
        return eval_sign(vm, node, out);
    case JINJA_OP_NOT:
    case JINJA_OP_AND:
    case JINJA_OP_OR:
        return eval_logic(vm, node, out);
    case JINJA_OP_MATH:
        return eval_math(vm, node, out);
    case JINJA_OP_CONCAT:
        return eval_concat(vm, node, out);
    case JINJA_OP_COMPARE:
        return eval_compare(vm, node, out);
    case JINJA_OP_COND:
        return eval_cond(vm, node, out);
    case JINJA_OP_GETATTR:
    case JINJA_OP_GETITEM:
        return eval_getitem(vm, node, out);
    case JINJA_OP_SLICE:
        return eval_slice(vm, node, out);
    case JINJA_OP_CALL:
        return eval_call(vm, node, out);
    case JINJA_OP_FILTER:
        return eval_filter(vm, node, out);
    case JINJA_OP_TEST:
        return eval_test(vm, node, out);
    default:
        vm->at = &node->place;
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "this is no expression");
    }
}

lathe_status lathe__jinja_eval(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    if (node->op == JINJA_OP_CONST) {
        *out = node->value;
        return LATHE_OK;
    }
    vm->at = &node->place;
    LATHE_TRY(lathe__jinja_enter(vm));
    LATHE_TRY(eval_any(vm, node, out));
    vm->depth--;
    return LATHE_OK;
}
