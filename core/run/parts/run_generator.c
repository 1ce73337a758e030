/* Makes the generator of a run (core/generate) and its draft model from the run's parts and
 * settings. */
#include "base/error.h"
#include "generate/draft_model.h"
#include "generate/generator.h"
#include "run/decide/objective_check.h"
#include "run/parts/other_model.h"
#include "run/parts/run_parts.h"
#include "run/state/run_state.h"

/* Makes run->draft, if the file names a draft model and it was not made before. */
static lathe_status plan_draft(lathe_run *run)
{
    const char *path = run->set.draft_path;
    const int64_t positions = run->model.max_positions;
    const lathe_draft_config config = {.machine = &run->machine,
                                       .source = {.registry = run->registry},
                                       .path = path,
                                       .seq_len = run->set.seq_len < positions ? run->set.seq_len
                                                                               : positions,
                                       .compute_dtype = run->set.compute_dtype};
    if (path == NULL || run->draft)
        return LATHE_OK;
    LATHE_TRY(lathe__run_check_whole(run, "generate", "draft", path, "a draft model"));
    const lathe_status status = lathe_draft_create(&config, &run->draft);
    if (status == LATHE_E_CONFIG || status == LATHE_E_IO || status == LATHE_E_NOT_FOUND)
        return lathe__run_refuse(run, "generate", "draft", "generate.draft: %s",
                                 lathe_error_message());
    LATHE_TRY(status);
    LATHE_TRY(lathe__run_check_vocabulary(run, "generate", "draft", path, "the draft model",
                                          lathe_draft_model(run->draft), 1));
    return LATHE_OK;
}

lathe_status lathe__run_plan_generator(lathe_run *run, int32_t batch)
{
    LATHE_TRY(lathe__objective_check_generation(run));
    LATHE_TRY(plan_draft(run));
    const lathe_generator_parts parts = {.machine = &run->machine,
                                         .store = &run->store,
                                         .params = &run->params,
                                         .model = &run->model,
                                         .generation = &run->generation,
                                         .programs = &run->programs,
                                         .data = &run->data,
                                         .draft = run->draft};
    const lathe_generator_config config = {.program = lathe__run_program_config(run),
                                           .seq_len = run->set.seq_len,
                                           .cache_tokens = run->set.generate_cache_tokens,
                                           .batch = batch,
                                           .draft_tokens = run->set.draft_tokens};
    const lathe_status status = lathe_generator_create(&parts, &config, &run->generator);
    return status == LATHE_E_UNSUPPORTED && run->draft
               ? lathe__run_refuse(run, "generate", "draft", "generate.draft: %s",
                                   lathe_error_message())
               : status;
}

lathe_status lathe__run_place_generator(lathe_run *run)
{
    if (run->draft) /* programs take the places of weights that are allocated */
        LATHE_TRY(lathe_draft_load(run->draft));
    return lathe_generator_place(run->generator);
}

lathe_status lathe__run_generator(lathe_run *run, int32_t batch)
{
    if (run->generator && lathe_generator_is_for(run->generator, batch))
        return LATHE_OK;
    lathe_generator_destroy(run->generator);
    run->generator = NULL;
    LATHE_TRY(lathe__run_plan_generator(run, batch));
    const lathe_status status = lathe__run_place_generator(run);
    if (status != LATHE_OK) {
        lathe_generator_destroy(run->generator);
        run->generator = NULL;
    }
    return status;
}
