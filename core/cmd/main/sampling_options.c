/* The options of commands that sample. */
#include "cmd/main/sampling_options.h"

#include <stdio.h>

/* Options become keys of [generate], so that they win over the run file and over
 * generation_config.json. */
static const struct {
    const char *option, *key;
    int64_t min_int, max_int; /* range of whole numbers; max_int 0: the option is a fraction */
    double min, max;          /* range of fractions */
} sampling_options[] = {{"--max-new-tokens", "generate.max_new_tokens", 1, 100000000, 0.0, 0.0},
                        {"--top-k", "generate.top_k", 0, 10000000, 0.0, 0.0},
                        {"--seed", "generate.seed", 0, INT64_MAX, 0.0, 0.0},
                        {"--temperature", "generate.temperature", 0, 0, 0.0, 100.0},
                        {"--top-p", "generate.top_p", 0, 0, 1e-9, 1.0},
                        {"--min-p", "generate.min_p", 0, 0, 0.0, 1.0},
                        {"--repetition-penalty", "generate.repetition_penalty", 0, 0, 1e-9, 100.0}};

_Static_assert(sizeof sampling_options / sizeof sampling_options[0] == LATHE_N_SAMPLING_OPTIONS,
               "a value for each option");

lathe_status lathe_app_sampling(const lathe_args *args, lathe_sampling_values *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < LATHE_N_SAMPLING_OPTIONS; i++) {
        const char *name = sampling_options[i].option, *text = lathe_args_value(args, name);
        int64_t whole = 0;
        double x = 0.0;
        if (!text)
            continue;
        const int is_whole = sampling_options[i].max_int > 0;
        if (is_whole)
            LATHE_TRY(lathe_args_int(args, name, sampling_options[i].min_int,
                                     sampling_options[i].max_int, 0, &whole));
        else
            LATHE_TRY(lathe_args_float(args, name, sampling_options[i].min, sampling_options[i].max,
                                       0.0, &x));
        if (is_whole)
            (void)snprintf(out->values[i], sizeof out->values[i], "%lld", (long long)whole);
        else
            (void)snprintf(out->values[i], sizeof out->values[i], "%.17g", x); /* reads back as x */
        out->list[n++] = sampling_options[i].key;
        out->list[n++] = out->values[i];
    }
    out->list[n] = NULL;
    return LATHE_OK;
}
