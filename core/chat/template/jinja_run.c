/* Runs the statements of a template. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "chat/template/jinja_run.h"

/* ---- variables ---- */

lathe_status lathe__jinja_push_scope(jinja_vm *vm, jinja_scope *outer)
{
    jinja_scope *scope = lathe__jinja_alloc(vm, (int64_t)sizeof *scope);
    if (scope == NULL)
        return lathe__jinja_failed(vm);
    *scope = (jinja_scope){outer, NULL, 0, 0};
    vm->scope = scope;
    return LATHE_OK;
}

lathe_status lathe__jinja_set(jinja_vm *vm, int32_t id, jinja_value value)
{
    jinja_scope *scope = vm->scope;
    for (int32_t i = 0; i < scope->n; i++)
        if (scope->list[i].id == id) {
            scope->list[i].value = value;
            return LATHE_OK;
        }
    if (scope->n == scope->capacity) {
        const int32_t capacity = scope->capacity ? 2 * scope->capacity : 4;
        jinja_binding *list = lathe__jinja_alloc(vm, capacity * (int64_t)sizeof *list);
        if (list == NULL)
            return lathe__jinja_failed(vm);
        if (scope->n)
            memcpy(list, scope->list, (size_t)scope->n * sizeof *list);
        scope->list = list;
        scope->capacity = capacity;
    }
    scope->list[scope->n++] = (jinja_binding){id, value};
    return LATHE_OK;
}

/* namespace.name = value */
static lathe_status set_member(jinja_vm *vm, const jinja_node *target, jinja_value value)
{
    jinja_value space, key;
    const jinja_node name = {.op = JINJA_OP_NAME, .id = target->id, .place = target->place};
    LATHE_TRY(lathe__jinja_eval(vm, &name, &space));
    vm->at = &target->place;
    if (space.type != JINJA_NAMESPACE)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                  "'%s' is no namespace: only attributes of a namespace can be set",
                                  vm->names[target->id]);
    if (target->text[0] == '_')
        return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                  "a namespace takes no name that begins with '_'");
    LATHE_TRY(lathe__jinja_borrow(vm, target->text, (int64_t)strlen(target->text), &key));
    return lathe__jinja_dict_set(vm, space.u.dict, key, value);
}

lathe_status lathe__jinja_unpack(jinja_vm *vm, const jinja_node *names, jinja_value x,
                                 jinja_assign assign)
{
    jinja_list items;
    int64_t n = 0, i = 0;
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    for (const jinja_node *item = names->a; item; item = item->next)
        n++;
    if (items.n != n)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%lld values for %lld names",
                                  (long long)items.n, (long long)n);
    LATHE_TRY(lathe__jinja_enter(vm));
    for (const jinja_node *item = names->a; item; item = item->next)
        LATHE_TRY(assign(vm, item, items.items[i++]));
    vm->depth--;
    return LATHE_OK;
}

static lathe_status set_target(jinja_vm *vm, const jinja_node *target, jinja_value x)
{
    if (target->op == JINJA_OP_NAME)
        return lathe__jinja_set(vm, target->id, x);
    if (target->op == JINJA_OP_NSREF)
        return set_member(vm, target, x);
    vm->at = &target->place;
    return lathe__jinja_unpack(vm, target, x, set_target);
}

/* ---- statements ---- */

lathe_status lathe__jinja_capture(jinja_vm *vm, const jinja_node *body, jinja_value *out)
{
    jinja_text text = {NULL, 0, 0};
    jinja_text *const outer = vm->out;
    vm->out = &text;
    LATHE_TRY(lathe__jinja_run(vm, body));
    vm->out = outer;
    return lathe__jinja_take(vm, &text, out);
}

/* A body in a scope of its own, its text captured. */
static lathe_status capture_scoped(jinja_vm *vm, const jinja_node *body, jinja_value *out)
{
    jinja_scope *outer = vm->scope;
    LATHE_TRY(lathe__jinja_push_scope(vm, outer));
    LATHE_TRY(lathe__jinja_capture(vm, body, out));
    vm->scope = outer;
    return LATHE_OK;
}

static lathe_status run_if(jinja_vm *vm, const jinja_node *node)
{
    for (; node; node = node->d) {
        jinja_value test = {0};
        LATHE_TRY(lathe__jinja_eval(vm, node->a, &test));
        if (lathe__jinja_truth(test))
            return lathe__jinja_run(vm, node->b);
        if (node->d == NULL)
            return lathe__jinja_run(vm, node->c);
    }
    return LATHE_OK;
}

static lathe_status run_set(jinja_vm *vm, const jinja_node *node)
{
    jinja_value x = {0};
    if (node->op == JINJA_OP_SET) {
        LATHE_TRY(lathe__jinja_eval(vm, node->b, &x));
    } else {
        LATHE_TRY(capture_scoped(vm, node->d, &x));
        LATHE_TRY(lathe__jinja_eval_filters(vm, node->b, x, &x));
    }
    return set_target(vm, node->a, x);
}

static lathe_status new_macro(jinja_vm *vm, const jinja_node *node, jinja_value *out)
{
    jinja_macro *macro = lathe__jinja_alloc(vm, (int64_t)sizeof *macro);
    if (macro == NULL)
        return lathe__jinja_failed(vm);
    *macro = (jinja_macro){node, vm->scope};
    *out = (jinja_value){.type = JINJA_MACRO, .u.macro = macro};
    return LATHE_OK;
}

/* {% call f(x) %}: f with the block as its argument `caller`. */
static lathe_status run_call_block(jinja_vm *vm, const jinja_node *node)
{
    jinja_value callee, x;
    jinja_args args;
    LATHE_TRY(lathe__jinja_eval(vm, node->a->a, &callee));
    LATHE_TRY(lathe__jinja_eval_args(vm, node->a->b, &args));
    const char **names = lathe__jinja_alloc(vm, (args.n_named + 1) * (int64_t)sizeof *names);
    jinja_value *named = lathe__jinja_alloc(vm, (args.n_named + 1) * (int64_t)sizeof *named);
    if (names == NULL || named == NULL)
        return lathe__jinja_failed(vm);
    if (args.n_named) {
        memcpy(names, args.names, (size_t)args.n_named * sizeof *names);
        memcpy(named, args.named, (size_t)args.n_named * sizeof *named);
    }
    names[args.n_named] = "caller";
    LATHE_TRY(new_macro(vm, node->b, &named[args.n_named]));
    args.n_named++;
    args.names = names;
    args.named = named;
    vm->at = &node->a->place;
    LATHE_TRY(lathe__jinja_call(vm, callee, &args, &x));
    return lathe__jinja_put_str(vm, vm->out, x);
}

static lathe_status run_with(jinja_vm *vm, const jinja_node *node)
{
    jinja_scope *outer = vm->scope;
    int64_t n = 0, i = 0;
    for (const jinja_node *set = node->a; set; set = set->next)
        n++;
    jinja_value *values = lathe__jinja_alloc(vm, n * (int64_t)sizeof *values);
    if (values == NULL)
        return lathe__jinja_failed(vm);
    for (const jinja_node *set = node->a; set; set = set->next)
        LATHE_TRY(lathe__jinja_eval(vm, set->b, &values[i++]));
    LATHE_TRY(lathe__jinja_push_scope(vm, outer));
    i = 0;
    for (const jinja_node *set = node->a; set; set = set->next)
        LATHE_TRY(set_target(vm, set->a, values[i++]));
    LATHE_TRY(lathe__jinja_run(vm, node->d));
    vm->scope = outer;
    return LATHE_OK;
}

/* The block's text, and where it stands in the rendered text. */
static lathe_status run_generation(jinja_vm *vm, const jinja_node *node)
{
    jinja_value x = {0};
    LATHE_TRY(capture_scoped(vm, node->d, &x));
    if (vm->n_spans == vm->spans_capacity) {
        const int64_t capacity = vm->n_spans ? 2 * vm->n_spans : 16;
        jinja_span *spans = lathe__jinja_alloc(vm, capacity * (int64_t)sizeof *spans);
        if (spans == NULL)
            return lathe__jinja_failed(vm);
        if (vm->n_spans)
            memcpy(spans, vm->spans, (size_t)vm->n_spans * sizeof *spans);
        vm->spans = spans;
        vm->spans_capacity = capacity;
    }
    vm->spans[vm->n_spans++] = (jinja_span){vm->root.n, vm->root.n + x.u.s->n};
    return lathe__jinja_put(vm, vm->out, x.u.s->data, x.u.s->n);
}

static lathe_status run_print(jinja_vm *vm, const jinja_node *node)
{
    jinja_value x = {0};
    LATHE_TRY(lathe__jinja_eval(vm, node->a, &x));
    vm->at = &node->a->place;
    return lathe__jinja_put_str(vm, vm->out, x);
}

static lathe_status run_statement(jinja_vm *vm, const jinja_node *node)
{
    jinja_value x = {0};
    vm->at = &node->place;
    switch (node->op) {
    case JINJA_OP_DATA:
        return lathe__jinja_put(vm, vm->out, node->value.u.s->data, node->value.u.s->n);
    case JINJA_OP_PRINT:
        return run_print(vm, node);
    case JINJA_OP_IF:
        return run_if(vm, node);
    case JINJA_OP_FOR:
        return lathe__jinja_for(vm, node);
    case JINJA_OP_SET:
    case JINJA_OP_SET_BLOCK:
        return run_set(vm, node);
    case JINJA_OP_MACRO:
        LATHE_TRY(new_macro(vm, node, &x));
        return lathe__jinja_set(vm, node->id, x);
    case JINJA_OP_CALL_BLOCK:
        return run_call_block(vm, node);
    case JINJA_OP_FILTER_BLOCK:
        LATHE_TRY(capture_scoped(vm, node->d, &x));
        LATHE_TRY(lathe__jinja_eval_filters(vm, node->b, x, &x));
        return lathe__jinja_put_str(vm, vm->out, x);
    case JINJA_OP_WITH:
        return run_with(vm, node);
    case JINJA_OP_GENERATION:
        return run_generation(vm, node);
    default:
        vm->flow = node->op == JINJA_OP_BREAK ? JINJA_GO_BREAK : JINJA_GO_CONTINUE;
        return LATHE_OK;
    }
}

lathe_status lathe__jinja_run(jinja_vm *vm, const jinja_node *body)
{
    for (const jinja_node *node = body; node && vm->flow == JINJA_GO; node = node->next) {
        LATHE_TRY(lathe__jinja_enter(vm));
        LATHE_TRY(run_statement(vm, node));
        vm->depth--;
    }
    return LATHE_OK;
}

/* ---- a render ---- */

static lathe_status set_variables(jinja_vm *vm, const lathe_template *tpl, json_t *variables)
{
    if (variables && !json_is_object(variables))
        return lathe_error(LATHE_E_ARG, "%s: the variables of a template are no object", tpl->name);
    for (int32_t id = 0; id < tpl->n_names; id++) {
        json_t *json = json_object_get(variables, tpl->names[id]);
        jinja_value value = {0};
        if (json == NULL)
            continue;
        LATHE_TRY(lathe__jinja_from_json(vm, json, &value));
        LATHE_TRY(lathe__jinja_set(vm, id, value));
    }
    return LATHE_OK;
}

/* The vm's text and spans as the caller's. Spans of blocks in macros may reach beyond the text. */
static lathe_status hand_over(const jinja_vm *vm, lathe_rendering *out)
{
    out->text = malloc((size_t)vm->root.n + 1);
    out->spans = malloc((size_t)(vm->n_spans + 1) * sizeof *out->spans);
    if (out->text == NULL || out->spans == NULL) {
        lathe_rendering_fini(out);
        return lathe_error(LATHE_E_NOMEM, "a text of %lld bytes", (long long)vm->root.n);
    }
    if (vm->root.n)
        memcpy(out->text, vm->root.data, (size_t)vm->root.n);
    out->text[vm->root.n] = 0;
    out->bytes = vm->root.n;
    out->n_spans = vm->n_spans;
    for (int64_t i = 0; i < vm->n_spans; i++) {
        const jinja_span s = vm->spans[i];
        out->spans[i].begin = s.begin < out->bytes ? s.begin : out->bytes;
        out->spans[i].end = s.end < out->bytes ? s.end : out->bytes;
    }
    return LATHE_OK;
}

static jinja_limits with_defaults(lathe_template_limits given)
{
    jinja_limits out = {INT64_C(1) << 26, INT64_C(512) << 20, INT64_C(64) << 20, 1500};
    out.steps = given.steps > 0 ? given.steps : out.steps;
    out.memory_bytes = given.memory_bytes > 0 ? given.memory_bytes : out.memory_bytes;
    out.output_bytes = given.output_bytes > 0 ? given.output_bytes : out.output_bytes;
    out.depth = given.depth > 0 ? given.depth : out.depth;
    return out;
}

lathe_status lathe_template_render(const lathe_template *tpl, const lathe_template_input *input,
                                   lathe_rendering *out)
{
    jinja_vm vm = {.name = tpl->name, .names = tpl->names, .limits = with_defaults(input->limits)};
    memset(out, 0, sizeof *out);
    vm.now = input->now ? input->now : (int64_t)time(NULL);
    vm.out = &vm.root;
    lathe_status status = lathe__jinja_push_scope(&vm, NULL);
    if (status != LATHE_OK)
        goto out;
    if ((status = set_variables(&vm, tpl, input->variables)) != LATHE_OK)
        goto out;
    if ((status = lathe__jinja_push_scope(&vm, vm.scope)) != LATHE_OK)
        goto out;
    if ((status = lathe__jinja_run(&vm, tpl->body)) != LATHE_OK)
        goto out;
    status = hand_over(&vm, out);
out:
    lathe_arena_fini(&vm.arena);
    return status;
}

void lathe_rendering_fini(lathe_rendering *rendering)
{
    free(rendering->text);
    free(rendering->spans);
    free(rendering->tokens);
    memset(rendering, 0, sizeof *rendering);
}
