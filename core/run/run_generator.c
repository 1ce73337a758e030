/* Makes the generator of a run (core/generate) from its parts and settings. */
#include "generate/generator.h"
#include "run/run_state.h"

lathe_status lathe__run_plan_generator(lathe_run *run, int32_t batch)
{
    const lathe_generator_parts parts = {.machine = &run->machine,
                                         .store = &run->store,
                                         .params = &run->params,
                                         .model = &run->model,
                                         .generation = &run->generation,
                                         .programs = &run->programs,
                                         .data = &run->data};
    const lathe_generator_config config = {.program = lathe__run_program_config(run),
                                           .seq_len = run->set.seq_len,
                                           .cache_tokens = run->set.generate_cache_tokens,
                                           .batch = batch};
    return lathe_generator_create(&parts, &config, &run->generator);
}

lathe_status lathe__run_generator(lathe_run *run, int32_t batch)
{
    if (run->generator && lathe_generator_is_for(run->generator, batch))
        return LATHE_OK;
    lathe_generator_destroy(run->generator);
    run->generator = NULL;
    LATHE_TRY(lathe__run_plan_generator(run, batch));
    const lathe_status status = lathe_generator_place(run->generator);
    if (status != LATHE_OK) {
        lathe_generator_destroy(run->generator);
        run->generator = NULL;
    }
    return status;
}
