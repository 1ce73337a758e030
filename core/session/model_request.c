/* Reads what a caller asks of a session. */
#include "session/model_request.h"

#include <string.h>

#include "base/error.h"
#include "base/model_path.h"
#include "checkpoint/state/model_folder.h"

/* A plugin may be looked for before the run's configuration is made, and the folders that the
 * caller names come first. A wrong key is told when that is made. */
static lathe_status add_plugin_folders(const lathe_model_request *ask)
{
    static const char section[] = "plugins.";
    lathe_edits edits = {.n = 0};
    lathe_diags diags = {0};
    lathe_config *config = NULL;
    for (int32_t i = 0; i < ask->edits->n; i++)
        if (strncmp(ask->edits->list[i].key, section, sizeof section - 1) == 0)
            lathe_edits_add(&edits, &ask->edits->list[i]);
    lathe_status status = edits.status;
    if (status == LATHE_OK && edits.n > 0)
        status = lathe_config_of_edits(&edits, 0, ask->inputs->registry, &diags, &config);
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_edits_fini(&edits);
    if (status != LATHE_OK && status != LATHE_E_NOMEM)
        lathe_error_clear();
    return status == LATHE_E_NOMEM ? status : LATHE_OK;
}

lathe_status lathe__request_begin(lathe_model_request *ask)
{
    const int is_folder = lathe_path_is_model(ask->word);
    LATHE_TRY(lathe_run_inputs_create(is_folder ? NULL : ask->word, is_folder ? NULL : ask->edits,
                                      &ask->inputs));
    if (ask->registry != NULL)
        lathe_run_inputs_use(ask->inputs, ask->registry);
    else
        LATHE_TRY(lathe_registry_create(&ask->inputs->registry));
    return add_plugin_folders(ask);
}

void lathe__request_end(lathe_model_request *ask)
{
    lathe_run_inputs_release(ask->inputs);
    ask->inputs = NULL;
}

const char *lathe__request_value(const lathe_model_request *ask, const char *key)
{
    for (int32_t i = ask->edits->n - 1; i >= 0; i--)
        if (strcmp(ask->edits->list[i].key, key) == 0)
            return ask->edits->list[i].value->s;
    return NULL;
}

int lathe__request_sets(const lathe_model_request *ask, const char *key)
{
    const char *value = lathe__request_value(ask, key);
    return value != NULL && value[0] != '\0';
}

lathe_status lathe__request_weights(const lathe_model_request *ask, int32_t *out)
{
    const char *text = lathe__request_value(ask, "model.weights");
    *out = ask->weights;
    if (*out != LATHE_WEIGHTS_AUTO || text == NULL || strcmp(text, "auto") == 0)
        return LATHE_OK;
    *out = strcmp(text, "training") == 0 ? LATHE_WEIGHTS_TRAINING : LATHE_WEIGHTS_AVERAGE;
    return *out == LATHE_WEIGHTS_TRAINING || strcmp(text, "average") == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_ARG,
                             "model.weights: expected training or average, seen \"%s\"", text);
}
