/* Checks the steps of a pipeline before the first one starts. */
#ifndef LATHE_CMD_PIPELINE_CHECK_H
#define LATHE_CMD_PIPELINE_CHECK_H

#include "cmd/pipeline/pipeline_state.h"

/** If run files cannot be read with their overrides, adds their errors to diags, and those of the
 * steps that have no folder yet. Nothing is known then of what the steps have done, and
 * lathe_step_state_read would report a consequence. LATHE_E_CONFIG: errors. */
lathe_status lathe_pipeline_check_files(const lathe_pipeline *pipeline, lathe_arena *arena,
                                        lathe_diags *diags);

/** Adds to diags every error and warning of the steps that are not finished. A step whose model an
 * earlier step still has to make is checked with the model that the earlier step itself starts
 * from, which has the same form; a reward model with the language model that it will be made of. If
 * there is none (a new model), only the keys of its run file are checked, and *out_partly counts
 * the step. Keys that name what the earlier step will not make are errors. LATHE_E_CONFIG: errors.
 */
lathe_status lathe_pipeline_check(const lathe_pipeline *pipeline, const lathe_step_state *states,
                                  lathe_arena *arena, lathe_diags *diags, int32_t *out_partly);

#endif
