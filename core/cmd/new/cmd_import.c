/* lathe import: writes a run file for the run file of another trainer. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/print.h"
#include "cmd/new/imported_run.h"
#include "cmd/new/new_commands.h"
#include "plug/foreign_keys.h"

static const lathe_option options[] = {
    {"-o, --output", "RUN.toml", "write this new file instead of standard output"},
    {"--from", "NAME",
     "whose file it is: llamafactory, trl, axolotl or xorl (default: by its keys)"},
    {"--stage", "NAME", "Lathe's stage: sft, dpo, kto, rm, ppo, ... (needed for TRL)"},
    {"--keys", "NAME", "print the table of a trainer's keys in Markdown instead"},
};

/* ---- the table ---- */

static void put_cell(const char *text)
{
    for (size_t n; *text; text += n + (text[n] == '|')) {
        n = strcspn(text, "|");
        lathe_print("%.*s%s", (int)n, text, text[n] == '|' ? "\\|" : "");
    }
}

/* Lathe's equal of a row, for the table. */
static void put_equal(const lathe_foreign_key *row)
{
    if (row->target[0])
        lathe_print("`%s`", row->target);
    else if (strcmp(row->rule, "share") == 0)
        lathe_print("`data.validation_split`, `data.validation_count`");
    else if (strcmp(row->rule, "warmup") == 0)
        lathe_print("`scheduler.warmup_steps`, `scheduler.warmup_ratio`");
    const char *rule = row->rule;
    if (strncmp(rule, "over", 4) == 0)
        rule += 4;
    if (rule[0] == '=')
        lathe_print(" = `%s`", rule + 1);
    else if (strncmp(rule, "!=", 2) == 0)
        lathe_print(" = `%s` if false", rule + 2);
    else if (strncmp(rule, "map ", 4) == 0)
        lathe_print(": %s", rule + 4);
    else if (strncmp(rule, "also ", 5) == 0)
        lathe_print(", with `%s`", rule + 5);
}

static int print_keys(const lathe_args *args, const char *word)
{
    const char program = lathe_program_of(word);
    int32_t n = 0;
    const lathe_foreign_key *rows = lathe_foreign_keys(&n);
    if (program == 0)
        return lathe_args_fail(args,
                               lathe_error(LATHE_E_ARG,
                                           "--keys %s: expected llamafactory, trl, axolotl or "
                                           "xorl",
                                           word));
    lathe_print("| %s | Lathe | |\n|---|---|---|\n", lathe_program_name(program));
    for (int32_t i = 0; i < n; i++) {
        const char *slash = strchr(rows[i].programs, '/');
        const size_t letters =
            slash ? (size_t)(slash - rows[i].programs) : strlen(rows[i].programs);
        if (memchr(rows[i].programs, program, letters) == NULL)
            continue;
        lathe_print("| `%s`%s%s | ", rows[i].name, slash ? ", stage " : "", slash ? slash + 1 : "");
        put_equal(&rows[i]);
        lathe_print(" | ");
        put_cell(rows[i].remark);
        lathe_print(" |\n");
    }
    return LATHE_EXIT_OK;
}

/* ---- a file ---- */

/* TRL's names of its commands, beside Lathe's names of stages. */
static const char *stage_of(const char *word)
{
    static const char *const words[][2] = {{"grpo", "ppo"}, {"reward", "rm"}, {"pt", "pretrain"}};
    for (size_t i = 0; word && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i][0]) == 0)
            return words[i][1];
    return word;
}

static lathe_status write_file(const char *path, const lathe_import *io)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&text, "# From a file of %s: %s\n", lathe_program_name(io->program),
                        strrchr(io->path, '/') ? strrchr(io->path, '/') + 1 : io->path);
    lathe_buffer_puts(&text,
                      "# Keys that are not here have Lathe's defaults: lathe show SECTION\n");
    lathe_run_file_print(io->out, &text);
    lathe_status status = text.status;
    if (status == LATHE_OK && path && lathe_path_exists(path))
        status = lathe_error(LATHE_E_ARG, "%s is there already; name a new file", path);
    else if (status == LATHE_OK && path)
        status = lathe_file_write_output(path, text.data, text.len);
    else if (status == LATHE_OK)
        lathe_print_output(stdout, text.data, text.len);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status import(const lathe_args *args, lathe_import *io)
{
    const char *from = lathe_args_value(args, "--from");
    io->path = args->words[0];
    io->stage = stage_of(lathe_args_value(args, "--stage"));
    if (from && !(io->program = lathe_program_of(from)))
        return lathe_error(LATHE_E_ARG, "--from %s: expected llamafactory, trl, axolotl or xorl",
                           from);
    LATHE_TRY(lathe_registry_create(&io->registry));
    LATHE_TRY(lathe_import_read(io));
    LATHE_TRY(write_file(lathe_args_value(args, "--output"), io));
    if (io->n_unknown > 0)
        lathe_log(LATHE_LOG_WARN,
                  "%s: %d key%s of the file %s unknown to %s, too: see the end of the "
                  "run file",
                  io->path, io->n_unknown, io->n_unknown > 1 ? "s" : "",
                  io->n_unknown > 1 ? "are" : "is", lathe_program_name(io->program));
    return LATHE_OK;
}

static int run(const lathe_args *args)
{
    const char *keys = lathe_args_value(args, "--keys");
    lathe_run_file file = {.keys = NULL};
    lathe_import io = {.out = &file};
    if (keys)
        return print_keys(args, keys);
    if (args->n_words == 0)
        return lathe_args_fail(args,
                               lathe_error(LATHE_E_ARG, "expected a file: lathe import FILE.yaml"));
    const lathe_status status = import(args, &io);
    lathe_import_fini(&io);
    lathe_registry_destroy(io.registry);
    lathe_run_file_fini(&file);
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
}

const lathe_command lathe_cmd_import = {
    .name = "import",
    .arguments = "FILE.yaml",
    .summary = "write a run file from one of LLaMA-Factory, TRL, axolotl or xorl",
    .details = "Takes each key of the YAML (or JSON) file by the table of docs/migrating.md. Keys\n"
               "without an equal, and values that Lathe does not have, stand as comments at the\n"
               "end. Defaults of the other trainer that differ from Lathe's are written too.\n"
               "Read the result, then: lathe validate RUN.toml",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .max_words = 1,
    .run = run,
};
