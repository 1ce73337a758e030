/* Checks the interface table of each kind. */
#include "plug/table_rules.h"

#include <string.h>

#include "base/error.h"
#include "lathe/adapter.h"
#include "lathe/attention.h"
#include "lathe/collective.h"
#include "lathe/device.h"
#include "lathe/model.h"
#include "lathe/op_plugin.h"
#include "lathe/optimizer.h"
#include "lathe/quant.h"
#include "lathe/reader.h"
#include "lathe/renderer.h"
#include "lathe/reward.h"
#include "lathe/scheduler.h"
#include "lathe/stage.h"
#include "plug/kind.h"
#include "plug/row_shape.h"
#include "plug/stage_inputs.h"

/* A pointer in a table and its group; members of a group follow each other in the list.
 *
 *   ALWAYS            it is never NULL
 *   TOGETHER, + 1...  all members of the group are set, or all are NULL
 *   NEEDS, + 1...     a member that is set needs the next one, which may be set alone */
struct rule {
    const char *member;
    uint32_t offset;
    int32_t group;
};

enum { ALWAYS = 0, TOGETHER = 1, NEEDS = 100 };

#define MEMBER(type, name, group)                                                                  \
    {                                                                                              \
#name, (uint32_t)offsetof(type, name), group                                               \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, 0, 0                                                                                 \
    }

static const struct rule optimizer[] = {
    MEMBER(lathe_optimizer_v1, slots, ALWAYS),   MEMBER(lathe_optimizer_v1, base_lr, ALWAYS),
    MEMBER(lathe_optimizer_v1, step, ALWAYS),    MEMBER(lathe_optimizer_v1, estimate_every, NEEDS),
    MEMBER(lathe_optimizer_v1, estimate, NEEDS), END,
};
static const struct rule scheduler[] = {
    MEMBER(lathe_scheduler_v1, at, ALWAYS),
    END,
};
static const struct rule quant[] = {
    MEMBER(lathe_quant_v1, accepts, ALWAYS),
    MEMBER(lathe_quant_v1, planes, ALWAYS),
    MEMBER(lathe_quant_v1, encode, ALWAYS),
    MEMBER(lathe_quant_v1, decode, ALWAYS),
    MEMBER(lathe_quant_v1, weight_meta, TOGETHER),
    MEMBER(lathe_quant_v1, read_meta, TOGETHER),
    MEMBER(lathe_quant_v1, meta_suffix, TOGETHER),
    MEMBER(lathe_quant_v1, methods, TOGETHER + 1),
    MEMBER(lathe_quant_v1, read_config, TOGETHER + 1),
    MEMBER(lathe_quant_v1, scale_inputs, NEEDS),
    MEMBER(lathe_quant_v1, encode_calibrated, NEEDS),
    MEMBER(lathe_quant_v1, activations, NEEDS + 1),
    MEMBER(lathe_quant_v1, codes, NEEDS + 1),
    END,
};
static const struct rule adapter[] = {
    MEMBER(lathe_adapter_v1, select, ALWAYS),
    END,
};
static const struct rule stage[] = {
    MEMBER(lathe_stage_v1, loss, ALWAYS),          MEMBER(lathe_stage_v1, iterate, TOGETHER),
    MEMBER(lathe_stage_v1, state_bytes, TOGETHER), MEMBER(lathe_stage_v1, heads_of, NEEDS),
    MEMBER(lathe_stage_v1, heads, NEEDS),          END,
};
static const struct rule attention[] = {
    MEMBER(lathe_attention_v1, score, ALWAYS),
    MEMBER(lathe_attention_v1, forward_scratch, ALWAYS),
    MEMBER(lathe_attention_v1, backward_scratch, ALWAYS),
    MEMBER(lathe_attention_v1, forward, ALWAYS),
    MEMBER(lathe_attention_v1, backward, ALWAYS),
    END,
};
static const struct rule device[] = {
    MEMBER(lathe_device_v1, score, ALWAYS),
    MEMBER(lathe_device_v1, info, ALWAYS),
    MEMBER(lathe_device_v1, alloc, ALWAYS),
    MEMBER(lathe_device_v1, free, ALWAYS),
    MEMBER(lathe_device_v1, copy, ALWAYS),
    MEMBER(lathe_device_v1, kernel_create, ALWAYS),
    MEMBER(lathe_device_v1, kernel_destroy, ALWAYS),
    MEMBER(lathe_device_v1, kernel_run, ALWAYS),
    MEMBER(lathe_device_v1, stream_create, TOGETHER),
    MEMBER(lathe_device_v1, stream_destroy, TOGETHER),
    MEMBER(lathe_device_v1, event_record, TOGETHER + 1),
    MEMBER(lathe_device_v1, event_wait, TOGETHER + 1),
    MEMBER(lathe_device_v1, event_destroy, TOGETHER + 1),
    MEMBER(lathe_device_v1, capture_begin, TOGETHER + 2),
    MEMBER(lathe_device_v1, capture_end, TOGETHER + 2),
    MEMBER(lathe_device_v1, capture_launch, TOGETHER + 2),
    MEMBER(lathe_device_v1, capture_destroy, TOGETHER + 2),
    MEMBER(lathe_device_v1, event_stamp, TOGETHER + 3),
    MEMBER(lathe_device_v1, event_seconds, TOGETHER + 3),
    MEMBER(lathe_device_v1, stream_create, NEEDS),
    MEMBER(lathe_device_v1, sync, NEEDS),
    MEMBER(lathe_device_v1, event_record, NEEDS + 1),
    MEMBER(lathe_device_v1, stream_create, NEEDS + 1),
    MEMBER(lathe_device_v1, event_stamp, NEEDS + 2),
    MEMBER(lathe_device_v1, event_record, NEEDS + 2),
    MEMBER(lathe_device_v1, capture_begin, NEEDS + 3),
    MEMBER(lathe_device_v1, stream_create, NEEDS + 3),
    END,
};

static const struct rule model[] = {
    MEMBER(lathe_model_v1, types, ALWAYS),
    MEMBER(lathe_model_v1, describe, ALWAYS),
    MEMBER(lathe_model_v1, tensors, ALWAYS),
    MEMBER(lathe_model_v1, build, ALWAYS),
    END,
};

static const struct rule reward[] = {
    MEMBER(lathe_reward_v1, score, ALWAYS),
    END,
};

static const struct rule renderer[] = {
    MEMBER(lathe_renderer_v1, render, ALWAYS),
    END,
};

static const struct rule reader[] = {
    MEMBER(lathe_reader_v1, suffixes, ALWAYS), MEMBER(lathe_reader_v1, open, ALWAYS),
    MEMBER(lathe_reader_v1, column, ALWAYS),   MEMBER(lathe_reader_v1, next, ALWAYS),
    MEMBER(lathe_reader_v1, close, ALWAYS),    END,
};

static const struct rule collective[] = {
    MEMBER(lathe_collective_v1, score, ALWAYS),
    MEMBER(lathe_collective_v1, open, ALWAYS),
    MEMBER(lathe_collective_v1, info, ALWAYS),
    MEMBER(lathe_collective_v1, split, ALWAYS),
    MEMBER(lathe_collective_v1, close, ALWAYS),
    MEMBER(lathe_collective_v1, prepare, ALWAYS),
    MEMBER(lathe_collective_v1, exchange_destroy, ALWAYS),
    MEMBER(lathe_collective_v1, start, ALWAYS),
    MEMBER(lathe_collective_v1, test, ALWAYS),
    MEMBER(lathe_collective_v1, wait, ALWAYS),
    MEMBER(lathe_collective_v1, traffic, ALWAYS),
    MEMBER(lathe_collective_v1, abort, ALWAYS),
    END,
};

static const struct rule op[] = {
    MEMBER(lathe_op_v1, inputs, ALWAYS),
    MEMBER(lathe_op_v1, outputs, ALWAYS),
    MEMBER(lathe_op_v1, tests, ALWAYS),
    MEMBER(lathe_op_v1, shape, ALWAYS),
    MEMBER(lathe_op_v1, exact, ALWAYS),
    MEMBER(lathe_op_v1, kernels, ALWAYS),
    END,
};

static const struct rule *const rules[LATHE_N_KINDS] = {
    [LATHE_KIND_OPTIMIZER] = optimizer,
    [LATHE_KIND_SCHEDULER] = scheduler,
    [LATHE_KIND_QUANT] = quant,
    [LATHE_KIND_ADAPTER] = adapter,
    [LATHE_KIND_STAGE] = stage,
    [LATHE_KIND_ATTENTION] = attention,
    [LATHE_KIND_DEVICE] = device,
    [LATHE_KIND_MODEL] = model,
    [LATHE_KIND_REWARD] = reward,
    [LATHE_KIND_RENDERER] = renderer,
    [LATHE_KIND_READER] = reader,
    [LATHE_KIND_COLLECTIVE] = collective,
    [LATHE_KIND_OP] = op,
};

/* Whether the table is long enough to contain the pointer, and it is set. */
static int has(const lathe_plugin *plugin, const struct rule *rule)
{
    const char *table = plugin->table;
    uint32_t size;
    const void *pointer;
    memcpy(&size, table, sizeof size);
    if (size < rule->offset + sizeof pointer)
        return 0;
    memcpy(&pointer, table + rule->offset, sizeof pointer);
    return pointer != NULL;
}

/* Checks a rule and the one after it, which belongs to the same group. */
static lathe_status check_pair(const lathe_plugin *plugin, const struct rule *rule)
{
    const char *kind = lathe_kind_name(plugin->kind);
    const struct rule *next = &rule[1];
    if (next->member == NULL || next->group != rule->group ||
        has(plugin, rule) == has(plugin, next))
        return LATHE_OK;
    if (rule->group < NEEDS)
        return lathe_error(LATHE_E_PLUGIN,
                           "its table has %s.%s and no %s.%s; both are set or both are NULL", kind,
                           has(plugin, rule) ? rule->member : next->member, kind,
                           has(plugin, rule) ? next->member : rule->member);
    if (has(plugin, rule))
        return lathe_error(LATHE_E_PLUGIN,
                           "its table has %s.%s, which needs %s.%s, and that is NULL", kind,
                           rule->member, kind, next->member);
    return LATHE_OK;
}

enum { MAX_COLUMNS = 64, MAX_COUNT = 65536 };

/* Checks dtype and count of an input. */
static lathe_status check_input_shape(const lathe_stage_v1 *table, int32_t i)
{
    const lathe_stage_input *input = &table->inputs[i];
    const int is_column = input->source == LATHE_INPUT_COLUMN;
    const int is_stored = input->source == LATHE_INPUT_STORED;
    const lathe_input_shape shape = lathe_stage_shape(table, i);
    if (shape.dtype != LATHE_F32 && (is_column || shape.dtype != LATHE_I32))
        return lathe_error(LATHE_E_PLUGIN, "stage.input_shapes[%d].dtype is %s, expected f32%s", i,
                           lathe_dtype_name(shape.dtype), is_column ? " for a column" : " or i32");
    if (shape.count < 0 || shape.count > (is_stored ? 0 : is_column ? 1 : MAX_COUNT))
        return lathe_error(LATHE_E_PLUGIN, "stage.input_shapes[%d].count is %d, expected %s", i,
                           shape.count,
                           is_stored   ? "0: the stored file has it"
                           : is_column ? "0 or 1 for a column"
                                       : "0 to 65536");
    if (is_stored && (input->per != LATHE_PER_TOKEN || table->rows != LATHE_ROWS_COMPLETIONS ||
                      !(table->needs & LATHE_NEEDS_TEACHER)))
        return lathe_error(
            LATHE_E_PLUGIN,
            "stage.inputs[%d] is a stored teacher's, which is per token, for rows of "
            "completions and a stage that needs a teacher",
            i);
    return LATHE_OK;
}

/* A stored teacher has tokens and their log-probabilities, and the stage needs both, once. */
static lathe_status check_stored_inputs(const lathe_stage_v1 *table)
{
    int32_t n_tokens = 0, n_values = 0;
    for (int32_t i = 0; i < table->n_inputs; i++)
        if (table->inputs[i].source == LATHE_INPUT_STORED) {
            n_tokens += lathe_stage_shape(table, i).dtype == LATHE_I32;
            n_values += lathe_stage_shape(table, i).dtype != LATHE_I32;
        }
    if (n_tokens == n_values && n_tokens <= 1)
        return LATHE_OK;
    return lathe_error(LATHE_E_PLUGIN,
                       "stage.inputs has %d inputs of a stored teacher's tokens and %d of their "
                       "log-probabilities, expected one each, or none",
                       n_tokens, n_values);
}

static lathe_status check_stage_inputs(const lathe_stage_v1 *table)
{
    if (table->n_inputs < 0 || table->n_inputs > LATHE_MAX_STAGE_INPUTS || table->inputs == NULL)
        return lathe_error(LATHE_E_PLUGIN, "stage.n_inputs is %d, expected 0 to %d and inputs",
                           table->n_inputs, LATHE_MAX_STAGE_INPUTS);
    for (int32_t i = 0; i < table->n_inputs; i++) {
        const lathe_stage_input *input = &table->inputs[i];
        if (input->name == NULL || input->name[0] == '\0' || input->doc == NULL)
            return lathe_error(LATHE_E_PLUGIN, "stage.inputs[%d] has no name or no doc", i);
        if (input->per != LATHE_PER_TOKEN && input->per != LATHE_PER_ROW)
            return lathe_error(LATHE_E_PLUGIN, "stage.inputs[%d].per is %d, expected %d or %d", i,
                               input->per, LATHE_PER_TOKEN, LATHE_PER_ROW);
        if (input->source < LATHE_INPUT_CALLER || input->source > LATHE_INPUT_STORED)
            return lathe_error(LATHE_E_PLUGIN, "stage.inputs[%d].source is %d, expected %d to %d",
                               i, input->source, LATHE_INPUT_CALLER, LATHE_INPUT_STORED);
        LATHE_TRY(check_input_shape(table, i));
        if (input->source == LATHE_INPUT_COLUMN && input->per == LATHE_PER_ROW &&
            !lathe_row_shape_get(lathe_rows_of(table))->is_padded)
            return lathe_error(LATHE_E_PLUGIN,
                               "stage.inputs[%d] is a column per row, but its rows have several "
                               "records each; expected LATHE_PER_TOKEN",
                               i);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(table->inputs[k].name, input->name) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two inputs of the stage are called %s",
                                   input->name);
    }
    return check_stored_inputs(table);
}

/* A head's name is part of a tensor's name in files. */
static int is_head_name(const char *name)
{
    const size_t n = name != NULL ? strnlen(name, 65) : 0;
    return n > 0 && n <= 64 && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static lathe_status check_stage_heads(const lathe_stage_v1 *table)
{
    if (table->n_heads < 0 || table->n_heads > LATHE_MAX_STAGE_HEADS || table->heads == NULL)
        return lathe_error(LATHE_E_PLUGIN, "stage.n_heads is %d, expected 0 to %d and heads",
                           table->n_heads, LATHE_MAX_STAGE_HEADS);
    for (int32_t i = 0; i < table->n_heads; i++) {
        const lathe_stage_head *head = &table->heads[i];
        if (!is_head_name(head->name) || head->doc == NULL)
            return lathe_error(LATHE_E_PLUGIN,
                               "stage.heads[%d] has no doc, or no name of 1 to 64 lower-case "
                               "letters, digits and _",
                               i);
        if (head->n_outputs < 1 || head->n_outputs > 65536)
            return lathe_error(LATHE_E_PLUGIN,
                               "stage.heads[%d].n_outputs is %d, expected 1 to 65536", i,
                               head->n_outputs);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(table->heads[k].name, head->name) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two heads of the stage are called %s",
                                   head->name);
    }
    return LATHE_OK;
}

static lathe_status check_stage_figures(const lathe_stage_v1 *table)
{
    if (table->n_figures < 0 || table->n_figures > LATHE_MAX_STAGE_FIGURES ||
        table->figures == NULL)
        return lathe_error(LATHE_E_PLUGIN, "stage.n_figures is %d, expected 0 to %d and figures",
                           table->n_figures, LATHE_MAX_STAGE_FIGURES);
    for (int32_t i = 0; i < table->n_figures; i++) {
        const lathe_stage_figure *f = &table->figures[i];
        if (f->name == NULL || f->name[0] == '\0' || f->doc == NULL)
            return lathe_error(LATHE_E_PLUGIN, "stage.figures[%d] has no name or no doc", i);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(table->figures[k].name, f->name) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two figures of the stage are called %s",
                                   f->name);
    }
    return LATHE_OK;
}

static lathe_status check_stage(const lathe_stage_v1 *table)
{
    const uint32_t known = LATHE_NEEDS_REFERENCE | LATHE_NEEDS_TEACHER | LATHE_NEEDS_REWARD;
    if (table->rows < 0 || table->rows >= LATHE_N_ROW_KINDS)
        return lathe_error(LATHE_E_PLUGIN,
                           "stage.rows is %d, expected %d (packed), %d (pairs), %d (completions), "
                           "%d (unpaired), %d (prompts) or %d (groups)",
                           table->rows, LATHE_ROWS_PACKED, LATHE_ROWS_PAIRS, LATHE_ROWS_COMPLETIONS,
                           LATHE_ROWS_UNPAIRED, LATHE_ROWS_PROMPTS, LATHE_ROWS_GROUPS);
    const int is_group = table->rows == LATHE_ROWS_GROUPS;
    if (is_group ? !lathe_rows_valid(lathe_rows_of(table)) : table->n_answers != 0)
        return lathe_error(LATHE_E_PLUGIN, "stage.n_answers is %d, expected %s", table->n_answers,
                           is_group ? "2 to 16 for rows of groups"
                                    : "0, as its rows are no groups");
    if (table->needs & ~known)
        return lathe_error(LATHE_E_PLUGIN, "stage.needs is %#x; this core knows %#x", table->needs,
                           known);
    if (table->n_columns < 0 || table->n_columns > MAX_COLUMNS ||
        (table->n_columns > 0 && table->columns == NULL))
        return lathe_error(LATHE_E_PLUGIN, "stage.n_columns is %d, expected 0 to %d and columns",
                           table->n_columns, MAX_COLUMNS);
    for (int32_t i = 0; i < table->n_columns; i++)
        if (table->columns[i].name == NULL || table->columns[i].name[0] == '\0')
            return lathe_error(LATHE_E_PLUGIN, "stage.columns[%d] has no name", i);
    if (LATHE_HAS(table, n_heads))
        LATHE_TRY(check_stage_heads(table));
    if (LATHE_HAS(table, n_figures))
        LATHE_TRY(check_stage_figures(table));
    return LATHE_HAS(table, n_inputs) ? check_stage_inputs(table) : LATHE_OK;
}

static lathe_status check_renderer(const lathe_renderer_v1 *table)
{
    if (table->flags & ~(uint32_t)LATHE_RENDERER_EXTENDS)
        return lathe_error(LATHE_E_PLUGIN, "renderer.flags is %#x; this core knows %#x",
                           table->flags, LATHE_RENDERER_EXTENDS);
    return LATHE_OK;
}

static lathe_status check_collective(const lathe_collective_v1 *table)
{
    const uint32_t known =
        LATHE_COLLECTIVE_NEEDS_BASE | LATHE_COLLECTIVE_FOR_DEVICES | LATHE_COLLECTIVE_NEEDS_NO_ROOM;
    if (table->flags & ~known)
        return lathe_error(LATHE_E_PLUGIN, "collective.flags is %#x; this core knows %#x",
                           table->flags, known);
    if ((table->flags & LATHE_COLLECTIVE_FOR_DEVICES) &&
        !(table->flags & LATHE_COLLECTIVE_NEEDS_BASE))
        return lathe_error(LATHE_E_PLUGIN,
                           "collective.flags is %#x: an engine for devices needs a "
                           "base",
                           table->flags);
    return LATHE_OK;
}

enum { MAX_MAGICS = 16, MAX_MAGIC_BYTES = 16 };

static lathe_status check_reader(const lathe_plugin *plugin)
{
    const lathe_reader_v1 *table = plugin->table;
    const char *at = table->suffixes;
    if (plugin->n_fields > 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "a reader has no keys, because no table of the file "
                           "names it; this one has %d",
                           plugin->n_fields);
    while (*at == '.' && strcspn(at, " ") > 1 && at[strcspn(at, " ")] == ' ')
        at += strcspn(at, " ") + 1;
    if (*at != '.' || strcspn(at, " ") < 2 || at[strcspn(at, " ")] != '\0')
        return lathe_error(LATHE_E_PLUGIN,
                           "reader.suffixes is \"%s\"; expected suffixes that begin with a period, "
                           "separated by single spaces",
                           table->suffixes);
    if (table->n_magics < 0 || table->n_magics > MAX_MAGICS ||
        (table->n_magics > 0 && table->magics == NULL))
        return lathe_error(LATHE_E_PLUGIN, "reader.n_magics is %d, expected 0 to %d and magics",
                           table->n_magics, MAX_MAGICS);
    for (int32_t i = 0; i < table->n_magics; i++) {
        const lathe_reader_magic *magic = &table->magics[i];
        if (magic->format == NULL || magic->bytes == NULL || magic->n_bytes < 1 ||
            magic->n_bytes > MAX_MAGIC_BYTES)
            return lathe_error(LATHE_E_PLUGIN,
                               "reader.magics[%d] has no format, or not 1 to %d bytes", i,
                               MAX_MAGIC_BYTES);
    }
    return LATHE_OK;
}

enum { MAX_MODEL_TYPES = 64 };

static int is_empty(const char *text)
{
    return text == NULL || text[0] == '\0';
}

static lathe_status check_wrapper(const lathe_model_wrapper *w, int32_t i)
{
    if (is_empty(w->model_type) || is_empty(w->architecture) || is_empty(w->text_key))
        return lathe_error(LATHE_E_PLUGIN,
                           "model.wrappers[%d] has no model_type, architecture or text_key", i);
    if (w->names == NULL || w->n_names < 1 || w->n_names > MAX_MODEL_TYPES)
        return lathe_error(LATHE_E_PLUGIN, "model.wrappers[%d].n_names is %d, expected 1 to %d", i,
                           w->n_names, MAX_MODEL_TYPES);
    for (int32_t k = 0; k < w->n_names; k++)
        if (is_empty(w->names[k].prefix) || w->names[k].head == NULL)
            return lathe_error(LATHE_E_PLUGIN, "model.wrappers[%d].names[%d] has no prefix or head",
                               i, k);
    return LATHE_OK;
}

static lathe_status check_model(const lathe_model_v1 *table)
{
    const int32_t n_wrappers = LATHE_HAS(table, n_wrappers) ? table->n_wrappers : 0;
    if (table->n_types < 1 || table->n_types > MAX_MODEL_TYPES)
        return lathe_error(LATHE_E_PLUGIN, "model.n_types is %d, expected 1 to %d", table->n_types,
                           MAX_MODEL_TYPES);
    for (int32_t i = 0; i < table->n_types; i++)
        if (is_empty(table->types[i].model_type) || is_empty(table->types[i].architecture))
            return lathe_error(LATHE_E_PLUGIN, "model.types[%d] has no model_type or architecture",
                               i);
    if (table->n_aliases < 0 || table->n_aliases > MAX_MODEL_TYPES ||
        (table->n_aliases > 0 && table->aliases == NULL))
        return lathe_error(LATHE_E_PLUGIN, "model.n_aliases is %d, expected 0 to %d and aliases",
                           table->n_aliases, MAX_MODEL_TYPES);
    for (int32_t i = 0; i < table->n_aliases; i++)
        if (is_empty(table->aliases[i].key) || is_empty(table->aliases[i].alias))
            return lathe_error(LATHE_E_PLUGIN, "model.aliases[%d] has no key or alias", i);
    if (n_wrappers < 0 || n_wrappers > MAX_MODEL_TYPES ||
        (n_wrappers > 0 && table->wrappers == NULL))
        return lathe_error(LATHE_E_PLUGIN, "model.n_wrappers is %d, expected 0 to %d and wrappers",
                           n_wrappers, MAX_MODEL_TYPES);
    for (int32_t i = 0; i < n_wrappers; i++)
        LATHE_TRY(check_wrapper(&table->wrappers[i], i));
    return LATHE_OK;
}

enum { MAX_OP_KERNELS = 64, MAX_OP_TESTS = 1000 };

static lathe_status check_op_tensors(const lathe_op_tensor *list, int32_t n, const char *side,
                                     int32_t known)
{
    for (int32_t i = 0; i < n; i++) {
        if (list[i].name == NULL || !lathe_name_is_valid(list[i].name) || is_empty(list[i].shape))
            return lathe_error(LATHE_E_PLUGIN, "op.%s[%d] has no snake_case name, or no shape",
                               side, i);
        if (list[i].flags & ~known)
            return lathe_error(LATHE_E_PLUGIN, "op.%s[%d].flags is %#x; this core knows %#x", side,
                               i, (unsigned)list[i].flags, (unsigned)known);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(list[k].name, list[i].name) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two of op.%s are called %s", side,
                                   list[i].name);
    }
    return LATHE_OK;
}

static lathe_status check_op_kernels(const lathe_op_kernel *list, int32_t n, const char *which)
{
    if (n < 1 || n > MAX_OP_KERNELS || list == NULL)
        return lathe_error(LATHE_E_PLUGIN, "op.%sn_kernels is %d, expected 1 to %d and kernels",
                           which, n, MAX_OP_KERNELS);
    for (int32_t i = 0; i < n; i++) {
        const lathe_op_kernel *k = &list[i];
        if (k->name == NULL || !lathe_name_is_valid(k->name) || k->score == NULL)
            return lathe_error(LATHE_E_PLUGIN,
                               "op.%skernels[%d] has no snake_case name, or no score", which, i);
        if ((k->run == NULL) == (k->queue == NULL))
            return lathe_error(LATHE_E_PLUGIN,
                               "op.%skernels[%d] (%s) has %s of run, for host memory, and queue, "
                               "for an image; expected one",
                               which, i, k->name, k->run == NULL ? "none" : "both");
    }
    return LATHE_OK;
}

/* The own backward has an input for each output's gradient, each input and each output. */
static lathe_status check_op_backward(const lathe_op_v1 *table)
{
    const lathe_op_backward *b = table->backward;
    if (table->derive != NULL)
        return lathe_error(LATHE_E_PLUGIN,
                           "op has derive and backward; expected one, or neither for an op without "
                           "a derivative");
    if (table->n_in > LATHE_OP_MAX_OUT || table->n_in + 2 * table->n_out > LATHE_OP_MAX_IN)
        return lathe_error(
            LATHE_E_PLUGIN,
            "op with its own backward has %d inputs and %d outputs; expected at most "
            "%d inputs, and inputs + 2 * outputs at most %d",
            table->n_in, table->n_out, LATHE_OP_MAX_OUT, LATHE_OP_MAX_IN);
    if (b->reads_in >> table->n_in != 0 || b->reads_out >> table->n_out != 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "op.backward reads inputs %#x and outputs %#x, and the op has %d and %d",
                           b->reads_in, b->reads_out, table->n_in, table->n_out);
    if (b->exact == NULL)
        return lathe_error(LATHE_E_PLUGIN, "op.backward.exact is NULL; every backward has it");
    return check_op_kernels(b->kernels, b->n_kernels, "backward.");
}

/* The attribute that says how many tokens a row has is a key of the schema. */
static lathe_status check_op_state(const lathe_plugin *plugin)
{
    const lathe_op_v1 *table = plugin->table;
    const lathe_op_state *s = table->state;
    if (s->shape == NULL || is_empty(s->tokens))
        return lathe_error(LATHE_E_PLUGIN,
                           "op.state has no shape, or no name of the attribute with "
                           "the tokens of a row");
    if (table->n_in + 2 > LATHE_OP_MAX_IN || table->n_out + 1 > LATHE_OP_MAX_OUT)
        return lathe_error(LATHE_E_PLUGIN,
                           "op with a state has %d inputs and %d outputs; expected at most %d and "
                           "%d",
                           table->n_in, table->n_out, LATHE_OP_MAX_IN - 2, LATHE_OP_MAX_OUT - 1);
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (strcmp(plugin->fields[i].key, s->tokens) == 0 && plugin->fields[i].type == LATHE_T_INT)
            return LATHE_OK;
    return lathe_error(LATHE_E_PLUGIN,
                       "op.state.tokens is \"%s\", which is no integer of its schema", s->tokens);
}

static lathe_status check_op(const lathe_plugin *plugin)
{
    const lathe_op_v1 *table = plugin->table;
    const int32_t of_input = LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_FIXED | LATHE_TENSOR_PARAMETER |
                             LATHE_TENSOR_IN_PLACE | LATHE_TENSOR_BATCHED;
    const uint32_t known = LATHE_OP_CHEAP | LATHE_OP_ACCUMULATES;
    if (table->n_in < 1 || table->n_in > LATHE_OP_MAX_IN || table->n_out < 1 ||
        table->n_out > LATHE_OP_MAX_OUT)
        return lathe_error(LATHE_E_PLUGIN,
                           "op has %d inputs and %d outputs; expected 1 to %d and 1 to %d",
                           table->n_in, table->n_out, LATHE_OP_MAX_IN, LATHE_OP_MAX_OUT);
    LATHE_TRY(check_op_tensors(table->inputs, table->n_in, "inputs", of_input));
    LATHE_TRY(check_op_tensors(table->outputs, table->n_out, "outputs",
                               LATHE_TENSOR_FIXED | LATHE_TENSOR_BATCHED));
    if (table->traits & ~known)
        return lathe_error(LATHE_E_PLUGIN, "op.traits is %#x; this core knows %#x", table->traits,
                           known);
    if (table->n_tests < 1 || table->n_tests > MAX_OP_TESTS)
        return lathe_error(LATHE_E_PLUGIN, "op.n_tests is %d, expected 1 to %d", table->n_tests,
                           MAX_OP_TESTS);
    for (int32_t i = 0; i < table->n_tests; i++)
        if (is_empty(table->tests[i].in) || is_empty(table->tests[i].out))
            return lathe_error(LATHE_E_PLUGIN, "op.tests[%d] has no inputs or outputs", i);
    LATHE_TRY(check_op_kernels(table->kernels, table->n_kernels, ""));
    if (LATHE_HAS(table, state))
        LATHE_TRY(check_op_state(plugin));
    return table->backward != NULL ? check_op_backward(table) : LATHE_OK;
}

lathe_status lathe_table_rules_check(const lathe_plugin *plugin)
{
    const char *kind = lathe_kind_name(plugin->kind);
    for (const struct rule *rule = rules[plugin->kind]; rule->member != NULL; rule++) {
        if (rule->group != ALWAYS)
            LATHE_TRY(check_pair(plugin, rule));
        else if (!has(plugin, rule))
            return lathe_error(LATHE_E_PLUGIN, "%s.%s is NULL; every %s has it", kind, rule->member,
                               kind);
    }
    if (plugin->kind == LATHE_KIND_MODEL)
        return check_model(plugin->table);
    if (plugin->kind == LATHE_KIND_RENDERER)
        return check_renderer(plugin->table);
    if (plugin->kind == LATHE_KIND_READER)
        return check_reader(plugin);
    if (plugin->kind == LATHE_KIND_COLLECTIVE)
        return check_collective(plugin->table);
    if (plugin->kind == LATHE_KIND_OP)
        return check_op(plugin);
    return plugin->kind == LATHE_KIND_STAGE ? check_stage(plugin->table) : LATHE_OK;
}
