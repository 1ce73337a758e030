/* lathe chat: a conversation with a model in a terminal, or with lines of a pipe. */
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/chat/conversation.h"
#include "cmd/main/commands.h"
#include "cmd/main/model_args.h"
#include "cmd/main/sampling_options.h"
#include "run/api/run_facts.h"
#include "run/parts/sampling_settings.h"
#include "session/session_state.h"

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
    int32_t what = LATHE_CHAT_LINE;
    lathe_status status = LATHE_OK;
    while (status == LATHE_OK && !t->has_ended) {
        if (t->on_terminal) {
            lathe_print_text(stdout, "> ");
            (void)fflush(stdout);
        }
        status = lathe_chat_input_line(&t->input, &line, &what);
        if (status != LATHE_OK || what == LATHE_CHAT_END)
            break;
        if (what == LATHE_CHAT_INTERRUPT && !t->on_terminal) {
            *out_code = EXIT_INTERRUPTED;
            break;
        }
        if (what == LATHE_CHAT_INTERRUPT) { /* the terminal has dropped the line that was begun */
            lathe_print_text(stdout, "\n(Ctrl-D or /quit ends)\n");
            continue;
        }
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
    lathe_sampling_values settings;
    LATHE_TRY(lathe_app_sampling(args, &settings));
    LATHE_TRY(
        lathe_app_open_session(args, LATHE_SESSION_GENERATE, settings.list, NULL, &t->session));
    LATHE_TRY(lathe__dialogue_create_named(t->session, args->words[0], &t->conversation));
    LATHE_TRY(lathe_dialogue_sampling(t->conversation, &t->sampling));
    t->has_adapters = lathe_args_each(args, "--adapter", 0) != NULL;
    return system ? lathe_dialogue_system(t->conversation, system) : LATHE_OK;
}

/* The memory of the context is reserved at the start, so it is not the model's whole one by itself.
 */
static void greet(const char *word, const lathe_run *run)
{
    lathe_run_facts facts;
    lathe_run_facts_get(run, &facts);
    lathe_print("%s (/help lists commands); the conversation may have %d tokens", word,
                facts.row_tokens);
    if (facts.max_positions > facts.row_tokens)
        lathe_print(", of the %lld that the model takes (--data.seq_len)",
                    (long long)facts.max_positions);
    lathe_print("\n");
}

static int run_command(const lathe_args *args)
{
    lathe_talk t = {.sampling = {.size = (uint32_t)sizeof t.sampling}};
    int code = LATHE_EXIT_OK;
    t.on_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    t.shows_control = isatty(STDOUT_FILENO);
    lathe_status status = lathe_chat_input_init(&t.input);
    if (status != LATHE_OK)
        goto out;
    if ((status = open_talk(args, &t)) != LATHE_OK)
        goto out;
    if (t.on_terminal)
        greet(args->words[0], lathe_session_run(t.session));
    if ((status = converse(&t, &code)) != LATHE_OK)
        goto out;
    lathe__drafts_say(lathe_session_run(t.session));
out:
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    lathe_dialogue_destroy(t.conversation);
    lathe_chat_input_fini(&t.input);
    lathe_session_close(t.session);
    return code;
}

const lathe_command lathe_cmd_chat = {
    .name = "chat",
    .arguments = "DIR|FILE.gguf|RUN.toml",
    .summary = "talk with a model",
    .details = "DIR and RUN.toml are those of lathe generate; the folder needs a chat template.\n"
               "A line is a message, and the answer is shown while it is generated. Ctrl-C\n"
               "stops an answer and keeps it, and drops a line that is not finished; the end of\n"
               "the input (Ctrl-D) ends the conversation.\n"
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
