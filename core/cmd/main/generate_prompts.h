/* lathe generate --prompts: continues every prompt of a file. */
#ifndef LATHE_CMD_GENERATE_PROMPTS_H
#define LATHE_CMD_GENERATE_PROMPTS_H

#include "cmd/line/args.h"
#include "lathe/session.h"

/** Continues the prompts of --prompts into the file of --output: --samples of each, with --logprobs
 *  the ids and log-probabilities too. */
lathe_status lathe_app_generate_prompts(const lathe_args *args, lathe_session *session,
                                        const lathe_sampling *how);

#endif
