/* lathe generate --prompts: continues every prompt of a file. */
#ifndef LATHE_APP_GENERATE_PROMPTS_H
#define LATHE_APP_GENERATE_PROMPTS_H

#include "cli/args.h"
#include "lathe/lathe.h"

/** Continues the prompts of --prompts into the file of --output: --samples of each, with --logprobs
 *  the ids and log-probabilities too. */
lathe_status lathe_app_generate_prompts(const lathe_args *args, lathe_run *run,
                                        const lathe_sampling *how);

#endif
