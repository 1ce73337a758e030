/* Closes a run: releases its parts in the reverse of the order in which they were made. */
#include <stdlib.h>

#include "chat/template/chat_template.h"
#include "checkpoint/state/checkpoint_image.h"
#include "generate/draft_model.h"
#include "generate/generator.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/failure_report.h"
#include "parallel/ranks/grad_buckets.h"
#include "run/decide/dry_run.h"
#include "run/parts/iteration.h"
#include "run/parts/named_adapters.h"
#include "run/parts/reward_model.h"
#include "run/parts/rollout_noise.h"
#include "run/parts/run_parts.h"
#include "run/parts/run_ranks.h"
#include "run/parts/stored_teacher.h"
#include "run/parts/teacher.h"
#include "run/state/run_saved.h"

static void close_program(lathe_machine *m, lathe_program *p)
{
    lathe_machine_free(m, LATHE_MEM_ACTIVATIONS, p->own_bytes, p->own_arena);
    lathe_program_fini(p);
}

void lathe_run_close(lathe_run *run)
{
    if (run == NULL)
        return;
    lathe_generator_destroy(run->generator);
    lathe_draft_destroy(run->draft);
    lathe__reward_destroy(run);
    lathe__teacher_destroy(run);
    close_program(&run->machine, &run->programs.top);
    close_program(&run->machine, &run->programs.train);
    close_program(&run->machine, &run->programs.eval);
    close_program(&run->machine, &run->programs.logits);
    close_program(&run->machine, &run->programs.scoring);
    close_program(&run->machine, &run->programs.sampling);
    for (int32_t i = 0; i < run->programs.shorter.n; i++) {
        close_program(&run->machine, &run->programs.shorter.train[i]);
        close_program(&run->machine, &run->programs.shorter.eval[i]);
    }
    lathe_update_destroy(run->opt.update);
    if (run->programs.arena) {
        lathe_machine_recount(&run->machine, LATHE_MEM_SCRATCH, LATHE_MEM_ACTIVATIONS,
                              run->programs.arena_bytes - run->programs.activation_bytes);
        lathe_machine_free(&run->machine, LATHE_MEM_ACTIVATIONS, run->programs.arena_bytes,
                           run->programs.arena);
    }
    lathe_image_destroy(lathe__run_saved(run));
    lathe_row_kernels_fini(&run->opt.row_kernels);
    if (run->machine.dev) {
        lathe_machine_free(&run->machine, LATHE_MEM_STAGING, lathe__losses_bytes(run),
                           run->programs.losses);
        lathe__noise_close(run);
        lathe__iteration_close(run);
        lathe__run_close_buckets(run);
        lathe_staging_fini(&run->machine);
    }
    if (!lathe_ranks_are_abandoned()) {
        lathe_grad_buckets_destroy(run->buckets);
        lathe_extents_destroy(run->extents);
        lathe_rank_layout_destroy(run->layout);
        lathe_ranks_close(run->ranks);
    }
    lathe_store_fini(&run->store, run->machine.dev ? &run->machine : NULL);
    lathe_loader_destroy(run->data.loader);
    lathe_loader_destroy(run->data.validation);
    lathe__stored_close(run);
    lathe_shards_destroy(run->data.shards);
    lathe_shards_destroy(run->data.validation_shards);
    lathe_tokenizer_destroy(run->data.tokenizer);
    lathe_chat_template_destroy(run->data.chat);
    lathe_params_fini(&run->params);
    lathe_weight_origin_destroy(run->checkpoints.file.origin);
    lathe_model_config_fini(&run->model);
    lathe__named_adapters_destroy(run->named);
    lathe__run_components_fini(run);
    lathe_config_destroy(run->config);
    lathe_config_destroy(run->reference_config);
    lathe_run_inputs_release(run->inputs);
    lathe_edits_fini(&run->decided.edits);
    lathe__dry_run_end(run);
    lathe_arena_fini(&run->arena);
    free(run);
}
