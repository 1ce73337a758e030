/* lathe tokenizer encode: converts text to token ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/text/text_commands.h"
#include "cmd/text/tokenizer_lines.h"
#include "cmd/text/tokenizer_open.h"

/* Puts the text of a token as JSON: as it is if it is UTF-8, else with its bytes made visible. */
static void put_piece(lathe_buffer *out, const lathe_tokenizer *tok, int32_t id)
{
    int64_t n = 0;
    const char *text = lathe_tokenizer_token(tok, id, &n);
    lathe_buffer_puts(out, "\"");
    lathe_app_show_bytes(out, text ? text : "", n);
    lathe_buffer_puts(out, "\"");
}

static void print_json(lathe_buffer *out, const lathe_tokenizer *tok, const lathe_ids *ids,
                       int64_t bytes, int pieces)
{
    lathe_buffer shown = LATHE_BUFFER_INIT;
    lathe_buffer_printf(out, "{\"bytes\": %lld, \"tokens\": %lld, \"ids\": [", (long long)bytes,
                        (long long)ids->n);
    for (int64_t i = 0; i < ids->n; i++)
        lathe_buffer_printf(out, i ? ", %d" : "%d", ids->data[i]);
    lathe_buffer_puts(out, "]");
    for (int64_t i = 0; pieces && i < ids->n; i++) {
        int64_t n = 0;
        const char *text = lathe_tokenizer_token(tok, ids->data[i], &n);
        shown.len = 0;
        lathe_app_show_bytes(&shown, text ? text : "", n);
        lathe_buffer_append(&shown, "", 1);
        lathe_buffer_puts(out, i ? ", " : ", \"pieces\": [");
        lathe_buffer_json_string(out, shown.data ? shown.data : "");
    }
    lathe_buffer_puts(out, pieces && ids->n ? "]}\n" : pieces ? ", \"pieces\": []}\n" : "}\n");
    lathe_buffer_fini(&shown);
}

static void print_text(lathe_buffer *out, const lathe_tokenizer *tok, const lathe_ids *ids,
                       int pieces)
{
    for (int64_t i = 0; i < ids->n; i++) {
        lathe_buffer_printf(out, i && !pieces ? " %d" : "%d", ids->data[i]);
        if (!pieces)
            continue;
        lathe_buffer_puts(out, "\t");
        put_piece(out, tok, ids->data[i]);
        lathe_buffer_puts(out,
                          lathe_tokenizer_is_special(tok, ids->data[i]) ? "\tspecial\n" : "\n");
    }
    if (!pieces)
        lathe_buffer_puts(out, "\n");
}

static lathe_status encode(const lathe_args *args, lathe_tokenizer **tok, char **text,
                           lathe_ids *ids, lathe_buffer *out)
{
    const char *given = lathe_args_value(args, "--text");
    int64_t n = 0;
    int32_t flags = lathe_args_value(args, "--add-special") ? LATHE_ENCODE_ADD_SPECIAL : 0;
    if (lathe_args_value(args, "--no-added"))
        flags |= LATHE_ENCODE_NO_ADDED;
    if (lathe_args_value(args, "--json-lines") &&
        (lathe_args_value(args, "--json") || lathe_args_value(args, "--pieces")))
        return lathe_error(LATHE_E_ARG, "--json-lines prints ids alone: leave out --json and "
                                        "--pieces, or --json-lines");
    if (given && args->n_words > 1)
        return lathe_error(LATHE_E_ARG, "--text and %s: one of them is what to encode",
                           args->words[1]);
    LATHE_TRY(lathe_app_tokenizer(args->words[0], tok));
    if (!given) {
        LATHE_TRY(lathe_app_read(args->n_words > 1 ? args->words[1] : "-", text, &n));
        given = *text;
    } else {
        n = (int64_t)strlen(given);
    }
    const char *file = args->n_words > 1 ? args->words[1] : "-";
    const char *name = lathe_args_value(args, "--text") ? "--text"
                       : strcmp(file, "-") == 0         ? "standard input"
                                                        : file;
    const int lines = lathe_args_value(args, "--json-lines") != NULL;
    lathe_text_loss loss = {0};
    if (lines)
        LATHE_TRY(lathe_app_encode_lines(*tok, name, given, n, flags, &loss, out));
    else
        LATHE_TRY(lathe_tokenizer_encode_counting(*tok, given, n, flags, ids, &loss));
    lathe_text_loss_warn(&loss, name);
    if (lines)
        return out->status;
    const int pieces = lathe_args_value(args, "--pieces") != NULL;
    if (lathe_args_value(args, "--json"))
        print_json(out, *tok, ids, n, pieces);
    else
        print_text(out, *tok, ids, pieces);
    return out->status;
}

static int run(const lathe_args *args)
{
    lathe_tokenizer *tok = NULL;
    char *text = NULL;
    lathe_ids ids = {NULL, 0, 0};
    lathe_buffer out = LATHE_BUFFER_INIT;
    const lathe_status status = encode(args, &tok, &text, &ids, &out);
    if (status == LATHE_OK)
        lathe_print_bytes(stdout, out.data, out.len);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_buffer_fini(&out);
    lathe_ids_fini(&ids);
    free(text);
    lathe_tokenizer_destroy(tok);
    return code;
}

static const lathe_option options[] = {
    {"--text", "TEXT", "encode this text instead of a file"},
    {"--json", NULL, "print an object: bytes, tokens, ids (and pieces)"},
    {"--pieces", NULL,
     "print one token per line: id, its bytes made visible, and whether it is special"},
    {"--json-lines", NULL,
     "read one text per line as a JSON string and print a list of ids for each"},
    {"--add-special", NULL,
     "add the tokens that the template of the file puts before and after a text"},
    {"--no-added", NULL, "treat added tokens in the text as plain text"},
};

const lathe_command lathe_cmd_tokenizer_encode = {
    .name = "tokenizer encode",
    .arguments = "PATH [FILE|-]",
    .summary = "turn text into token ids",
    .details = "PATH is a tokenizer.json, a folder that contains one, or \"bytes\". Without\n"
               "FILE, or with -, standard input is read to its end. The bytes of the text are\n"
               "used unchanged.",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 2,
    .names_models = 1,
    .run = run,
};
