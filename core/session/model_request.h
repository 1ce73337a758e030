/* A caller's request to open a model: the word that names it, and the settings of the caller. */
#ifndef LATHE_SESSION_MODEL_REQUEST_H
#define LATHE_SESSION_MODEL_REQUEST_H

#include "config/config.h"
#include "lathe/session.h"
#include "run/state/run_inputs.h"

/** Section of errors of lathe_session_config: their key is a field of it. Commands name their own
 *  option for the field. */
#define LATHE_SESSION_SECTION "lathe_session_config"

/** A model to open. Texts are borrowed. */
typedef struct lathe_model_request {
    const char *word;         /* a folder, a GGUF file, or a run file */
    const lathe_edits *edits; /* settings of the caller, which win over those of folders */
    const lathe_edits *own;   /* further settings, which these replace; NULL: none */
    int32_t weights; /* LATHE_WEIGHTS_*; AUTO: model.weights of the edits, if it is there */
    const lathe_session_adapter *adapters; /* [n_adapters] over the model */
    int32_t n_adapters;
    /* Tokens of a row, or as many as the model has positions for, unless `edits` set data.seq_len;
     * 0: as the folder says. */
    int64_t row_tokens;
    int32_t evaluates;        /* 1: without data, the run's validation data are taken */
    const char *use;          /* the adapter that generates, or "base"; NULL: the last */
    const char *data;         /* what is evaluated; NULL: the validation data */
    lathe_registry *registry; /* plugins that the caller has opened; NULL: the request's own */
    lathe_run_inputs *inputs; /* read once for all that is opened; lathe__request_begin */
} lathe_model_request;

/** Reads what the word names, and the plugins, once for all that is opened for the request: a run
 *  file with the caller's edits on top of it. Call lathe__request_end in every case. */
lathe_status lathe__request_begin(lathe_model_request *ask);
void lathe__request_end(lathe_model_request *ask);

/** The value that the caller gives to a key, the last one, as typed; NULL: none. */
const char *lathe__request_value(const lathe_model_request *ask, const char *key);

/** Whether the caller gives the key a value; an empty one takes the key out. */
int lathe__request_sets(const lathe_model_request *ask, const char *key);

/** Which weights the caller asks for, LATHE_WEIGHTS_*. LATHE_E_ARG: model.weights is another word.
 */
lathe_status lathe__request_weights(const lathe_model_request *ask, int32_t *out);

#endif
