/* Opens a reward model in addition to a run's own model, and scores sequences of the run's
 * tokens with it. */
#include "run/parts/reward_model.h"

#include "base/error.h"
#include "run/parts/other_model.h"

lathe_status lathe__reward_plan(lathe_run *run, const char *section, const char *key,
                                const char *path, int32_t n_rows, int64_t row_tokens)
{
    const lathe_scorer_config config = {.machine = &run->machine,
                                        .source = {.registry = run->registry},
                                        .path = path,
                                        .n_rows = n_rows,
                                        .row_tokens = row_tokens,
                                        .is_unmade = run->open.awaits.reward,
                                        .compute_dtype = run->set.compute_dtype};
    LATHE_TRY(lathe__run_check_whole(run, section, key, path, "a reward model"));
    const lathe_status status = lathe_scorer_create(&config, &run->reward);
    if (status == LATHE_E_CONFIG)
        return lathe__run_refuse(run, section, key, "%s.%s: %s", section, key,
                                 lathe_error_message());
    LATHE_TRY(status);
    /* Without tokenizers to compare, its rows must at least be as many as the policy's tokens. */
    const lathe_model_config *judge = lathe_scorer_model(run->reward);
    LATHE_TRY(lathe__run_check_vocabulary(run, section, key, path, "the reward model", judge,
                                          judge->vocab < run->model.vocab));
    const lathe_scorer_needs needs = lathe_scorer_needs_get(run->reward);
    lathe_programs *programs = &run->programs;
    if (needs.arena_bytes > programs->arena_bytes)
        programs->arena_bytes = needs.arena_bytes;
    if (needs.activation_bytes > programs->activation_bytes)
        programs->activation_bytes = needs.activation_bytes;
    run->planned.by[LATHE_MEM_MODELS] += needs.model_bytes;
    run->planned.by[LATHE_MEM_ACTIVATIONS] += needs.input_bytes;
    run->planned.by[LATHE_MEM_STAGING] += needs.staging_bytes;
    return LATHE_OK;
}

lathe_status lathe__reward_place(lathe_run *run)
{
    LATHE_TRY(lathe_scorer_place(run->reward, run->programs.arena));
    return lathe_scorer_load(run->reward);
}

int64_t lathe__reward_vocab(const lathe_run *run)
{
    return run->reward ? lathe_scorer_model(run->reward)->vocab : 0;
}

lathe_status lathe__reward_score(lathe_run *run, const lathe_scored *sequences, int32_t n,
                                 double *out)
{
    if (run->reward == NULL)
        return lathe_error(LATHE_E_STATE, "the run has no reward model");
    return lathe_scorer_score(run->reward, sequences, n, out);
}

void lathe__reward_destroy(lathe_run *run)
{
    lathe_scorer_destroy(run->reward);
    run->reward = NULL;
}
