/* What a run would refuse, found without memory, weights or data. */
#include "run/run_check.h"

#include <stdlib.h>

#include "base/error.h"
#include "run/curvature.h"
#include "run/figure_names.h"
#include "run/run_state.h"
#include "run/weight_average.h"

lathe_status lathe__run_check_length(const lathe_run *run, int64_t total)
{
    const lathe_scheduler_v1 *scheduler = run->scheduler.component ? run->scheduler.table : NULL;
    LATHE_TRY(lathe__average_check_start(run));
    if (LATHE_HAS(scheduler, check)) {
        const lathe_status status = scheduler->check(run->scheduler.self, total);
        if (status == LATHE_E_CONFIG)
            return lathe__run_refuse_part(run, LATHE_KIND_SCHEDULER);
        LATHE_TRY(status);
    }
    return lathe__average_check_schedule(run, total);
}

/* A run from epochs learns its length from the data: only a schedule that has its own is judged. */
static void check_length(lathe_run *run)
{
    const int64_t own = lathe_config_int(run->config, "scheduler", "total_steps");
    const int64_t total = run->set.max_steps > 0 ? run->set.max_steps : own;
    (void)(total > 0 ? lathe__run_check_length(run, total) : lathe__average_check_schedule(run, 0));
}

/* The model's description and parameters. A vocabulary that nothing tells is the tokenizer's. */
static void check_model(lathe_run *run)
{
    const char *key = run->set.model_path ? "path" : "model_type";
    lathe_status status = LATHE_OK;
    const int64_t n_errors = run->diags->n_errors;
    if (!run->set.model_path && !run->set.tokenizer_train &&
        !lathe_config_is_set(run->config, "model", "vocab_size"))
        status = lathe__run_tokenizer(run);
    if (status == LATHE_OK)
        status = lathe__run_params(run);
    if (status != LATHE_OK && run->diags->n_errors == n_errors)
        lathe_config_add(run->config, run->diags, LATHE_DIAG_ERROR, "model", key, "%s",
                         lathe_error_message());
}

lathe_status lathe_run_check(lathe_config *config, lathe_registry *registry, lathe_diags *diags)
{
    lathe_run *run = calloc(1, sizeof *run);
    if (!run)
        return lathe_error(LATHE_E_NOMEM, "no memory to check a run");
    run->mode = LATHE_OPEN_TRAIN;
    run->config = config;
    run->registry = registry;
    run->diags = diags;
    lathe_settings_read(config, &run->set);
    lathe_status status = lathe__run_parts(run);
    if (status == LATHE_OK) {
        (void)lathe__curvature_check_stage(run);
        (void)lathe__average_check_optimizer(run);
        (void)lathe__figure_check_best(run);
        check_length(run);
        check_model(run);
    }
    run->config = NULL; /* both are the caller's */
    run->registry = NULL;
    lathe_run_close(run);
    return status == LATHE_E_CONFIG ? LATHE_OK : status;
}
