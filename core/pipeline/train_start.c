/* Prints the lines before the first step. */
#include "pipeline/train_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "ranks/ranks.h"
#include "run/run_header.h"

void lathe_train_print_start(const lathe_run *run)
{
    int64_t n_params = 0, n_trainable = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const int64_t n = lathe_desc_count(&run->params.rows[i]->desc);
        n_params += run->params.rows[i]->reference ? 0 : n;
        n_trainable += run->params.rows[i]->trainable ? n : 0;
    }
    const lathe_settings *set = &run->set;
    const char *used = lathe_precision_used(set->compute_dtype, set->fp8);
    const char *recipe = lathe_fp8_recipe_name(set->fp8);
    const int is_asked = set->threads == 0 && getenv("OMP_NUM_THREADS") != NULL;
    const int differs = strcmp(lathe_precision_name(set->precision), used) != 0;
    lathe_print(
        "%.2fM parameters, %.2fM trained; %s%s%s%s%s, %s on %s with %d thread%s%s; attention "
        "%s; planned peak %.1f MiB\n",
        (double)n_params / 1e6, (double)n_trainable / 1e6, used, recipe[0] ? " " : "", recipe,
        differs ? " for " : "", differs ? lathe_precision_name(set->precision) : "",
        run->parts.device.component->plugin->name, run->machine.info.model, run->machine.n_threads,
        run->machine.n_threads == 1 ? "" : "s", is_asked ? " (OMP_NUM_THREADS)" : "",
        lathe_exec_attention(run->programs.train.exec),
        (double)lathe_mem_total(&run->planned) / (1024.0 * 1024.0));
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_run_method_text(run, &text);
    lathe_run_step_text(run, &text);
    lathe_print_text(stdout, text.data ? text.data : "");
    lathe_buffer_fini(&text);
    if (run->ranks)
        lathe_print("%d ranks: %s\n", lathe_ranks_count(run->ranks), run->ranks->data.info.engine);
}
