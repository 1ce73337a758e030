/* lathe convert: a GGUF file to a Hugging Face folder, and back. */
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/line/held_signals.h"
#include "cmd/line/weights_option.h"
#include "cmd/saved/saved_commands.h"
#include "files/gguf/gguf_family.h"
#include "jobs/job.h"

/* lathe_job_progress_fn */
static int32_t heed(void *arg, const lathe_job_progress *progress)
{
    (void)arg, (void)progress;
    return lathe_cli_is_signalled();
}

static int run(const lathe_args *args)
{
    const lathe_job_caller caller = {NULL, "--"};
    lathe_job_convert_config config = {.size = (uint32_t)sizeof config,
                                       .model = args->words[0],
                                       .output = lathe_args_value(args, "--output"),
                                       .type = lathe_args_value(args, "--type"),
                                       .base = lathe_args_value(args, "--base"),
                                       .progress = heed};
    lathe_cli_hold_signals();
    lathe_status status = lathe_cli_weights(args, &config.weights);
    if (status == LATHE_OK)
        status = lathe__job_convert(&config, &caller);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_cli_end_signals(code == LATHE_EXIT_OK); /* else a pending one ends the process here */
    if (code == LATHE_EXIT_OK)
        lathe_print("%s\n", config.output);
    return code;
}

/* The architectures by GGUF's names, which lie beside their tables, in lines of 80 columns. */
static void put_families(lathe_buffer *out)
{
    const char *word = lathe_gguf_families();
    int64_t line = out->len;
    lathe_buffer_puts(out, "Architectures, by GGUF's names:");
    while (*word) {
        const size_t n = strcspn(word, " ");
        const int breaks = out->len - line + (int64_t)n >= 79;
        lathe_buffer_puts(out, breaks ? "\n" : " ");
        line = breaks ? out->len : line;
        lathe_buffer_append(out, word, (int64_t)n);
        word += n + strspn(word + n, " ");
    }
    lathe_buffer_puts(out, ".\n");
}

static const lathe_option options[] = {
    {"-o, --output", "PATH", "the folder, or the file *.gguf, to write; it must not exist yet"},
    {"--type", "TYPE",
     "type of the matrices. Of a GGUF file: f32, f16, bf16 (default), q8_0, q4_0, q4_k or q6_k; of "
     "a folder: f32, f16 or bf16 (default: that of the GGUF file, f32 if it is quantized); of an "
     "adapter: f32 (default), f16 or bf16"},
    {"--base", "DIR", "the model of an adapter, if it is not the one that the adapter names"},
    LATHE_WEIGHTS_OPTION,
};

const lathe_command lathe_cmd_convert = {
    .name = "convert",
    .arguments = "DIR|FILE.gguf",
    .summary = "convert a model's folder to a GGUF file, or back",
    .details =
        "DIR is a model's folder, a checkpoint (averaged weights, if it has them), or the folder\n"
        "of a run.\n"
        "An adapter of LoRA becomes a GGUF adapter (llama.cpp's --lora).\n"
        "A GGUF file runs in llama.cpp and Ollama; it holds the weights, the tokenizer (a\n"
        "byte-level BPE) and the chat template.\n",
    .more_details = put_families,
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_models = 1,
    .computes = 1,
    .run = run,
};
