/* Makes the parts of a run, in the order in which a run is opened. */
#ifndef LATHE_RUN_RUN_PARTS_H
#define LATHE_RUN_RUN_PARTS_H

#include "run/state/run_state.h"

/** Opens the components that the configuration names (run_components.c). */
lathe_status lathe__run_components(lathe_run *run);
/** Opens the components without the machine: enough to check them, not to compute. */
lathe_status lathe__run_parts(lathe_run *run);
/** Checks the settings of precision and gradient dtype, as far as this is possible without a
 * device. */
lathe_status lathe__run_check_precision(const lathe_run *run);
void lathe__run_components_fini(lathe_run *run);

/** Where to look for the family of the run's model (run_graphs.c). */
lathe_model_source lathe__run_model_source(const lathe_run *run);
/** Make the model, the parameter table, the graphs and the plan (run_graphs.c). */
lathe_status lathe__run_params(lathe_run *run);
/** Whether the adapter trains a parameter of the model, also where the run trains nothing. */
lathe_status lathe__run_is_trained(const lathe_run *run, int32_t index, int32_t *out);
/** Adds the parameters of the frozen models beside the run's: the reference copy, the teacher. */
lathe_status lathe__run_add_models(lathe_run *run);
lathe_status lathe__run_model(lathe_run *run);
lathe_status lathe__run_plan(lathe_run *run);
/** Configuration that all programs of the run share; the caller sets the shape. */
lathe_program_config lathe__run_program_config(lathe_run *run);
/** Prepares another program and allocates its memory, after the run's memory was allocated
 * (run_program.c). */
lathe_status lathe__run_program(lathe_run *run, int32_t kind, lathe_program *out);

/** Bytes of run->programs.losses. */
int64_t lathe__losses_bytes(const lathe_run *run);

/** plan_generator makes run->generator for `batch` sequences at a time, without its memory, which
 * lathe__run_place allocates. run_generator makes it with its memory, unless the run has one for at
 * least `batch` sequences (run_generator.c). */
lathe_status lathe__run_plan_generator(lathe_run *run, int32_t batch);
/** Allocates the generator's memory; before that, if there is a draft model, reads its weights. */
lathe_status lathe__run_place_generator(lathe_run *run);
lathe_status lathe__run_generator(lathe_run *run, int32_t batch);

/** Allocate the memory and fill the weights (run_weights.c). */
lathe_status lathe__run_place(lathe_run *run);
lathe_status lathe__run_weights(lathe_run *run);
/** Gives a row its initial values: random numbers by seed, or row norms. Rows of singular vectors
 *  are left to lathe_singular_rows_fill. */
lathe_status lathe__run_begin_row(lathe_run *run, int32_t index, uint64_t seed);

/** Open the tokenizer, the shards and the loaders (run_data.c). */
lathe_status lathe__run_tokenizer(lathe_run *run);
/** Sets data.tokenizer_dir of a plan, which opens no tokenizer, so that its files are counted. A
 * tokenizer that the run would train is not known. */
void lathe__run_name_tokenizer(lathe_run *run);
lathe_status lathe__run_data(lathe_run *run);
/** Loads the chat template of the tokenizer's or the model's folder, with its renderer, into
 *  run->data.chat; where there is none, run->data.no_chat says why. */
lathe_status lathe__run_chat_template(lathe_run *run);

/** Compares the headers of the weight files with the model: names, shapes, dtypes; reads no values
 * (run_weights.c). A folder without weight files is accepted if the checkpoint to resume from holds
 * all weights. */
lathe_status lathe__weights_check(lathe_run *run);

#endif
