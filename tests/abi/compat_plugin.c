/* Plugins of other versions. COMPAT_OLD: tables that end after the last member that the core
 * requires, with poison where later members would be. COMPAT_NEW: a constant and tables longer than
 * this core knows. Each plugin does its plain work: SGD, a constant rate, everything trains,
 * cross-entropy. */
#include "lathe/adapter.h"
#include "lathe/optimizer.h"
#include "lathe/plugin.h"
#include "lathe/scheduler.h"
#include "lathe/stage.h"

#define POISON ((void *)0x5a5a5a5a5a5a5a5a)

/* A table of one of these sizes, and what follows it in memory. */
#ifdef COMPAT_OLD
#define TABLE(type, last, ...)                                                                     \
    static union {                                                                                 \
        type table;                                                                                \
        void *words[sizeof(type) / sizeof(void *)];                                                \
    } compat = {.table = {.size = offsetof(type, last) + sizeof(((type *)0)->last), __VA_ARGS__}}; \
    __attribute__((constructor)) static void poison(void)                                          \
    {                                                                                              \
        for (size_t i = compat.table.size / sizeof(void *); i < sizeof(type) / sizeof(void *);     \
             i++)                                                                                  \
            compat.words[i] = POISON;                                                              \
    }
#define COMPAT_TABLE &compat.table
#else
#define TABLE(type, last, ...)                                                                     \
    static const struct {                                                                          \
        type table;                                                                                \
        void *later[4];                                                                            \
    } compat = {{.size = sizeof compat, __VA_ARGS__}, {POISON, POISON, POISON, POISON}};
#define COMPAT_TABLE &compat.table
#endif

#if COMPAT_KIND == 1 /* optimizer */

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self, (void)param, (void)out;
    return 0;
}

static double base_lr(void *self)
{
    (void)self;
    return 0.5;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    (void)self;
    for (int32_t t = 0; t < s->n_tensors; t++)
        for (int64_t i = 0; i < s->tensors[t].n; i++)
            s->tensors[t].param[i] -= s->scalars[LATHE_SCALAR_LR] *
                                      s->scalars[LATHE_SCALAR_GRAD_SCALE] * s->tensors[t].grad[i];
    return LATHE_OK;
}

TABLE(lathe_optimizer_v1, step, .revision = 1, .slots = slots, .base_lr = base_lr, .step = step)

#elif COMPAT_KIND == 2 /* scheduler */

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    (void)self, (void)step, (void)total, (void)state;
    return base_lr;
}

TABLE(lathe_scheduler_v1, at, .revision = 1, .at = at)

#elif COMPAT_KIND == 4 /* adapter */

static lathe_status choose(void *self, const lathe_param_info *param, int32_t *out_trainable,
                           int32_t *out_group)
{
    (void)self, (void)param;
    *out_trainable = 1;
    *out_group = 0;
    return LATHE_OK;
}

TABLE(lathe_adapter_v1, select, .revision = 1, .select = choose)

#else /* stage */

static const lathe_column columns[] = {{"text", 1, 0, "a document"}};

static lathe_status loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const lathe_op_attrs minus = {.alpha = -1.0};
    lathe_val v;
    (void)self;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &v));
    LATHE_TRY(build->api->node(build->graph, LATHE_OP_SUM, NULL, &v, 1, &v, 1, -1, "sum"));
    LATHE_TRY(build->api->node(build->graph, LATHE_OP_SCALE, &minus, &v, 1, &v, 1, -1, "minus"));
    out->sum = v;
    out->count_unit = LATHE_COUNT_TOKENS;
    return LATHE_OK;
}

TABLE(lathe_stage_v1, loss, .revision = 1, .columns = columns, .n_columns = 1, .loss = loss)

#endif

#ifdef COMPAT_OLD
#define HEADER .size = 104, .abi_major = LATHE_ABI_MAJOR, .abi_minor = 0
#define NAME "old"
#else
#define HEADER .size = sizeof compat_entry, .abi_major = LATHE_ABI_MAJOR, .abi_minor = 7
#define NAME "new"
#endif

/* The constant under its exported name, possibly with members after it. */
extern const struct compat_entry {
    lathe_plugin known;
    void *later[3];
} compat_entry __asm__(LATHE_PLUGIN_ENTRY_NAME) __attribute__((visibility("default")));

const struct compat_entry compat_entry = {
    .known = {HEADER, .kind = COMPAT_KIND, .revision = 1, .name = NAME, .version = "1.0.0",
              .summary = "of another time", .source = "ours", .license = "Apache-2.0",
              .table = COMPAT_TABLE},
    .later = {POISON, POISON, POISON},
};
