/* Makes the text files of a Hugging Face folder from the keys of a GGUF file. */
#include "files/gguf/gguf_folder.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "files/gguf/gguf_config.h"
#include "files/gguf/gguf_tokenizer.h"

const char *const lathe_gguf_folder_files[] = {
    "config.json",         "tokenizer.json",         "tokenizer_config.json",
    "chat_template.jinja", "generation_config.json", NULL};

/* A file of another type has tensors, but no model: LoRA's, or those of a picture's encoder. */
static lathe_status refuse_others(const lathe_gguf *file)
{
    const char *type = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_gguf_text(file, "general.type", &type, &n));
    if (type == NULL || (n == 5 && memcmp(type, "model", 5) == 0))
        return LATHE_OK;
    if (n == 7 && memcmp(type, "adapter", 7) == 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the file holds an adapter (general.type), and a model is expected: "
                           "llama.cpp takes it beside a model (--lora); for Lathe, name the "
                           "folder from which it was converted",
                           lathe_gguf_path(file));
    return lathe_error(LATHE_E_CONFIG, "%s: the key general.type is \"%.*s\"; expected \"model\"",
                       lathe_gguf_path(file), (int)(n < 40 ? n : 40), type);
}

lathe_status lathe_gguf_family_read(const lathe_gguf *file, const lathe_gguf_family **out)
{
    const char *arch;
    int64_t n;
    *out = NULL;
    LATHE_TRY(refuse_others(file));
    LATHE_TRY(lathe_gguf_text(file, "general.architecture", &arch, &n));
    if (arch == NULL)
        return lathe_error(LATHE_E_CONFIG, "%s: the key general.architecture is missing",
                           lathe_gguf_path(file));
    *out = lathe_gguf_family_of_arch(arch, n);
    if (*out != NULL && lathe_gguf_find(file, "blk.0.attn_norm_2.weight") != NULL &&
        lathe_gguf_family_with_two_norms(*out) != NULL)
        *out = lathe_gguf_family_with_two_norms(*out);
    if (*out != NULL && lathe_gguf_family_with_experts(*out) != NULL) {
        char key[96];
        int64_t experts;
        LATHE_TRY(lathe_gguf_int(file, lathe__gguf_key(*out, "expert_count", key, sizeof key), 0,
                                 INT32_MAX, 0, &experts));
        *out = experts > 0 ? lathe_gguf_family_with_experts(*out) : *out;
    }
    if (*out != NULL)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED, "%s: the architecture is \"%.*s\"; Lathe converts %s",
                       lathe_gguf_path(file), (int)(n < 40 ? n : 40), arch, lathe_gguf_families());
}

int32_t lathe_gguf_dtype(const lathe_gguf *file)
{
    int32_t type = -1;
    for (int64_t i = 0; i < lathe_gguf_count(file); i++) {
        const lathe_gguf_tensor *t = lathe_gguf_at(file, i);
        if (t->rank < 2)
            continue;
        if (type >= 0 && t->type->type != type)
            return LATHE_F32;
        type = t->type->type;
    }
    return type == LATHE_GGUF_BF16 ? LATHE_BF16 : type == LATHE_GGUF_F16 ? LATHE_F16 : LATHE_F32;
}

/* ---- JSON ---- */

/* All tokens at which llama.cpp ends: of a text, of an answer, and of a message. */
static json_t *ends_of(const lathe_gguf_vocab *v)
{
    const int64_t others[] = {v->eot, v->eom};
    json_t *list = json_pack("[I]", (json_int_t)v->eos);
    for (size_t i = 0; i < 2; i++)
        if (others[i] >= 0 && others[i] != v->eos && (i == 0 || others[1] != others[0]))
            json_array_append_new(list, json_integer(others[i]));
    if (json_array_size(list) > 1)
        return list;
    json_decref(list);
    return json_integer(v->eos);
}

static void set_ids(const lathe_gguf_vocab *v, json_t *object)
{
    if (v->bos >= 0)
        json_object_set_new(object, "bos_token_id", json_integer(v->bos));
    if (v->eos >= 0)
        json_object_set_new(object, "eos_token_id", ends_of(v));
    if (v->pad >= 0)
        json_object_set_new(object, "pad_token_id", json_integer(v->pad));
}

static lathe_status put_json(const json_t *object, size_t flags, lathe_buffer *out)
{
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    char *text = json_dumps(object, JSON_INDENT(2) | flags);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
    lathe_buffer_puts(out, text);
    lathe_buffer_puts(out, "\n");
    release(text);
    return out->status;
}

static lathe_status put_config(const lathe_gguf *file, lathe_buffer *out)
{
    const lathe_gguf_family *family;
    json_t *object = NULL;
    lathe_gguf_vocab ids = {.file = file};
    LATHE_TRY(lathe_gguf_family_read(file, &family));
    LATHE_TRY(lathe_gguf_config_read(family, file, &object));
    const int32_t dtype = lathe_gguf_dtype(file);
    lathe_status status = lathe_gguf_vocab_ids(file, &ids);
    if (status == LATHE_OK) {
        set_ids(&ids, object);
        if (dtype != LATHE_F32) /* a missing key means float32 */
            json_object_set_new(object, "torch_dtype",
                                json_string(dtype == LATHE_BF16 ? "bfloat16" : "float16"));
        status = put_json(object, 0, out);
    }
    json_decref(object);
    return status;
}

static lathe_status put_generation(const lathe_gguf *file, lathe_buffer *out)
{
    static const struct {
        const char *gguf, *folder;
    } keys[] = {{"general.sampling.temp", "temperature"},
                {"general.sampling.top_p", "top_p"},
                {"general.sampling.penalty_repeat", "repetition_penalty"}};
    lathe_gguf_vocab ids = {.file = file};
    json_t *object = json_object();
    lathe_status status =
        object != NULL ? lathe_gguf_vocab_ids(file, &ids) : lathe_error(LATHE_E_NOMEM, "no memory");
    if (status == LATHE_OK)
        set_ids(&ids, object);
    for (int i = 0; i < 3 && status == LATHE_OK; i++) {
        double x;
        status = lathe_gguf_float(file, keys[i].gguf, -1.0, &x);
        if (status == LATHE_OK && x > 0.0) {
            json_object_set_new(object, keys[i].folder, json_real((double)(float)x));
            json_object_set_new(object, "do_sample", json_true());
        }
    }
    if (status == LATHE_OK)
        status = put_json(object, JSON_SORT_KEYS | JSON_REAL_PRECISION(7), out);
    json_decref(object);
    return status;
}

/* ---- the tokenizer ---- */

static lathe_status put_tokenizer(const lathe_gguf *file,
                                  lathe_status (*put)(const lathe_gguf_vocab *v, lathe_buffer *out),
                                  lathe_buffer *out)
{
    lathe_gguf_vocab v;
    lathe_status status = lathe_gguf_vocab_read(file, &v);
    if (status == LATHE_OK)
        status = put(&v, out);
    lathe_gguf_vocab_fini(&v);
    return status;
}

#define MAX_KEY 128

/* The key of a template: of chat_template.jinja, or of a further one. Returns 0 for other files. */
static int template_key(const char *name, char *out)
{
    static const char start[] = LATHE_TEMPLATES_FOLDER "/", end[] = LATHE_TEMPLATES_END;
    const size_t n = strlen(name), from = sizeof start - 1, m = sizeof end - 1;
    if (strcmp(name, "chat_template.jinja") == 0)
        return snprintf(out, MAX_KEY, "tokenizer.chat_template") > 0;
    if (n <= from + m || strncmp(name, start, from) != 0 || strcmp(name + n - m, end) != 0)
        return 0;
    const int wrote =
        snprintf(out, MAX_KEY, "tokenizer.chat_template.%.*s", (int)(n - from - m), name + from);
    return wrote > 0 && wrote < MAX_KEY;
}

lathe_status lathe_gguf_templates(const lathe_gguf *file, lathe_arena *arena, char ***out,
                                  int64_t *out_n)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const lathe_gguf_entry *list = NULL;
    *out_n = 0;
    *out = NULL;
    LATHE_TRY(lathe_gguf_array(file, "tokenizer.chat_templates", LATHE_GGUF_TEXT, &list));
    if (list == NULL)
        return LATHE_OK;
    *out = lathe_arena_alloc(arena, (list->n + 1) * (int64_t)sizeof **out);
    const uint8_t *at = list->data;
    for (int64_t i = 0; *out != NULL && i < list->n; i++) {
        int64_t n = 0;
        const char *text = lathe_gguf_next_text(&at, &n);
        char *name = lathe_arena_strndup(arena, text, n);
        if (name == NULL)
            return LATHE_E_NOMEM;
        if (n > 0 && (int64_t)strspn(name, letters) == n)
            (*out)[(*out_n)++] = name;
    }
    return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status put_template(const lathe_gguf *file, const char *key, lathe_buffer *out)
{
    const char *text;
    int64_t n;
    LATHE_TRY(lathe_gguf_text(file, key, &text, &n));
    if (text != NULL)
        lathe_buffer_append(out, text, n);
    return out->status;
}

/* ---- the files ---- */

int32_t lathe_gguf_folder_has(const lathe_gguf *file, const char *name)
{
    if (strcmp(name, "tokenizer.json") == 0 || strcmp(name, "tokenizer_config.json") == 0)
        return lathe_gguf_value(file, "tokenizer.ggml.model") != NULL;
    char key[MAX_KEY];
    if (template_key(name, key))
        return lathe_gguf_value(file, key) != NULL;
    if (strcmp(name, "config.json") == 0) /* a file of a tokenizer alone has no tensors */
        return lathe_gguf_count(file) > 0;
    return strcmp(name, "generation_config.json") == 0;
}

lathe_status lathe_gguf_folder_text(const lathe_gguf *file, const char *name, lathe_buffer *out)
{
    if (!lathe_gguf_folder_has(file, name))
        return lathe_error(
            LATHE_E_NOT_FOUND, "%s: the file has %s, so it stands for no %s", lathe_gguf_path(file),
            strcmp(name, "config.json") == 0 ? "no tensors" : "no keys for it", name);
    if (strcmp(name, "config.json") == 0)
        return put_config(file, out);
    if (strcmp(name, "tokenizer.json") == 0)
        return put_tokenizer(file, lathe_gguf_tokenizer_json, out);
    if (strcmp(name, "tokenizer_config.json") == 0)
        return put_tokenizer(file, lathe_gguf_tokenizer_config, out);
    char key[MAX_KEY];
    return template_key(name, key) ? put_template(file, key, out) : put_generation(file, out);
}
