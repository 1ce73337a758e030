/* lathe generate: continues a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/adapter_options.h"
#include "app/chat_prompt.h"
#include "app/commands.h"
#include "app/generate_prompts.h"
#include "app/model_dir.h"
#include "app/prompt_file.h"
#include "app/sampling_options.h"
#include "base/error.h"
#include "base/log.h"
#include "base/print.h"
#include "chat/stream.h"
#include "generate/generator.h"
#include "primitives/sampling_settings.h"
#include "run/run_state.h"

static const lathe_option options[] = {
    {"--prompt", "TEXT", "the text to continue; without it a new document begins"},
    {"--messages", "FILE|-",
     "answer the conversation in this JSON file, rendered with the chat template of "
     "data.chat_template, "
     "or else of the model's folder; only the answer is printed"},
    {"--prompts", "FILE",
     "continue every prompt of a file of JSON lines: {\"prompt\": TEXT}, {\"messages\": [...]} or "
     "{\"ids\": [...]} a line, with \"adapter\": NAME too; needs --output"},
    {"-o, --output", "FILE",
     "with --prompts: the file for the results, one JSON line each, in the order of the prompts. A "
     "call that was stopped goes on where it was when it is repeated"},
    {"--samples", "N", "with --prompts: samples of each prompt (default 1)"},
    {"--logprobs", NULL, "with --prompts: write the ids and log-probabilities of the new tokens"},
    LATHE_SAMPLING_OPTIONS,
    {"--ignore-eos", NULL, "continue after the end of a text"},
    LATHE_ADAPTER_OPTIONS,
    LATHE_WEIGHTS_OPTION,
};

/* Checks which options come together, and reads the conversation of --messages, before the model is
 * opened. */
static lathe_status read_prompts(const lathe_args *args, json_t **out_row)
{
    static const char *const with_prompts[] = {"--output", "--samples", "--logprobs"};
    const char *messages = lathe_args_value(args, "--messages");
    const char *prompts = lathe_args_value(args, "--prompts");
    int32_t has_adapters;
    LATHE_TRY(lathe_app_has_adapters(args, &has_adapters));
    if ((messages != NULL) + (prompts != NULL) + (lathe_args_value(args, "--prompt") != NULL) > 1)
        return lathe_error(LATHE_E_ARG,
                           "--prompt, --messages and --prompts: one of them is the prompt");
    for (int i = 0; i < 3 && !prompts; i++)
        if (lathe_args_value(args, with_prompts[i]))
            return lathe_error(LATHE_E_ARG, "%s needs --prompts, the file of prompts",
                               with_prompts[i]);
    if (prompts && !lathe_args_value(args, "--output"))
        return lathe_error(LATHE_E_ARG, "--prompts needs --output, the file for the results");
    if (prompts && strcmp(lathe_args_value(args, "--output"), "-") == 0)
        return lathe_error(LATHE_E_ARG, "--output is \"-\"; expected a file, in which a repeated "
                                        "call finds what is done (./- is the file of that name)");
    if (prompts) {
        lathe_prompt_file file;
        LATHE_TRY(lathe_prompt_file_open(prompts, NULL, &file));
        lathe_prompt_file_close(&file);
    }
    return messages ? lathe_app_chat_load(messages, out_row) : LATHE_OK;
}

/* Answers the conversation `row`; the result lasts until the next generation. */
static lathe_status answer(const lathe_args *args, lathe_run *run, json_t *row,
                           const lathe_sampling *sampling, lathe_generation *out)
{
    const char *messages = lathe_args_value(args, "--messages");
    const char *place = strcmp(messages, "-") == 0 ? "standard input" : messages;
    const lathe_chat_template *chat = NULL;
    lathe_encoder *encoder = NULL;
    lathe_ids ids = {0};
    LATHE_TRY(lathe_app_chat_template(run, place, &chat));
    LATHE_TRY(lathe_encoder_create(run->data.tokenizer, &encoder));
    lathe_status status = lathe_app_chat_prompt(chat, place, row, encoder, &ids);
    if (status == LATHE_OK) {
        const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt,
                                     .n_tokens = (int32_t)ids.n,
                                     .tokens = ids.data,
                                     .seed = sampling->seed};
        status = lathe_generate_many(run, &prompt, 1, sampling, out);
    }
    lathe_ids_fini(&ids);
    lathe_encoder_destroy(encoder);
    return status;
}

/* A prompt and its continuation on their way to standard output. */
typedef struct one_text {
    lathe_chat_stream stream;
    const char *prompt; /* not written yet; NULL: written */
} one_text;

static void write_prompt(one_text *text)
{
    if (text->prompt)
        lathe_print_output(stdout, text->prompt, (int64_t)strlen(text->prompt));
    text->prompt = NULL;
}

/* Writes a token when it is drawn; a result other than 0 ends the generation. */
static int on_token(void *arg, int32_t token)
{
    one_text *text = arg;
    write_prompt(text);
    lathe_chat_stream_put(&text->stream, token);
    return text->stream.status != LATHE_OK || ferror(stdout);
}

/* Says where a text ends because nothing more fits, as it is shorter than what was asked for. */
static void say_context(const lathe_sampling *how, const lathe_generation *made)
{
    const int64_t n = (int64_t)made->n_prompt_tokens + made->n_tokens;
    if (made->finish == LATHE_FINISH_LENGTH && made->n_tokens < how->max_new_tokens &&
        (how->max_length <= 0 || n < how->max_length))
        lathe_log(LATHE_LOG_INFO,
                  "the text ends because the context of %lld tokens is full; data.seq_len sets its "
                  "length, up to the model's",
                  (long long)n);
}

/* Continues one prompt, or the conversation `row`, and writes the text while it is generated. */
static lathe_status generate_one(const lathe_args *args, lathe_run *run, json_t *row,
                                 const lathe_sampling *sampling)
{
    lathe_generation made = {.size = (uint32_t)sizeof made};
    const char *prompt = lathe_args_value(args, "--prompt");
    if (!prompt)
        prompt = !row && run->set.prompt ? run->set.prompt : "";
    one_text text = {.stream = {.tokenizer = run->data.tokenizer,
                                .how = sampling,
                                .on_terminal = isatty(STDOUT_FILENO)},
                     .prompt = prompt};
    const lathe_token_watch watch = {on_token, &text}, none = {NULL, NULL};
    LATHE_TRY(lathe__run_generator(run, 1));
    lathe_generator_watch(run->generator, watch);
    lathe_status status = row ? answer(args, run, row, sampling, &made)
                              : lathe_generate(run, prompt, sampling, &made);
    lathe_generator_watch(run->generator, none);
    if (status == LATHE_OK)
        status = text.stream.status;
    if (status == LATHE_OK) {
        write_prompt(&text);
        lathe_chat_stream_end(&text.stream, made.text, made.text_bytes);
    }
    if (!text.prompt) /* also where the generation failed after some tokens */
        lathe_print_to(stdout, "\n");
    (void)fflush(stdout); /* what is said after it may go to the same pipe */
    if (status == LATHE_OK && !ferror(stdout)) {
        say_context(sampling, &made);
        lathe__drafts_say(run);
    }
    lathe_chat_stream_fini(&text.stream);
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    lathe_sampling sampling = {.size = (uint32_t)sizeof sampling};
    lathe_sampling_values settings;
    json_t *row = NULL;
    lathe_status status = lathe_app_sampling(args, &settings);
    if (status == LATHE_OK)
        status = read_prompts(args, &row);
    if (status == LATHE_OK)
        status = lathe_app_open_model(args, LATHE_OPEN_INFER, settings.list, &run);
    if (status == LATHE_OK)
        status = lathe_default_sampling(run, &sampling);
    if (status == LATHE_OK) {
        lathe__sampling_say(run);
        sampling.stop_at_eos = lathe_args_value(args, "--ignore-eos") == NULL;
        status = lathe_args_value(args, "--prompts")
                     ? lathe_app_generate_prompts(args, run, &sampling)
                     : generate_one(args, run, row, &sampling);
    }
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    json_decref(row);
    lathe_run_close(run);
    return code;
}

const lathe_command lathe_cmd_generate = {
    .name = "generate",
    .arguments = "DIR|RUN.toml",
    .summary = "continue a prompt with a model",
    .details = "DIR is a Hugging Face folder, a checkpoint (of an adapter too: its base is opened\n"
               "with it; --model.path where it was moved), or the folder of a run; a run file\n"
               "means its latest checkpoint. Options that are not given come from the table\n"
               "[generate] of the run file (--generate.temperature 0.7 works too), then from\n"
               "the model's generation_config.json, with the meaning that they have in\n"
               "transformers. The text is written while it is generated; Ctrl-C ends it.\n"
               "With --adapter, DIR is the model that several adapters share; a line of\n"
               "--prompts chooses by \"adapter\": \"NAME\", other prompts by --use NAME.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_models = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
