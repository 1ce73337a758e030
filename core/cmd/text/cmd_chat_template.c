/* lathe chat-template: shows conversations as the model sees them, and what is learnt of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/json/json_walk.h"
#include "base/model_path.h"
#include "base/print.h"
#include "base/utf8.h"
#include "chat/template/chat_template.h"
#include "cmd/text/shown_renderer.h"
#include "cmd/text/shown_unwritten.h"
#include "cmd/text/text_commands.h"
#include "cmd/text/tokenizer_lines.h"
#include "cmd/text/tokenizer_open.h"
#include "data/conversation/chat_record.h"
#include "data/records/readers.h"
#include "data/records/record_reader.h"
#include "data/records/row_kind.h"
#include "files/gguf/model_files.h"
#include "tokenizer/json/tokenizer_file.h"

static const lathe_option options[] = {
    {"--show", "FILE|-",
     "show the conversations of this file: one JSON object with \"messages\" a line, or rows of "
     "Parquet"},
    {"--n", "N", "number of conversations to show (default 10; 0: all; with --json: all)"},
    {"--renderer", "NAME",
     "auto: the renderer that writes what the template writes, if there is one; jinja: the "
     "template alone; or a renderer's name (default: the one that the folder was trained with, "
     "or auto)"},
    {"--now", "SECONDS", "the time that the template sees, in seconds since 1970 (default: now)"},
    {"--json", NULL,
     "print one JSON object for each conversation: text, generation, learnt; or error"},
    {"--tokens", NULL,
     "also encode the conversations with the folder's tokenizer: show numbers of tokens, and with "
     "--json \"ids\" and the ranges \"learnt_tokens\""},
};

typedef struct shower {
    const lathe_chat_template *chat;
    const char *name;                           /* of the file */
    const char *unit;                           /* of its records: "row"; NULL: lines */
    int64_t now, max_shown, n_shown, n_refused; /* max_shown 0: all */
    int as_json, colour;
    int has_legend;
    int is_cut; /* conversations follow that are not shown */
    lathe_shown_renderer renderer;
    lathe_shown_unwritten unwritten;
    lathe_tokenizer *tokenizer; /* NULL: without --tokens */
    lathe_encoder *encoder;
    lathe_chat_tokens tokens;
    lathe_arena arena;
    lathe_buffer out;
} shower;

/* ---- without a file ---- */

/* Whether the renderer declares that prompts and turns extend each other, in JSON. */
static const char *declares_extension(const shower *s)
{
    const lathe_instance *instance = &s->renderer.instance;
    const lathe_renderer_v1 *table = instance->component ? instance->table : NULL;
    return !table ? "null" : table->flags & LATHE_RENDERER_EXTENDS ? "true" : "false";
}

static lathe_status describe(const char *path, const shower *s, lathe_buffer *out)
{
    const lathe_chat_template *chat = s->chat;
    const int as_json = s->as_json;
    const char *renderer = lathe_chat_template_renderer(chat);
    static const char talk[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                               "{\"role\": \"assistant\", \"content\": \"b\"},"
                               " {\"role\": \"user\", \"content\": \"c\"}, {\"role\": "
                               "\"assistant\", \"content\": \"d\"}]}";
    json_t *row = NULL, *owned = NULL;
    lathe_chat what;
    int extends = 0;
    LATHE_TRY(lathe_json_load("talk", talk, sizeof talk - 1, &row));
    lathe_status status = lathe_chat_from_row(row, &what, &owned);
    if (status == LATHE_OK)
        status = lathe_chat_extends(chat, &what, &extends);
    const int knows = status == LATHE_OK; /* a template may refuse this conversation */
    const int marks = lathe_chat_template_marks(chat),
              clock = lathe_chat_template_reads_clock(chat);
    json_decref(owned);
    json_decref(row);
    if (as_json) {
        lathe_buffer_printf(out,
                            "{\"sha256\": \"%s\", \"marks_generation\": %s, \"reads_clock\": %s, "
                            "\"extends\": %s, \"renderer\": \"%s\", \"renderer_extends\": %s}\n",
                            lathe_chat_template_hash(chat), marks ? "true" : "false",
                            clock ? "true" : "false",
                            !knows    ? "null"
                            : extends ? "true"
                                      : "false",
                            renderer ? renderer : "jinja", declares_extension(s));
        return out->status;
    }
    lathe_buffer_printf(out, "chat template of %s\n  SHA-256 (with the special tokens) %s\n", path,
                        lathe_chat_template_hash(chat));
    lathe_buffer_printf(out, "  renderer: %s%s%s\n",
                        renderer ? renderer : "jinja, the template itself", renderer ? ": " : "",
                        renderer ? s->renderer.why : "");
    lathe_buffer_printf(out, "  learnt: %s\n",
                        renderer ? "the assistant's answers, as the renderer tells them"
                        : marks
                            ? "what stands between {% generation %} and {% endgeneration %}"
                            : "what each message of the assistant adds to the prompt before it");
    lathe_buffer_printf(out, "  prompts of successive turns extend each other: %s\n",
                        !knows    ? "not known, the template refuses a plain conversation"
                        : extends ? "yes"
                                  : "no, a turn does not begin with its prompt, or is written "
                                    "otherwise when others follow");
    if (clock)
        lathe_buffer_puts(out, "  the text depends on the date (strftime_now)\n");
    lathe_buffer_puts(out, "  --show FILE.jsonl shows conversations\n");
    return out->status;
}

/* ---- conversations ---- */

static void put_spans(lathe_buffer *out, const char *name, const lathe_rendering *text)
{
    lathe_buffer_printf(out, ", \"%s\": [", name);
    for (int64_t i = 0; i < text->n_spans; i++)
        lathe_buffer_printf(out, "%s[%lld, %lld]", i ? ", " : "", (long long)text->spans[i].begin,
                            (long long)text->spans[i].end);
    lathe_buffer_puts(out, "]");
}

static void put_error(lathe_buffer *out, const char *name)
{
    const char *message = lathe_error_message();
    lathe_buffer_printf(out, "\"%s\": ", name);
    lathe_app_put_json_text(out, message, (int64_t)strlen(message));
}

static int64_t learnt_bytes(const lathe_rendering *text)
{
    int64_t n = 0;
    for (int64_t i = 0; i < text->n_spans; i++)
        n += text->spans[i].end - text->spans[i].begin;
    return n;
}

/* Writes the parts of the conversation that training does not find in its text. */
static lathe_status put_unwritten(shower *s, int64_t line, const lathe_chat *what,
                                  const lathe_rendering *text)
{
    lathe_chat_unwritten found;
    LATHE_TRY(lathe_shown_unwritten_add(&s->unwritten, s->chat, what, text, learnt_bytes(text),
                                        line, &found));
    lathe_shown_unwritten_put(&found, s->as_json, &s->out);
    return s->out.status;
}

/* The ids, and where is_training the ranges of those that are learnt. */
static lathe_status put_ids(shower *s, const lathe_rendering *text, int is_training)
{
    lathe_chat_tokens *t = &s->tokens;
    int64_t n = 0;
    if (!s->tokenizer)
        return LATHE_OK;
    LATHE_TRY(lathe_chat_encode_rendering(s->tokenizer, s->encoder, text, t));
    lathe_buffer_puts(&s->out, ", \"ids\": [");
    for (int64_t i = 0; i < t->ids.n; i++)
        lathe_buffer_printf(&s->out, "%s%d", i ? ", " : "", t->ids.data[i]);
    lathe_buffer_puts(&s->out, is_training ? "], \"learnt_tokens\": [" : "]");
    for (int64_t i = 0, begin = 0; i < t->ids.n && is_training; i++) {
        if (t->learnt[i] && (i == 0 || !t->learnt[i - 1]))
            begin = i;
        if (t->learnt[i] && (i + 1 == t->ids.n || !t->learnt[i + 1]))
            lathe_buffer_printf(&s->out, "%s[%lld, %lld]", n++ ? ", " : "", (long long)begin,
                                (long long)i + 1);
    }
    lathe_buffer_puts(&s->out, is_training ? "]" : "");
    return s->out.status;
}

static lathe_status put_json(shower *s, int64_t line, const lathe_chat *what)
{
    lathe_rendering text = {0}, learnt = {0};
    lathe_buffer_printf(&s->out, "{\"line\": %lld, ", (long long)line);
    const lathe_status status = lathe_chat_render(s->chat, what, &text);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK) {
        s->n_refused++;
        put_error(&s->out, "error");
        lathe_buffer_puts(&s->out, "}\n");
        return LATHE_OK;
    }
    lathe_buffer_puts(&s->out, "\"text\": ");
    lathe_buffer_json_bytes(&s->out, text.text, text.bytes);
    lathe_buffer_printf(&s->out, ", \"renderer\": \"%s\"",
                        text.has_tokens ? lathe_chat_template_renderer(s->chat) : "jinja");
    put_spans(&s->out, "generation", &text);
    int is_training = !what->add_generation_prompt;
    if (is_training && lathe_chat_render_training(s->chat, what, &learnt) == LATHE_OK) {
        put_spans(&s->out, "learnt", &learnt);
    } else if (is_training) {
        s->n_refused++;
        lathe_buffer_puts(&s->out, ", ");
        put_error(&s->out, "learnt_error");
        is_training = 0;
    }
    lathe_status encoded = is_training ? put_unwritten(s, line, what, &learnt) : LATHE_OK;
    if (encoded == LATHE_OK)
        encoded = put_ids(s, is_training ? &learnt : &text, is_training);
    lathe_buffer_puts(&s->out, "}\n");
    lathe_rendering_fini(&text);
    lathe_rendering_fini(&learnt);
    return encoded != LATHE_OK ? encoded : s->out.status;
}

static void put_part(shower *s, const char *text, int64_t n, int learnt)
{
    if (n <= 0)
        return;
    if (!learnt)
        lathe_buffer_puts(&s->out, s->colour ? LATHE_DIM : "[-");
    (void)lathe_buffer_printable(&s->out, text, n, INT64_MAX);
    if (!learnt)
        lathe_buffer_puts(&s->out, s->colour ? LATHE_PLAIN : "-]");
}

static lathe_status put_counts(shower *s, const lathe_rendering *text)
{
    if (!s->tokenizer)
        return LATHE_OK;
    LATHE_TRY(lathe_chat_encode_rendering(s->tokenizer, s->encoder, text, &s->tokens));
    lathe_buffer_printf(&s->out, "; %lld tokens, %lld learnt", (long long)s->tokens.ids.n,
                        (long long)s->tokens.n_learnt);
    return LATHE_OK;
}

/* Before the first text. */
static void put_legend(shower *s)
{
    if (!s->has_legend)
        lathe_buffer_puts(&s->out, s->colour ? "Text that is not learnt is dimmed.\n"
                                             : "Text that is not learnt stands in [- -].\n");
    s->has_legend = 1;
}

static lathe_status put_text(shower *s, int64_t line, const lathe_chat *what)
{
    lathe_rendering text = {0};
    int64_t at = 0;
    const lathe_status status = what->add_generation_prompt
                                    ? lathe_chat_render(s->chat, what, &text)
                                    : lathe_chat_render_training(s->chat, what, &text);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK) {
        s->n_refused++;
        lathe_print_to(stderr, "lathe chat-template: %s:%lld: %s\n", s->name, (long long)line,
                       lathe_error_message());
        return LATHE_OK;
    }
    put_legend(s);
    lathe_buffer_printf(&s->out, "== line %lld: %lld bytes, %lld learnt", (long long)line,
                        (long long)text.bytes, (long long)learnt_bytes(&text));
    lathe_status encoded = put_counts(s, &text);
    if (encoded == LATHE_OK && !what->add_generation_prompt)
        encoded = put_unwritten(s, line, what, &text);
    lathe_buffer_puts(&s->out, "\n");
    for (int64_t i = 0; i < text.n_spans; i++) {
        const lathe_template_span span = text.spans[i];
        if (span.begin < at)
            continue; /* of a block in a macro that was already passed */
        put_part(s, text.text + at, span.begin - at, 0);
        put_part(s, text.text + span.begin, span.end - span.begin, 1);
        at = span.end;
    }
    put_part(s, text.text + at, text.bytes - at, 0);
    lathe_buffer_puts(&s->out, "\n");
    lathe_rendering_fini(&text);
    return encoded != LATHE_OK ? encoded : s->out.status;
}

/* Reports a line that is no conversation; the next ones follow. */
static lathe_status put_refusal(shower *s, int64_t line)
{
    s->n_refused++;
    if (!s->as_json) {
        lathe_print_to(stderr, "lathe chat-template: %s\n", lathe_error_message());
        return LATHE_OK;
    }
    lathe_buffer_printf(&s->out, "{\"line\": %lld, ", (long long)line);
    put_error(&s->out, "error");
    lathe_buffer_puts(&s->out, "}\n");
    return s->out.status;
}

/* Reads the conversation of a line; the caller frees row and owned, after an error too. */
static lathe_status read_line(shower *s, int64_t line, const char *text, int64_t n, json_t **row,
                              json_t **owned, lathe_chat *what)
{
    static const lathe_dataset usual = {0}; /* fields have their usual names */
    const int64_t n_nan = lathe_json_count_nan(text, n);
    char *clean = n_nan > 0 ? malloc((size_t)(n + n_nan)) : NULL;
    if (n_nan > 0 && !clean)
        return lathe_error_in(LATHE_E_NOMEM, s->name, line, 0, "a copy of it");
    const int64_t length = clean ? lathe_json_nulls_for_nan(text, n, clean) : n;
    const lathe_status status =
        lathe_json_load_line(s->name, line, clean ? clean : text, length, 1, row);
    free(clean);
    LATHE_TRY(status);
    LATHE_TRY(lathe_chat_row_read(&usual, *row, NULL));
    return lathe_chat_from_row(*row, what, owned);
}

static lathe_status show_line(shower *s, int64_t line, const char *text, int64_t n)
{
    json_t *row = NULL, *owned = NULL;
    lathe_chat what;
    if (line == 1 && n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* byte order mark */
        text += 3;
        n -= 3;
    }
    lathe_status status = read_line(s, line, text, n, &row, &owned, &what);
    s->n_shown++;
    if (status == LATHE_OK) {
        what.now = s->now;
        status = s->as_json ? put_json(s, line, &what) : put_text(s, line, &what);
    } else if (lathe_error_in_record(status, s->name, s->unit, line) != LATHE_E_NOMEM) {
        status = put_refusal(s, line);
    }
    json_decref(owned);
    json_decref(row);
    return status;
}

static int is_blank(const char *text, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return 0;
    return 1;
}

static void print_out(shower *s)
{
    lathe_print_styled(stdout, s->out.data ? s->out.data : "", s->out.len);
    s->out.len = 0;
}

static lathe_status show(shower *s, const char *text, int64_t n)
{
    int64_t line = 1, at = 0;
    for (; at < n && (s->max_shown == 0 || s->n_shown < s->max_shown); line++) {
        const char *end = memchr(text + at, '\n', (size_t)(n - at));
        const int64_t length = (end ? end - text : n) - at;
        if (!is_blank(text + at, length))
            LATHE_TRY(show_line(s, line, text + at, length));
        at += length + 1;
        print_out(s);
    }
    while (at < n && lathe_is_one_of(text[at], " \t\r\n"))
        at++;
    s->is_cut = at < n;
    return LATHE_OK;
}

/* Shows the rows of a file that a reader plugin reads, such as Parquet. *out_is_one 0: it is none.
 */
static lathe_status show_rows(shower *s, const char *file, int *out_is_one)
{
    const lathe_dataset dataset = {
        .path = file, .type = LATHE_DATASET_AUTO, .registry = s->renderer.registry};
    const lathe_source_place begin = {.line = 1};
    lathe_readers readers;
    lathe_sources sources;
    lathe_reader r;
    LATHE_TRY(lathe_readers_find(s->renderer.registry, &s->arena, &readers));
    *out_is_one = lathe_readers_by_name(&readers, file) != NULL;
    if (!*out_is_one)
        return LATHE_OK;
    s->unit = "row";
    LATHE_TRY(lathe_sources_list(&dataset, &s->arena, &sources));
    lathe_status status = lathe_reader_init(&r, &dataset, &sources, LATHE_ROWS_PROMPTS, &begin);
    while (status == LATHE_OK && !lathe_reader_ended(&r) &&
           (s->max_shown == 0 || s->n_shown < s->max_shown)) {
        status = lathe_reader_batch(&r, 1);
        for (int64_t i = 0; i < r.n && status == LATHE_OK; i++)
            status = show_line(s, r.list[i].line, r.data + r.list[i].begin, r.list[i].n);
        print_out(s);
    }
    if (status == LATHE_OK && !lathe_reader_ended(&r)) {
        status = lathe_reader_batch(&r, 1);
        s->is_cut = status == LATHE_OK && r.n > 0;
    }
    lathe_reader_fini(&r);
    return status;
}

/* ---- the command ---- */

static lathe_status load_tokenizer(const lathe_args *args, const char *path, shower *s)
{
    if (!lathe_args_value(args, "--tokens"))
        return LATHE_OK;
    if (!lathe_args_value(args, "--show"))
        return lathe_error(LATHE_E_ARG, "--tokens is about conversations: give --show FILE too");
    if (!lathe_path_is_model(path) || !lathe_model_has(path, "tokenizer.json"))
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s has no tokenizer.json; --tokens expects the folder of a model that "
                           "has a tokenizer",
                           path);
    LATHE_TRY(lathe_tokenizer_load(path, &s->tokenizer));
    return lathe_encoder_create(s->tokenizer, &s->encoder);
}

static lathe_status run_parts(const lathe_args *args, shower *s, lathe_chat_template **chat)
{
    const char *path = args->words[0], *file = lathe_args_value(args, "--show");
    char *text = NULL, hint[LATHE_HUB_HINT];
    int64_t n = 0;
    LATHE_TRY(lathe_args_int(args, "--now", 0, INT64_MAX / 2, 0, &s->now));
    LATHE_TRY(lathe_args_int(args, "--n", 0, INT64_MAX, s->as_json ? 0 : 10, &s->max_shown));
    if (!lathe_path_exists(path))
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s: no such file or folder; expected the folder of a model or a file "
                           "with a chat template%s",
                           path, lathe_hub_hint(path, hint, sizeof hint));
    const size_t length = strlen(path);
    if (length > 5 && strcmp(path + length - 5, ".toml") == 0)
        return lathe_error(LATHE_E_ARG,
                           "%s is a run file; expected the folder of a model or a file with a chat "
                           "template",
                           path);
    path = lathe_shown_folder(path, &s->arena);
    LATHE_TRY(lathe_shown_renderer_load(path, lathe_args_value(args, "--renderer"), &s->arena,
                                        &s->renderer, chat));
    LATHE_TRY(load_tokenizer(args, path, s));
    s->chat = *chat;
    if (!file) {
        LATHE_TRY(describe(path, s, &s->out));
        lathe_print_text(stdout, s->out.data);
        return LATHE_OK;
    }
    s->name = strcmp(file, "-") == 0 ? "standard input" : file;
    int is_table = 0;
    lathe_status status = show_rows(s, file, &is_table);
    if (status != LATHE_OK)
        return status;
    if (!is_table) {
        LATHE_TRY(lathe_app_read(file, &text, &n));
        status = show(s, text, n);
        free(text);
    }
    if (status != LATHE_OK)
        return status;
    if (s->n_shown == 0)
        lathe_print_to(stderr, "lathe chat-template: %s has no conversations\n", s->name);
    if (!s->as_json) {
        lathe_shown_unwritten_sum(&s->unwritten, s->name, &s->out);
        lathe_print_bytes(stderr, s->out.data ? s->out.data : "", s->out.len);
    }
    if (s->is_cut && !s->as_json)
        lathe_print_to(stderr, "lathe chat-template: more follow: --n 0 shows all\n");
    if (s->n_refused > 0)
        lathe_print_to(stderr, "lathe chat-template: %lld of %lld conversations are refused\n",
                       (long long)s->n_refused, (long long)s->n_shown);
    return status;
}

static int run(const lathe_args *args)
{
    lathe_chat_template *chat = NULL;
    shower s = {.out = LATHE_BUFFER_INIT};
    s.as_json = lathe_args_value(args, "--json") != NULL;
    s.colour = isatty(STDOUT_FILENO);
    const lathe_status status = run_parts(args, &s, &chat);
    int code = s.n_refused > 0 ? LATHE_EXIT_USAGE : LATHE_EXIT_OK;
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    if (status == LATHE_E_UNSUPPORTED) /* the template is the user's to change */
        code = LATHE_EXIT_USAGE;
    lathe_buffer_fini(&s.out);
    lathe_chat_tokens_fini(&s.tokens);
    lathe_encoder_destroy(s.encoder);
    lathe_tokenizer_destroy(s.tokenizer);
    lathe_chat_template_destroy(chat);
    lathe_shown_renderer_fini(&s.renderer);
    lathe_arena_fini(&s.arena);
    return code;
}

const lathe_command lathe_cmd_chat_template = {
    .name = "chat-template",
    .arguments = "DIR|FILE.jinja",
    .summary = "show conversations as the model sees them, and what is learnt of them",
    .details = "DIR is the folder of a model with chat_template.jinja, or with chat_template in\n"
               "tokenizer_config.json. A line of --show is an object with \"messages\", and where\n"
               "it has them \"tools\", \"documents\", \"chat_template_kwargs\" and\n"
               "\"add_generation_prompt\"; or one of the sharegpt form. The text is that of\n"
               "transformers' apply_chat_template. Learnt is what stands in {% generation %}\n"
               "blocks of the template; without such blocks, what each message of the\n"
               "assistant adds to the prompt before it. Other text is dimmed on a terminal and\n"
               "stands in [- -] elsewhere.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_models = 1,
    .run = run,
};
