/* lathe tokenizer decode: converts token ids to text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/text/text_commands.h"
#include "cmd/text/tokenizer_lines.h"
#include "cmd/text/tokenizer_open.h"

/* Appends the numbers in a text, which are separated by spaces, commas and brackets. */
static lathe_status read_ids(const char *text, lathe_ids *ids)
{
    static const char between[] = " \t\r\n,[]";
    for (const char *p = text + strspn(text, between); *p; p += strspn(p, between)) {
        char *end;
        errno = 0;
        const long long value = strtoll(p, &end, 10);
        const int n = (int)strcspn(p, between);
        if (errno != 0 || end != p + n || value < 0 || value > INT32_MAX)
            return lathe_error(LATHE_E_ARG, "'%.*s' is no token id", n < 40 ? n : 40, p);
        LATHE_TRY(lathe_ids_reserve(ids, 1));
        ids->data[ids->n++] = (int32_t)value;
        p = end;
    }
    return LATHE_OK;
}

static lathe_status gather_ids(const lathe_args *args, lathe_ids *ids)
{
    if (args->n_words > 2 || (args->n_words == 2 && strcmp(args->words[1], "-") != 0)) {
        for (int32_t i = 1; i < args->n_words; i++)
            LATHE_TRY(read_ids(args->words[i], ids));
        return LATHE_OK;
    }
    char *text;
    int64_t n;
    LATHE_TRY(lathe_app_read("-", &text, &n));
    const lathe_status status =
        (int64_t)strlen(text) == n
            ? read_ids(text, ids)
            : lathe_error(LATHE_E_ARG, "standard input holds a NUL, expected token ids");
    free(text);
    return status;
}

/* Reads a list of ids per line of standard input and prints a JSON string per line. */
static lathe_status decode_lines(const lathe_tokenizer *tok, int32_t flags, char *lists)
{
    lathe_ids ids = {NULL, 0, 0};
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_status status = LATHE_OK;
    for (char *line = lists, *next; *line && status == LATHE_OK; line = next) {
        char *text = NULL;
        int64_t n = 0;
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = 0;
        ids.n = 0;
        status = read_ids(line, &ids);
        if (status == LATHE_OK)
            status = lathe_tokenizer_decode(tok, ids.data, ids.n, flags, &text, &n);
        if (status == LATHE_OK) {
            lathe_app_put_json_text(&out, text, n);
            lathe_buffer_puts(&out, "\n");
            status = out.status;
        }
        free(text);
    }
    if (status == LATHE_OK && out.len > 0)
        lathe_print_bytes(stdout, out.data, out.len);
    lathe_buffer_fini(&out);
    lathe_ids_fini(&ids);
    return status;
}

static int run_lines(const lathe_args *args, const lathe_tokenizer *tok, int32_t flags)
{
    char *lists = NULL;
    int64_t n = 0;
    lathe_status status = LATHE_OK;
    if (args->n_words > 2 || (args->n_words == 2 && strcmp(args->words[1], "-") != 0))
        status = lathe_error(LATHE_E_ARG,
                             "--json-lines reads the ids from standard input; '%s' is "
                             "not expected",
                             args->words[1]);
    if (status != LATHE_OK)
        goto out;
    status = lathe_app_read("-", &lists, &n);
    if (status != LATHE_OK)
        goto out;
    if ((int64_t)strlen(lists) != n)
        status = lathe_error(LATHE_E_ARG, "standard input holds a NUL, expected token ids");
    if (status != LATHE_OK)
        goto out;
    status = decode_lines(tok, flags, lists);
out:
    free(lists);
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
}

static int run(const lathe_args *args)
{
    lathe_tokenizer *tok = NULL;
    lathe_ids ids = {NULL, 0, 0};
    char *text = NULL;
    int64_t n = 0;
    int code = LATHE_EXIT_OK;
    const int32_t flags = lathe_args_value(args, "--skip-special") ? LATHE_DECODE_SKIP_SPECIAL : 0;
    lathe_status status = lathe_app_tokenizer(args->words[0], &tok);
    if (status != LATHE_OK)
        goto out;
    if (lathe_args_value(args, "--json-lines")) {
        code = run_lines(args, tok, flags);
        goto out;
    }
    if ((status = gather_ids(args, &ids)) != LATHE_OK)
        goto out;
    if ((status = lathe_tokenizer_decode(tok, ids.data, ids.n, flags, &text, &n)) != LATHE_OK)
        goto out;
    lathe_print_output(stdout, text, n);
    if (isatty(STDOUT_FILENO))
        lathe_print_to(stdout, "\n");
out:
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    free(text);
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
    return code;
}

static const lathe_option options[] = {
    {"--skip-special", NULL, "leave out special tokens"},
    {"--json-lines", NULL, "read a list of ids per line and print a JSON string for each"},
};

const lathe_command lathe_cmd_tokenizer_decode = {
    .name = "tokenizer decode",
    .arguments = "PATH [ID...|-]",
    .summary = "turn token ids into text",
    .details = "Ids are separated by spaces, commas or line ends; a JSON list works too.\n"
               "Without ids, or with -, they are read from standard input. The bytes are\n"
               "printed unchanged; a line end is added only on a terminal.",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = INT32_MAX,
    .names_models = 1,
    .run = run,
};
