/* Calls functions of plugins and checks the results. */
#include "plug/answers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plug/kind.h"
#include "plug/row_shape.h"

/* SPARE: entries beyond those that a plugin may write. MOST_BYTES: more than any machine has. */
enum { SPARE = 256 };
static const int64_t most_bytes = INT64_C(1) << 50;

__attribute__((format(printf, 2, 3))) static lathe_status refuse(const lathe_instance *from,
                                                                 const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lathe_error(LATHE_E_PLUGIN, "%s %s (%s) breaks a rule of its kind: %s",
                       lathe_kind_name(from->component->plugin->kind),
                       from->component->plugin->name, from->component->path, text);
}

static lathe_status check_bytes(const lathe_instance *from, const char *what, int64_t bytes)
{
    if (bytes >= 0 && bytes <= most_bytes)
        return LATHE_OK;
    return refuse(from, "%s is %lld bytes, expected 0 to 2^50", what, (long long)bytes);
}

/* Checks a shape: its bytes can be counted without overflow. what: "slot exp_avg". */
static lathe_status check_desc(const lathe_instance *from, const char *what, const lathe_desc *d)
{
    const int64_t element = lathe_dtype_bytes(d->dtype);
    int64_t n = 1;
    if (element == 0)
        return refuse(from, "%s has dtype %d, expected 0 to %d", what, d->dtype,
                      LATHE_N_DTYPES - 1);
    if (d->rank < 0 || d->rank > LATHE_MAX_RANK)
        return refuse(from, "%s has rank %d, expected 0 to %d", what, d->rank, LATHE_MAX_RANK);
    for (int32_t i = 0; i < d->rank; i++) {
        if (d->dims[i] < 0 || d->dims[i] > most_bytes ||
            (d->dims[i] > 0 && n > most_bytes / element / d->dims[i]))
            return refuse(from, "%s has dims[%d] = %lld, more than 2^50 bytes in all or negative",
                          what, i, (long long)d->dims[i]);
        n *= d->dims[i];
    }
    return LATHE_OK;
}

/* Checks a name that files will contain: not NULL, not empty, at most 64 bytes. */
static lathe_status check_name(const lathe_instance *from, const char *what, int32_t i,
                               const char *name)
{
    if (name == NULL)
        return refuse(from, "%s %d has no name (NULL)", what, i);
    const size_t n = strnlen(name, 65);
    if (n == 0 || n > 64)
        return refuse(from, "the name of %s %d has %s, expected 1 to 64 letters", what, i,
                      n == 0 ? "no letter" : "more than 64 letters");
    return LATHE_OK;
}

static lathe_status check_slots(const lathe_instance *from, const lathe_slot *slots, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        char what[96];
        LATHE_TRY(check_name(from, "slot", i, slots[i].name));
        (void)snprintf(what, sizeof what, "slot %s", slots[i].name);
        LATHE_TRY(check_desc(from, what, &slots[i].desc));
        for (int32_t k = 0; k < i; k++)
            if (strcmp(slots[k].name, slots[i].name) == 0)
                return refuse(from, "two slots have the name %s", slots[i].name);
    }
    return LATHE_OK;
}

/* Checks block(), scratch() and room() of a parameter. */
static lathe_status check_sizes(const lathe_instance *from, const lathe_param_info *param,
                                int32_t partition)
{
    const lathe_optimizer_v1 *table = from->table;
    lathe_optimizer_room room = {0};
    const int64_t block = LATHE_HAS(table, block) ? table->block(from->self, param) : 1;
    if (partition == LATHE_PARTITION_BLOCK && (block < 1 || block > most_bytes))
        return refuse(from, "block() is %lld elements, expected at least 1", (long long)block);
    if (partition == LATHE_PARTITION_MATRIX) /* the graph of build() determines its needs */
        return LATHE_OK;
    if (LATHE_HAS(table, scratch))
        LATHE_TRY(check_bytes(from, "scratch()", table->scratch(from->self, param)));
    if (!LATHE_HAS(table, queue) || !LATHE_HAS(table, room))
        return LATHE_OK;
    table->room(from->self, param, &room);
    LATHE_TRY(check_bytes(from, "room().own", room.own));
    LATHE_TRY(check_bytes(from, "room().shared", room.shared));
    return check_bytes(from, "room().host", room.host);
}

lathe_status lathe_answer_slots(const lathe_instance *optimizer, const lathe_param_info *param,
                                lathe_slot out[LATHE_MAX_SLOTS], int32_t *out_n,
                                int32_t *out_partition)
{
    const lathe_optimizer_v1 *table = optimizer->table;
    lathe_slot slots[LATHE_MAX_SLOTS + SPARE];
    memset(slots, 0, sizeof slots);
    const int32_t n = table->slots(optimizer->self, param, slots);
    if (n < 0 || n > LATHE_MAX_SLOTS)
        return refuse(optimizer, "slots() returns %d for %s, expected 0 to %d", n, param->name,
                      LATHE_MAX_SLOTS);
    LATHE_TRY(check_slots(optimizer, slots, n));
    const int32_t partition = LATHE_HAS(table, partition) ? table->partition(optimizer->self, param)
                                                          : LATHE_PARTITION_ELEMENT;
    if (partition < LATHE_PARTITION_ELEMENT || partition > LATHE_PARTITION_TENSOR)
        return refuse(optimizer, "partition() returns %d for %s, expected %d to %d", partition,
                      param->name, LATHE_PARTITION_ELEMENT, LATHE_PARTITION_TENSOR);
    if (partition == LATHE_PARTITION_MATRIX && !LATHE_HAS(table, build))
        return refuse(optimizer, "partition() returns MATRIX for %s, but build is NULL",
                      param->name);
    LATHE_TRY(check_sizes(optimizer, param, partition));
    memcpy(out, slots, (size_t)n * sizeof *out);
    *out_n = n;
    *out_partition = partition;
    return LATHE_OK;
}

lathe_status lathe_answer_base_lr(const lathe_instance *optimizer, double *out)
{
    const lathe_optimizer_v1 *table = optimizer->table;
    *out = table->base_lr(optimizer->self);
    if (isfinite(*out) && *out >= 0.0)
        return LATHE_OK;
    return refuse(optimizer, "base_lr() is %g, expected a finite number of at least 0", *out);
}

lathe_status lathe_answer_planes(const lathe_instance *quant, int64_t rows, int64_t cols,
                                 lathe_plane out[LATHE_MAX_PLANES], int32_t *out_n)
{
    const lathe_quant_v1 *table = quant->table;
    lathe_plane planes[LATHE_MAX_PLANES + SPARE];
    memset(planes, 0, sizeof planes);
    const int32_t n = table->planes(quant->self, rows, cols, planes);
    if (n < 1 || n > LATHE_MAX_PLANES)
        return refuse(quant, "planes() returns %d, expected 1 to %d", n, LATHE_MAX_PLANES);
    for (int32_t i = 0; i < n; i++) {
        char what[96];
        LATHE_TRY(check_name(quant, "plane", i, planes[i].name));
        (void)snprintf(what, sizeof what, "plane %s", planes[i].name);
        LATHE_TRY(check_desc(quant, what, &planes[i].desc));
    }
    if (LATHE_HAS(table, decode_scratch))
        LATHE_TRY(
            check_bytes(quant, "decode_scratch()", table->decode_scratch(quant->self, rows, cols)));
    memcpy(out, planes, (size_t)n * sizeof *out);
    *out_n = n;
    return LATHE_OK;
}

lathe_status lathe_answer_activations(const lathe_instance *quant, int64_t rows, int64_t cols,
                                      int32_t *out_dtype)
{
    const lathe_quant_v1 *table = quant->table;
    lathe_activations a = {0};
    *out_dtype = 0;
    if (!LATHE_HAS(table, activations) || !table->activations(quant->self, rows, cols, &a))
        return LATHE_OK;
    if (a.dtype != LATHE_I8)
        return refuse(quant, "activations() sets dtype %d, expected %d (i8)", a.dtype, LATHE_I8);
    if (!isfinite(a.threshold) || a.threshold < 0.0f)
        return refuse(quant,
                      "activations() sets threshold %g, expected a finite number, at least 0",
                      (double)a.threshold);
    if (cols > LATHE_ACTIVATION_COLS)
        return refuse(quant, "activations() accepts %lld columns, expected at most %d",
                      (long long)cols, LATHE_ACTIVATION_COLS);
    *out_dtype = a.dtype;
    return LATHE_OK;
}

lathe_status lathe_answer_select(const lathe_instance *adapter, const lathe_param_info *param,
                                 int32_t n_groups, int32_t *out_trainable, int32_t *out_group)
{
    const lathe_adapter_v1 *table = adapter->table;
    int32_t trainable = 0, group = 0;
    LATHE_TRY(table->select(adapter->self, param, &trainable, &group));
    if (trainable != 0 && trainable != 1)
        return refuse(adapter, "select() sets trainable = %d for %s, expected 0 or 1", trainable,
                      param->name);
    if (group < 0 || group >= n_groups)
        return refuse(adapter, "select() puts %s into group %d, expected 0 to %d", param->name,
                      group, n_groups - 1);
    *out_trainable = trainable;
    *out_group = group;
    return LATHE_OK;
}

lathe_status lathe_answer_rate(const lathe_instance *adapter, const char *param_name, double *out)
{
    const lathe_adapter_v1 *table = adapter->component != NULL ? adapter->table : NULL;
    *out = LATHE_HAS(table, rate) ? table->rate(adapter->self, param_name) : 1.0;
    if (!isfinite(*out) || *out <= 0.0)
        return refuse(adapter, "rate() returns %g for %s, expected a number above 0", *out,
                      param_name);
    return LATHE_OK;
}

int lathe_stage_metric_divides(const lathe_stage_loss *loss, int32_t i)
{
    for (int32_t k = 0; k < loss->n_metrics; k++)
        if (loss->metrics[k].over == i + 1)
            return 1;
    return 0;
}

int32_t lathe_answer_adapts_head(const lathe_adapter_v1 *table)
{
    return LATHE_HAS(table, head) || LATHE_HAS(table, head_scaled);
}

int32_t lathe_answer_adds_bias(const lathe_instance *adapter)
{
    const lathe_adapter_v1 *table = adapter->component ? adapter->table : NULL;
    return LATHE_HAS(table, adds_bias) && LATHE_HAS(table, merge_bias) &&
           table->adds_bias(adapter->self);
}

uint32_t lathe_answer_needs(const lathe_instance *stage)
{
    const lathe_stage_v1 *table = stage->component ? stage->table : NULL;
    if (table == NULL)
        return 0;
    return LATHE_HAS(table, needs_of) ? table->needs & table->needs_of(stage->self) : table->needs;
}

uint32_t lathe_answer_heads(const lathe_instance *stage)
{
    const lathe_stage_v1 *table = stage->component ? stage->table : NULL;
    const uint32_t all = LATHE_HAS(table, heads) ? (1U << table->n_heads) - 1 : 0;
    return LATHE_HAS(table, heads_of) ? all & table->heads_of(stage->self) : all;
}

static int is_share(double x)
{
    return x >= 0.0 && x <= 1.0;
}

lathe_status lathe_answer_objective(const lathe_instance *stage, lathe_objective *out)
{
    const lathe_stage_v1 *table = stage->component ? stage->table : NULL;
    *out = (lathe_objective){.size = (uint32_t)sizeof *out};
    if (!LATHE_HAS(table, objective))
        return LATHE_OK;
    table->objective(stage->self, out);
    if (out->kind < 0 || out->kind >= LATHE_N_OBJECTIVES)
        return refuse(stage, "objective() gives kind %d, expected 0 to %d", out->kind,
                      LATHE_N_OBJECTIVES - 1);
    if (out->kind != LATHE_OBJECTIVE_CAUSAL && table->rows != LATHE_ROWS_PACKED)
        return refuse(stage, "objective() gives kind %d, which is for packed documents only",
                      out->kind);
    if (out->kind == LATHE_OBJECTIVE_PREFIX &&
        !(out->prefix_fraction >= 0.0 && out->prefix_fraction < 1.0))
        return refuse(stage, "objective() gives prefixes of %g of a document, expected [0, 1)",
                      out->prefix_fraction);
    if (out->kind == LATHE_OBJECTIVE_MASKED &&
        !(is_share(out->mask_probability) && out->mask_probability > 0.0 &&
          is_share(out->mask_share) && is_share(out->random_share) &&
          out->mask_share + out->random_share <= 1.0 + 1e-9))
        return refuse(stage,
                      "objective() chooses %g of the tokens, masks %g and changes %g of these; "
                      "expected a probability above 0, and shares of at most 1 together",
                      out->mask_probability, out->mask_share, out->random_share);
    return LATHE_OK;
}

/* Checks the values per token that iterate() is to read. */
static lathe_status check_outputs(const lathe_instance *stage, const lathe_stage_build *build,
                                  const lathe_stage_loss *loss)
{
    const lathe_stage_v1 *table = stage->table;
    const int64_t n_tokens = build->n_rows * build->row_tokens;
    lathe_desc shape;
    if (loss->n_outputs < 0 || loss->n_outputs > LATHE_MAX_STAGE_OUTPUTS)
        return refuse(stage, "loss() gives %d outputs, expected 0 to %d", loss->n_outputs,
                      LATHE_MAX_STAGE_OUTPUTS);
    if (loss->n_outputs > 0 && !LATHE_HAS(table, iterate))
        return refuse(stage,
                      "loss() gives %d outputs, which only iterate() reads, and the stage "
                      "has none",
                      loss->n_outputs);
    for (int32_t i = 0; i < loss->n_outputs; i++) {
        const lathe_val value = loss->outputs[i];
        if (value == LATHE_NONE)
            continue;
        if (value < 0 || build->api->desc(build->graph, value, &shape) != LATHE_OK)
            return refuse(stage,
                          "loss() gives value %d as output %d, which the graph does not have",
                          value, i);
        if (shape.dtype != LATHE_F32 || lathe_desc_count(&shape) != n_tokens)
            return refuse(stage,
                          "output %d of loss() has %lld elements of dtype %s, expected %lld "
                          "of f32, one per token",
                          i, (long long)lathe_desc_count(&shape), lathe_dtype_name(shape.dtype),
                          (long long)n_tokens);
    }
    return LATHE_OK;
}

lathe_status lathe_answer_loss(const lathe_instance *stage, const lathe_stage_build *build,
                               lathe_stage_loss *out)
{
    const lathe_stage_v1 *table = stage->table;
    struct {
        lathe_stage_loss loss;
        lathe_stage_metric spare[SPARE];
    } answer = {.loss = {.size = (uint32_t)sizeof answer.loss, .sum = LATHE_NONE}};
    const lathe_status status = table->loss(stage->self, build, &answer.loss);
    if (status != LATHE_OK)
        return lathe_error_about(status, "stage", NULL);
    const lathe_stage_loss *loss = &answer.loss;
    lathe_desc shape;
    if (loss->n_metrics < 0 || loss->n_metrics > LATHE_MAX_STAGE_METRICS)
        return refuse(stage, "loss() gives %d metrics, expected 0 to %d", loss->n_metrics,
                      LATHE_MAX_STAGE_METRICS);
    if (loss->count_unit < LATHE_COUNT_TOKENS || loss->count_unit > LATHE_COUNT_EXAMPLES)
        return refuse(
            stage, "loss() gives count_unit %d, expected %d (tokens), %d (pairs) or %d (examples)",
            loss->count_unit, LATHE_COUNT_TOKENS, LATHE_COUNT_PAIRS, LATHE_COUNT_EXAMPLES);
    if (loss->count_unit != LATHE_COUNT_TOKENS &&
        !lathe_row_shape_get(lathe_rows_of(table))->compares)
        return refuse(stage,
                      "loss() counts records, and its rows have no mask of records; "
                      "expected count_unit %d (tokens)",
                      LATHE_COUNT_TOKENS);
    for (int32_t i = -1; i < loss->n_metrics; i++) {
        const lathe_val value = i < 0 ? loss->sum : loss->metrics[i].sum;
        const int is_divisor =
            i >= 0 && loss->metrics[i].name == NULL && lathe_stage_metric_divides(loss, i);
        const char *name = i < 0        ? "the loss"
                           : is_divisor ? "a sum to divide by"
                                        : loss->metrics[i].name;
        if (i >= 0 && !is_divisor)
            LATHE_TRY(check_name(stage, "metric", i, name));
        if (i >= 0 && (loss->metrics[i].over < 0 || loss->metrics[i].over > loss->n_metrics))
            return refuse(stage, "loss() divides %s by metric %d of %d", name,
                          loss->metrics[i].over, loss->n_metrics);
        if (value < 0 || build->api->desc(build->graph, value, &shape) != LATHE_OK)
            return refuse(stage, "loss() gives value %d as %s, which the graph does not have",
                          value, name);
        if (shape.dtype != LATHE_F32 || lathe_desc_count(&shape) != 1)
            return refuse(stage, "loss() gives %s of dtype %s and rank %d, expected one f32", name,
                          lathe_dtype_name(shape.dtype), shape.rank);
    }
    LATHE_TRY(check_outputs(stage, build, loss));
    *out = *loss;
    return LATHE_OK;
}

lathe_status lathe_answer_attention_scratch(const lathe_instance *attention,
                                            const lathe_attention_problem *problem,
                                            int32_t is_backward, int64_t *out)
{
    const lathe_attention_v1 *table = attention->table;
    *out = is_backward ? table->backward_scratch(attention->self, problem)
                       : table->forward_scratch(attention->self, problem);
    return check_bytes(attention, is_backward ? "backward_scratch()" : "forward_scratch()", *out);
}

lathe_status lathe_answer_device_info(const lathe_instance *device, lathe_device_info *out)
{
    const lathe_device_v1 *table = device->table;
    LATHE_TRY(table->info(device->self, out));
    if (out->n_workers < 1)
        return refuse(device, "info() reports %d workers, expected at least 1", out->n_workers);
    if (memchr(out->model, '\0', sizeof out->model) == NULL ||
        memchr(out->isa, '\0', sizeof out->isa) == NULL ||
        memchr(out->driver, '\0', sizeof out->driver) == NULL)
        return refuse(device, "info() gives a text without an end");
    if (out->host_memory < 0 || out->host_memory >= LATHE_N_MEMORIES)
        return refuse(device, "info() reports memory of kind %d, expected 0 to %d",
                      out->host_memory, LATHE_N_MEMORIES - 1);
    if (out->memory_bytes < 0 || out->memory_free_bytes < 0)
        return refuse(device, "info() reports %lld bytes of memory, %lld of them free",
                      (long long)out->memory_bytes, (long long)out->memory_free_bytes);
    return LATHE_OK;
}

lathe_status lathe_answer_kernel(const lathe_instance *device, const lathe_kernel_problem *problem,
                                 lathe_kernel **out, int64_t *out_scratch_bytes)
{
    const lathe_device_v1 *table = device->table;
    *out = NULL;
    *out_scratch_bytes = 0;
    lathe_status status = table->kernel_create(device->self, problem, out, out_scratch_bytes);
    if (status != LATHE_OK) {
        *out = NULL; /* whatever a plugin that failed has left there */
        return status;
    }
    status = check_bytes(device, "the scratch of kernel_create()", *out_scratch_bytes);
    if (status != LATHE_OK) {
        table->kernel_destroy(device->self, *out);
        *out = NULL;
    }
    return status;
}
