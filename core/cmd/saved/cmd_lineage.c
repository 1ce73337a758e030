/* lathe lineage: prints the chain from a model back to the first weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/print.h"
#include "checkpoint/lineage/lineage.h"
#include "cmd/saved/saved_commands.h"

enum { INDENT = 4, MAX_SETTINGS = 160 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The part of a line that names what follows it. */
static void begin_line(int depth, const char *name)
{
    lathe_print("%*s%-9s ", depth * INDENT + 2, "", name);
}

/* "lora: r 8, alpha 16.0" */
static void print_part(int depth, const char *name, const json_t *part)
{
    const char *key, *plugin = text_of(part, "name");
    json_t *value;
    lathe_buffer line = LATHE_BUFFER_INIT;
    int n = 0;
    if (!plugin[0] || strcmp(plugin, "none") == 0 || strcmp(plugin, "full") == 0)
        return;
    json_object_foreach((json_t *)(uintptr_t)part, key, value)
    {
        if (strcmp(key, "name") == 0 || strcmp(key, "plugin") == 0 || strcmp(key, "version") == 0)
            continue;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        lathe_buffer_printf(&line, "%s%s %s", n++ ? ", " : ": ", key, text ? text : "");
        free(text);
    }
    begin_line(depth, name);
    const char *text = line.data ? line.data : "";
    size_t kept = strlen(text);
    if (kept > MAX_SETTINGS)
        for (kept = MAX_SETTINGS; kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80;)
            kept--;
    lathe_print("%s%.*s%s\n", plugin, (int)kept, text, text[kept] ? "..." : "");
    lathe_buffer_fini(&line);
}

static void print_damage(int depth, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        begin_line(depth, "damaged");
        lathe_print("%s\n", json_string_value(json_array_get(list, i)));
    }
}

static void print_data(int depth, const char *name, const json_t *data)
{
    const json_t *files = json_object_get(data, "files");
    const size_t n = json_array_size(files);
    const char *state = text_of(data, "state");
    if (!json_is_object(data))
        return;
    begin_line(depth, name);
    lathe_print("%s", n > 0 ? text_of(json_array_get(files, 0), "path") : "");
    if (n > 1)
        lathe_print(" and %lld more",
                    (long long)json_integer_value(json_object_get(data, "n_files")) - 1);
    lathe_print("%s%lld tokens, content %.12s; %s\n", n > 0 ? ": " : "",
                (long long)json_integer_value(json_object_get(data, "tokens")),
                text_of(data, "content"),
                strcmp(state, "same") == 0      ? "the files are those that were read"
                : strcmp(state, "missing") == 0 ? "files that were read are no longer there"
                : strcmp(state, "changed") == 0 ? "the files changed since"
                                                : "the files were too large to hash");
    print_damage(depth, json_object_get(data, "damage"));
}

/* The texts that a quantized model was calibrated on. */
static void print_calibration(int depth, const json_t *data)
{
    if (!json_is_object(data))
        return;
    print_data(depth, "texts", data);
    begin_line(depth, "");
    lathe_print("calibrated on their first %lld rows of %lld tokens\n",
                (long long)json_integer_value(json_object_get(data, "rows")),
                (long long)json_integer_value(json_object_get(data, "row_tokens")));
}

/* The weights of a folder with their recorded hashes. */
static void print_files(int depth, const json_t *files, const char *state)
{
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)files, name, file)
    {
        begin_line(depth, "file");
        lathe_print("%s  %lld bytes  SHA-256 %.64s%s%s\n", name,
                    (long long)json_integer_value(json_object_get(file, "bytes")),
                    text_of(file, "sha256"), state[0] ? "  " : "", state);
    }
}

static void print_roles(const json_t *roles)
{
    for (size_t i = 0; i < json_array_size(roles); i++) {
        const char *role = json_string_value(json_array_get(roles, i));
        lathe_print("%s%s", i ? ", " : "", role ? role : "?");
    }
    if (json_array_size(roles) == 0)
        lathe_print("parent");
}

static void print_node(int depth, const json_t *node);

static void print_parent(int depth, const json_t *parent)
{
    const char *state = text_of(parent, "state"), *found = text_of(parent, "found");
    const char *path = text_of(parent, "path");
    const json_t *node = json_object_get(parent, "node");
    lathe_print("%*s<- ", depth * INDENT - 2, "");
    print_roles(json_object_get(parent, "roles"));
    lathe_print(": ");
    if (strcmp(state, "missing") == 0) {
        lathe_print("%s: no longer there, or not on this machine\n", path);
        print_files(depth, json_object_get(parent, "files"), "recorded");
        return;
    }
    lathe_print("%s", found[0] ? found : path);
    if (found[0] && strcmp(found, path) != 0)
        lathe_print(" (recorded as %s)", path);
    lathe_print("%s\n", strcmp(state, "not recorded") == 0 ? "; its hash was not recorded" : "");
    print_damage(depth, json_object_get(parent, "damage"));
    if (json_is_object(node) && strcmp(text_of(node, "kind"), "checkpoint") != 0)
        print_files(depth, json_object_get(parent, "files"),
                    strcmp(state, "same") == 0 ? "unchanged" : "recorded");
    if (json_is_object(node))
        print_node(depth, node);
}

static void print_checkpoint(int depth, const json_t *node)
{
    const json_t *resumed = json_object_get(node, "resumed");
    const char *state = text_of(node, "state");
    if (json_is_integer(json_object_get(node, "step"))) {
        begin_line(depth, "step");
        lathe_print("%lld, by Lathe %s\n",
                    (long long)json_integer_value(json_object_get(node, "step")),
                    text_of(node, "lathe"));
    }
    if (text_of(node, "made_by")[0]) {
        begin_line(depth, "made");
        lathe_print("by lathe %s, Lathe %s\n", text_of(node, "made_by"), text_of(node, "lathe"));
    }
    print_part(depth, "stage", json_object_get(node, "stage"));
    print_part(depth, "adapter", json_object_get(node, "adapter"));
    print_part(depth, "quant", json_object_get(node, "quant"));
    print_data(depth, "data", json_object_get(node, "data"));
    print_data(depth, "evaluated", json_object_get(node, "validation"));
    print_calibration(depth, json_object_get(node, "calibration"));
    if (resumed) {
        begin_line(depth, "resumed");
        lathe_print("from %s%s\n", text_of(resumed, "path"),
                    json_is_true(json_object_get(resumed, "is_there")) ? "" : ", no longer there");
    }
    begin_line(depth, "files");
    lathe_print("%s\n", strcmp(state, "whole") == 0     ? "whole: every byte is as recorded"
                        : strcmp(state, "damaged") == 0 ? "damaged"
                                                        : "complete by their sizes; not hashed");
}

static void print_node(int depth, const json_t *node)
{
    const json_t *parents = json_object_get(node, "parents");
    const int is_checkpoint = strcmp(text_of(node, "kind"), "checkpoint") == 0;
    if (is_checkpoint)
        print_checkpoint(depth, node);
    print_damage(depth, json_object_get(node, "damage"));
    print_files(depth, json_object_get(node, "files"), "");
    for (size_t i = 0; i < json_array_size(parents); i++)
        print_parent(depth + 1, json_array_get(parents, i));
    if (json_array_size(parents) > 0 || json_array_size(json_object_get(node, "damage")) > 0)
        return;
    begin_line(depth, "begins");
    if (is_checkpoint && json_object_get(node, "seed"))
        lathe_print("with random weights of seed %lld\n",
                    (long long)json_integer_value(json_object_get(node, "seed")));
    else
        lathe_print("here: no manifest tells where these weights come from\n");
}

static int run(const lathe_args *args)
{
    json_t *node = NULL;
    int64_t n_damaged = 0;
    const int32_t verify = lathe_args_value(args, "--no-verify") == NULL;
    const lathe_status status = lathe_lineage_read(args->words[0], verify, &node, &n_damaged);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (lathe_args_value(args, "--json")) {
        lathe_print_json(stdout, node, JSON_INDENT(2));
    } else {
        lathe_print("%s\n", text_of(node, "path"));
        print_node(0, node);
        if (n_damaged > 0)
            lathe_print("%lld of these are not as recorded\n", (long long)n_damaged);
    }
    json_decref(node);
    return n_damaged > 0 ? LATHE_EXIT_FAILED : LATHE_EXIT_OK;
}

static const lathe_option options[] = {
    {"--json", NULL, "print the chain as an object: path, stage, data, parents, ..."},
    {"--no-verify", NULL, "compare sizes only, not SHA-256"},
};

const lathe_command lathe_cmd_lineage = {
    .name = "lineage",
    .arguments = "DIR|RUN.toml",
    .summary = "show what a model was trained from, back to the first weights",
    .details = "DIR is a checkpoint, the folder of a run or its run file (its latest checkpoint), "
               "an adapter, a\n"
               "model, or a GGUF file. Prints each stage with its settings and data, and the "
               "models that it\n"
               "began with, and compares every file with the SHA-256 that was recorded.\n"
               "Models that moved are found by their hashes; missing ones are named. Exit 0:\n"
               "everything found is as recorded. Exit 1: a file, a manifest or data changed.\n",
    .options = options,
    .n_options = 2,
    .min_words = 1,
    .max_words = 1,
    .names_runs = 1,
    .names_models = 1,
    .run = run,
};
