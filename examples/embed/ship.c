/* ship ADAPTER TEXTS OUT: makes a model to give away of what a training left: merges the adapter
 * into its model (OUT/merged), and writes that in 8 bits (OUT/int8) with its perplexity on TEXTS
 * before and after. Ctrl-C ends it: what is under its name in OUT is then complete.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <lathe/jobs.h>

static volatile sig_atomic_t asked_to_end;

static void on_signal(int signal)
{
    (void)signal;
    asked_to_end = 1;
}

/* Draws how far a job is. A result other than 0 ends the job, which then removes what is
 * incomplete. */
static int32_t show(void *arg, const lathe_job_progress *p)
{
    (void)arg;
    fprintf(stderr, "\r%-10s %3.0f %%%s", p->part, 100.0 * p->done, p->done < 1.0 ? "" : "\n");
    return asked_to_end;
}

static lathe_status merge(const char *adapter, const char *to)
{
    const lathe_job_merge_config config = {.size = (uint32_t)sizeof config,
                                           .adapters = &adapter,
                                           .n_adapters = 1,
                                           .output = to,
                                           .progress = show};
    lathe_job_merge_result made = {.size = (uint32_t)sizeof made};
    const lathe_status status = lathe_job_merge(&config, &made);
    if (status == LATHE_OK)
        printf("%s: %d weights are changed\n", to, made.n_changed);
    return status;
}

static lathe_status quantize(const char *from, const char *texts, const char *to)
{
    static const char *const settings[] = {"quant.name=int8"};
    const lathe_job_quantize_config config = {.size = (uint32_t)sizeof config,
                                              .model = from,
                                              .output = to,
                                              .settings = settings,
                                              .n_settings = 1,
                                              .text = texts,
                                              .progress = show};
    lathe_job_quantize_result made = {.size = (uint32_t)sizeof made};
    const lathe_status status = lathe_job_quantize(&config, &made);
    if (status == LATHE_OK)
        printf("%s: %.2f bits, perplexity %.3f, before %.3f\n", to, made.bits, made.perplexity,
               made.perplexity_before);
    return status;
}

int main(int argc, char **argv)
{
    char merged[4096], small[4096];
    if (argc != 4) {
        fprintf(stderr, "usage: ship ADAPTER TEXTS OUT\n");
        return 2;
    }
    (void)mkdir(argv[3], 0777); /* the first job says what is wrong with it */
    (void)snprintf(merged, sizeof merged, "%s/merged", argv[3]);
    (void)snprintf(small, sizeof small, "%s/int8", argv[3]);
    (void)signal(SIGINT, on_signal);
    lathe_status status = merge(argv[1], merged);
    if (status == LATHE_OK)
        status = quantize(merged, argv[2], small);
    if (status != LATHE_OK)
        fprintf(stderr, "\nship: %s\n", lathe_last_error());
    return status == LATHE_OK ? 0 : 1;
}
