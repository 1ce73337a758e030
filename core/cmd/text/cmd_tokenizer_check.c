/* lathe tokenizer check: describes a tokenizer, and tests whether it works. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "base/print.h"
#include "base/utf8.h"
#include "cmd/text/text_commands.h"
#include "cmd/text/tokenizer_open.h"
#include "files/gguf/model_files.h"
#include "tokenizer/json/tokenizer_report.h"

/* Adds a text to the list `key`: "problems" or "warnings". */
__attribute__((format(printf, 3, 4))) static void note(json_t *report, const char *key,
                                                       const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(json_object_get(report, key), json_string(text));
}

static json_t *token_json(const lathe_tokenizer *tok, int32_t id)
{
    int64_t n = 0;
    const char *text = lathe_tokenizer_token(tok, id, &n);
    if (!text)
        return json_null();
    lathe_buffer piece = LATHE_BUFFER_INIT;
    lathe_app_show_bytes(&piece, text, n);
    json_t *out = json_pack("{s:i, s:s}", "id", (int)id, "piece", piece.data ? piece.data : "");
    lathe_buffer_fini(&piece);
    return out;
}

static void report_tokens(json_t *report, const lathe_tokenizer *tok)
{
    const int64_t n = lathe_tokenizer_vocab_size(tok);
    int64_t n_tokens = 0, n_special = 0, bytes = 0;
    for (int32_t id = 0; id < n; id++)
        if (lathe_tokenizer_token(tok, id, &bytes)) {
            n_tokens++;
            n_special += lathe_tokenizer_is_special(tok, id);
        }
    json_object_set_new(report, "tokens", json_integer(n_tokens));
    json_object_set_new(report, "vocab_size", json_integer(n));
    json_object_set_new(report, "special_tokens", json_integer(n_special));
    json_object_set_new(report, "bos", token_json(tok, lathe_tokenizer_bos(tok)));
    json_object_set_new(report, "eos", token_json(tok, lathe_tokenizer_eos(tok)));
    json_object_set_new(report, "pad", token_json(tok, lathe_tokenizer_pad(tok)));
    if (lathe_tokenizer_eos(tok) < 0)
        note(report, "problems",
             "no end-of-text token, so no data can be prepared with this tokenizer: name one with "
             "eos_token in tokenizer_config.json, beside tokenizer.json");
}

/* Writes the bytes that a byte-level vocabulary lacks as ranges: "0x00, 0xc0-0xc1". */
static void report_missing(json_t *report, const lathe_tokenizer *tok)
{
    uint8_t missing[256];
    lathe_buffer text = LATHE_BUFFER_INIT;
    const int32_t n = lathe_tokenizer_missing_bytes(tok, missing);
    for (int32_t i = 0, end; n > 0 && i < 256; i = end) {
        end = i + 1;
        if (!missing[i])
            continue;
        while (end < 256 && missing[end])
            end++;
        lathe_buffer_printf(&text, text.len ? ", 0x%02x" : "0x%02x", (unsigned)i);
        if (end > i + 1)
            lathe_buffer_printf(&text, "-0x%02x", (unsigned)(end - 1));
    }
    if (n > 0) {
        json_object_set_new(
            report, "missing_bytes",
            json_pack("{s:i, s:s}", "count", (int)n, "values", text.data ? text.data : ""));
        note(report, "warnings",
             "bytes without a token: %d of 256 (%s); encoding leaves them out of a text, or "
             "replaces "
             "them by the unknown token; to count them in your data, name a FILE",
             (int)n, text.data ? text.data : "");
    }
    lathe_buffer_fini(&text);
}

/* Checks that a model's table has a row for every id. */
static lathe_status report_model(json_t *report, const lathe_tokenizer *tok, const char *model,
                                 const char *config)
{
    json_t *root;
    LATHE_TRY(lathe_model_json(model, "config.json", &root));
    const json_t *size = json_object_get(root, "vocab_size");
    if (!size)
        size = json_object_get(json_object_get(root, "text_config"), "vocab_size");
    const int64_t rows = json_integer_value(size), n = lathe_tokenizer_vocab_size(tok);
    if (json_is_integer(size)) {
        int64_t n_without = 0, bytes = 0;
        const int32_t pad = lathe_tokenizer_pad(tok);
        for (int64_t id = rows > 0 ? rows : 0; id < n; id++) /* not every id has a token */
            n_without += lathe_tokenizer_token(tok, (int32_t)id, &bytes) != NULL;
        json_object_set_new(report, "model_vocab_size", json_integer(rows));
        if (n_without == 1 && pad == n - 1 && pad >= rows)
            note(report, "warnings",
                 "%s: vocab_size is %" PRId64 ", so pad_token (%d) has no row in the model: Lathe "
                 "leaves it out",
                 config, rows, (int)pad);
        else if (n_without > 0)
            note(report, "problems",
                 "%s: vocab_size is %" PRId64 ", and the tokenizer's ids go up to %" PRId64
                 ": the model has no row for %" PRId64 " of its tokens",
                 config, rows, n - 1, n_without);
    }
    json_decref(root);
    return LATHE_OK;
}

/* Tells the tokens that the files beside tokenizer.json add, or whose flags they change. Programs
 * that read tokenizer.json alone make other ids of a text. */
static void report_beside(json_t *report, const lathe_tokenizer *tok)
{
    const json_t *list = lathe_tokenizer_beside(tok), *one;
    size_t i;
    if (json_array_size(list) > 0)
        json_object_set(report, "beside", (json_t *)(uintptr_t)list);
    json_array_foreach(list, i, one)
    {
        char *text = json_dumps(json_object_get(one, "content"), JSON_ENCODE_ANY);
        const long long id = (long long)json_integer_value(json_object_get(one, "id"));
        if (i < 8)
            note(report, "warnings",
                 json_is_true(json_object_get(one, "is_new"))
                     ? "the files beside tokenizer.json add the token %lld %.80s: a program that "
                       "reads tokenizer.json alone does not know it"
                     : "the files beside tokenizer.json give the token %lld %.80s other flags than "
                       "tokenizer.json: a program that reads it alone makes other ids",
                 id, text ? text : "");
        free(text);
    }
}

static int64_t count_chars(const char *text, int64_t n)
{
    int64_t chars = 0;
    for (int64_t i = 0; i < n; chars++) {
        int32_t len;
        (void)lathe_utf8_at((const uint8_t *)text + i, n - i, &len);
        i += len;
    }
    return chars;
}

/* Adds the counts and values of the bytes of a text that have no token, if there are any. */
static void put_loss(json_t *out, const lathe_text_loss *loss)
{
    lathe_buffer values = LATHE_BUFFER_INIT;
    if (lathe_text_loss_total(loss) == 0)
        return;
    lathe_text_loss_list(loss, &values);
    json_object_set_new(out, "lost",
                        json_pack("{s:I, s:I, s:s}", "left_out", (json_int_t)loss->n_dropped,
                                  "unknown", (json_int_t)loss->n_unknown, "bytes",
                                  values.data ? values.data : ""));
    lathe_buffer_fini(&values);
}

static lathe_status try_text(json_t *report, const lathe_tokenizer *tok, const char *file,
                             const char *text, int64_t n)
{
    lathe_ids ids = {NULL, 0, 0};
    char *back = NULL;
    int64_t n_back = 0, same = 0;
    lathe_text_loss loss = {0};
    lathe_status status = lathe_tokenizer_encode_counting(tok, text, n, 0, &ids, &loss);
    if (status == LATHE_OK)
        status = lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &back, &n_back);
    if (status == LATHE_OK) {
        const double tokens = ids.n > 0 ? (double)ids.n : 1.0;
        const int64_t chars = count_chars(text, n);
        json_t *out =
            json_pack("{s:s, s:I, s:I, s:I, s:f, s:f}", "file", file, "bytes", (json_int_t)n,
                      "chars", (json_int_t)chars, "tokens", (json_int_t)ids.n, "bytes_per_token",
                      (double)n / tokens, "chars_per_token", (double)chars / tokens);
        while (same < n && same < n_back && text[same] == back[same])
            same++;
        const int differs = same < n || same < n_back;
        json_object_set_new(out, "round_trip", json_boolean(!differs));
        if (differs)
            json_object_set_new(out, "differs_at", json_integer(same));
        put_loss(out, &loss);
        if (lathe_text_loss_total(&loss) > 0)
            note(report, "problems", "%s: %" PRId64 " bytes of the text have no token", file,
                 lathe_text_loss_total(&loss));
        else if (differs && !json_object_get(report, "rewrites"))
            note(report, "problems", "%s: decoding gives other bytes from %" PRId64 " on", file,
                 same);
        json_array_append_new(json_object_get(report, "texts"), out);
    }
    lathe_ids_fini(&ids);
    free(back);
    return status;
}

static lathe_status try_files(json_t *report, const lathe_tokenizer *tok, const lathe_args *args)
{
    json_object_set_new(report, "texts", json_array());
    for (int32_t i = 1; i < args->n_words; i++) {
        char *text = NULL;
        int64_t n = 0;
        LATHE_TRY(lathe_app_read(args->words[i], &text, &n));
        const lathe_status status = try_text(report, tok, args->words[i], text, n);
        free(text);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

/* Reports the parts of a tokenizer.json: of a model, or a file of its own. */
static lathe_status report_file(json_t *report, const char *path, const char *file, int is_model)
{
    char *text = NULL;
    int64_t n = 0;
    LATHE_TRY(is_model ? lathe_model_read(path, "tokenizer.json", 0, &text, &n)
                       : lathe_file_read(file, 0, &text, &n));
    const lathe_status status = lathe_tokenizer_report_file(report, file, text, n);
    free(text);
    return status;
}

/* Fills in the report as far as possible; a part that does not load is a
 * problem with its reason. */
static lathe_status examine(const lathe_args *args, lathe_arena *arena, json_t *report,
                            lathe_tokenizer **tok)
{
    const char *path = NULL;
    LATHE_TRY(lathe_app_tokenizer_place(args->words[0], arena, &path));
    const char *file = path;
    const int is_model = strcmp(path, "bytes") != 0 && lathe_path_is_model(path);
    const char *config = is_model ? lathe_model_place(arena, path, "config.json") : NULL;
    if (is_model) {
        file = lathe_model_place(arena, path, "tokenizer.json");
        if (!file || !config)
            return LATHE_E_NOMEM;
    }
    json_object_set_new(report, "file", json_string(file));
    json_object_set_new(report, "problems", json_array());
    json_object_set_new(report, "warnings", json_array());
    if (strcmp(path, "bytes") == 0)
        json_object_set_new(report, "kind", json_string("bytes"));
    else if (is_model ? lathe_model_has(path, "tokenizer.json") : lathe_path_exists(file))
        LATHE_TRY(report_file(report, path, file, is_model));
    const lathe_status status = lathe_app_tokenizer(path, tok);
    if (status == LATHE_E_NOT_FOUND || status == LATHE_E_IO)
        return status;
    if (status != LATHE_OK) {
        note(report, "problems", "%s", lathe_error_message());
        return LATHE_OK;
    }
    report_tokens(report, *tok);
    report_missing(report, *tok);
    report_beside(report, *tok);
    if (is_model && lathe_model_has(path, "config.json"))
        LATHE_TRY(report_model(report, *tok, path, config));
    return try_files(report, *tok, args);
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_tokenizer *tok = NULL;
    json_t *report = json_object();
    const lathe_status status = examine(args, &arena, report, &tok);
    int code = LATHE_EXIT_OK;
    if (status != LATHE_OK) {
        code = lathe_args_fail(args, status);
    } else {
        if (lathe_args_value(args, "--json")) {
            lathe_print_json(stdout, report, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        } else {
            lathe_tokenizer_report_print(report);
        }
        if (json_array_size(json_object_get(report, "problems")) > 0)
            code = LATHE_EXIT_FAILED;
    }
    json_decref(report);
    lathe_tokenizer_destroy(tok);
    lathe_arena_fini(&arena);
    return code;
}

static const lathe_option options[] = {
    {"--json", NULL, "print the report as an object"},
};

const lathe_command lathe_cmd_tokenizer_check = {
    .name = "tokenizer check",
    .arguments = "PATH [FILE...]",
    .summary = "describe a tokenizer and check that it works",
    .details = "PATH is a tokenizer.json, a folder that contains one, or \"bytes\". Prints the\n"
               "kind, parts, sizes and special tokens of the tokenizer, and the sections of the\n"
               "file that Lathe does not use. For each FILE (-: standard input) prints the\n"
               "number of tokens, and whether they decode to the same bytes; other bytes are a\n"
               "problem only where the tokenizer does not rewrite text. For the folder of a\n"
               "model checks that vocab_size of config.json is large enough for every token.\n"
               "Exits with 1 if there is a problem, such as a part that is not supported. A\n"
               "warning does not change the exit code.",
    .options = options,
    .n_options = 1,
    .min_words = 1,
    .max_words = INT32_MAX,
    .names_models = 1,
    .run = run,
};
