/* lathe new: writes a commented run file of a stage. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/output_file.h"
#include "base/print.h"
#include "cmd/new/new_commands.h"
#include "cmd/new/run_templates.h"

static const lathe_option options[] = {
    {"--model", "DIR", "the model's folder (default: models/NAME)"},
    {"--data", "PATH", "the data (default: a name that says what it should hold)"},
    {"-o, --output", "RUN.toml",
     "write this new file (default: STAGE.toml; \"-\": standard output)"},
};

/* ---- a template, filled in ---- */

enum { LARGEST = 1 << 22 }; /* bytes: a larger file is not read to be counted */
enum { FEW = 100 };         /* records: below it, each step takes an eighth of them at most */

/* Values of a run file. */
typedef struct values {
    const char *model, *data, *out; /* paths */
    int64_t n_records;              /* of the data; -1: unknown */
    int32_t rows, steps, epochs;    /* of a micro-batch; micro-batches of a step */
} values;

/* Counts the records of a file of JSON lines; -1: it is something else, or not there. */
static int64_t count_records(const char *path)
{
    char *text = NULL;
    int64_t bytes = 0, n = 0;
    const size_t length = strlen(path);
    if (length < 6 || strcmp(path + length - 6, ".jsonl") != 0 || !lathe_path_exists(path))
        return -1;
    if (lathe_file_read(path, LARGEST, &text, &bytes) != LATHE_OK) {
        lathe_error_clear(); /* the training says it */
        return -1;
    }
    for (int64_t i = 0, has_text = 0; i <= bytes; i++) {
        const int ends = i == bytes || text[i] == '\n';
        n += ends && has_text;
        has_text = !ends && (has_text || !isspace((unsigned char)text[i]));
    }
    free(text);
    return n;
}

/* A step takes few records where they are few, so that a short run has steps to learn in. */
static void choose_steps(values *v)
{
    v->rows = v->steps = 4;
    v->epochs = 1;
    if (v->n_records < 0 || v->n_records >= FEW)
        return;
    const int64_t step = v->n_records / 8 > 1 ? v->n_records / 8 : 1;
    v->rows = (int32_t)(step < 4 ? step : 4);
    v->steps = (int32_t)(step / v->rows);
    v->epochs = 3;
}

static int begins(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* Appends a text of a template; @NAMES@ become paths in quotes, and numbers. @FEW{TEXT}@ and
 * @MANY{TEXT}@: the text only where the data are few records, or many or unknown. */
static void fill(const char *text, const values *v, lathe_buffer *out)
{
    const struct {
        const char *name, *path;
        int64_t number;
    } names[] = {{"@MODEL@", v->model, 0},     {"@DATA@", v->data, 0},
                 {"@OUT@", v->out, 0},         {"@N@", NULL, v->n_records},
                 {"@ROWS@", NULL, v->rows},    {"@STEPS@", NULL, v->steps},
                 {"@EPOCHS@", NULL, v->epochs}};
    const int is_few = v->n_records >= 0 && v->n_records < FEW;
    while (*text) {
        const char *at = strchr(text, '@');
        lathe_buffer_append(out, text, at ? at - text : (int64_t)strlen(text));
        if (at == NULL)
            return;
        text = at + 1;
        if (at[-1] == '}') { /* the end of a condition that holds; no template begins with @ */
            out->len--;
            continue;
        }
        if (begins(at, "@FEW{") || begins(at, "@MANY{")) {
            const char *end = strstr(at, "}@");
            text = begins(at, "@FEW{") == is_few ? strchr(at, '{') + 1 : end + 2;
            continue;
        }
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            if (!begins(at, names[i].name))
                continue;
            if (names[i].path)
                lathe_buffer_json_string(out, names[i].path);
            else
                lathe_buffer_printf(out, "%lld", (long long)names[i].number);
            text = at + strlen(names[i].name);
        }
    }
}

/* The folder of the run: out/NAME of the run file, so that two files do not train into one. */
static void name_folder(const char *stage, const char *file, char *out, size_t bytes)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    const size_t n = strlen(name);
    const int is_toml = n > 5 && strcmp(name + n - 5, ".toml") == 0;
    if (strcmp(file, "-") == 0)
        (void)snprintf(out, bytes, "out/%s", stage);
    else
        (void)snprintf(out, bytes, "out/%.*s", (int)(is_toml ? n - 5 : n), name);
}

static lathe_status write_file(const char *path, const lathe_buffer *text)
{
    if (strcmp(path, "-") == 0) {
        lathe_print_output(stdout, text->data, text->len);
        return ferror(stdout) ? lathe_error(LATHE_E_IO, "standard output cannot be written")
                              : LATHE_OK;
    }
    if (lathe_path_exists(path))
        return lathe_error(LATHE_E_ARG, "%s is there already; name another with -o", path);
    return lathe_file_write_output(path, text->data, text->len);
}

static lathe_status create(const lathe_args *args, const char **out_path, char *room, size_t bytes)
{
    const char *stage = args->words[0];
    const char *model = lathe_args_value(args, "--model"), *data = lathe_args_value(args, "--data");
    const lathe_run_template *t = lathe_run_template_find(stage, model != NULL);
    lathe_buffer names = LATHE_BUFFER_INIT, text = LATHE_BUFFER_INIT;
    lathe_status status = LATHE_OK;
    if (t == NULL) {
        lathe_run_template_names(&names);
        status = lathe_error(LATHE_E_ARG, "no run file of stage \"%s\"; expected one of %s", stage,
                             names.data ? names.data : "");
        lathe_buffer_fini(&names);
        return status;
    }
    (void)snprintf(room, bytes, "%s.toml", t->stage);
    *out_path = lathe_args_value(args, "--output") ? lathe_args_value(args, "--output") : room;
    char folder[512];
    name_folder(t->stage, *out_path, folder, sizeof folder);
    values v = {.model = model ? model : "models/NAME",
                .data = data ? data : t->data,
                .out = folder,
                .n_records = count_records(data ? data : t->data)};
    choose_steps(&v);
    fill(t->text, &v, &text);
    status = text.status != LATHE_OK ? text.status : write_file(*out_path, &text);
    lathe_buffer_fini(&text);
    return status;
}

static int run(const lathe_args *args)
{
    char room[64];
    const char *path = NULL;
    const lathe_status status = create(args, &path, room, sizeof room);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (strcmp(path, "-") != 0)
        lathe_print("%s: edit it, then\n  lathe validate %s\n  lathe train %s\n", path, path, path);
    return LATHE_EXIT_OK;
}

const lathe_command lathe_cmd_new = {
    .name = "new",
    .arguments = "sft|pretrain|dpo|kto|rm|ppo",
    .summary = "write a commented run file to begin with",
    .details =
        "The file names the keys that one usually sets, with a reason beside each; all others\n"
        "have defaults (lathe show SECTION). lathe import makes one of another trainer's file.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
