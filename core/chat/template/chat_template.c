/* The chat template of a model's folder, its special tokens, and the text of one conversation. */
#include "chat/template/chat_template_internal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/model_path.h"
#include "files/gguf/model_files.h"
#include "files/gguf/token_files.h"

enum { MAX_FILE = 64 << 20 };

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

void lathe_chat_template_destroy(lathe_chat_template *chat)
{
    if (chat == NULL)
        return;
    lathe_template_destroy(chat->plain);
    lathe_template_destroy(chat->tools);
    lathe_template_destroy(chat->tojson);
    json_decref(chat->tokens);
    json_decref(chat->variables);
    free(chat->text);
    free((char *)(uintptr_t)chat->of_tools.data);
    free(chat);
}

lathe_status lathe_chat_template_set_variables(lathe_chat_template *chat, const char *json)
{
    json_t *root = NULL;
    lathe_sha256 *hash;
    LATHE_TRY(lathe_json_load("chat_template_kwargs", json, (int64_t)strlen(json), &root));
    if (!json_is_object(root)) {
        json_decref(root);
        return lathe_error(LATHE_E_CONFIG, "chat_template_kwargs is no table");
    }
    json_decref(chat->variables);
    chat->variables = root;
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, chat->hash, 64);
    lathe_sha256_update(hash, json, (int64_t)strlen(json));
    lathe_sha256_finish(hash, chat->hash);
    return LATHE_OK;
}

const char *lathe_chat_template_hash(const lathe_chat_template *chat)
{
    return chat->hash;
}

int lathe_chat_template_marks(const lathe_chat_template *chat)
{
    return chat->plain && lathe_template_has_generation(chat->plain) &&
           (chat->tools == NULL || lathe_template_has_generation(chat->tools));
}

int lathe_chat_template_reads_clock(const lathe_chat_template *chat)
{
    return (chat->plain && lathe_template_mentions(chat->plain, "strftime_now")) ||
           (chat->tools && lathe_template_mentions(chat->tools, "strftime_now"));
}

/* ---- loading ---- */

/* Takes the special tokens of a JSON object that are not there yet: text, or an object with one. */
static lathe_status take_tokens(lathe_chat_template *chat, json_t *from)
{
    for (size_t i = 0; i < sizeof token_names / sizeof token_names[0]; i++) {
        json_t *x = json_object_get(from, token_names[i]);
        json_t *text = json_is_object(x) ? json_object_get(x, "content") : x;
        if (json_is_string(text) && (json_object_get(chat->tokens, token_names[i]) == NULL) &&
            json_object_set(chat->tokens, token_names[i], text) != 0)
            return lathe_error(LATHE_E_NOMEM, "the special tokens of a chat template");
    }
    return LATHE_OK;
}

static void hash_text(lathe_sha256 *hash, const char *text, int64_t n)
{
    lathe_sha256_update(hash, &n, sizeof n);
    lathe_sha256_update(hash, text, n);
}

static lathe_status copy_text(const char *text, int64_t n, lathe_chars *out)
{
    char *copy = malloc((size_t)n + 1);
    if (copy == NULL)
        return lathe_error(LATHE_E_NOMEM, "the text of a chat template");
    memcpy(copy, text, (size_t)n);
    copy[n] = '\0';
    *out = (lathe_chars){copy, n};
    return LATHE_OK;
}

/* Keeps the text, and for renderers its hash without newlines at the end, which files have or lack.
 */
static lathe_status keep_text(lathe_chat_template *chat, const char *text, int64_t n)
{
    LATHE_TRY(copy_text(text, n, &chat->whole));
    chat->text = (char *)(uintptr_t)chat->whole.data;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    chat->text_bytes = n;
    return lathe_sha256_bytes(text, n, chat->text_hash);
}

/* Parses a template, and adds its text to the hash. */
static lathe_status add_template(lathe_chat_template *chat, lathe_sha256 *hash, const char *name,
                                 const char *text, int64_t n, lathe_template **out)
{
    hash_text(hash, text, n);
    if (out == &chat->plain && chat->text == NULL)
        LATHE_TRY(keep_text(chat, text, n));
    if (out == &chat->tools && chat->of_tools.data == NULL)
        LATHE_TRY(copy_text(text, n, &chat->of_tools));
    return lathe_template_parse(name, text, n, out);
}

static lathe_status add_file(lathe_chat_template *chat, lathe_sha256 *hash, const char *path,
                             lathe_template **out)
{
    char *text = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_file_read(path, MAX_FILE, &text, &n));
    const lathe_status status = add_template(chat, hash, path, text, n, out);
    free(text);
    return status;
}

/* Adds the template in a file of a model. */
static lathe_status add_model_file(lathe_chat_template *chat, lathe_sha256 *hash,
                                   lathe_arena *arena, const char *model, const char *name,
                                   lathe_template **out)
{
    char *text = NULL;
    int64_t n = 0;
    const char *place = lathe_model_place(arena, model, name);
    if (place == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_model_read(model, name, MAX_FILE, &text, &n));
    const lathe_status status = add_template(chat, hash, place, text, n, out);
    free(text);
    return status;
}

/* The chat_template of tokenizer_config.json: a text, or a list of named ones. */
static lathe_status add_config(lathe_sha256 *hash, lathe_arena *arena, const char *path,
                               json_t *config, lathe_chat_template *chat)
{
    json_t *x = json_object_get(config, "chat_template"), *item;
    size_t i;
    const char *place = lathe_arena_printf(arena, "%s (chat_template)", path);
    if (place == NULL)
        return LATHE_E_NOMEM;
    if (json_is_string(x))
        return add_template(chat, hash, place, json_string_value(x), (int64_t)json_string_length(x),
                            &chat->plain);
    if (x && !json_is_array(x) && !json_is_null(x))
        return lathe_error(LATHE_E_PARSE,
                           "%s: chat_template is neither a string nor a list of templates", path);
    json_array_foreach(x, i, item)
    {
        json_t *text = json_object_get(item, "template");
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name == NULL || !json_is_string(text))
            return lathe_error(LATHE_E_PARSE,
                               "%s: template %zu of chat_template has no name or no template", path,
                               i + 1);
        const int is_tools = strcmp(name, "tool_use") == 0;
        lathe_template **to = is_tools ? &chat->tools : &chat->plain;
        if ((!is_tools && strcmp(name, "default") != 0) || *to)
            continue;
        LATHE_TRY(add_template(chat, hash, place, json_string_value(text),
                               (int64_t)json_string_length(text), to));
    }
    return LATHE_OK;
}

/* The JSON object of dir/name; NULL when there is no such file. */
static lathe_status load_object(lathe_arena *arena, const char *dir, const char *name,
                                const char **out_path, json_t **out)
{
    *out = NULL;
    *out_path = lathe_model_place(arena, dir, name);
    if (*out_path == NULL)
        return LATHE_E_NOMEM;
    return lathe_model_has(dir, name) ? lathe_model_json(dir, name, out) : LATHE_OK;
}

/* Takes the special tokens of a model's folder. */
static lathe_status load_tokens(lathe_chat_template *chat, const char *dir)
{
    lathe_token_names names;
    LATHE_TRY(lathe_token_names_read(dir, &names));
    const lathe_status status = take_tokens(chat, names.special);
    lathe_token_names_fini(&names);
    return status;
}

static lathe_status load_texts(lathe_chat_template *chat, lathe_sha256 *hash, lathe_arena *arena,
                               const char *dir, int may_lack)
{
    static const char jinja[] = "chat_template.jinja",
                      tools[] = "additional_chat_templates/tool_use.jinja";
    const char *path;
    json_t *object;
    if (lathe_model_has(dir, jinja)) {
        LATHE_TRY(add_model_file(chat, hash, arena, dir, jinja, &chat->plain));
        return lathe_model_has(dir, tools)
                   ? add_model_file(chat, hash, arena, dir, tools, &chat->tools)
                   : LATHE_OK;
    }
    LATHE_TRY(load_object(arena, dir, "tokenizer_config.json", &path, &object));
    lathe_status status = add_config(hash, arena, path, object, chat);
    json_decref(object);
    LATHE_TRY(status);
    if (chat->plain == NULL) { /* older processors of images have a file of their own */
        LATHE_TRY(load_object(arena, dir, "chat_template.json", &path, &object));
        status = add_config(hash, arena, path, object, chat);
        json_decref(object);
        LATHE_TRY(status);
    }
    if (chat->plain || may_lack)
        return LATHE_OK;
    return lathe_error(LATHE_E_NOT_FOUND,
                       "%s: no chat template; expected chat_template.jinja, or chat_template in "
                       "tokenizer_config.json or chat_template.json%s, or a renderer by its name "
                       "(lathe ls renderer)",
                       dir, chat->tools ? " with the name \"default\"" : "");
}

static lathe_status finish(lathe_chat_template *chat, lathe_sha256 *hash)
{
    char *tokens = json_dumps(chat->tokens, JSON_COMPACT | JSON_SORT_KEYS);
    if (tokens == NULL)
        return lathe_error(LATHE_E_NOMEM, "the special tokens of a chat template");
    hash_text(hash, tokens, (int64_t)strlen(tokens));
    free(tokens);
    return LATHE_OK;
}

/* Makes an empty template and its hash. */
static lathe_status begin(lathe_chat_template **chat, lathe_sha256 **hash)
{
    *chat = calloc(1, sizeof **chat);
    *hash = NULL;
    if (*chat)
        (*chat)->tokens = json_object();
    if (*chat == NULL || (*chat)->tokens == NULL)
        return lathe_error(LATHE_E_NOMEM, "a chat template");
    return lathe_sha256_create(hash);
}

/* Compiles and tries the texts that were read with `status`. Gives the template, or destroys it
 * after a failure; frees the hash. */
static lathe_status end(lathe_chat_template *chat, lathe_sha256 *hash, lathe_status status,
                        lathe_chat_template **out)
{
    if (status == LATHE_OK && (status = finish(chat, hash)) == LATHE_OK)
        status = lathe__chat_try_arguments(chat);
    if (hash)
        lathe_sha256_finish(hash, chat->hash);
    if (status != LATHE_OK) {
        lathe_chat_template_destroy(chat);
        return status;
    }
    *out = chat;
    return LATHE_OK;
}

/* tokens: the folder with the special tokens; NULL: there are none. */
static lathe_status load(const char *path, const char *tokens, int may_lack,
                         lathe_chat_template **out)
{
    lathe_chat_template *chat;
    lathe_sha256 *hash;
    lathe_arena arena = LATHE_ARENA_INIT;
    *out = NULL;
    lathe_status status = begin(&chat, &hash);
    if (status == LATHE_OK)
        status = lathe_path_is_model(path) ? load_texts(chat, hash, &arena, path, may_lack)
                                           : add_file(chat, hash, path, &chat->plain);
    if (status == LATHE_OK && tokens)
        status = load_tokens(chat, tokens);
    lathe_arena_fini(&arena);
    return end(chat, hash, status, out);
}

lathe_status lathe_chat_template_load(const char *path, lathe_chat_template **out)
{
    return load(path, lathe_path_is_model(path) ? path : NULL, 0, out);
}

lathe_status lathe_chat_template_load_any(const char *path, lathe_chat_template **out)
{
    return load(path, lathe_path_is_model(path) ? path : NULL, 1, out);
}

lathe_status lathe_chat_template_load_for(const char *path, const char *tokens,
                                          lathe_chat_template **out)
{
    return load(path, tokens, 0, out);
}

lathe_chars lathe_chat_template_text(const lathe_chat_template *chat, int of_tools)
{
    return of_tools ? chat->of_tools : chat->whole;
}

lathe_status lathe_chat_template_create(const char *name, const char *text, int64_t bytes,
                                        json_t *tokens, lathe_chat_template **out)
{
    lathe_chat_template *chat;
    lathe_sha256 *hash;
    *out = NULL;
    lathe_status status = begin(&chat, &hash);
    if (status == LATHE_OK)
        status = add_template(chat, hash, name, text, bytes, &chat->plain);
    if (status == LATHE_OK)
        status = take_tokens(chat, tokens);
    return end(chat, hash, status, out);
}
