/* Lists the kinds of plugins. */
#include "plug/kind.h"

#include <string.h>

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

/* table_bytes: size up to the last member that the core requires. Later members may be absent, so
 * tables of older and newer headers are accepted. */
struct kind {
    const char *name, *fallback;
    uint32_t revision, table_bytes;
    int scored;
    const char *none;    /* the name that means no plugin; NULL: there is none */
    const char *planned; /* the name that leaves the choice to the plan; NULL: there is none */
    const char *chosen;  /* what chooses its plugins instead of a run file; NULL: a table does */
};

#define REACH(type, member) (uint32_t)(offsetof(type, member) + sizeof(((type *)0)->member))

static const struct kind kinds[LATHE_N_KINDS] = {
    [LATHE_KIND_OPTIMIZER] = {"optimizer", "adamw", LATHE_OPTIMIZER_REVISION,
                              REACH(lathe_optimizer_v1, step), 0, NULL},
    [LATHE_KIND_SCHEDULER] = {"scheduler", "cosine", LATHE_SCHEDULER_REVISION,
                              REACH(lathe_scheduler_v1, at), 0, NULL},
    [LATHE_KIND_QUANT] = {"quant", "none", LATHE_QUANT_REVISION, REACH(lathe_quant_v1, decode), 0,
                          "none"},
    [LATHE_KIND_ADAPTER] = {"adapter", "full", LATHE_ADAPTER_REVISION,
                            REACH(lathe_adapter_v1, select), 0, NULL, "auto"},
    [LATHE_KIND_STAGE] = {"stage", "pretrain", LATHE_STAGE_REVISION, REACH(lathe_stage_v1, loss), 0,
                          NULL},
    [LATHE_KIND_ATTENTION] = {"attention", "auto", LATHE_ATTENTION_REVISION,
                              REACH(lathe_attention_v1, backward), 1, NULL},
    [LATHE_KIND_DEVICE] = {"device", "auto", LATHE_DEVICE_REVISION,
                           REACH(lathe_device_v1, kernel_run), 1, NULL},
    [LATHE_KIND_MODEL] = {"model", "auto", LATHE_MODEL_REVISION, REACH(lathe_model_v1, build), 0,
                          NULL},
    [LATHE_KIND_REWARD] = {"reward", "none", LATHE_REWARD_REVISION, REACH(lathe_reward_v1, score),
                           0, "none"},
    [LATHE_KIND_RENDERER] = {"renderer", "auto", LATHE_RENDERER_REVISION,
                             REACH(lathe_renderer_v1, render), 1, "jinja"},
    [LATHE_KIND_READER] = {"reader", "auto", LATHE_READER_REVISION, REACH(lathe_reader_v1, close),
                           0, NULL, NULL,
                           "the names of the files in data.datasets decide which reader reads "
                           "them"},
    [LATHE_KIND_COLLECTIVE] = {"collective", "auto", LATHE_COLLECTIVE_REVISION,
                               REACH(lathe_collective_v1, abort), 1, NULL},
    [LATHE_KIND_OP] = {"op", "auto", LATHE_OP_REVISION, REACH(lathe_op_v1, n_kernels), 0, NULL,
                       NULL,
                       "the plugins of the model, the adapter and the stage name the ops that they "
                       "use"},
};

static const struct kind *get(int32_t kind)
{
    return &kinds[kind > 0 && kind < LATHE_N_KINDS ? kind : 0];
}

const char *lathe_kind_name(int32_t kind)
{
    return get(kind)->name != NULL ? get(kind)->name : "?";
}

int32_t lathe_kind_id(const char *name)
{
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++)
        if (strcmp(kinds[kind].name, name) == 0)
            return kind;
    return 0;
}

int lathe_name_is_valid(const char *name)
{
    if (name[0] < 'a' || name[0] > 'z')
        return 0;
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

uint32_t lathe_kind_revision(int32_t kind)
{
    return get(kind)->revision;
}

uint32_t lathe_kind_table_bytes(int32_t kind)
{
    return get(kind)->table_bytes;
}

const char *lathe_kind_default(int32_t kind)
{
    return get(kind)->fallback;
}

int lathe_kind_is_scored(int32_t kind)
{
    return get(kind)->scored;
}

const char *lathe_kind_none(int32_t kind)
{
    return get(kind)->none;
}

const char *lathe_kind_chosen(int32_t kind)
{
    return get(kind)->chosen;
}

const char *lathe_kind_planned(int32_t kind)
{
    return get(kind)->planned;
}
