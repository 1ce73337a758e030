/* Common code of the tests of offload: a complete run, all of its metrics except times, plans, and
 * warnings. */
#ifndef LATHE_TEST_OFFLOAD_CASE_H
#define LATHE_TEST_OFFLOAD_CASE_H

#include "base/log.h"
#include "support/far_case.h"
#include "train/train.h"

__attribute__((unused)) static lathe_train_result train(lathe_run *run)
{
    lathe_train_result result;
    FILE *quiet = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = quiet};
    OK(lathe_train(run, &options, &result));
    fclose(quiet);
    return result;
}

/* Every metric of every step except times, as written, and the last change to its bits. */
__attribute__((unused)) static char *all_figures(const char *dir, double update_norm)
{
    static const char *const timed[] = {
        "tokens_per_s",      "flops_per_s",   "share_of_peak",       "memory_bytes",
        "memory_peak_bytes", "step_seconds",  "data_seconds",        "checkpoint_stall_seconds",
        "elapsed_seconds",   "offload_bytes", "offload_wait_seconds"};
    char path[512], line[8192];
    size_t n = 0;
    char *out = NULL;
    json_error_t error;
    FILE *text = open_memstream(&out, &n);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f && text, "%s", path);
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, &error);
        cr_assert(row, "%s", line);
        for (size_t k = 0; k < sizeof timed / sizeof timed[0]; k++)
            json_object_del(row, timed[k]);
        char *rest = json_dumps(row, JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        fprintf(text, "%s\n", rest);
        free(rest);
        json_decref(row);
    }
    fclose(f);
    fprintf(text, "%a\n", update_norm);
    fclose(text);
    return out;
}

/* Compares the plan with the allocations, to the byte. */
__attribute__((unused)) static void check_planned(const char *what, const lathe_run *run)
{
    const int64_t *planned = run->planned.by;
    for (int32_t k = 0; k < LATHE_N_MEM; k++) {
        cr_assert_eq(run->machine.used.by[k], planned[k], "%s: %lld bytes of %s, planned %lld",
                     what, (long long)run->machine.used.by[k], lathe_mem_name(k),
                     (long long)planned[k]);
        cr_assert_eq(run->machine.peak.by[k], planned[k], "%s: peak of %s", what,
                     lathe_mem_name(k));
    }
}

/* The plan by category; returns its peak on the device. */
__attribute__((unused)) static int64_t planned(const settings *s, lathe_mem_bytes *out)
{
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s->list);
    const int64_t peak = lathe_machine_total(&run->machine, &run->planned);
    *out = run->planned;
    lathe_run_close(run);
    return peak;
}

/* Copies settings so that the list points to the copy's own texts. */
__attribute__((unused)) static void copy_settings(const settings *from, settings *to)
{
    *to = *from;
    for (int i = 0; i < to->n; i++)
        to->list[i] = to->text[i];
}

__attribute__((unused)) static char said[2048];

__attribute__((unused)) static void keep_warning(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level == LATHE_LOG_WARN)
        snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", message);
}

/* The plan, with its warnings in `said`. */
__attribute__((unused)) static int64_t planned_aloud(const settings *s, lathe_mem_bytes *out)
{
    said[0] = '\0';
    lathe_log_set_sink(keep_warning, NULL);
    const int64_t peak = planned(s, out);
    lathe_log_set_sink(NULL, NULL);
    return peak;
}

#endif
