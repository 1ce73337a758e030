/* lathe generate: continues a prompt. */
#include <stdio.h>
#include <string.h>

#include "app/commands.h"
#include "app/model_dir.h"

static const lathe_option options[] = {
    {"--prompt", "TEXT", "the text to continue; none: the beginning of a document"},
    {"--max-new-tokens", "N", "most tokens to make"},
    {"--temperature", "X", "0: the likeliest token each time"},
    {"--top-k", "K", "only the K likeliest tokens; 0: all"},
    {"--top-p", "P", "only the likeliest tokens that add up to P; 1: all"},
    {"--seed", "N", "seed of the sampling"},
    {"--ignore-eos", NULL, "go on behind the end of a text"},
    LATHE_WEIGHTS_OPTION,
};

/* Options, and where they are not given the [generate] keys of the configuration. */
static lathe_status read_sampling(const lathe_args *args, const lathe_config *c,
                                  lathe_sampling *out)
{
    int64_t tokens, k, seed;
    LATHE_TRY(lathe_args_int(args, "--max-new-tokens", 1, 100000000,
                             lathe_config_int(c, "generate", "max_new_tokens"), &tokens));
    LATHE_TRY(
        lathe_args_int(args, "--top-k", 0, 10000000, lathe_config_int(c, "generate", "top_k"), &k));
    LATHE_TRY(lathe_args_int(args, "--seed", 0, INT64_MAX,
                             (int64_t)lathe_config_seed(c, "generate"), &seed));
    LATHE_TRY(lathe_args_float(args, "--temperature", 0.0, 100.0,
                               lathe_config_float(c, "generate", "temperature"),
                               &out->temperature));
    LATHE_TRY(lathe_args_float(args, "--top-p", 1e-9, 1.0,
                               lathe_config_float(c, "generate", "top_p"), &out->top_p));
    out->size = (uint32_t)sizeof *out;
    out->max_new_tokens = (int32_t)tokens;
    out->top_k = (int32_t)k;
    out->seed = (uint64_t)seed;
    out->stop_at_eos = lathe_args_value(args, "--ignore-eos") == NULL;
    return LATHE_OK;
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    lathe_sampling sampling = {0};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    const char *prompt = lathe_args_value(args, "--prompt");
    lathe_status status = lathe_app_open_model(args, LATHE_OPEN_INFER, NULL, &run);
    if (status == LATHE_OK)
        status = read_sampling(args, run->config, &sampling);
    if (status == LATHE_OK && !prompt)
        prompt = lathe_config_string(run->config, "generate", "prompt");
    if (status == LATHE_OK)
        status = lathe_generate(run, prompt ? prompt : "", &sampling, &made);
    if (status == LATHE_OK) {
        (void)fputs(prompt ? prompt : "", stdout);
        (void)fwrite(made.text, 1, (size_t)made.text_bytes, stdout);
        (void)fputc('\n', stdout);
    }
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_run_close(run);
    return code;
}

const lathe_command lathe_cmd_generate = {
    .name = "generate",
    .arguments = "DIR|RUN.toml",
    .summary = "continue a prompt with a model",
    .details = "DIR is a Hugging Face folder, a checkpoint, or the folder of a run; a run file "
               "stands for its latest\n"
               "checkpoint. Options not given come from [generate] (--generate.temperature 0.7 "
               "works too).\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
