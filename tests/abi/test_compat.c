/* Plugins with shorter (older) and longer (newer) tables load, and a run can train with only
 * these. */
#include "support/run_case.h"

#include <dlfcn.h>

#include "plug/kind.h"
#include "plug/so.h"

#define TREE LATHE_TEST_BUILD "/tests/abi"

static const struct {
    int32_t kind;
    const char *name;
} kinds[] = {{LATHE_KIND_OPTIMIZER, "optimizer"},
             {LATHE_KIND_SCHEDULER, "scheduler"},
             {LATHE_KIND_ADAPTER, "adapter"},
             {LATHE_KIND_STAGE, "stage"}};

static const lathe_plugin *open_plugin(int i, const char *name)
{
    const lathe_plugin *plugin = NULL;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s/%s.so", TREE, kinds[i].name, name);
    OK(lathe_so_open(path, kinds[i].kind, name, NULL, &plugin));
    return plugin;
}

static uint32_t table_size(const lathe_plugin *plugin)
{
    return *(const uint32_t *)plugin->table;
}

Test(compat, shorter_and_longer_tables_are_taken)
{
    static const uint32_t known[] = {sizeof(lathe_optimizer_v1), sizeof(lathe_scheduler_v1),
                                     sizeof(lathe_adapter_v1), sizeof(lathe_stage_v1)};
    for (int i = 0; i < 4; i++) {
        const lathe_plugin *older = open_plugin(i, "old"), *newer = open_plugin(i, "new");
        /* A stage's table has no optional member yet, so its shortest form is the whole table. */
        if (kinds[i].kind != LATHE_KIND_STAGE)
            cr_expect_lt(table_size(older), known[i], "%s", kinds[i].name);
        cr_expect_eq(table_size(older), lathe_kind_table_bytes(kinds[i].kind),
                     "%s: the least there is", kinds[i].name);
        cr_expect_gt(table_size(newer), known[i], "%s", kinds[i].name);
        cr_expect_gt(newer->size, sizeof(lathe_plugin));
        cr_expect_gt(newer->abi_minor, LATHE_ABI_MINOR);
    }
}

Test(compat, a_member_after_the_end_of_the_struct_is_absent)
{
    const lathe_optimizer_v1 *older = open_plugin(0, "old")->table;
    cr_assert_not_null(older->build, "poison lies there");
    cr_expect(LATHE_HAS(older, step));
    cr_expect_not(LATHE_HAS(older, build));
    cr_expect_not(LATHE_HAS(older, cuda_image));
    const lathe_optimizer_v1 *newer = open_plugin(0, "new")->table;
    cr_expect(LATHE_HAS(newer, step));
    cr_expect_not(LATHE_HAS(newer, build), "known and left out");
}

/* A table that lacks the last required member is refused. */
Test(compat, a_table_without_a_needed_member_is_refused)
{
    for (int i = 0; i < 4; i++) {
        lathe_plugin plugin = *open_plugin(i, "old");
        char table[256] = {0};
        memcpy(table, plugin.table, lathe_kind_table_bytes(kinds[i].kind));
        *(uint32_t *)(void *)table -= 8;
        plugin.table = table;
        cr_expect_eq(lathe_plugin_check(&plugin, kinds[i].kind, "old"), LATHE_E_PLUGIN);
        cr_expect_not_null(strstr(lathe_error_message(), "its table has"));
    }
}

static void train(const char *name, double out_loss[3])
{
    char part[4][64];
    lathe_forward_result forward = {.size = (uint32_t)sizeof forward};
    lathe_step_result step = {.size = (uint32_t)sizeof step};
    for (int i = 0; i < 4; i++)
        (void)snprintf(part[i], sizeof part[i], "%s.name=%s", kinds[i].name, name);
    const char *const settings[] = {"model.path=" MODELS "llama_tied",
                                    "plugins.paths=[\"" TREE "\"]",
                                    part[0],
                                    part[1],
                                    part[2],
                                    part[3],
                                    "train.precision=fp32",
                                    "train.max_steps=3",
                                    "data.seq_len=8",
                                    "train.micro_batch_size=1",
                                    NULL};
    static const int32_t tokens[8] = {1, 2, 3, 4, 1, 2, 3, 4},
                         targets[8] = {2, 3, 4, 1, 2, 3, 4, -1};
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 1,
                                   .row_tokens = 8,
                                   .tokens = tokens,
                                   .targets = targets};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    for (int i = 0; i < 3; i++) {
        OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &forward));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &step));
        out_loss[i] = step.loss;
        cr_expect_eq(step.lr, 0.5);
    }
    lathe_run_close(run);
}

Test(compat, a_run_of_older_parts_trains_as_one_of_newer_parts)
{
    double older[3], newer[3];
    train("old", older);
    train("new", newer);
    cr_expect_lt(older[2], older[0]);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(older[i], newer[i], "step %d: %g and %g", i, older[i], newer[i]);
}

/* The constant is data: reading it runs no code of the plugin except its constructors. */
Test(compat, a_plugin_exports_one_constant_and_nothing_else)
{
    void *so = dlopen(TREE "/optimizer/new.so", RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(so, "%s", dlerror());
    cr_expect_not_null(dlsym(so, "lathe_plugin_v1"));
    cr_expect_null(dlsym(so, "compat"));
    cr_expect_null(dlsym(so, "step"));
}
