/* The for loop and the variable `loop`. */
#include <string.h>

#include "chat/template/jinja_run.h"

typedef struct for_loop {
    jinja_loop base;        /* first: what `loop` points to */
    jinja_list items;       /* what the loop goes over, before its test */
    const jinja_node *node; /* the for */
    jinja_scope *scope;     /* around the loop */
    int64_t next;           /* index of the next item that the test has not seen */
    int64_t index0;
    jinja_value previous, current, following;
    int32_t has_previous, has_following, ended;
} for_loop;

/* Gives the target its values from x: one, or one for each of its names. */
static lathe_status assign(jinja_vm *vm, const jinja_node *target, jinja_value x)
{
    vm->at = &target->place;
    if (target->op == JINJA_OP_NAME)
        return lathe__jinja_set(vm, target->id, x);
    if (target->op == JINJA_OP_NSREF)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                  "a loop over an attribute of a namespace");
    return lathe__jinja_unpack(vm, target, x, assign);
}

/* The next item that passes the loop's test. The test sees no `loop`. */
static lathe_status next_item(jinja_vm *vm, for_loop *loop, jinja_value *out, int *found)
{
    jinja_scope *outer = vm->scope;
    *found = 0;
    while (!*found && loop->next < loop->items.n) {
        jinja_value test = {0};
        *out = loop->items.items[loop->next++];
        *found = 1;
        if (loop->node->c == NULL)
            break;
        LATHE_TRY(lathe__jinja_push_scope(vm, loop->scope));
        LATHE_TRY(assign(vm, loop->node->a, *out));
        LATHE_TRY(lathe__jinja_eval(vm, loop->node->c, &test));
        *found = lathe__jinja_truth(test);
        vm->scope = outer;
    }
    return LATHE_OK;
}

/* Looks for the item after the current one, once. */
static lathe_status peek(jinja_vm *vm, for_loop *loop)
{
    if (loop->has_following || loop->ended)
        return LATHE_OK;
    LATHE_TRY(next_item(vm, loop, &loop->following, &loop->has_following));
    loop->ended = !loop->has_following;
    return LATHE_OK;
}

/* All items that are left pass their test now, as list() makes them in jinja2. */
static lathe_status loop_length(jinja_vm *vm, for_loop *loop, int64_t *out)
{
    if (loop->node->c) {
        jinja_value rest, item;
        int found = 1;
        LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_LIST, 0, &rest));
        while (found) {
            LATHE_TRY(next_item(vm, loop, &item, &found));
            if (found)
                LATHE_TRY(lathe__jinja_append(vm, rest.u.list, item));
        }
        loop->items = *rest.u.list;
        loop->next = 0;
        static const jinja_node no_test;
        loop->node = &no_test; /* its test is done */
    }
    *out = loop->index0 + 1 + loop->has_following + loop->items.n - loop->next;
    return LATHE_OK;
}

static lathe_status loop_attr(jinja_vm *vm, jinja_loop *base, const char *name, jinja_value *out)
{
    for_loop *loop = (for_loop *)(void *)base;
    int64_t length;
    if (strcmp(name, "index0") == 0 || strcmp(name, "index") == 0) {
        *out = jinja_int(loop->index0 + (name[5] == 0));
    } else if (strcmp(name, "first") == 0) {
        *out = jinja_bool(loop->index0 == 0);
    } else if (strcmp(name, "last") == 0) {
        LATHE_TRY(peek(vm, loop));
        *out = jinja_bool(!loop->has_following);
    } else if (strcmp(name, "previtem") == 0) {
        *out = loop->has_previous
                   ? loop->previous
                   : jinja_undefined(JINJA_MISSING_OTHER, "the item before the first");
    } else if (strcmp(name, "nextitem") == 0) {
        LATHE_TRY(peek(vm, loop));
        *out = loop->has_following
                   ? loop->following
                   : jinja_undefined(JINJA_MISSING_OTHER, "the item after the last");
    } else if (strcmp(name, "length") == 0) {
        LATHE_TRY(loop_length(vm, loop, &length));
        *out = jinja_int(length);
    } else if (strcmp(name, "revindex") == 0 || strcmp(name, "revindex0") == 0) {
        LATHE_TRY(loop_length(vm, loop, &length));
        *out = jinja_int(length - loop->index0 - (name[8] == '0'));
    } else if (strcmp(name, "depth") == 0 || strcmp(name, "depth0") == 0) {
        *out = jinja_int(name[5] == 0);
    } else {
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "loop.%s is not supported", name);
    }
    return LATHE_OK;
}

/* One turn: the target's variables and `loop` in a scope of their own. */
static lathe_status one_turn(jinja_vm *vm, const jinja_node *node, for_loop *loop)
{
    LATHE_TRY(lathe__jinja_push_scope(vm, loop->scope));
    LATHE_TRY(lathe__jinja_set(vm, JINJA_ID_LOOP,
                               (jinja_value){.type = JINJA_LOOP, .u.loop = &loop->base}));
    LATHE_TRY(assign(vm, node->a, loop->current));
    LATHE_TRY(lathe__jinja_run(vm, node->d));
    vm->scope = loop->scope;
    return LATHE_OK;
}

lathe_status lathe__jinja_for(jinja_vm *vm, const jinja_node *node)
{
    jinja_value x = {0};
    for_loop *loop = lathe__jinja_alloc(vm, (int64_t)sizeof *loop);
    if (loop == NULL)
        return lathe__jinja_failed(vm);
    memset(loop, 0, sizeof *loop);
    loop->base.attr = loop_attr;
    loop->node = node;
    loop->scope = vm->scope;
    loop->index0 = -1;
    LATHE_TRY(lathe__jinja_eval(vm, node->b, &x));
    vm->at = &node->b->place;
    LATHE_TRY(lathe__jinja_iterate(vm, x, &loop->items));
    for (;;) {
        LATHE_TRY(peek(vm, loop));
        if (!loop->has_following)
            break;
        loop->has_previous = loop->index0 >= 0;
        loop->previous = loop->current;
        loop->current = loop->following;
        loop->has_following = 0;
        loop->index0++;
        LATHE_TRY(one_turn(vm, node, loop));
        const int flow = vm->flow;
        vm->flow = JINJA_GO;
        if (flow == JINJA_GO_BREAK)
            return LATHE_OK;
    }
    return loop->index0 < 0 && node->e ? lathe__jinja_run(vm, node->e) : LATHE_OK;
}
