/* The lines before the first step that tell how the run trains, and where each choice came from. */
#ifndef LATHE_RUN_RUN_HEADER_H
#define LATHE_RUN_RUN_HEADER_H

#include "base/buffer.h"
#include "run/state/run_state.h"

/** "adapter lora (run.toml:8), optimizer adamw (default), lr 0.0002 (default for an adapter over a
 *  loaded model), scheduler cosine (default) over 86 steps without warm-up", and a newline. */
void lathe_run_method_text(const lathe_run *run, lathe_buffer *out);

/** "a step learns from about 86.9 examples: 8 rows of 1024 tokens, packed (multipack); an epoch is
 *  86 steps", and a newline. Nothing for a stage that makes its own batches. */
void lathe_run_step_text(const lathe_run *run, lathe_buffer *out);

#endif
