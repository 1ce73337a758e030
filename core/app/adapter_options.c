/* Reads the adapters of a command line. */
#include "app/adapter_options.h"

#include <string.h>

#include "app/saved_renderer.h"
#include "base/checkpoint_path.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/model_path.h"
#include "cli/weights_option.h"
#include "opening/adapter_folder.h"

#define OPTION "--adapter"

/* A folder that was read. */
typedef struct reading {
    const lathe_args *args;
    const char *base;
    lathe_arena *arena;
    lathe_named_adapters *named;
    lathe_setting_list first;               /* settings of the first folder */
    const char *base_tokenizer, *tokenizer; /* tokenizer.path of the base and the first folder */
} reading;

lathe_status lathe_app_has_adapters(const lathe_args *args, int32_t *out)
{
    *out = lathe_args_each(args, OPTION, 0) != NULL;
    if (*out || !lathe_args_value(args, "--use"))
        return LATHE_OK;
    return lathe_error(LATHE_E_ARG, "--use names one of several adapters; add --adapter "
                                    "NAME=FOLDER for each");
}

/* ---- what all folders must agree on ---- */

static int is_of_renderer(const char *key)
{
    return strncmp(key, "renderer.", 9) == 0;
}

static int is_of_model(const char *key)
{
    return strncmp(key, "quant.", 6) == 0 || strncmp(key, "train.", 6) == 0 || is_of_renderer(key);
}

static const char *value_of(const lathe_setting_list *list, const char *key)
{
    for (int32_t i = 0; i < list->n; i++)
        if (strcmp(list->list[i].key, key) == 0)
            return list->list[i].value;
    return NULL;
}

/* Refuses a key of `a` that `b` has not, or has with another value. */
static lathe_status compare(const reading *r, const lathe_setting_list *a, const char *a_dir,
                            const lathe_setting_list *b, const char *b_dir)
{
    for (int32_t i = 0; i < a->n; i++) {
        const char *key = a->list[i].key, *other = value_of(b, key);
        if (!is_of_model(key) || lathe_args_override(r->args, key) ||
            (other && strcmp(other, a->list[i].value) == 0))
            continue;
        if (is_of_renderer(key))
            return lathe_error(LATHE_E_CONFIG,
                               "the adapter in %s was trained with %s = %s, and the one in %s with "
                               "%s: name the renderer of all prompts with --renderer.name",
                               a_dir, key, a->list[i].value, b_dir, other ? other : "its default");
        return lathe_error(
            LATHE_E_CONFIG,
            "the adapter in %s belongs to a base with %s = %s, and the one in %s to "
            "one with %s: one base serves both only with --%s VALUE, or if they were "
            "trained alike",
            a_dir, key, a->list[i].value, b_dir, other ? other : "its default", key);
    }
    return LATHE_OK;
}

/* Whether a file of two folders is the same, or in neither. */
static lathe_status is_same_file(reading *r, const char *a, const char *b, const char *name,
                                 int *out)
{
    char hash_a[65] = "", hash_b[65] = "";
    const char *path_a = lathe_path_join(r->arena, a, name);
    const char *path_b = lathe_path_join(r->arena, b, name);
    if (!path_a || !path_b)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(path_a))
        LATHE_TRY(lathe_sha256_file(path_a, hash_a));
    if (lathe_path_exists(path_b))
        LATHE_TRY(lathe_sha256_file(path_b, hash_b));
    *out = strcmp(hash_a, hash_b) == 0;
    return LATHE_OK;
}

/* Refuses two tokenizers, or chat templates, that may read a prompt differently. */
static lathe_status compare_tokenizers(reading *r, const char *a, const char *b)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    const char *own_a = a ? a : r->base, *own_b = b ? b : r->base;
    int same = 1;
    const char *differs = "tokenizers";
    if (strcmp(own_a, own_b) == 0)
        return LATHE_OK;
    if (lathe_path_is_dir(own_a) != lathe_path_is_dir(own_b))
        same = 0; /* raw bytes, or a GGUF file */
    for (size_t i = 0; i < sizeof files / sizeof files[0] && same; i++) {
        differs = files[i];
        LATHE_TRY(is_same_file(r, own_a, own_b, files[i], &same));
    }
    if (same)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s and %s have different %s: name the folder whose tokenizer reads all "
                       "prompts with --tokenizer.path",
                       own_a, own_b, differs);
}

/* ---- the folders ---- */

static lathe_status check_kind(const char *text, const char *dir, const char *base,
                               const lathe_adapter_folder *folder)
{
    const char *stage = value_of(&folder->settings, "stage.name");
    if (stage)
        return lathe_error(LATHE_E_CONFIG,
                           OPTION " %s: it is the adapter of a reward model (stage %s), which "
                                  "generates no text",
                           text, stage);
    if (lathe_folder_has(dir, "config.json"))
        return lathe_error(LATHE_E_CONFIG,
                           OPTION
                           " %s: the folder holds a whole model beside its adapter, and %s is "
                           "the base: open it alone",
                           text, base);
    return LATHE_OK;
}

/* The folder of the average, if there is one and it is wanted. */
static lathe_status take_average(reading *r, const char **io_dir)
{
    lathe_model_folder folder;
    int32_t which;
    LATHE_TRY(lathe_cli_weights(r->args, &which));
    LATHE_TRY(lathe_cli_find_model(*io_dir, which, r->arena, &folder));
    LATHE_TRY(lathe_model_folder_check(&folder));
    *io_dir = folder.weights;
    return LATHE_OK;
}

/* The folder of an adapter's file: `given`, or the latest checkpoint in it. */
static lathe_status resolve(reading *r, const char *text, const char *given, const char **out)
{
    char hint[LATHE_HUB_HINT];
    LATHE_TRY(lathe_pointer_follow(r->arena, given, &given));
    if (!lathe_path_is_dir(given))
        return lathe_error(LATHE_E_CONFIG,
                           OPTION " %s: no such folder: %s; expected that of an adapter%s", text,
                           given, lathe_hub_hint(given, hint, sizeof hint));
    LATHE_TRY(lathe_adapter_folder_find(given, r->arena, out));
    if (*out)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       OPTION " %s: %s has neither adapter_config.json nor "
                              "adapter_model.safetensors, so it is not an adapter's%s",
                       text, given, lathe_adapters_hint(given, hint));
}

static lathe_status read_one(reading *r, const char *text)
{
    lathe_adapter_folder folder;
    const char *equals = strchr(text, '='), *dir = NULL, *tokenizer = NULL;
    if (!equals)
        return lathe_error(LATHE_E_ARG, OPTION " \"%s\": expected NAME=FOLDER", text);
    if (equals[1] == '\0')
        return lathe_error(LATHE_E_ARG,
                           OPTION " \"%s\": the folder is missing; expected NAME=FOLDER", text);
    const char *name = lathe_arena_strndup(r->arena, text, equals - text);
    if (!name)
        return LATHE_E_NOMEM;
    LATHE_TRY(resolve(r, text, equals + 1, &dir));
    LATHE_TRY(lathe_adapter_folder_read(dir, r->base, r->arena, &folder));
    LATHE_TRY(check_kind(text, dir, r->base, &folder));
    LATHE_TRY(lathe_app_use_saved_renderer(r->args, dir, r->base, r->arena, &folder.settings));
    LATHE_TRY(lathe_folder_tokenizer(dir, r->arena, &tokenizer));
    if (!tokenizer)
        tokenizer = r->base_tokenizer;
    if (r->named->n == 0) {
        r->first = folder.settings;
        r->tokenizer = tokenizer;
    } else {
        const char *first = r->named->list[0].dir;
        LATHE_TRY(compare(r, &r->first, first, &folder.settings, dir));
        LATHE_TRY(compare(r, &folder.settings, dir, &r->first, first));
        if (!lathe_args_override(r->args, "tokenizer.path"))
            LATHE_TRY(compare_tokenizers(r, r->tokenizer, tokenizer));
    }
    LATHE_TRY(take_average(r, &dir));
    return lathe__named_adapters_add(r->named, name, dir);
}

static lathe_status read_all(reading *r, lathe_setting_list *settings)
{
    static const char *const others[] = {"model.adapter", "adapter.name"};
    const char *use = lathe_args_value(r->args, "--use");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (lathe_args_override(r->args, others[i]))
            return lathe_error(LATHE_E_ARG,
                               "--%s has no effect beside " OPTION ", whose folders say it: take "
                               "one of them out",
                               others[i]);
    for (int32_t i = 0; lathe_args_each(r->args, OPTION, i); i++)
        LATHE_TRY(read_one(r, lathe_args_each(r->args, OPTION, i)));
    for (int32_t i = 0; i < r->first.n; i++)
        if (is_of_model(r->first.list[i].key) &&
            !lathe_settings_have(settings, r->first.list[i].key))
            settings->list[settings->n++] = r->first.list[i];
    r->named->used = r->named->n - 1;
    return use ? lathe__named_adapters_find(r->named, use, &r->named->used) : LATHE_OK;
}

lathe_status lathe_app_read_adapters(const lathe_args *args, const char *base, lathe_arena *arena,
                                     lathe_setting_list *settings, const char **out_tokenizer,
                                     lathe_named_adapters **out)
{
    reading r = {.args = args, .base = base, .arena = arena};
    int32_t n = 0;
    while (lathe_args_each(args, OPTION, n))
        n++;
    LATHE_TRY(lathe_folder_tokenizer(base, arena, &r.base_tokenizer));
    LATHE_TRY(lathe__named_adapters_create(n, &r.named));
    const lathe_status status = read_all(&r, settings);
    if (status != LATHE_OK) {
        lathe__named_adapters_destroy(r.named);
        r.named = NULL;
    }
    *out = r.named;
    *out_tokenizer = r.tokenizer;
    return status;
}
