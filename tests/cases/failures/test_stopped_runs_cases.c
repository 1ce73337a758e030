/* A run that its own settings stop keeps the steps before: on_spike = "stop". */
#include "cli/training_case.h"

TestSuite(stopped_runs, .init = setup, .fini = remove_folder, .timeout = 60);

#define ARGS " --checkpoint.every 0 --train.eval_every 0 --data.validation_split 0"

/* With a threshold of almost nothing the first loss above the mean is a spike. */
Test(stopped_runs, a_spike_that_stops_the_run_keeps_the_steps_before_it)
{
#define SPIKES                                                                                     \
    " --train.on_spike stop --train.spike_window 8 --train.spike_threshold 1e-9 "                  \
    "--train.max_steps 60 --optimizer.lr 0.3"
    int step = 0;
    char line[256];
    expect(LATHE " train run.toml" ARGS SPIKES " 2>&1", 1, "a spike");
    const char *at = strstr(output, "lathe train: step ");
    cr_assert_not_null(at, "%s", output);
    cr_assert_eq(sscanf(at, "lathe train: step %d:", &step), 1);
    cr_assert_gt(step, 1);
    (void)snprintf(line, sizeof line, "checkpoint out/step-%08d, before the run ends", step - 1);
    cr_expect_not_null(strstr(output, line), "no '%s' in %s", line, output);
    expect(LATHE " checkpoint verify out 2>&1", 0, "");
}
