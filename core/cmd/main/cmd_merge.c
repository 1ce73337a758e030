/* lathe merge: writes a model with an adapter merged into its weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/line/held_signals.h"
#include "cmd/main/commands.h"
#include "cmd/main/model_args.h"
#include "jobs/job.h"

static const lathe_option options[] = {
    {"-o, --output", "DIR", "the new folder for the merged model"},
    {"--adapter-weights", "X,Y,...", "a factor for what each adapter changes; without it 1"},
    {"--combination", "cat|linear",
     "cat: add what each adapter changes; linear: add the matrices of LoRA, as PEFT"},
    LATHE_WEIGHTS_OPTION,
};

/* The factors of --adapter-weights, one for each adapter. */
static lathe_status read_factors(const lathe_args *args, int32_t n, double *out)
{
    const char *at = lathe_args_value(args, "--adapter-weights"), *const text = at;
    int32_t seen = 0;
    for (int32_t i = 0; i < n; i++)
        out[i] = 1.0;
    while (at) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at || (*end != ',' && *end != '\0') || !isfinite(value) || value == 0.0)
            return lathe_error(LATHE_E_ARG,
                               "--adapter-weights: expected numbers other than 0, such as 0.5,0.5, "
                               "seen \"%s\"",
                               text);
        if (seen < n)
            out[seen] = value;
        seen++;
        at = *end == ',' ? end + 1 : NULL;
    }
    if (text && seen != n)
        return lathe_error(LATHE_E_ARG,
                           "--adapter-weights has %d number%s, and there are %d adapters", seen,
                           seen == 1 ? "" : "s", n);
    return LATHE_OK;
}

static lathe_status read_combination(const lathe_args *args, int32_t *out)
{
    const char *name = lathe_args_value(args, "--combination");
    *out = name && strcmp(name, "linear") == 0 ? LATHE_JOB_COMBINE_LINEAR : LATHE_JOB_COMBINE_CAT;
    if (name && *out == LATHE_JOB_COMBINE_CAT && strcmp(name, "cat") != 0)
        return lathe_error(LATHE_E_ARG, "--combination: expected cat or linear, seen \"%s\"", name);
    return LATHE_OK;
}

/* lathe_job_progress_fn */
static int32_t heed(void *arg, const lathe_job_progress *progress)
{
    (void)arg, (void)progress;
    return lathe_cli_is_signalled();
}

/* Reads the arguments: the model, if there are two words or more, then the adapters. */
static lathe_status read_args(const lathe_args *args, double *factors, lathe_job_merge_config *out)
{
    const int32_t first = args->n_words > 1 ? 1 : 0;
    *out = (lathe_job_merge_config){.size = (uint32_t)sizeof *out,
                                    .model = first ? args->words[0] : NULL,
                                    .adapters = args->words + first,
                                    .factors = factors,
                                    .n_adapters = args->n_words - first,
                                    .output = lathe_args_value(args, "--output"),
                                    .progress = heed};
    LATHE_TRY(lathe_cli_weights(args, &out->weights));
    LATHE_TRY(read_factors(args, out->n_adapters, factors));
    return read_combination(args, &out->combination);
}

static void print_result(const lathe_job_merge_config *c, const lathe_job_merged *m)
{
    if (m->figures.n_quantized > 0)
        lathe_print("%d weights quantized to %.2f bits, relative error %.4f\n",
                    m->figures.n_quantized, m->figures.bits, m->figures.relative_error);
    if (c->n_adapters == 1)
        lathe_print("merged %s into %d weights of %s: %s\n", m->adapter, m->figures.n_changed,
                    m->model, c->output);
    else
        lathe_print("merged %d adapters into %d weights of %s: %s\n", c->n_adapters,
                    m->figures.n_changed, m->model, c->output);
}

static int run_command(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_job_merge_config config;
    lathe_job_merged made;
    double factors[LATHE_JOB_MAX_ADAPTERS];
    const lathe_job_caller caller = {&args->edits, "--"};
    lathe_cli_hold_signals();
    lathe_status status = read_args(args, factors, &config);
    if (status == LATHE_OK)
        status = lathe__job_merge(&config, &caller, &arena, &made);
    if (status == LATHE_OK)
        print_result(&config, &made);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_cli_end_signals(code == LATHE_EXIT_OK); /* else a pending one ends the process here */
    lathe_arena_fini(&arena);
    return code;
}

const lathe_command lathe_cmd_merge = {
    .name = "merge",
    .arguments = "[DIR|FILE.gguf] ADAPTER... -o OUT",
    .summary = "merge adapters into the weights of their model",
    .details =
        "DIR is the model: a Hugging Face folder, a checkpoint, the folder of a run, or a GGUF\n"
        "file; without it the model that ADAPTER names, or that lies beside it.\n"
        "ADAPTER is a checkpoint of a run with an adapter, the folder of such a run, or a\n"
        "folder that PEFT wrote. OUT is a new Hugging Face folder: every tensor keeps its\n"
        "dtype, those that the adapter does not change keep their bytes, and the\n"
        "tokenizer's files are the adapter's, or else the model's. An adapter that was\n"
        "trained over a quantized base is merged into the weights of DIR as they are; one\n"
        "that begins with LoftQ into the quantized weights that it belongs to. Weights\n"
        "that DIR stores quantized are decoded and get the dtype that config.json names;\n"
        "--checkpoint.save_dtype chooses one for all. --quant.name NAME quantizes the result\n"
        "as lathe quantize does. Several adapters of one model are added: each changes the\n"
        "weights as it does alone, times its factor of --adapter-weights. --combination\n"
        "linear is PEFT's: the A of LoRA adapters of one rank are added, and the B; their\n"
        "product has terms that no training made.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1 + LATHE_JOB_MAX_ADAPTERS,
    .names_models = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
