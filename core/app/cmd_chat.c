/* lathe chat: a conversation with a model in a terminal, or with lines of a pipe. */
#include <stdio.h>
#include <unistd.h>

#include "app/adapter_options.h"
#include "app/chat_prompt.h"
#include "app/commands.h"
#include "app/model_dir.h"
#include "app/sampling_options.h"
#include "base/error.h"
#include "base/print.h"
#include "chat/conversation.h"
#include "primitives/sampling_settings.h"
#include "run/run_state.h"

enum { EXIT_INTERRUPTED = 130 };

static const lathe_option options[] = {
    {"--system", "TEXT", "the system message of the conversation"},
    LATHE_SAMPLING_OPTIONS,
    LATHE_ADAPTER_OPTIONS,
    LATHE_WEIGHTS_OPTION,
};

/* ---- the loop ---- */

/* 1: the user can mend the failure by typing another line. Other failures end the command. */
static int is_mendable(lathe_status status)
{
    return status == LATHE_E_ARG || status == LATHE_E_CONFIG || status == LATHE_E_IO ||
           status == LATHE_E_NOT_FOUND || status == LATHE_E_UNSUPPORTED;
}

static lathe_status converse(lathe_talk *t, int *out_code)
{
    lathe_buffer line = LATHE_BUFFER_INIT;
    int32_t what = LATHE_CHAT_LINE, was_interrupted = 0;
    lathe_status status = LATHE_OK;
    while (status == LATHE_OK && !t->has_ended) {
        if (t->on_terminal) {
            lathe_print_text(stdout, "> ");
            (void)fflush(stdout);
        }
        status = lathe_chat_input_line(&t->input, &line, &what);
        if (status != LATHE_OK || what == LATHE_CHAT_END)
            break;
        if (what == LATHE_CHAT_INTERRUPT) { /* the second one in a row ends the command */
            *out_code = was_interrupted || !t->on_terminal ? EXIT_INTERRUPTED : LATHE_EXIT_OK;
            if (*out_code != LATHE_EXIT_OK)
                break;
            lathe_print_text(stdout, "\n(Ctrl-D ends, Ctrl-C again too)\n");
            was_interrupted = 1;
            continue;
        }
        was_interrupted = 0;
        status = lathe_talk_line(t, line.data ? line.data : "", line.len);
        if (status != LATHE_OK && t->on_terminal && is_mendable(status)) {
            lathe_print_to(stderr, "lathe chat: %s\n", lathe_error_message());
            status = LATHE_OK;
        }
        if (t->was_stopped && !t->on_terminal) { /* Ctrl-C in a script ends it after the answer */
            *out_code = EXIT_INTERRUPTED;
            break;
        }
    }
    if (t->on_terminal && what == LATHE_CHAT_END)
        lathe_print_to(stdout, "\n");
    lathe_buffer_fini(&line);
    return status;
}

static lathe_status open_talk(const lathe_args *args, lathe_talk *t)
{
    const char *system = lathe_args_value(args, "--system");
    LATHE_TRY(lathe_default_sampling(t->run, &t->sampling));
    lathe__sampling_say(t->run);
    t->sampling.stop_at_eos = 1;
    if (!lathe_config_is_set(t->run->config, "generate", "max_new_tokens"))
        t->sampling.max_new_tokens = 100000000; /* as far as the context goes */
    const lathe_chat_template *chat;
    LATHE_TRY(lathe_app_chat_template(t->run, args->words[0], &chat));
    LATHE_TRY(lathe_talk_begin(t));
    return system ? lathe_talk_system(t, system) : LATHE_OK;
}

static int run_command(const lathe_args *args)
{
    lathe_talk t = {.sampling = {.size = (uint32_t)sizeof t.sampling}};
    lathe_sampling_values settings;
    int code = LATHE_EXIT_OK;
    t.on_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    t.stream.on_terminal = isatty(STDOUT_FILENO);
    lathe_status status = lathe_chat_input_init(&t.input);
    if (status == LATHE_OK)
        status = lathe_app_sampling(args, &settings);
    if (status == LATHE_OK)
        status = lathe_app_open_model(args, LATHE_OPEN_INFER, settings.list, &t.run);
    if (status == LATHE_OK)
        status = open_talk(args, &t);
    if (status == LATHE_OK && t.on_terminal)
        lathe_print("%s (/help lists commands)\n", args->words[0]);
    if (status == LATHE_OK)
        status = converse(&t, &code);
    if (status == LATHE_OK)
        lathe__drafts_say(t.run);
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    lathe_talk_fini(&t);
    lathe_chat_input_fini(&t.input);
    lathe_run_close(t.run);
    return code;
}

const lathe_command lathe_cmd_chat = {
    .name = "chat",
    .arguments = "DIR|RUN.toml",
    .summary = "talk with a model",
    .details = "DIR and RUN.toml are those of lathe generate; the folder needs a chat template.\n"
               "A line is a message, and the answer is shown while it is generated. Ctrl-C\n"
               "stops an answer and keeps it; the end of the input ends the conversation.\n"
               "Commands: /system TEXT, /clear, /undo, /save FILE, /adapter NAME, /quit, /help.\n"
               "Without a terminal the answers alone are printed, and an error ends the command.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_models = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
