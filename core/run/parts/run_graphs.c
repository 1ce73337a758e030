/* Makes the run's model, parameter table, programs and memory plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/state/checkpoint_image.h"
#include "checkpoint/state/model_file.h"
#include "data/rows/learned_tokenizer.h"
#include "generate/draft_model.h"
#include "generate/generator.h"
#include "graph/ir/flops.h"
#include "graph/passes/passes.h"
#include "lathe/fp8.h"
#include "plug/answers.h"
#include "plug/kind.h"
#include "plug/op_library.h"
#include "plug/schema_check.h"
#include "run/decide/adapter_check.h"
#include "run/decide/new_tokens.h"
#include "run/decide/objective_check.h"
#include "run/decide/run_check.h"
#include "run/decide/token_check.h"
#include "run/parts/curvature_check.h"
#include "run/parts/device_check.h"
#include "run/parts/iteration.h"
#include "run/parts/named_adapters.h"
#include "run/parts/rollout_noise.h"
#include "run/parts/run_formats.h"
#include "run/parts/run_heads.h"
#include "run/parts/run_parts.h"
#include "run/parts/run_ranks.h"
#include "run/parts/short_rows.h"
#include "run/parts/stored_teacher.h"
#include "run/parts/teacher.h"
#include "run/state/run_saved.h"
#include "run/state/run_state.h"

/* Vocabulary for a model that does not name its size: that of the tokenizer, or, if the tokenizer
 * is still to be learned, the size that tokenizer.train asks for. A small corpus may give fewer
 * tokens; the plan holds either way. 0: unknown. */
static int64_t vocabulary(const lathe_run *run)
{
    const lathe_tokenizer *tokenizer = run->data.tokenizer;
    lathe_learning_settings train;
    int64_t n = run->decided.tokens.n_after;
    if (n == 0 && lathe_learning_settings_read(run->config, &train))
        n = train.vocab_size + run->set.add_tokens.n;
    else if (n == 0 && tokenizer)
        n = lathe_tokenizer_vocab_size(tokenizer);
    return n > 0 ? lathe_grown_row_count(n, n, run->set.pad_to_multiple_of) : 0;
}

/* config.json text from the explicit keys of [model]. */
static lathe_status model_json(const lathe_run *run, lathe_buffer *b)
{
    int first = 1, has_vocab = 0;
    int32_t n = 0;
    const lathe_field *fields = lathe_config_fields(run->config, "model", &n);
    lathe_buffer_puts(b, "{");
    for (int32_t i = 0; i < n; i++) {
        const char *key = fields[i].key;
        const lathe_value *v = lathe_config_get(run->config, "model", key);
        if (!v || !v->is_explicit || strcmp(key, "path") == 0 || strcmp(key, "seed") == 0)
            continue;
        has_vocab |= strcmp(key, "vocab_size") == 0;
        lathe_buffer_puts(b, first ? "" : ", ");
        lathe_buffer_json_string(b, key);
        lathe_buffer_puts(b, ": ");
        lathe_value_json(v, b);
        first = 0;
    }
    const int64_t n_tokens = vocabulary(run);
    const lathe_value *own = lathe_config_get(run->config, "model", "vocab_size");
    const int64_t multiple = run->set.pad_to_multiple_of;
    if (has_vocab && multiple > 1 && own->i % multiple != 0)
        return lathe__run_refuse(run, "tokenizer", "pad_to_multiple_of",
                                 "tokenizer.pad_to_multiple_of = %lld does not divide "
                                 "model.vocab_size = %lld, which says how many rows a new model "
                                 "has: leave one of the keys out",
                                 (long long)multiple, (long long)own->i);
    if (!has_vocab && n_tokens > 0)
        lathe_buffer_printf(b, "%s\"vocab_size\": %lld", first ? "" : ", ", (long long)n_tokens);
    if (run->data.tokenizer) {
        if (lathe_tokenizer_eos(run->data.tokenizer) >= 0)
            lathe_buffer_printf(b, ", \"eos_token_id\": %d",
                                lathe_tokenizer_eos(run->data.tokenizer));
        if (lathe_tokenizer_bos(run->data.tokenizer) >= 0)
            lathe_buffer_printf(b, ", \"bos_token_id\": %d",
                                lathe_tokenizer_bos(run->data.tokenizer));
    }
    lathe_buffer_puts(b, "}");
    return b->status;
}

lathe_model_source lathe__run_model_source(const lathe_run *run)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_MODEL);
    return (lathe_model_source){run->registry,
                                strcmp(part->name, "auto") == 0 ? NULL : part->component};
}

/* Whether an adapter trains the embedding or the head of the tied model apart from the other. */
static int unties(const lathe_run *run, const lathe_instance *adapter)
{
    const lathe_adapter_v1 *table = adapter->component ? adapter->table : NULL;
    return LATHE_HAS(table, unties) &&
           table->unties(adapter->self, run->model.embedding, run->model.head);
}

/* All adapters of a run share the model, so one of them is enough. */
static lathe_status untie_model(lathe_run *run, const lathe_model_source *source)
{
    int has = unties(run, &run->parts.adapter) || unties(run, &run->parts.reference_adapter);
    for (int32_t i = 0; run->named && i < run->named->n; i++)
        has |= unties(run, &run->named->list[i].part);
    return has && run->model.tied && run->model.n_labels == 0
               ? lathe_model_config_untie(source, run->set.model_path, &run->model)
               : LATHE_OK;
}

static lathe_status read_model(lathe_run *run)
{
    const lathe_model_source source = lathe__run_model_source(run);
    if (run->set.model_path) {
        LATHE_TRY(lathe_model_config_load_with(&run->inputs->texts, &source, run->set.model_path,
                                               &run->model));
        LATHE_TRY(lathe__new_rows(run, &source));
        LATHE_TRY(untie_model(run, &source));
        return lathe__run_evaluates(run)
                   ? LATHE_OK
                   : lathe_generation_config_load_with(&run->inputs->texts, run->set.model_path,
                                                       &run->generation);
    }
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_status status = model_json(run, &b);
    if (status == LATHE_OK)
        status = lathe_model_config_parse(&source, lathe_config_path(run->config), b.data, b.len, 1,
                                          &run->model);
    lathe_buffer_fini(&b);
    return status;
}

/* Asks the adapter of a parameter whether it trains. A run without an adapter trains nothing. */
static lathe_status ask_trainable(const lathe_instance *adapter, const lathe_params *params,
                                  int32_t index, int32_t *out_trainable, int32_t *out_group)
{
    const lathe_adapter_v1 *table = adapter->component ? adapter->table : NULL;
    const lathe_param_info info = lathe_params_info(params, index);
    *out_trainable = 0;
    return LATHE_HAS(table, select) && info.role != LATHE_ROLE_BUFFER
               ? lathe_answer_select(adapter, &info, LATHE_MAX_GROUPS, out_trainable, out_group)
               : LATHE_OK;
}

/* Whether the adapter's file holds the parameters of the model that it trains. */
static int32_t keeps_what_it_trains(const lathe_instance *adapter)
{
    const lathe_adapter_v1 *table = adapter->component ? adapter->table : NULL;
    return LATHE_HAS(table, file_key) && LATHE_HAS(table, base_is_frozen) &&
           table->base_is_frozen(adapter->self);
}

/* Marks what trains. A run that only evaluates or generates trains nothing, but the adapter's file
 * holds the same rows. */
static lathe_status select_trainable(lathe_run *run)
{
    const int32_t trains = lathe__run_has_step(run);
    const int32_t keeps = keeps_what_it_trains(&run->parts.adapter);
    for (int32_t i = 0; i < run->params.n_model; i++) {
        lathe_param *p = run->params.rows[i];
        int32_t trainable = 0, group = 0;
        lathe_status status = LATHE_OK;
        if (p->stage_head)
            continue;
        if (trains || keeps)
            status = ask_trainable(&run->parts.adapter, &run->params, i, &trainable, &group);
        if (status != LATHE_OK)
            return status == LATHE_E_CONFIG ? lathe__adapter_refuse(run) : status;
        p->trainable = trains && trainable;
        p->group = p->trainable ? group : p->group;
        p->in_adapter = keeps && trainable;
    }
    return LATHE_OK;
}

lathe_status lathe__run_is_trained(const lathe_run *run, int32_t index, int32_t *out)
{
    int32_t group = 0;
    return ask_trainable(&run->parts.adapter, &run->params, index, out, &group);
}

/* Whether a parameter of the checkpoint under evaluation may differ from the reference's: the run
 * that wrote it trained the parameter. Without an adapter in the configuration that run trained all
 * of them. */
static lathe_status was_trained(const lathe_instance *adapter, const lathe_params *params,
                                int32_t index, int32_t *out)
{
    int32_t group = 0;
    *out = 1;
    return adapter->component ? ask_trainable(adapter, params, index, out, &group) : LATHE_OK;
}

/* Adds a frozen copy of every trained parameter, for stages that compare with the model as it was
 * before training. There is none if the adapter does not change the model's own parameters.
 */
static lathe_status add_reference(lathe_run *run)
{
    const lathe_adapter_v1 *adapter =
        run->parts.adapter.component ? run->parts.adapter.table : NULL;
    int32_t n_copies = 0;
    if (!(lathe_answer_needs(&run->parts.stage) & LATHE_NEEDS_REFERENCE))
        return LATHE_OK;
    const int32_t is_frozen =
        LATHE_HAS(adapter, base_is_frozen) && adapter->base_is_frozen(run->parts.adapter.self);
    for (int32_t i = 0; i < run->params.n_model; i++) {
        lathe_param copy = *run->params.rows[i];
        char name[512];
        const int32_t moves = copy.role == LATHE_ROLE_BUFFER && run->set.moe.bias_rate > 0.0;
        int32_t index, group = 0, differs = copy.trainable, replaced = 0;
        if (copy.stage_head)
            continue; /* the reference is a model without heads of the stage */
        if (!lathe__run_has_step(run))
            LATHE_TRY(was_trained(&run->parts.adapter, &run->params, i, &differs));
        if (run->parts.reference_adapter.component)
            LATHE_TRY(
                ask_trainable(&run->parts.reference_adapter, &run->params, i, &replaced, &group));
        if (!differs && !moves && !replaced)
            continue; /* not copied: the reference uses the same weights */
        (void)snprintf(name, sizeof name, LATHE_REFERENCE_PREFIX "%s", copy.name);
        copy.name = name;
        copy.trainable = 0;
        copy.reference = 1;
        copy.in_adapter = replaced; /* in the file of the reference's adapter */
        n_copies++;
        LATHE_TRY(lathe_params_add(&run->params, &copy, &index));
    }
    run->params.has_reference = !is_frozen || n_copies > 0;
    return LATHE_OK;
}

lathe_status lathe__run_add_models(lathe_run *run)
{
    LATHE_TRY(add_reference(run));
    LATHE_TRY(lathe__named_adapters_params(run));
    return lathe__teacher_params(run);
}

/* Refuses rows longer than the model's number of positions: learned positions do not exist
 * beyond it, and rotary ones were not trained beyond it. */
static lathe_status check_positions(const lathe_run *run)
{
    if (run->set.seq_len <= run->model.max_positions)
        return LATHE_OK;
    return lathe__run_refuse(run, "data", "seq_len",
                             "data.seq_len = %d is longer than the %lld positions of the model%s%s",
                             run->set.seq_len, (long long)run->model.max_positions,
                             run->set.model_path ? " in " : "",
                             run->set.model_path ? run->set.model_path : "");
}

/* Refuses, or warns of, dropout in the model's config.json, because training does not apply it.
 * Evaluation and generation need no dropout. */
static lathe_status check_dropout(const lathe_run *run)
{
    const lathe_model_config *m = &run->model;
    if (!lathe__run_has_step(run) || !m->dropout_key)
        return LATHE_OK;
    const char *path = run->set.model_path; /* NULL: a new model, described in [model] */
    const char *place = path != NULL ? path : "model.",
               *file = path != NULL ? "/config.json: " : "";
    if (!m->warns_of_dropout)
        return lathe_error(LATHE_E_CONFIG,
                           "%s%s%s is %g, and training applies no dropout of the model: set it to "
                           "0 %s to train without dropout",
                           place, file, m->dropout_key, m->dropout,
                           path != NULL ? "in that file" : "there");
    lathe_log_alike(LATHE_LOG_WARN, "%s%s%s is %g and not applied: training uses no dropout", place,
                    file, m->dropout_key, m->dropout);
    return LATHE_OK;
}

/* Makes the model's description and its parameters: which train, and which are quantized. */
lathe_status lathe__run_params(lathe_run *run)
{
    LATHE_TRY(read_model(run));
    LATHE_TRY(lathe__run_make_classifier(run));
    LATHE_TRY(check_dropout(run));
    LATHE_TRY(check_positions(run));
    LATHE_TRY(lathe__objective_check_model(run));
    LATHE_TRY(lathe__token_check(run));
    lathe_params_init(&run->params, run->set.compute_dtype);
    run->params.grad_dtype = run->set.grad_dtype;
    run->params.ops = lathe_registry_ops(run->registry);
    LATHE_TRY(lathe_model_params(&run->model, &run->params));
    run->params.n_model = run->params.n;
    LATHE_TRY(lathe__adapter_check(run));
    LATHE_TRY(lathe__run_add_heads(run));
    LATHE_TRY(select_trainable(run));
    LATHE_TRY(lathe__token_rows_choose(run));
    if (lathe__run_has_step(run))
        LATHE_TRY(lathe__adapter_check_trains(run));
    LATHE_TRY(lathe__run_formats(run));
    /* an adapter that begins elsewhere belongs to a quantized base, also when it is only read */
    return lathe__run_has_step(run) || lathe__adapter_starts_elsewhere(&run->parts.adapter)
               ? lathe__adapter_check_base(run)
               : LATHE_OK;
}

lathe_status lathe__run_model(lathe_run *run)
{
    LATHE_TRY(lathe__run_params(run));
    return lathe__run_add_models(run);
}

/* Rows of a micro-batch: a pair and an unpaired example take two. */
static int32_t batch_rows(int32_t micro_batch_size, const lathe_instance *stage_part)
{
    const lathe_stage_v1 *stage = stage_part->component ? stage_part->table : NULL;
    return micro_batch_size * lathe_row_shape_get(lathe_rows_of(stage))->n_rows;
}

lathe_program_config lathe__run_program_config(lathe_run *run)
{
    const lathe_named_adapter *named = lathe__named_adapter_used(run);
    const lathe_program_config config = {
        .model = &run->model,
        .params = &run->params,
        .adapter = named                          ? &named->part
                   : run->parts.adapter.component ? &run->parts.adapter
                                                  : NULL,
        .adapter_prefix = named ? named->prefix : NULL,
        .reference_adapter =
            run->parts.reference_adapter.component ? &run->parts.reference_adapter : NULL,
        .token_rows = named ? named->rows : run->decided.token_rows,
        .reference_token_rows = run->decided.reference_token_rows,
        .stage = run->parts.stage.component ? &run->parts.stage : NULL,
        .objective = lathe__run_objective(run),
        .reference_has_adapter =
            run->set.model_adapter != NULL || lathe__adapter_starts_elsewhere(&run->parts.adapter),
        .n_rows = batch_rows(run->set.micro_batch_size, &run->parts.stage),
        .row_tokens = run->set.seq_len,
        .recompute = run->set.recompute,
        .fp8 = run->set.fp8,
        .head_chunk_rows = run->set.head_chunk_rows,
        .teacher = lathe__teacher_model(run),
        .n_stored = lathe__run_makes_logprobs(run) ? run->open.top_k : lathe__stored_k(run),
        .stored_temperature = lathe__run_makes_logprobs(run) ? run->open.top_temperature
                                                             : lathe__stored_temperature(run),
        .offloads = run->programs.offloads,
        .moe = &run->set.moe,
        .machine = &run->machine};
    return config;
}

/* Builds a program; what the adapter, the stage or the format refuses is placed at its key. */
static lathe_status build(const lathe_run *run, const lathe_program_config *config, int32_t kind,
                          lathe_program *out)
{
    const lathe_status status = lathe_program_build(config, kind, out);
    const int32_t part = lathe_kind_id(lathe_error_section());
    return status == LATHE_E_CONFIG && part != 0 ? lathe__run_refuse_part(run, part) : status;
}

/* Adds the memory that a program needs to the shared arena and to the planned sums. */
static void reserve(lathe_programs *programs, lathe_mem_bytes *planned, int64_t arena_bytes,
                    int64_t activation_bytes, int64_t input_bytes)
{
    if (arena_bytes > programs->arena_bytes)
        programs->arena_bytes = arena_bytes;
    if (activation_bytes > programs->activation_bytes)
        programs->activation_bytes = activation_bytes;
    planned->by[LATHE_MEM_ACTIVATIONS] += input_bytes;
}

/* Makes the window of gathered values large enough for a program. */
static void reserve_window(lathe_run *run, int64_t bytes)
{
    if (bytes > run->store.gathered_bytes)
        run->store.gathered_bytes = bytes;
}

static lathe_status prepare(lathe_run *run, lathe_program *p)
{
    lathe_mem_bytes *planned = &run->planned;
    LATHE_TRY(lathe_program_prepare(p, &run->machine));
    LATHE_TRY(lathe_program_divide(p, &run->store));
    const lathe_plan *plan = lathe_exec_plan(p->exec);
    reserve(&run->programs, planned, plan->arena_bytes, plan->activation_bytes, plan->input_bytes);
    reserve_window(run, lathe_exec_window_bytes(p->exec));
    planned->by[LATHE_MEM_OFFLOAD] += plan->host_bytes;
    planned->by[LATHE_MEM_STAGING] += lathe_exec_staging_bytes(p->exec);
    return LATHE_OK;
}

static lathe_status prepare_short(lathe_run *run)
{
    lathe_short_programs *shorter = &run->programs.shorter;
    for (int32_t i = 0; i < shorter->n; i++) {
        if (shorter->train[i].graph)
            LATHE_TRY(prepare(run, &shorter->train[i]));
        if (shorter->eval[i].graph)
            LATHE_TRY(prepare(run, &shorter->eval[i]));
    }
    return LATHE_OK;
}

/* Evaluation is part of the plan when the run will evaluate. */
static int evaluates(const lathe_run *run)
{
    return lathe__run_evaluates(run) || lathe_settings_has_validation(&run->set) ||
           lathe__run_iterates(run); /* log-probabilities before the step */
}

/* States of the ops that keep one for each sequence, as generation allocates them for one: a second
 * slot of zeros is where a new sequence begins. */
enum { ONE_SEQUENCE_SLOTS = 2 };

static int64_t state_bytes(const lathe_graph *g)
{
    int64_t n = 0;
    for (int32_t i = 0; i < g->n_states; i++)
        n += (lathe_desc_bytes(&g->values[g->states[i]].desc) + 63) / 64 * 64;
    return n;
}

/* Builds a program that decodes, or scores, for the parameters that the adapter adds and for the
 * memory of the states. */
static lathe_status declare(lathe_run *run)
{
    const int32_t kind = run->model.n_labels > 0 ? LATHE_PROGRAM_SCORE : LATHE_PROGRAM_DECODE;
    lathe_program_config decode = lathe__run_program_config(run);
    lathe_program p;
    decode.row_tokens = decode.n_rows = 1;
    decode.cache_rows = run->set.seq_len;
    decode.state_slots = ONE_SEQUENCE_SLOTS;
    LATHE_TRY(lathe_program_build(&decode, kind, &p));
    run->programs.state_bytes = state_bytes(p.graph);
    lathe_program_fini(&p);
    return LATHE_OK;
}

static lathe_status build_programs(lathe_run *run)
{
    if (lathe__run_infers(run))
        return run->named ? lathe__named_adapters_each(run, declare) : declare(run);
    const lathe_program_config config = lathe__run_program_config(run);
    if (lathe__run_makes_logprobs(run))
        return build(run, &config, LATHE_PROGRAM_TOP, &run->programs.top);
    if (!lathe__run_evaluates(run))
        LATHE_TRY(build(run, &config, LATHE_PROGRAM_TRAIN, &run->programs.train));
    if (lathe__curvature_every(run) > 0)
        LATHE_TRY(lathe__curvature_build(run));
    if (evaluates(run))
        LATHE_TRY(build(run, &config, LATHE_PROGRAM_EVAL, &run->programs.eval));
    return lathe__short_rows_build(run, evaluates(run));
}

/* Warns if no product of the training graph can use fp8; the run's records then say bf16. */
static void check_fp8(lathe_run *run)
{
    const lathe_graph *g = run->programs.train.graph;
    if (run->set.fp8 == LATHE_FP8_NONE || !g || lathe_graph_fp8_flops(g) > 0.0)
        return;
    lathe__run_warn(run, "train", "precision",
                    "train.precision = \"fp8\": no product runs in fp8, because its dims must be "
                    "multiples of %d: the dims of the weights, or the %lld tokens of a "
                    "micro-batch, are not; all products run in bf16",
                    LATHE_FP8_DIM,
                    (long long)run->programs.train.n_rows *
                        (long long)run->programs.train.row_tokens);
    run->set.fp8 = LATHE_FP8_NONE;
}

/* Makes room for the loads of experts that move biases of routers. */
static lathe_status plan_loads(lathe_run *run)
{
    const lathe_program *p = &run->programs.train;
    int64_t n = 0, most = 0;
    for (int32_t i = 0; i < p->n_loads; i++) {
        n += p->loads[i].n_experts;
        most = p->loads[i].n_experts > most ? p->loads[i].n_experts : most;
    }
    run->programs.losses_each = 1 + LATHE_MAX_STAGE_METRICS + n;
    if (n == 0)
        return LATHE_OK;
    run->loads.counts = lathe_arena_alloc(&run->arena, n * (int64_t)sizeof *run->loads.counts);
    run->loads.values = lathe_arena_alloc(&run->arena, most * (int64_t)sizeof *run->loads.values);
    if (run->loads.counts == NULL || run->loads.values == NULL)
        return LATHE_E_NOMEM;
    run->loads.n = n;
    lathe_expert_loads_clear(&run->loads);
    return LATHE_OK;
}

lathe_status lathe__run_plan(lathe_run *run)
{
    const int trains = lathe__run_has_step(run);
    if (trains)
        LATHE_TRY(lathe__offload_plan_activations(run));
    LATHE_TRY(lathe__model_file_plan(lathe__run_saved(run)));
    LATHE_TRY(build_programs(run));
    LATHE_TRY(plan_loads(run));
    LATHE_TRY(lathe__merge_plan(run));
    lathe__offload_warn_idle(run);
    check_fp8(run);
    LATHE_TRY(trains ? lathe__run_lay_out(run)
                     : lathe_store_init(&run->store, &run->params, NULL, 0));
    LATHE_TRY(lathe__merge_check_reset(run));
    if (trains)
        LATHE_TRY(lathe__average_plan(run));
    lathe_program *const own[] = {&run->programs.train, &run->programs.eval, &run->programs.top};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (own[i]->graph)
            LATHE_TRY(prepare(run, own[i]));
    LATHE_TRY(prepare_short(run));
    if (run->programs.sampling.graph)
        LATHE_TRY(lathe__curvature_prepared(run, prepare(run, &run->programs.sampling)));
    if (trains) {
        LATHE_TRY(lathe__device_check(run));
        LATHE_TRY(lathe__offload_plan_state(run));
        LATHE_TRY(lathe_param_groups_read(run->config, &run->params, &run->parts.optimizer,
                                          &run->parts.adapter, run->opt.base_lr, &run->arena,
                                          run->open.diags, &run->opt.groups));
        LATHE_TRY(lathe_update_create(&run->machine, &run->store, &run->parts.optimizer,
                                      &run->opt.groups, &run->opt.update));
        reserve(&run->programs, &run->planned, lathe_update_arena_bytes(run->opt.update),
                lathe_update_activation_bytes(run->opt.update),
                lathe_update_input_bytes(run->opt.update));
        run->planned.by[LATHE_MEM_OPTIMIZER] += lathe_update_own_bytes(run->opt.update);
        run->planned.by[LATHE_MEM_STAGING] += lathe_update_staging_bytes(run->opt.update);
        reserve(&run->programs, &run->planned, run->opt.row_kernels.scratch_bytes, 0, 0);
    }
    if (trains)
        LATHE_TRY(lathe__iteration_plan(run));
    if (trains)
        LATHE_TRY(lathe__noise_plan(run));
    const int drafts = lathe__run_infers(run) && run->set.draft_path;
    if (drafts || (trains && (run->set.sample_every > 0 || lathe__run_iterates(run)))) {
        const int32_t batch = lathe__run_iterates(run) ? run->set.generate_batch : 1;
        LATHE_TRY(lathe__run_plan_generator(run, batch));
        const lathe_generator_memory needs = lathe_generator_needs(run->generator);
        reserve(&run->programs, &run->planned, needs.arena_bytes, needs.activation_bytes,
                needs.input_bytes);
        reserve_window(run, needs.window_bytes);
        run->planned.by[LATHE_MEM_CACHE] += needs.cache_bytes;
        run->planned.by[LATHE_MEM_STAGING] += needs.staging_bytes;
        run->planned.by[LATHE_MEM_MODELS] += run->draft ? lathe_draft_bytes(run->draft) : 0;
    }
    if (trains)
        LATHE_TRY(lathe__run_plan_buckets(run));
    lathe_store_bytes(&run->store, &run->planned);
    run->planned.by[LATHE_MEM_ACTIVATIONS] += run->programs.activation_bytes;
    run->planned.by[LATHE_MEM_SCRATCH] +=
        run->programs.arena_bytes - run->programs.activation_bytes;
    run->planned.by[LATHE_MEM_CHECKPOINT] += lathe_image_bytes(lathe__run_saved(run));
    run->planned.by[LATHE_MEM_STAGING] +=
        lathe_staging_bytes(&run->machine) + lathe__losses_bytes(run);
    return LATHE_OK;
}
