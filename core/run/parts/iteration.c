/* Checks, plans and allocates what a stage that makes its own batches needs. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "run/parts/iteration.h"
#include "run/parts/reward_model.h"
#include "run/state/run_state.h"

static const lathe_stage_v1 *stage_of(const lathe_run *run)
{
    return run->parts.stage.component ? run->parts.stage.table : NULL;
}

lathe_status lathe__iteration_check(const lathe_run *run)
{
    const lathe_settings *s = &run->set;
    if (!lathe__run_iterates(run))
        return LATHE_OK;
    const char *name = run->parts.stage.component->plugin->name;
    if (lathe__run_evaluates(run))
        return lathe__run_refuse(run, "stage", "name",
                                 "stage \"%s\" trains on what the model writes, and has no loss "
                                 "over data to evaluate: evaluate the model with another stage, "
                                 "such as stage.name sft",
                                 name);
    if (!lathe__run_has_step(run))
        return LATHE_OK;
    if (s->gradient_accumulation_steps != 1)
        return lathe__run_refuse(
            run, "train", "gradient_accumulation_steps",
            "train.gradient_accumulation_steps = %d: stage \"%s\" decides itself how many batches "
            "of train.micro_batch_size rows a step has: leave it out",
            s->gradient_accumulation_steps, name);
    if (lathe_settings_has_validation(s))
        return lathe__run_refuse(run, "data", "validation",
                                 "stage \"%s\" trains on what the model writes, and has no loss "
                                 "over data to evaluate: leave out data.validation, "
                                 "data.validation_split and data.validation_count",
                                 name);
    if (s->max_steps <= 0)
        return lathe__run_refuse(run, "train", "max_steps",
                                 "stage \"%s\" decides itself how many prompts a step takes, so "
                                 "that epochs give no number of steps: set train.max_steps",
                                 name);
    return LATHE_OK;
}

/* Plans the reward model that the file names, if it names one. */
static lathe_status plan_reward_model(lathe_run *run)
{
    int32_t n = 0, n_models = 0;
    const lathe_config_reward *list = lathe_config_rewards(run->config, &n);
    for (int32_t i = 0; i < n; i++) {
        if (!list[i].model)
            continue;
        if (n_models++ > 0)
            return lathe__run_refuse(run, "reward", "model",
                                     "reward.model: \"%s\" is a second reward model; a run holds "
                                     "one",
                                     list[i].model);
        LATHE_TRY(lathe__reward_plan(run, "reward", "model", list[i].model,
                                     run->programs.train.n_rows, run->set.seq_len));
        run->iteration.reward_model = i;
    }
    return LATHE_OK;
}

lathe_status lathe__iteration_plan(lathe_run *run)
{
    const lathe_program *p = &run->programs.train;
    int64_t bytes = 0;
    if (!lathe__run_iterates(run) || !lathe__run_has_step(run))
        return LATHE_OK;
    const lathe_status status =
        stage_of(run)->state_bytes(run->parts.stage.self, p->n_rows, p->row_tokens, &bytes);
    if (status == LATHE_E_CONFIG)
        return lathe__run_refuse_part(run, LATHE_KIND_STAGE);
    LATHE_TRY(status);
    if (bytes < 0 || bytes % 8 != 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "stage \"%s\" wants %lld bytes of state, expected a multiple of 8",
                           run->parts.stage.component->plugin->name, (long long)bytes);
    run->iteration.state.bytes = bytes;
    run->planned.by[LATHE_MEM_STAGING] += 2 * bytes; /* and as it was before the step */
    return plan_reward_model(run);
}

lathe_status lathe__iteration_place(lathe_run *run)
{
    lathe_stage_state *state = &run->iteration.state;
    LATHE_TRY(lathe_machine_alloc(&run->machine, LATHE_MEM_STAGING, state->bytes, &state->memory));
    LATHE_TRY(lathe_machine_alloc(&run->machine, LATHE_MEM_STAGING, state->bytes,
                                  &run->iteration.before));
    if (state->bytes > 0) {
        memset(state->memory, 0, (size_t)state->bytes);
        memset(run->iteration.before, 0, (size_t)state->bytes);
    }
    return run->reward ? lathe__reward_place(run) : LATHE_OK;
}

void lathe__iteration_close(lathe_run *run)
{
    lathe_iteration *i = &run->iteration;
    lathe_machine_free(&run->machine, LATHE_MEM_STAGING, i->state.bytes, i->state.memory);
    lathe_machine_free(&run->machine, LATHE_MEM_STAGING, i->state.bytes, i->before);
    free(i->prompts);
    memset(i, 0, sizeof *i);
}
