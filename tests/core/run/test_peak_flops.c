/* The product rate that shares are shares of. */
#include "small_run.h"

#include "run/fit.h"
#include "run/train.h"

/* On a plan that leaves nothing, nothing is measured, and the run goes on. */
Test(peak_flops, are_measured_in_what_the_plan_leaves)
{
    char dir[] = "/tmp/lathe-peak-XXXXXX";
    settings s = {.n = 0};
    lathe_fit fit;
    double rate = 0.0;
    make_folder(dir, 4096);
    set_llama(&s, 1, 32, 2, 2, 64);
    set_data(&s, dir);
    set(&s, "data.seq_len=32");
    set(&s, "train.max_steps=2");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_peak_flops(run, &rate));
    cr_expect(rate > 1e6 && rate < 1e16, "%g", rate);
    lathe_fit_check(run, &fit);
    run->set.memory_limit = fit.need;
    OK(lathe_peak_flops(run, &rate));
    cr_expect_eq(rate, 0.0);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}
