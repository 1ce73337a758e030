/* Conversations with a model. */
#include "chat/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/print.h"
#include "dialog/answer_prompt.h"
#include "generate/generator.h"
#include "run/named_adapters.h"
#include "run/run_state.h"

/* ---- messages ---- */

static lathe_status add(lathe_talk *t, const char *role, const char *text, int64_t n)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", text, (size_t)n);
    if (!message)
        return lathe_error(LATHE_E_ARG, "this line is not UTF-8");
    return json_array_append_new(t->messages, message) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "a message of %lld bytes", (long long)n);
}

static const char *role_at(const lathe_talk *t, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(t->messages, i), "role"));
    return role ? role : "";
}

static void drop_last(lathe_talk *t)
{
    (void)json_array_remove(t->messages, json_array_size(t->messages) - 1);
}

lathe_status lathe_talk_system(lathe_talk *t, const char *text)
{
    if (json_array_size(t->messages) > 0 && strcmp(role_at(t, 0), "system") == 0)
        (void)json_array_remove(t->messages, 0);
    if (text[0] == '\0')
        return LATHE_OK;
    LATHE_TRY(add(t, "system", text, (int64_t)strlen(text)));
    const size_t last = json_array_size(t->messages) - 1;
    json_t *message = json_incref(json_array_get(t->messages, last));
    (void)json_array_remove(t->messages, last);
    return json_array_insert_new(t->messages, 0, message) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "the system message");
}

/* ---- an answer ---- */

/* Shows a token; a result other than 0 ends the answer. */
static int on_token(void *arg, int32_t token)
{
    lathe_talk *t = arg;
    lathe_chat_stream_put(&t->stream, token);
    t->was_stopped |= lathe_chat_input_interrupted(&t->input);
    return t->was_stopped || t->stream.status != LATHE_OK;
}

static lathe_status answer(lathe_talk *t)
{
    lathe_ids ids = {0};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    const lathe_chat what = {.messages = t->messages};
    lathe_status status = lathe_chat_answer_prompt(t->run->data.chat, "", &what, t->encoder, &ids);
    t->was_stopped = 0;
    lathe_chat_stream_begin(&t->stream);
    if (status == LATHE_OK) {
        const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt,
                                     .n_tokens = (int32_t)ids.n,
                                     .tokens = ids.data,
                                     .seed = t->sampling.seed + t->n_answers++};
        status = lathe_generate_many(t->run, &prompt, 1, &t->sampling, &made);
    }
    lathe_ids_fini(&ids);
    if (status == LATHE_OK)
        status = t->stream.status;
    LATHE_TRY(status);
    lathe_chat_stream_end(&t->stream, made.text, made.text_bytes);
    lathe_print_text(stdout, t->was_stopped && t->on_terminal ? " [stopped]\n" : "\n");
    (void)fflush(stdout);
    /* An answer that is cut within a character keeps its whole characters. */
    json_t *content = json_stringn(made.text, (size_t)made.text_bytes);
    for (int64_t n = made.text_bytes; !content && n > 0;)
        content = json_stringn(made.text, (size_t)--n);
    status = content ? add(t, "assistant", json_string_value(content),
                           (int64_t)json_string_length(content))
                     : LATHE_E_NOMEM;
    json_decref(content);
    return status;
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
                "Ctrl-C stops an answer.\n");
}

/* Drops the last question and what follows it. */
static lathe_status undo(lathe_talk *t)
{
    size_t n = json_array_size(t->messages);
    while (n > 0 && strcmp(role_at(t, n - 1), "assistant") == 0)
        n--;
    if (n == 0 || strcmp(role_at(t, n - 1), "user") != 0)
        return lathe_error(LATHE_E_ARG, "/undo: there is no question to drop");
    while (json_array_size(t->messages) >= n)
        drop_last(t);
    return LATHE_OK;
}

static lathe_status clear(lathe_talk *t)
{
    const size_t keep = json_array_size(t->messages) > 0 && strcmp(role_at(t, 0), "system") == 0;
    while (json_array_size(t->messages) > keep)
        drop_last(t);
    return LATHE_OK;
}

static lathe_status save(const lathe_talk *t, const char *path)
{
    if (path[0] == '\0')
        return lathe_error(LATHE_E_ARG, "/save FILE: name a file");
    json_t *row = json_pack("{s:O}", "messages", t->messages);
    char *text = row ? json_dumps(row, 0) : NULL;
    lathe_buffer line = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&line, text ? text : "");
    lathe_buffer_puts(&line, "\n");
    lathe_status status = text ? line.status : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = lathe_file_write_output(path, line.data, line.len);
    if (status == LATHE_OK && t->on_terminal)
        lathe_print("%zu messages in %s\n", json_array_size(t->messages), path);
    lathe_buffer_fini(&line);
    free(text);
    json_decref(row);
    return status;
}

/* Makes the generator, which writes what it draws. */
static lathe_status make_generator(lathe_talk *t)
{
    const lathe_token_watch watch = {on_token, t};
    LATHE_TRY(lathe__run_generator(t->run, 1));
    lathe_generator_watch(t->run->generator, watch);
    return LATHE_OK;
}

/* Lets another adapter answer; the messages stay. */
static lathe_status use_adapter(lathe_talk *t, const char *name)
{
    int32_t index;
    if (!t->run->named)
        return lathe_error(LATHE_E_ARG,
                           "/adapter: there are none; begin with --adapter NAME=FOLDER");
    LATHE_TRY(lathe__named_adapters_find(t->run->named, name, &index));
    lathe__named_adapters_use(t->run, index);
    return make_generator(t);
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
        return lathe_talk_system(t, rest);
    if (is_command(line, "/save", &rest))
        return save(t, rest);
    if (is_command(line, "/adapter", &rest))
        return use_adapter(t, rest);
    if (is_command(line, "/clear", &rest))
        return clear(t);
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
    LATHE_TRY(add(t, "user", line + skip, n - skip));
    const lathe_status status = answer(t);
    if (status != LATHE_OK)
        drop_last(t); /* the conversation is as it was */
    return status;
}

/* ---- begin and end ---- */

lathe_status lathe_talk_begin(lathe_talk *talk)
{
    lathe_run *run = talk->run;
    talk->messages = json_array();
    talk->stream.tokenizer = run->data.tokenizer;
    talk->stream.how = &talk->sampling;
    if (!talk->messages)
        return lathe_error(LATHE_E_NOMEM, "a conversation");
    LATHE_TRY(lathe_encoder_create(run->data.tokenizer, &talk->encoder));
    return make_generator(talk);
}

void lathe_talk_fini(lathe_talk *talk)
{
    lathe_encoder_destroy(talk->encoder);
    lathe_chat_stream_fini(&talk->stream);
    json_decref(talk->messages);
    talk->encoder = NULL;
    talk->messages = NULL;
}
