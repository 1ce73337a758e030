/* Loads and saves a tokenizer: its file, and the special ids that the files beside it name. */
#include "tokenizer/json/tokenizer_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log_once.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "files/gguf/model_files.h"
#include "files/gguf/token_files.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/tokenizer_json.h"

/* Takes the ids of the special tokens that the files beside tokenizer.json name: all of them are
 * tokens by now. */
static void take_special(lathe_tokenizer *tok, const json_t *special)
{
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {{"bos_token", &tok->bos},
               {"eos_token", &tok->eos},
               {"pad_token", &tok->pad},
               {"mask_token", &tok->mask}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        const json_t *text = json_object_get(special, ids[i].key);
        if (text)
            *ids[i].id =
                lathe_tokenizer_id(tok, json_string_value(text), (int64_t)json_string_length(text));
    }
}

/* Reads the missing ids from config.json: a number, or a list whose first element counts. Ignores
 * ids outside the tokenizer, because a model's table may be larger. */
static lathe_status read_model_config(lathe_tokenizer *tok, const char *model,
                                      lathe_model_texts *texts)
{
    const lathe_model_text *file = NULL;
    json_t *config = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    LATHE_TRY(lathe_model_texts_read(texts, model, "config.json", 0, &file));
    if (file->text == NULL)
        return LATHE_OK;
    const char *place = lathe_model_place(&arena, model, "config.json");
    const lathe_status status =
        place != NULL ? lathe_json_load(place, file->text, file->bytes, &config) : LATHE_E_NOMEM;
    lathe_arena_fini(&arena);
    LATHE_TRY(status);
    static const char *const keys[3] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    int32_t *const ids[3] = {&tok->bos, &tok->eos, &tok->pad};
    for (int i = 0; i < 3; i++) {
        const json_t *value = json_object_get(config, keys[i]);
        if (value == NULL || json_is_null(value)) /* that of the text model in a model of several */
            value = json_object_get(json_object_get(config, "text_config"), keys[i]);
        if (json_is_array(value))
            value = json_array_get(value, 0);
        const int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (*ids[i] < 0 && id >= 0 && id < tok->vocab.n && tok->vocab.len[id] >= 0)
            *ids[i] = (int32_t)id;
    }
    json_decref(config);
    return LATHE_OK;
}

static lathe_status find_specials(lathe_tokenizer *tok, const char *folder,
                                  const lathe_token_names *names, lathe_model_texts *texts)
{
    static const char fallback[] = "<|endoftext|>";
    take_special(tok, names->special);
    /* what a GGUF file says of the ids is in its tokenizer_config.json */
    if (!lathe_path_is_gguf(folder))
        LATHE_TRY(read_model_config(tok, folder, texts));
    const int32_t id = lathe_tokenizer_id(tok, fallback, sizeof fallback - 1);
    if (tok->eos < 0 && lathe__added_of(tok, id))
        tok->eos = id;
    return LATHE_OK;
}

/* Appends the names of the files in `folder` that are a tokenizer in another form: "a, b and c".
 * Returns their number. */
static int list_others(const char *folder, lathe_buffer *out)
{
    static const char *const names[] = {
        "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json",  "vocab.json",
        "merges.txt",      "vocab.txt",    "tiktoken.model",          "qwen.tiktoken"};
    enum { N = sizeof names / sizeof names[0] };
    const char *found[N];
    int n = 0;
    for (int i = 0; i < N; i++)
        if (lathe_model_has(folder, names[i]))
            found[n++] = names[i];
    for (int i = 0; i < n; i++)
        lathe_buffer_printf(out, "%s%s", i == 0 ? "" : i + 1 == n ? " and " : ", ", found[i]);
    return n;
}

lathe_status lathe_tokenizer_missing(const char *folder)
{
    lathe_buffer others = LATHE_BUFFER_INIT;
    if (lathe_path_is_gguf(folder)) {
        json_t *config = NULL;
        LATHE_TRY(lathe_model_json(folder, "config.json", &config)); /* it may be no model at all */
        json_decref(config);
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s: the key tokenizer.ggml.model is missing: the file has no tokenizer",
                           folder);
    }
    const int n = list_others(folder, &others);
    const lathe_status status =
        n > 0
            ? lathe_error(LATHE_E_NOT_FOUND,
                          "%s has no tokenizer.json but %s, from which none can be made: make it "
                          "with transformers, AutoTokenizer.from_pretrained(\"%s\")"
                          ".save_pretrained(\"%s\")",
                          folder, others.data ? others.data : "", folder, folder)
            : lathe_error(LATHE_E_NOT_FOUND,
                          "%s has no tokenizer.json: put the file of the model there (hf download "
                          "ORG/NAME tokenizer.json tokenizer_config.json --local-dir %s)",
                          folder, folder);
    lathe_buffer_fini(&others);
    return status;
}

/* Warns where a class of transformers puts a space before a text and tokenizer.json does not, or
 * the other way round: the first word then has other tokens there. */
static void compare_prefix(const lathe_tokenizer *tok, const char *folder,
                           const lathe_token_names *names, lathe_arena *arena)
{
    if (tok->kind != LATHE_TOKENIZER_BPE || names->prefix_space < 0 ||
        names->prefix_space == tok->add_prefix_space)
        return;
    const char *text = lathe_arena_printf(
        arena,
        "%s: add_prefix_space is %s in tokenizer.json and %s in tokenizer_config.json: Lathe "
        "follows tokenizer.json, and transformers with this tokenizer_class the other one, so that "
        "the first word of a text has other tokens there; make the two agree",
        folder, tok->add_prefix_space ? "true" : "false", names->prefix_space ? "true" : "false");
    if (text != NULL)
        lathe_log_once(LATHE_LOG_WARN, text);
}

static lathe_status load(const char *path, lathe_model_texts *texts, lathe_arena *arena,
                         lathe_tokenizer **out)
{
    const char *file = path, *folder = path;
    const int is_model = lathe_path_is_model(path);
    if (is_model) {
        if (!lathe_model_has(path, "tokenizer.json"))
            return lathe_tokenizer_missing(path);
        file = lathe_model_place(arena, path, "tokenizer.json");
    } else {
        const char *slash = strrchr(path, '/');
        folder = slash ? lathe_arena_strndup(arena, path, slash - path + 1) : ".";
    }
    if (file == NULL || folder == NULL)
        return LATHE_E_NOMEM;
    char *json;
    int64_t json_bytes;
    LATHE_TRY(is_model ? lathe_model_read(path, "tokenizer.json", 1LL << 30, &json, &json_bytes)
                       : lathe_file_read(file, 1LL << 30, &json, &json_bytes));
    lathe_tokenizer *tok = NULL;
    lathe_token_names names = {NULL, NULL, -1};
    lathe_status status = lathe_token_names_read(folder, &names);
    if (status == LATHE_OK)
        status = lathe__tokenizer_parse_with(file, json, json_bytes, names.add, &tok);
    if (status != LATHE_OK) {
        lathe_token_names_fini(&names);
        free(json);
        return status;
    }
    compare_prefix(tok, folder, &names, arena);
    status = find_specials(tok, folder, &names, texts);
    lathe_token_names_fini(&names);
    if (status == LATHE_OK)
        status = lathe__tokenizer_seal(tok);
    if (status != LATHE_OK) {
        lathe_tokenizer_destroy(tok);
        return status;
    }
    *out = tok;
    return LATHE_OK;
}

lathe_status lathe_tokenizer_load_with(lathe_model_texts *texts, const char *path,
                                       lathe_tokenizer **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = load(path, texts, &arena, out);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_tokenizer_load(const char *path, lathe_tokenizer **out)
{
    lathe_model_texts texts = {.list = NULL};
    const lathe_status status = lathe_tokenizer_load_with(&texts, path, out);
    lathe_model_texts_fini(&texts);
    return status;
}

static void put_token(lathe_buffer *buffer, const lathe_tokenizer *tok, const char *key, int32_t id)
{
    int64_t n;
    const char *text = lathe_tokenizer_token(tok, id, &n); /* NUL-terminated in the pool */
    if (text == NULL)
        return;
    lathe_buffer_printf(buffer, "  \"%s\": ", key);
    lathe_buffer_json_bytes(buffer, text, n);
    lathe_buffer_puts(buffer, ",\n");
}

/* tokenizer.json comes last: a folder without it has no tokenizer. */
static lathe_status fill_folder(const lathe_tokenizer *tok, const char *path, lathe_arena *arena)
{
    const char *file = lathe_path_join(arena, path, "tokenizer.json");
    const char *config = lathe_path_join(arena, path, "tokenizer_config.json");
    if (file == NULL || config == NULL)
        return LATHE_E_NOMEM;
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&text, "{\n");
    put_token(&text, tok, "bos_token", tok->bos);
    put_token(&text, tok, "eos_token", tok->eos);
    put_token(&text, tok, "pad_token", tok->pad);
    put_token(&text, tok, "mask_token", tok->mask);
    lathe_buffer_puts(&text, "  \"clean_up_tokenization_spaces\": false,\n"
                             "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
    lathe_status status = text.status;
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(config, text.data, text.len);
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(file, tok->json, tok->json_bytes);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status save_folder(const lathe_tokenizer *tok, const char *path, lathe_arena *arena)
{
    const char *beside = NULL;
    if (lathe_new_folder_check(path) != LATHE_OK) {
        lathe_error_clear();
        return fill_folder(tok, path, arena); /* beside the files of a model */
    }
    LATHE_TRY(lathe_new_folder_begin(arena, path, &beside));
    return lathe_new_folder_end(fill_folder(tok, beside, arena), beside, path);
}

lathe_status lathe_tokenizer_save(const lathe_tokenizer *tok, const char *path)
{
    if (tok->json == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the raw-byte tokenizer has no tokenizer.json to write", path);
    const size_t n = strlen(path);
    if (!lathe_path_is_dir(path) && (n == 0 || path[n - 1] != '/'))
        return lathe_file_write_atomic(path, tok->json, tok->json_bytes);
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = save_folder(tok, path, &arena);
    lathe_arena_fini(&arena);
    return status;
}
