/* Lines of a user in a conversation. */
#include "cmd/chat/conversation.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/print.h"
#include "cmd/chat/print_piece.h"

/* ---- an answer ---- */

/* Shows a piece; a result other than 0 ends the answer. */
static int32_t on_piece(void *arg, const lathe_session_piece *piece)
{
    lathe_talk *t = arg;
    lathe_app_print_piece(piece, t->shows_control);
    t->was_stopped |= lathe_chat_input_interrupted(&t->input);
    return t->was_stopped;
}

static lathe_status answer(lathe_talk *t, const char *text, int64_t n)
{
    lathe_generation made = {.size = (uint32_t)sizeof made};
    t->was_stopped = 0;
    LATHE_TRY(lathe_dialogue_say(t->conversation, text, n, &t->sampling, on_piece, t, &made));
    if (made.text_bytes == 0 && t->on_terminal && !t->was_stopped)
        lathe_print_text(stdout, "(the model ends its answer at once)");
    lathe_print_text(stdout, t->was_stopped && t->on_terminal ? " [stopped]\n" : "\n");
    (void)fflush(stdout);
    return LATHE_OK;
}

/* ---- commands ---- */

static void help(void)
{
    lathe_print("/system TEXT  set the system message\n"
                "/clear        begin anew\n"
                "/undo         drop the last question\n"
                "/save FILE    write the messages\n"
                "/adapter NAME answer with another adapter (with --adapter)\n"
                "/quit         end (or Ctrl-D)\n"
                "Ctrl-C stops an answer, or drops the line that is being typed.\n");
}

static lathe_status save(const lathe_talk *t, const char *path)
{
    const char *json;
    int64_t n;
    lathe_buffer line = LATHE_BUFFER_INIT;
    if (path[0] == '\0')
        return lathe_error(LATHE_E_ARG, "/save FILE: name a file");
    LATHE_TRY(lathe_dialogue_json(t->conversation, &json, &n));
    lathe_buffer_append(&line, json, n);
    lathe_buffer_puts(&line, "\n");
    const lathe_status status =
        line.status == LATHE_OK ? lathe_file_write_output(path, line.data, line.len) : line.status;
    if (status == LATHE_OK && t->on_terminal)
        lathe_print("%lld messages in %s\n", (long long)lathe_dialogue_count(t->conversation),
                    path);
    lathe_buffer_fini(&line);
    return status;
}

/* Lets another adapter answer; the messages stay. */
static lathe_status use_adapter(const lathe_talk *t, const char *name)
{
    if (!t->has_adapters)
        return lathe_error(LATHE_E_ARG,
                           "/adapter: there are none; begin with --adapter NAME=FOLDER");
    return lathe_session_use(t->session, name);
}

static lathe_status undo(const lathe_talk *t)
{
    const lathe_status status = lathe_dialogue_undo(t->conversation);
    return status == LATHE_E_STATE ? lathe_error(LATHE_E_ARG, "/undo: there is no question to drop")
                                   : status;
}

/* 1 if the line is this command; *rest: what follows it. */
static int is_command(const char *line, const char *name, const char **rest)
{
    const size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || (line[n] != '\0' && line[n] != ' '))
        return 0;
    *rest = line + n + strspn(line + n, " ");
    return 1;
}

static lathe_status run_line_command(lathe_talk *t, const char *line)
{
    const char *rest;
    if (is_command(line, "/system", &rest))
        return lathe_dialogue_system(t->conversation, rest);
    if (is_command(line, "/save", &rest))
        return save(t, rest);
    if (is_command(line, "/adapter", &rest))
        return use_adapter(t, rest);
    if (is_command(line, "/clear", &rest)) {
        lathe_dialogue_clear(t->conversation);
        return LATHE_OK;
    }
    if (is_command(line, "/undo", &rest))
        return undo(t);
    if (is_command(line, "/quit", &rest) || is_command(line, "/exit", &rest)) {
        t->has_ended = 1;
        return LATHE_OK;
    }
    if (is_command(line, "/help", &rest)) {
        help();
        return LATHE_OK;
    }
    return lathe_error(
        LATHE_E_ARG,
        "unknown command %.*s; expected /system, /clear, /undo, /save, /adapter, "
        "/quit or /help (a line that begins with // is a message that begins with /)",
        (int)strcspn(line, " "), line);
}

lathe_status lathe_talk_line(lathe_talk *t, const char *line, int64_t n)
{
    if (n == 0)
        return LATHE_OK;
    if (line[0] == '/' && line[1] != '/')
        return run_line_command(t, line);
    const int64_t skip = line[0] == '/';
    return answer(t, line + skip, n - skip);
}
