/* The teacher of a run: a frozen language model of the same vocabulary, whose weights come from a
 * folder of its own.
 *
 *   lathe__teacher_params    adds its parameters, as "teacher:<name>", to the run's table
 *   lathe__teacher_load      fills them, after the memory was allocated
 */
#ifndef LATHE_RUN_TEACHER_H
#define LATHE_RUN_TEACHER_H

#include "model/family/quant_source.h"
#include "run/state/run_state.h"

typedef struct lathe_teacher {
    lathe_model_config model;
    lathe_params params;        /* its own names; row i is row first + i of the run's table */
    lathe_quant_source *source; /* owns the formats of its folder; NULL: it is not quantized */
    int32_t first;
} lathe_teacher;

/** Reads the teacher's configuration, checks that it suits the run, and adds its parameters; does
 *  nothing if the stage needs no teacher. LATHE_E_CONFIG: teacher.path is missing, or the model in
 *  it has another vocabulary, too few positions, or positions that depend on the batch. */
lathe_status lathe__teacher_params(lathe_run *run);

/** Checks that a stage that learns from a teacher has one, and only one. Reads no file. */
lathe_status lathe__teacher_check_keys(const lathe_run *run);

/** Checks that the folder has the teacher's weights, without reading their values. */
lathe_status lathe__teacher_check(const lathe_run *run);

/** Reads the teacher's weights; does nothing without a teacher. */
lathe_status lathe__teacher_load(lathe_run *run);

/** The teacher's configuration; NULL: the run has none. */
const lathe_model_config *lathe__teacher_model(const lathe_run *run);

/** Number of tokens that the teacher and the model both have a row for: lathe logprobs stores
 *  probabilities over these. */
int64_t lathe__teacher_tokens(const lathe_run *run);

/** Frees run->teacher, if there is one. */
void lathe__teacher_destroy(lathe_run *run);

#endif
