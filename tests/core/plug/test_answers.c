/* Answers of plugins that break a rule of their kind are refused with the rule, and damage
 * nothing. */
#include "plug/answers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/error.h"

static lathe_plugin plugin = {.name = "bad"};
static const lathe_component component = {&plugin, "/p/bad.so"};
static const lathe_param_info param = {
    .size = (uint32_t)sizeof param, .name = "w", .desc = {LATHE_F32, 2, {4, 4, 1, 1}}};

static void refused(lathe_status status, const char *part)
{
    cr_expect_eq(status, LATHE_E_PLUGIN, "accepted: %s", part);
    cr_expect_not_null(strstr(lathe_error_message(), "bad (/p/bad.so) breaks a rule"), "%s",
                       lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), part), "no '%s' in: %s", part,
                       lathe_error_message());
}

/* ---- optimizers ---- */

static int32_t n_slots, n_written, partition_answer;
static lathe_slot slot;
static int64_t scratch_answer, block_answer;
static double lr_answer;

static int32_t slots(void *self, const lathe_param_info *p, lathe_slot *out)
{
    (void)self, (void)p;
    for (int32_t i = 0; i < n_written; i++)
        out[i] = slot;
    return n_slots;
}

static int32_t partition(void *self, const lathe_param_info *p)
{
    (void)self, (void)p;
    return partition_answer;
}

static int64_t scratch(void *self, const lathe_param_info *p)
{
    (void)self, (void)p;
    return scratch_answer;
}

static int64_t block(void *self, const lathe_param_info *p)
{
    (void)self, (void)p;
    return block_answer;
}

static double base_lr(void *self)
{
    (void)self;
    return lr_answer;
}

static const lathe_optimizer_v1 optimizer = {.size = (uint32_t)sizeof optimizer,
                                             .slots = slots,
                                             .partition = partition,
                                             .scratch = scratch,
                                             .block = block,
                                             .base_lr = base_lr};
static const lathe_instance of_optimizer = {.component = &component, .table = &optimizer};

static lathe_status ask_slots(int32_t n, lathe_slot answer)
{
    lathe_slot out[LATHE_MAX_SLOTS];
    int32_t count, kind;
    n_slots = n_written = n;
    slot = answer;
    return lathe_answer_slots(&of_optimizer, &param, out, &count, &kind);
}

Test(answers, more_slots_than_allowed_are_refused)
{
    const lathe_slot good = {"m", {LATHE_F32, 1, {16, 1, 1, 1}}};
    plugin.kind = LATHE_KIND_OPTIMIZER;
    cr_assert_eq(ask_slots(1, good), LATHE_OK, "%s", lathe_error_message());
    refused(ask_slots(99, good), "slots() returns 99 for w, expected 0 to 8");
    n_slots = -1;
    n_written = 0;
    refused(ask_slots(-1, good), "slots() returns -1");
    refused(ask_slots(2, good), "two slots have the name m");
}

Test(answers, a_slot_without_a_name_or_with_a_shape_that_overflows_is_refused)
{
    plugin.kind = LATHE_KIND_OPTIMIZER;
    refused(ask_slots(1, (lathe_slot){NULL, {LATHE_F32, 1, {16, 1, 1, 1}}}), "slot 0 has no name");
    refused(ask_slots(1, (lathe_slot){"", {LATHE_F32, 1, {16, 1, 1, 1}}}), "no letter");
    refused(ask_slots(1, (lathe_slot){"m", {LATHE_F32, 1, {INT64_C(1) << 60, 1, 1, 1}}}),
            "slot m has dims[0] = 1152921504606846976");
    refused(ask_slots(1, (lathe_slot){"m", {LATHE_F32, 2, {1 << 30, 1 << 30, 1, 1}}}), "dims[1]");
    refused(ask_slots(1, (lathe_slot){"m", {LATHE_F32, 1, {-4, 1, 1, 1}}}), "dims[0] = -4");
    refused(ask_slots(1, (lathe_slot){"m", {LATHE_F32, 9, {1, 1, 1, 1}}}), "rank 9");
    refused(ask_slots(1, (lathe_slot){"m", {77, 1, {1, 1, 1, 1}}}), "dtype 77");
}

Test(answers, an_unknown_partition_and_a_size_that_is_none_are_refused)
{
    const lathe_slot good = {"m", {LATHE_F32, 1, {16, 1, 1, 1}}};
    plugin.kind = LATHE_KIND_OPTIMIZER;
    partition_answer = 42;
    refused(ask_slots(1, good), "partition() returns 42 for w, expected 0 to 4");
    partition_answer = LATHE_PARTITION_MATRIX;
    refused(ask_slots(1, good), "partition() returns MATRIX for w, but build is NULL");
    partition_answer = LATHE_PARTITION_BLOCK;
    refused(ask_slots(1, good), "block() is 0 elements");
    partition_answer = LATHE_PARTITION_ELEMENT;
    scratch_answer = -1;
    refused(ask_slots(1, good), "scratch() is -1 bytes");
    scratch_answer = INT64_C(1) << 60;
    refused(ask_slots(1, good), "scratch() is 1152921504606846976 bytes");
}

Test(answers, a_rate_that_is_no_number_is_refused)
{
    double lr;
    plugin.kind = LATHE_KIND_OPTIMIZER;
    lr_answer = NAN;
    refused(lathe_answer_base_lr(&of_optimizer, &lr), "base_lr() is");
    lr_answer = -1.0;
    refused(lathe_answer_base_lr(&of_optimizer, &lr), "base_lr() is -1");
}

/* ---- codecs, adapters, stages, attention, devices ---- */

static int32_t planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    (void)self, (void)rows, (void)cols;
    for (int32_t i = 0; i < n_written; i++)
        out[i] = (lathe_plane){slot.name, "", slot.desc};
    return n_slots;
}

Test(answers, planes_of_a_codec_are_checked_like_slots)
{
    const lathe_quant_v1 table = {.size = (uint32_t)sizeof table, .planes = planes};
    const lathe_instance quant = {.component = &component, .table = &table};
    lathe_plane out[LATHE_MAX_PLANES];
    int32_t n;
    plugin.kind = LATHE_KIND_QUANT;
    slot = (lathe_slot){"codes", {LATHE_U8, 1, {16, 1, 1, 1}}};
    n_slots = n_written = 99;
    refused(lathe_answer_planes(&quant, 4, 4, out, &n), "planes() returns 99, expected 1 to 6");
    n_slots = n_written = 0;
    refused(lathe_answer_planes(&quant, 4, 4, out, &n), "planes() returns 0");
    n_slots = n_written = 1;
    cr_expect_eq(lathe_answer_planes(&quant, 4, 4, out, &n), LATHE_OK);
    slot.desc.dims[0] = INT64_C(1) << 60;
    refused(lathe_answer_planes(&quant, 4, 4, out, &n), "plane codes has dims[0]");
    slot.name = NULL;
    refused(lathe_answer_planes(&quant, 4, 4, out, &n), "plane 0 has no name");
}

static int32_t trainable_answer, group_answer;

static lathe_status select_param(void *self, const lathe_param_info *p, int32_t *trainable,
                                 int32_t *group)
{
    (void)self, (void)p;
    *trainable = trainable_answer;
    *group = group_answer;
    return LATHE_OK;
}

Test(answers, a_parameter_trains_or_not_and_has_a_group)
{
    const lathe_adapter_v1 table = {.size = (uint32_t)sizeof table, .select = select_param};
    const lathe_instance adapter = {.component = &component, .table = &table};
    int32_t trainable, group;
    plugin.kind = LATHE_KIND_ADAPTER;
    trainable_answer = 7;
    refused(lathe_answer_select(&adapter, &param, 16, &trainable, &group), "trainable = 7 for w");
    trainable_answer = 1;
    group_answer = 16;
    refused(lathe_answer_select(&adapter, &param, 16, &trainable, &group), "group 16");
    group_answer = -1;
    refused(lathe_answer_select(&adapter, &param, 16, &trainable, &group), "group -1");
}

static lathe_status describe(lathe_graph *g, lathe_val v, lathe_desc *out)
{
    (void)g;
    *out = v == 1 ? (lathe_desc){LATHE_BF16, 0, {1, 1, 1, 1}}
                  : (lathe_desc){LATHE_F32, v == 2 ? 1 : 0, {4, 1, 1, 1}};
    return v <= 2 ? LATHE_OK : LATHE_E_ARG;
}

static lathe_stage_loss loss_answer;

static lathe_status loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    (void)self, (void)build;
    const uint32_t size = out->size;
    *out = loss_answer;
    out->size = size;
    for (int32_t i = 0; i < loss_answer.n_metrics && i < LATHE_MAX_STAGE_METRICS; i++)
        out->metrics[i] = loss_answer.metrics[0];
    return LATHE_OK;
}

Test(answers, a_loss_has_few_named_metrics_and_values_of_the_graph)
{
    const lathe_stage_v1 table = {.size = (uint32_t)sizeof table, .loss = loss};
    const lathe_instance stage = {.component = &component, .table = &table};
    const lathe_graph_api api = {.size = (uint32_t)sizeof api, .desc = describe};
    const lathe_stage_build build = {.size = (uint32_t)sizeof build, .api = &api};
    const lathe_stage_loss good = {.n_metrics = 1, .sum = 0, .metrics = {{"m", 0, 0}}};
    lathe_stage_loss out;
    plugin.kind = LATHE_KIND_STAGE;
    loss_answer = good;
    cr_assert_eq(lathe_answer_loss(&stage, &build, &out), LATHE_OK, "%s", lathe_error_message());
    loss_answer.n_metrics = 99;
    refused(lathe_answer_loss(&stage, &build, &out), "99 metrics, expected 0 to 16");
    loss_answer = good;
    loss_answer.metrics[0].name = NULL;
    refused(lathe_answer_loss(&stage, &build, &out), "metric 0 has no name");
    loss_answer = good;
    loss_answer.count_unit = 5;
    refused(lathe_answer_loss(&stage, &build, &out), "count_unit 5");
    loss_answer = good;
    loss_answer.sum = LATHE_NONE;
    refused(lathe_answer_loss(&stage, &build, &out), "value -1 as the loss");
    loss_answer.sum = 1000;
    refused(lathe_answer_loss(&stage, &build, &out), "value 1000 as the loss");
    loss_answer.sum = 1;
    refused(lathe_answer_loss(&stage, &build, &out), "of dtype bf16");
    loss_answer.sum = 2;
    refused(lathe_answer_loss(&stage, &build, &out), "expected one f32");
}

static lathe_status iterate(void *self, const struct lathe_run_api *api, void *run, void *state)
{
    (void)self, (void)api, (void)run, (void)state;
    return LATHE_OK;
}

Test(answers, outputs_of_a_loss_are_one_f32_per_token_and_only_where_a_stage_iterates)
{
    const lathe_stage_v1 table = {.size = (uint32_t)sizeof table, .loss = loss, .iterate = iterate};
    const lathe_stage_v1 plain = {.size = (uint32_t)sizeof plain, .loss = loss};
    const lathe_instance stage = {.component = &component, .table = &table};
    const lathe_instance without = {.component = &component, .table = &plain};
    const lathe_graph_api api = {.size = (uint32_t)sizeof api, .desc = describe};
    const lathe_stage_build build = {
        .size = (uint32_t)sizeof build, .n_rows = 2, .row_tokens = 2, .api = &api};
    const lathe_stage_loss good = {.sum = 0, .n_outputs = 2, .outputs = {LATHE_NONE, 2}};
    lathe_stage_loss out;
    plugin.kind = LATHE_KIND_STAGE;
    loss_answer = good;
    cr_assert_eq(lathe_answer_loss(&stage, &build, &out), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(out.n_outputs, 2);
    cr_expect_eq(out.outputs[1], 2);
    refused(lathe_answer_loss(&without, &build, &out), "2 outputs, which only iterate() reads");
    loss_answer.n_outputs = 5;
    refused(lathe_answer_loss(&stage, &build, &out), "5 outputs, expected 0 to 4");
    loss_answer = good;
    loss_answer.outputs[0] = 1000;
    refused(lathe_answer_loss(&stage, &build, &out), "value 1000 as output 0");
    loss_answer.outputs[0] = 0;
    refused(lathe_answer_loss(&stage, &build, &out), "output 0 of loss() has 1 elements");
}

static uint32_t heads_of(void *self)
{
    return *(const uint32_t *)self;
}

Test(answers, a_stage_has_the_heads_that_its_settings_choose)
{
    static const lathe_stage_head heads[2] = {{"value", 1, 0, "a"}, {"other", 1, 0, "b"}};
    uint32_t chosen = 2;
    lathe_stage_v1 table = {
        .size = (uint32_t)sizeof table, .loss = loss, .heads = heads, .n_heads = 2};
    const lathe_instance stage = {.component = &component, .table = &table, .self = &chosen};
    const lathe_instance none = {.component = NULL};
    cr_expect_eq(lathe_answer_heads(&stage), 3);
    table.heads_of = heads_of;
    cr_expect_eq(lathe_answer_heads(&stage), 2);
    chosen = 0xFC;
    cr_expect_eq(lathe_answer_heads(&stage), 0);
    cr_expect_eq(lathe_answer_heads(&none), 0);
}

static int64_t attention_scratch(void *self, const lathe_attention_problem *problem)
{
    (void)self, (void)problem;
    return scratch_answer;
}

Test(answers, scratch_of_attention_is_a_size)
{
    const lathe_attention_v1 table = {.size = (uint32_t)sizeof table,
                                      .forward_scratch = attention_scratch,
                                      .backward_scratch = attention_scratch};
    const lathe_instance attention = {.component = &component, .table = &table};
    int64_t bytes;
    plugin.kind = LATHE_KIND_ATTENTION;
    scratch_answer = -8;
    refused(lathe_answer_attention_scratch(&attention, NULL, 0, &bytes), "forward_scratch() is -8");
    refused(lathe_answer_attention_scratch(&attention, NULL, 1, &bytes), "backward_scratch() is");
}

static lathe_device_info info_answer;

static lathe_status info(void *self, lathe_device_info *out)
{
    (void)self;
    *out = info_answer;
    return LATHE_OK;
}

Test(answers, a_device_has_workers_and_texts_that_end)
{
    const lathe_device_v1 table = {.size = (uint32_t)sizeof table, .info = info};
    const lathe_instance device = {.component = &component, .table = &table};
    lathe_device_info out = {.size = (uint32_t)sizeof out};
    plugin.kind = LATHE_KIND_DEVICE;
    refused(lathe_answer_device_info(&device, &out), "0 workers");
    info_answer.n_workers = 1;
    cr_expect_eq(lathe_answer_device_info(&device, &out), LATHE_OK);
    memset(info_answer.isa, 'x', sizeof info_answer.isa);
    refused(lathe_answer_device_info(&device, &out), "a text without an end");
    memset(info_answer.isa, 0, sizeof info_answer.isa);
    info_answer.memory_bytes = -1;
    refused(lathe_answer_device_info(&device, &out), "-1 bytes of memory");
}
