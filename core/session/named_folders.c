/* Reads the folders of several adapters over one base. */
#include "session/named_folders.h"

#include <stdlib.h>
#include <string.h>

#include "base/checkpoint_path.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "files/gguf/model_files.h"
#include "run/folder/adapter_folder.h"
#include "session/saved_renderer.h"
#include "session/which_weights.h"

/* The folders that were read. */
typedef struct reading {
    const lathe_model_request *ask;
    const char *base;
    lathe_arena *arena;
    lathe_named_adapters *named;
    lathe_setting_list first;               /* settings of the first folder */
    const char *base_tokenizer, *tokenizer; /* tokenizer.path of the base and the first folder */
} reading;

/* ---- what all folders must agree on ---- */

static int is_of_renderer(const char *key)
{
    return strncmp(key, "renderer.", 9) == 0;
}

static int is_of_model(const char *key)
{
    return strncmp(key, "quant.", 6) == 0 || strncmp(key, "train.", 6) == 0 || is_of_renderer(key);
}

/* Refuses two folders of which the first has the key with the value `own`, and the second `other`
 * (NULL: it has none). */
static lathe_status refuse_key(const char *key, const lathe_toml_node *own, const char *own_dir,
                               const lathe_toml_node *other, const char *other_dir)
{
    lathe_buffer a = LATHE_BUFFER_INIT, b = LATHE_BUFFER_INIT;
    lathe_toml_json(own, &a);
    if (other)
        lathe_toml_json(other, &b);
    else
        lathe_buffer_puts(&b, "its default");
    lathe_status status = a.status != LATHE_OK ? a.status : b.status;
    if (status == LATHE_OK && is_of_renderer(key))
        status = lathe_error(LATHE_E_CONFIG,
                             "the adapter in %s was trained with %s = %s, and the one in %s with "
                             "%s: name the renderer of all prompts with renderer.name",
                             own_dir, key, a.data, other_dir, b.data);
    else if (status == LATHE_OK)
        status =
            lathe_error(LATHE_E_CONFIG,
                        "the adapter in %s belongs to a base with %s = %s, and the one in %s to "
                        "one with %s: one base serves both only with --%s VALUE, or if they were "
                        "trained alike",
                        own_dir, key, a.data, other_dir, b.data, key);
    lathe_buffer_fini(&a);
    lathe_buffer_fini(&b);
    return status;
}

/* Refuses a key of `a` that `b` has not, or has with another value. */
static lathe_status compare(const reading *r, const lathe_setting_list *a, const char *a_dir,
                            const lathe_setting_list *b, const char *b_dir)
{
    for (int32_t i = 0; i < a->n; i++) {
        const char *key = a->edits[i].key;
        const lathe_toml_node *own = a->edits[i].value, *other = lathe_settings_value(b, key);
        if (is_of_model(key) && !lathe__request_value(r->ask, key) &&
            !(other && own->kind == other->kind && strcmp(own->s, other->s) == 0))
            return refuse_key(key, own, a_dir, other, b_dir);
    }
    return LATHE_OK;
}

/* Whether a file of two models is the same, or in neither; it may be one that is made of a GGUF
 * file or of a vocabulary in another form. */
static lathe_status is_same_file(const char *a, const char *b, const char *name, int *out)
{
    char *text_a = NULL, *text_b = NULL;
    int64_t n_a = 0, n_b = 0;
    lathe_status status = LATHE_OK;
    const int has_a = lathe_model_has(a, name), has_b = lathe_model_has(b, name);
    *out = has_a == has_b;
    if (!has_a || !has_b)
        return LATHE_OK;
    status = lathe_model_read(a, name, 0, &text_a, &n_a);
    if (status == LATHE_OK)
        status = lathe_model_read(b, name, 0, &text_b, &n_b);
    if (status == LATHE_OK)
        *out = n_a == n_b && memcmp(text_a, text_b, (size_t)n_a) == 0;
    free(text_a);
    free(text_b);
    return status;
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
        LATHE_TRY(is_same_file(own_a, own_b, files[i], &same));
    }
    if (same)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s and %s have different %s: name the folder whose tokenizer reads all "
                       "prompts with tokenizer.path",
                       own_a, own_b, differs);
}

/* ---- the folders ---- */

static lathe_status check_kind(const char *text, const char *dir, const char *base,
                               const lathe_adapter_folder *folder)
{
    const lathe_toml_node *stage = lathe_settings_value(&folder->settings, "stage.name");
    if (stage)
        return lathe_error(LATHE_E_CONFIG,
                           "adapter %s: it is the adapter of a reward model (stage %s), which "
                           "generates no text",
                           text, stage->s);
    if (lathe_folder_has(dir, "config.json"))
        return lathe_error(
            LATHE_E_CONFIG,
            "adapter %s: the folder holds a whole model beside its adapter, and %s is "
            "the base: open it alone",
            text, base);
    return LATHE_OK;
}

/* The folder of the average, if there is one and it is wanted. */
static lathe_status take_average(reading *r, const char **io_dir)
{
    lathe_model_folder folder;
    int32_t which;
    LATHE_TRY(lathe__request_weights(r->ask, &which));
    LATHE_TRY(lathe_which_weights_find(*io_dir, which, r->arena, &folder));
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
                           "adapter %s: no such folder: %s; expected that of an adapter%s", text,
                           given, lathe_hub_hint(given, hint, sizeof hint));
    LATHE_TRY(lathe_adapter_folder_find(given, r->arena, out));
    if (*out)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "adapter %s: %s has neither adapter_config.json nor "
                       "adapter_model.safetensors, so it is not an adapter's%s",
                       text, given, lathe_adapters_hint(given, hint));
}

static lathe_status read_one(reading *r, const lathe_session_adapter *given)
{
    lathe_adapter_folder folder;
    const char *dir = NULL, *tokenizer = NULL;
    const char *text = lathe_arena_printf(r->arena, "%s=%s", given->name, given->dir);
    if (!text)
        return LATHE_E_NOMEM;
    LATHE_TRY(resolve(r, text, given->dir, &dir));
    LATHE_TRY(lathe_adapter_folder_read(dir, r->base, r->arena, &folder));
    LATHE_TRY(check_kind(text, dir, r->base, &folder));
    LATHE_TRY(lathe_session_use_renderer(r->ask, dir, r->base, r->arena, &folder.settings));
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
        if (!lathe__request_value(r->ask, "tokenizer.path"))
            LATHE_TRY(compare_tokenizers(r, r->tokenizer, tokenizer));
    }
    LATHE_TRY(take_average(r, &dir));
    return lathe__named_adapters_add(r->named, given->name, dir);
}

static lathe_status read_all(reading *r, lathe_setting_list *settings)
{
    static const char *const others[] = {"model.adapter", "adapter.name"};
    const char *use = r->ask->use;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (lathe__request_value(r->ask, others[i]))
            return lathe_error_at(
                LATHE_E_ARG, LATHE_SESSION_SECTION, "adapters",
                "%s has no effect beside several adapters, whose folders say it: take "
                "one of them out",
                others[i]);
    for (int32_t i = 0; i < r->ask->n_adapters; i++) {
        const lathe_status status = read_one(r, &r->ask->adapters[i]);
        if (status != LATHE_OK)
            return lathe_error_about(status, LATHE_SESSION_SECTION, "adapters");
    }
    for (int32_t i = 0; i < r->first.n; i++)
        if (is_of_model(r->first.edits[i].key))
            LATHE_TRY(lathe_settings_take(settings, &r->first.edits[i]));
    r->named->used = r->named->n - 1;
    return use ? lathe__named_adapters_find(r->named, use, &r->named->used) : LATHE_OK;
}

lathe_status lathe_named_folders_read(const lathe_model_request *ask, const char *base,
                                      lathe_arena *arena, lathe_setting_list *settings,
                                      const char **out_tokenizer, lathe_named_adapters **out)
{
    reading r = {.ask = ask, .base = base, .arena = arena};
    LATHE_TRY(lathe_folder_tokenizer(base, arena, &r.base_tokenizer));
    LATHE_TRY(lathe__named_adapters_create(ask->n_adapters, &r.named));
    const lathe_status status = read_all(&r, settings);
    if (status != LATHE_OK) {
        lathe__named_adapters_destroy(r.named);
        r.named = NULL;
    }
    *out = r.named;
    *out_tokenizer = r.tokenizer;
    return status;
}
