/* The interpreter: what its files share. */
#ifndef LATHE_CHAT_JINJA_RUN_H
#define LATHE_CHAT_JINJA_RUN_H

#include "chat/jinja/jinja_vm.h"
#include "chat/template/jinja_ast.h"

typedef struct jinja_macro {
    const jinja_node *node;
    jinja_scope *scope; /* where it was defined */
} jinja_macro;

lathe_status lathe__jinja_eval(jinja_vm *vm, const jinja_node *node, jinja_value *out);
lathe_status lathe__jinja_eval_args(jinja_vm *vm, const jinja_node *list, jinja_args *out);
/** Filters of a block on x. */
lathe_status lathe__jinja_eval_filters(jinja_vm *vm, const jinja_node *filter, jinja_value x,
                                       jinja_value *out);
lathe_status lathe__jinja_call(jinja_vm *vm, jinja_value callee, const jinja_args *args,
                               jinja_value *out);
/** A global function; 0 when there is none of this name. */
int lathe__jinja_global(const char *name, jinja_value *out);
lathe_status lathe__jinja_run(jinja_vm *vm, const jinja_node *body);
lathe_status lathe__jinja_for(jinja_vm *vm, const jinja_node *node);
/** Runs a body with output of its own; *out: its text. */
lathe_status lathe__jinja_capture(jinja_vm *vm, const jinja_node *body, jinja_value *out);
lathe_status lathe__jinja_set(jinja_vm *vm, int32_t id, jinja_value value);
/** Gives each of the names of a tuple its value of x with assign(): "for a, b in pairs", "set a, b
 * = pair". The tuple may contain tuples; their depth is bounded. */
typedef lathe_status (*jinja_assign)(jinja_vm *vm, const jinja_node *target, jinja_value x);
lathe_status lathe__jinja_unpack(jinja_vm *vm, const jinja_node *names, jinja_value x,
                                 jinja_assign assign);
lathe_status lathe__jinja_push_scope(jinja_vm *vm, jinja_scope *outer);

#endif
