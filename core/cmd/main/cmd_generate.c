/* lathe generate: continues a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/print.h"
#include "cmd/chat/print_piece.h"
#include "cmd/main/commands.h"
#include "cmd/main/generate_prompts.h"
#include "cmd/main/model_args.h"
#include "cmd/main/prompt_file.h"
#include "cmd/main/sampling_options.h"
#include "cmd/text/tokenizer_open.h"
#include "run/parts/sampling_settings.h"
#include "session/chat_prompt.h"
#include "session/session_state.h"

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

/* Reads the conversation of a file, or of standard input for "-". */
static lathe_status read_messages(const char *file, json_t **out)
{
    const char *name = strcmp(file, "-") == 0 ? "standard input" : file;
    char *text = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_app_read(file, &text, &n));
    const lathe_status status = lathe_session_chat_parse(name, text, n, out);
    free(text);
    return status;
}

/* Checks which options come together, and reads the conversation of --messages, before the model is
 * opened. */
static lathe_status read_prompts(const lathe_args *args, json_t **out_row)
{
    static const char *const with_prompts[] = {"--output", "--samples", "--logprobs"};
    const char *messages = lathe_args_value(args, "--messages");
    const char *prompts = lathe_args_value(args, "--prompts");
    LATHE_TRY(lathe_app_check_adapters(args));
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
    return messages ? read_messages(messages, out_row) : LATHE_OK;
}

/* A prompt and its continuation on their way to standard output. */
typedef struct one_text {
    const char *prompt; /* not written yet; NULL: written */
    int32_t on_terminal;
} one_text;

static void write_prompt(one_text *text)
{
    if (text->prompt)
        lathe_print_output(stdout, text->prompt, (int64_t)strlen(text->prompt));
    text->prompt = NULL;
}

/* Writes a piece when it is drawn; a result other than 0 ends the generation. */
static int32_t on_piece(void *arg, const lathe_session_piece *piece)
{
    one_text *text = arg;
    write_prompt(text);
    lathe_app_print_piece(piece, text->on_terminal);
    return ferror(stdout) != 0;
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

/* An answer without a character is no failure, and looks like one. */
static void say_empty(const lathe_generation *made)
{
    if (made->text_bytes > 0)
        return;
    lathe_log(LATHE_LOG_INFO, "the answer has no text: %s",
              made->finish == LATHE_FINISH_EOS
                  ? "the model ends it at once (--ignore-eos goes on after an end token)"
              : made->finish == LATHE_FINISH_STOP ? "it begins with a stop string"
                                                  : "its tokens are special ones");
}

/* The prompt of the command line, or the conversation `row` with the tokens that it is rendered to.
 */
static lathe_status make_prompt(const lathe_args *args, lathe_session *session, json_t *row,
                                uint64_t seed, lathe_prompt *out)
{
    const char *messages = lathe_args_value(args, "--messages");
    const char *prompt = lathe_args_value(args, "--prompt");
    *out = (lathe_prompt){.size = (uint32_t)sizeof *out, .seed = seed};
    out->text = prompt ? prompt : lathe_session_prompt(session);
    if (!row)
        return LATHE_OK;
    lathe_session_ids ids;
    char *json = json_dumps(row, 0);
    if (!json)
        return lathe_error(LATHE_E_NOMEM, "no memory for the conversation");
    const char *place = strcmp(messages, "-") == 0 ? "standard input" : messages;
    const lathe_status status =
        lathe__session_render_named(session, place, json, (int64_t)strlen(json), &ids);
    free(json);
    out->text = NULL;
    out->tokens = ids.ids;
    out->n_tokens = (int32_t)ids.n;
    return status;
}

/* Continues one prompt, or the conversation `row`, and writes the text while it is generated. */
static lathe_status generate_one(const lathe_args *args, lathe_session *session, json_t *row,
                                 const lathe_sampling *sampling)
{
    lathe_generation made = {.size = (uint32_t)sizeof made};
    lathe_prompt prompt;
    LATHE_TRY(make_prompt(args, session, row, sampling->seed, &prompt));
    one_text text = {.prompt = prompt.text ? prompt.text : "",
                     .on_terminal = isatty(STDOUT_FILENO)};
    const lathe_status status =
        lathe_session_stream(session, &prompt, sampling, on_piece, &text, &made);
    if (status == LATHE_OK)
        write_prompt(&text);
    if (!text.prompt) /* also where the generation failed after some tokens */
        lathe_print_to(stdout, "\n");
    (void)fflush(stdout); /* what is said after it may go to the same pipe */
    if (status == LATHE_OK && !ferror(stdout)) {
        say_context(sampling, &made);
        say_empty(&made);
        lathe__drafts_say(lathe_session_run(session));
    }
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_session *session = NULL;
    lathe_sampling sampling = {.size = (uint32_t)sizeof sampling};
    lathe_sampling_values settings;
    json_t *row = NULL;
    int code = LATHE_EXIT_OK;
    lathe_status status = lathe_app_sampling(args, &settings);
    if (status != LATHE_OK)
        goto out;
    if ((status = read_prompts(args, &row)) != LATHE_OK)
        goto out;
    status = lathe_app_open_session(args, LATHE_SESSION_GENERATE, settings.list, NULL, &session);
    if (status != LATHE_OK)
        goto out;
    status = lathe_default_sampling(lathe_session_run(session), &sampling);
    if (status != LATHE_OK)
        goto out;
    sampling.stop_at_eos = lathe_args_value(args, "--ignore-eos") == NULL;
    status = lathe_args_value(args, "--prompts")
                 ? lathe_app_generate_prompts(args, session, &sampling)
                 : generate_one(args, session, row, &sampling);
out:
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    json_decref(row);
    lathe_session_close(session);
    return code;
}

const lathe_command lathe_cmd_generate = {
    .name = "generate",
    .arguments = "DIR|FILE.gguf|RUN.toml",
    .summary = "continue a prompt with a model",
    .details =
        "DIR is a Hugging Face folder, a GGUF file, a checkpoint (of an adapter too: its base\n"
        "is opened with it; --model.path where it was moved), or the folder of a run; a run\n"
        "file means its latest checkpoint. Options that are not given come from the table\n"
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
