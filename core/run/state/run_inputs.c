/* Keeps what a run is decided from. */
#include "run/state/run_inputs.h"

#include <stdlib.h>

#include "base/error.h"

lathe_status lathe_run_inputs_create(const char *path, const lathe_edits *options,
                                     lathe_run_inputs **out)
{
    lathe_run_inputs *const inputs = *out = calloc(1, sizeof *inputs);
    if (inputs == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a run");
    inputs->n_owners = 1;
    const lathe_status status = lathe_run_file_create(path, options, &inputs->file);
    if (status == LATHE_OK)
        return LATHE_OK;
    lathe_run_inputs_release(inputs);
    *out = NULL;
    return status;
}

void lathe_run_inputs_use(lathe_run_inputs *inputs, lathe_registry *registry)
{
    inputs->registry = registry;
    inputs->is_guest = 1;
}

lathe_run_inputs *lathe_run_inputs_share(lathe_run_inputs *inputs)
{
    inputs->n_owners++;
    return inputs;
}

void lathe_run_inputs_release(lathe_run_inputs *inputs)
{
    if (inputs == NULL || --inputs->n_owners > 0)
        return;
    if (!inputs->is_guest)
        lathe_registry_destroy(inputs->registry);
    lathe_run_file_destroy(inputs->file);
    lathe_model_texts_fini(&inputs->texts);
    free(inputs);
}
