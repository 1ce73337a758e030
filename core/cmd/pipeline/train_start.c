/* Prints the lines before the first step. */
#include "cmd/pipeline/train_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "exec/program/precision.h"
#include "run/api/run_facts.h"
#include "run/parts/run_header.h"

void lathe_train_print_start(const lathe_run *run)
{
    lathe_run_facts f;
    lathe_run_facts_get(run, &f);
    const char *used = lathe_precision_used(f.compute_dtype, f.fp8);
    const char *recipe = lathe_fp8_recipe_name(f.fp8);
    const int is_asked = !f.threads_are_set && getenv("OMP_NUM_THREADS") != NULL;
    const int differs = strcmp(lathe_precision_name(f.precision), used) != 0;
    lathe_print(
        "%.2fM parameters, %.2fM trained; %s%s%s%s%s, %s on %s with %d thread%s%s; attention "
        "%s; planned peak %.1f MiB\n",
        (double)f.n_params / 1e6, (double)f.n_trainable / 1e6, used, recipe[0] ? " " : "", recipe,
        differs ? " for " : "", differs ? lathe_precision_name(f.precision) : "", f.device,
        f.machine, f.n_threads, f.n_threads == 1 ? "" : "s", is_asked ? " (OMP_NUM_THREADS)" : "",
        f.attention, (double)f.planned / (1024.0 * 1024.0));
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_run_method_text(run, &text);
    lathe_run_step_text(run, &text);
    lathe_print_text(stdout, text.data ? text.data : "");
    lathe_buffer_fini(&text);
    if (f.engine)
        lathe_print("%d ranks: %s\n", f.n_ranks, f.engine);
}
