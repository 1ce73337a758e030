/* Reads the tokens that the files beside tokenizer.json name. */
#include "files/vocab/token_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log_once.h"

/* In the order in which transformers adds them. */
static const char *const standard[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
enum { N_STANDARD = sizeof standard / sizeof standard[0] };

/* The keys that transformers 5.24 reads of a tokenizer with a tokenizer.json, those that
 * save_pretrained writes, and those that files of published models have. A test compares the table
 * with the classes of transformers (tests/golden/config_keys.py). */
static const struct {
    const char *key;
    int32_t use;
} keys[] = {
    {"added_tokens_decoder", LATHE_TOKEN_KEY_READ},
    {"extra_special_tokens", LATHE_TOKEN_KEY_READ},
    {"additional_special_tokens", LATHE_TOKEN_KEY_READ},
    {"model_specific_special_tokens", LATHE_TOKEN_KEY_READ},
    {"chat_template", LATHE_TOKEN_KEY_READ},
    /* special tokens in a text would be text */
    {"split_special_tokens", LATHE_TOKEN_KEY_REFUSED},
    /* not read where there is a tokenizer.json: its post_processor says it */
    {"add_bos_token", LATHE_TOKEN_KEY_HARMLESS},
    {"add_eos_token", LATHE_TOKEN_KEY_HARMLESS},
    /* compared with tokenizer.json's where a class may apply it */
    {"add_prefix_space", LATHE_TOKEN_KEY_READ},
    {"post_processor", LATHE_TOKEN_KEY_HARMLESS},
    /* settings of padding and cutting, which transformers does when it is asked to */
    {"model_max_length", LATHE_TOKEN_KEY_HARMLESS},
    {"max_len", LATHE_TOKEN_KEY_HARMLESS},
    {"max_length", LATHE_TOKEN_KEY_HARMLESS},
    {"pad_to_multiple_of", LATHE_TOKEN_KEY_HARMLESS},
    {"pad_token_type_id", LATHE_TOKEN_KEY_HARMLESS},
    {"padding_side", LATHE_TOKEN_KEY_HARMLESS},
    {"stride", LATHE_TOKEN_KEY_HARMLESS},
    {"truncation_side", LATHE_TOKEN_KEY_HARMLESS},
    {"truncation_strategy", LATHE_TOKEN_KEY_HARMLESS},
    {"tokenizer_padding", LATHE_TOKEN_KEY_HARMLESS},
    {"tokenizer_truncation", LATHE_TOKEN_KEY_HARMLESS},
    /* settings of decoding: spaces before punctuation; Lathe gives the text of the tokens */
    {"clean_up_tokenization_spaces", LATHE_TOKEN_KEY_HARMLESS},
    {"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
     LATHE_TOKEN_KEY_HARMLESS},
    /* describe the parts of answers, which transformers takes apart on request */
    {"response_schema", LATHE_TOKEN_KEY_HARMLESS},
    {"response_template", LATHE_TOKEN_KEY_HARMLESS},
    {"chat_control_tokens", LATHE_TOKEN_KEY_HARMLESS},
    {"model_input_names", LATHE_TOKEN_KEY_HARMLESS},
    /* which class reads the file, and where it came from */
    {"tokenizer_class", LATHE_TOKEN_KEY_HARMLESS},
    {"auto_map", LATHE_TOKEN_KEY_HARMLESS},
    {"backend", LATHE_TOKEN_KEY_HARMLESS},
    {"fix_mistral_regex", LATHE_TOKEN_KEY_HARMLESS},
    {"init_inputs", LATHE_TOKEN_KEY_HARMLESS},
    {"is_local", LATHE_TOKEN_KEY_HARMLESS},
    {"local_files_only", LATHE_TOKEN_KEY_HARMLESS},
    {"name_or_path", LATHE_TOKEN_KEY_HARMLESS},
    {"processor_class", LATHE_TOKEN_KEY_HARMLESS},
    {"verbose", LATHE_TOKEN_KEY_HARMLESS},
    {"transformers_version", LATHE_TOKEN_KEY_HARMLESS},
    {"_commit_hash", LATHE_TOKEN_KEY_HARMLESS},
    {"_from_auto", LATHE_TOKEN_KEY_HARMLESS},
    {"_name_or_path", LATHE_TOKEN_KEY_HARMLESS},
    {"special_tokens_map_file", LATHE_TOKEN_KEY_HARMLESS},
    {"tokenizer_file", LATHE_TOKEN_KEY_HARMLESS},
    {"vocab_file", LATHE_TOKEN_KEY_HARMLESS},
    {"merges_file", LATHE_TOKEN_KEY_HARMLESS},
    {"spm_file", LATHE_TOKEN_KEY_HARMLESS},
    /* arguments of from_pretrained, which save_pretrained writes too */
    {"cache_dir", LATHE_TOKEN_KEY_HARMLESS},
    {"code_revision", LATHE_TOKEN_KEY_HARMLESS},
    {"device", LATHE_TOKEN_KEY_HARMLESS},
    {"device_map", LATHE_TOKEN_KEY_HARMLESS},
    {"dtype", LATHE_TOKEN_KEY_HARMLESS},
    {"force_download", LATHE_TOKEN_KEY_HARMLESS},
    {"from_slow", LATHE_TOKEN_KEY_HARMLESS},
    {"revision", LATHE_TOKEN_KEY_HARMLESS},
    {"subfolder", LATHE_TOKEN_KEY_HARMLESS},
    {"torch_dtype", LATHE_TOKEN_KEY_HARMLESS},
    {"trust_remote_code", LATHE_TOKEN_KEY_HARMLESS},
    {"use_fast", LATHE_TOKEN_KEY_HARMLESS},
    {"return_token_type_ids", LATHE_TOKEN_KEY_HARMLESS},
    {"return_tensors", LATHE_TOKEN_KEY_HARMLESS},
    {"padding", LATHE_TOKEN_KEY_HARMLESS},
    {"truncation", LATHE_TOKEN_KEY_HARMLESS},
    /* arguments of classes of SentencePiece and of byte-level BPE: the tokenizer.json that
     * transformers made of them has what they mean for the tokens of a text */
    {"add_dummy_prefix", LATHE_TOKEN_KEY_HARMLESS},
    {"errors", LATHE_TOKEN_KEY_HARMLESS},
    {"extra_ids", LATHE_TOKEN_KEY_HARMLESS},
    {"keep_accents", LATHE_TOKEN_KEY_HARMLESS},
    {"legacy", LATHE_TOKEN_KEY_HARMLESS},
    {"remove_space", LATHE_TOKEN_KEY_HARMLESS},
    {"sp_model_kwargs", LATHE_TOKEN_KEY_HARMLESS},
    {"spaces_between_special_tokens", LATHE_TOKEN_KEY_HARMLESS},
    {"trim_offsets", LATHE_TOKEN_KEY_HARMLESS},
    {"unk_id", LATHE_TOKEN_KEY_HARMLESS},
    /* chooses a part of Llama 2's template, which is a text of its own now */
    {"use_default_system_prompt", LATHE_TOKEN_KEY_HARMLESS},
    /* settings of encoders' word pieces */
    {"do_basic_tokenize", LATHE_TOKEN_KEY_HARMLESS},
    {"max_input_chars_per_word", LATHE_TOKEN_KEY_HARMLESS},
    {"never_split", LATHE_TOKEN_KEY_HARMLESS},
    {"tokenize_chinese_chars", LATHE_TOKEN_KEY_HARMLESS},
};

static int is_token_key(const char *key)
{
    const size_t n = strlen(key);
    return n > 6 && strcmp(key + n - 6, "_token") == 0;
}

int32_t lathe_token_key(const char *key)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i].key, key) == 0)
            return keys[i].use;
    return is_token_key(key) ? LATHE_TOKEN_KEY_READ : LATHE_TOKEN_KEY_UNKNOWN;
}

/* The text of a token: a string, or an object with "content"; NULL: none. */
static json_t *content_of(const json_t *value)
{
    json_t *text =
        json_is_object(value) ? json_object_get(value, "content") : (json_t *)(uintptr_t)value;
    return json_is_string(text) && json_string_length(text) > 0 ? text : NULL;
}

/* Whether transformers reads the value of a token of the model's own: a text, or an object, which
 * in tokenizer_config.json has the type that save_pretrained writes. */
static int is_own_token(const json_t *value, int in_map)
{
    const char *type = json_string_value(json_object_get(value, "__type"));
    return json_is_string(value) || (json_is_object(value) && content_of(value) != NULL &&
                                     (in_map || (type && strcmp(type, "AddedToken") == 0)));
}

static json_t *find(const json_t *list, const json_t *content)
{
    json_t *one;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        if (json_equal(json_object_get(one, "content"), content))
            return one;
    }
    return NULL;
}

/* Appends a token: `value` is a text or an object with flags. special: -1: as the object says.
 * normalized -1: as the object says, or else the opposite of special. */
static lathe_status put(json_t *add, const json_t *value, int special, int normalized,
                        int if_missing, int64_t id)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    json_t *content = content_of(value), *said = json_object_get(value, "normalized");
    if (content == NULL || (if_missing && find(add, content)))
        return LATHE_OK;
    const int is_special = special >= 0 ? special : json_is_true(json_object_get(value, "special"));
    json_t *one = json_pack("{s:O, s:b}", "content", content, "special", is_special);
    int failed = one == NULL;
    for (size_t i = 0; i < 3 && !failed; i++)
        failed =
            json_object_set_new(one, flags[i],
                                json_boolean(json_is_true(json_object_get(value, flags[i])))) != 0;
    const int is_normalized = json_is_boolean(said) ? json_is_true(said)
                              : normalized >= 0     ? normalized
                                                    : !is_special;
    failed = failed || json_object_set_new(one, "normalized", json_boolean(is_normalized)) != 0;
    if (if_missing)
        failed = failed || json_object_set_new(one, "if_missing", json_true()) != 0;
    if (id >= 0)
        failed = failed || json_object_set_new(one, "id", json_integer(id)) != 0;
    if (!failed && json_array_append_new(add, one) == 0)
        return LATHE_OK;
    json_decref(one);
    return lathe_error(LATHE_E_NOMEM, "the tokens of a folder");
}

/* ---- the files ---- */

/* null, false, and an empty text, list or object: the key is there and says nothing. */
static int says_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int is_standard(const char *key)
{
    for (int i = 0; i < N_STANDARD; i++)
        if (strcmp(standard[i], key) == 0)
            return 1;
    return 0;
}

/* Whether a key with this value is one that nothing reads. */
static int is_unread(const char *key, const json_t *value, int in_map)
{
    const int32_t use = lathe_token_key(key);
    if (says_nothing(value))
        return 0;
    if (use == LATHE_TOKEN_KEY_READ && is_token_key(key)) /* such as "add_x_token": true */
        return is_standard(key) ? content_of(value) == NULL : !is_own_token(value, in_map);
    return use == LATHE_TOKEN_KEY_UNKNOWN;
}

/* Names the keys of a file that nothing reads: such as do_lower_case, which a class of transformers
 * may apply, and which tokenizer.json does not have. */
static lathe_status warn_of_unknown(const char *place, json_t *object, int in_map)
{
    lathe_buffer list = LATHE_BUFFER_INIT, text = LATHE_BUFFER_INIT;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (is_unread(key, value, in_map))
            lathe_buffer_printf(&list, "%s%.100s", list.len > 0 ? ", " : "", key);
    }
    if (list.len > 0)
        lathe_buffer_printf(&text,
                            "%s: keys that nothing reads, since tokenizer.json says how a text "
                            "becomes tokens: %s",
                            place, list.data);
    if (text.data != NULL && text.status == LATHE_OK)
        lathe_log_once(LATHE_LOG_WARN, text.data);
    const lathe_status status = list.status != LATHE_OK ? list.status : text.status;
    lathe_buffer_fini(&list);
    lathe_buffer_fini(&text);
    return status;
}

typedef lathe_token_files files;

static lathe_status check_files(const files *f)
{
    LATHE_TRY(warn_of_unknown(f->config_place, f->config, 0));
    if (json_is_true(json_object_get(f->config, "split_special_tokens")))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: split_special_tokens is true, so special tokens in a text would be "
                           "text: that is not supported; set it to false",
                           f->config_place);
    return warn_of_unknown(f->map_place, f->map, 1);
}

/* The value of a key: of special_tokens_map.json, or else of tokenizer_config.json. */
static json_t *value_of(const files *f, const char *key)
{
    json_t *value = json_object_get(f->map, key);
    return value ? value : json_object_get(f->config, key);
}

/* extra_special_tokens, or the older additional_special_tokens. */
static json_t *extras_of(const files *f)
{
    static const char *const names[] = {"extra_special_tokens", "additional_special_tokens"};
    for (size_t i = 0; i < 2; i++) {
        json_t *list = value_of(f, names[i]);
        if (json_array_size(list) > 0 || json_object_size(list) > 0)
            return list;
    }
    return NULL;
}

/* ---- tokens by their ids ---- */

typedef struct numbered {
    int64_t id;
    const char *key;
    json_t *value;
} numbered;

static int by_id(const void *a, const void *b)
{
    const int64_t x = ((const numbered *)a)->id, y = ((const numbered *)b)->id;
    return x < y ? -1 : x > y;
}

/* Whether added_tokens.json's token is one of the special tokens. */
static int is_named(const files *f, const lathe_token_names *out, const char *text)
{
    const char *key;
    json_t *value, *extras = extras_of(f);
    size_t i;
    json_object_foreach(out->special, key, value)
    {
        if (strcmp(json_string_value(value), text) == 0)
            return 1;
    }
    json_array_foreach(extras, i, value)
    {
        const json_t *content = content_of(value);
        if (content && strcmp(json_string_value(content), text) == 0)
            return 1;
    }
    return 0;
}

/* Lists the members of added_tokens_decoder ("id": token) or of added_tokens.json (text: id),
 * sorted by id. *out_n: their number. NULL: no memory, or none. */
static lathe_status number(const files *f, numbered **out, size_t *out_n)
{
    json_t *decoder = json_object_get(f->config, "added_tokens_decoder");
    json_t *from = decoder ? decoder : f->added, *value;
    const char *key;
    *out_n = 0;
    *out = calloc(json_object_size(from) + 1, sizeof **out);
    if (*out == NULL)
        return lathe_error(LATHE_E_NOMEM, "the tokens of a folder");
    if (decoder && !json_is_object(decoder) && !json_is_null(decoder))
        return lathe_error(LATHE_E_PARSE, "%s: added_tokens_decoder: expected an object",
                           f->config_place);
    json_object_foreach(from, key, value)
    {
        char *end = NULL;
        const int64_t id = decoder ? strtoll(key, &end, 10)
                                   : (json_is_integer(value) ? json_integer_value(value) : -1);
        if (id < 0 || (decoder && (end == key || *end != '\0' || content_of(value) == NULL)))
            return lathe_error(LATHE_E_PARSE, "%s: %s%.60s: expected %s",
                               decoder ? f->config_place : f->added_place,
                               decoder ? "added_tokens_decoder." : "", key,
                               decoder ? "an id with an object that has \"content\"" : "an id");
        (*out)[(*out_n)++] = (numbered){id, key, value};
    }
    qsort(*out, *out_n, sizeof **out, by_id);
    return LATHE_OK;
}

static lathe_status add_numbered(const files *f, lathe_token_names *out)
{
    const int has_decoder = json_object_get(f->config, "added_tokens_decoder") != NULL;
    numbered *list = NULL;
    size_t n = 0;
    lathe_status status = number(f, &list, &n);
    for (size_t i = 0; i < n && status == LATHE_OK; i++) {
        if (has_decoder) {
            status = put(out->add, list[i].value, -1, -1, 0, -1);
            continue;
        }
        json_t *text = json_string(list[i].key);
        const int special = is_named(f, out, list[i].key);
        status = text ? put(out->add, text, special, !special, 0, list[i].id) : LATHE_E_NOMEM;
        json_decref(text);
    }
    free(list);
    return status;
}

/* ---- named tokens ---- */

static lathe_status name(const files *f, lathe_token_names *out, const char *key)
{
    json_t *content = content_of(value_of(f, key));
    if (content && json_object_set(out->special, key, content) != 0)
        return lathe_error(LATHE_E_NOMEM, "the tokens of a folder");
    return LATHE_OK;
}

/* Names the standard special tokens, then those of a model's own ("image_token"). */
static lathe_status name_all(const files *f, lathe_token_names *out)
{
    const json_t *const objects[] = {f->config, f->map};
    const char *key;
    json_t *value;
    for (int i = 0; i < N_STANDARD; i++)
        LATHE_TRY(name(f, out, standard[i]));
    for (int k = 0; k < 2; k++)
        json_object_foreach((json_t *)(uintptr_t)objects[k], key, value)
        {
            if (is_token_key(key) && is_own_token(value, objects[k] == f->map))
                LATHE_TRY(name(f, out, key));
        }
    return LATHE_OK;
}

static lathe_status add_named(const files *f, lathe_token_names *out)
{
    json_t *value, *extras = extras_of(f);
    json_t *const more[] = {json_is_object(extras) ? extras : NULL,
                            json_object_get(f->config, "model_specific_special_tokens")};
    const char *key;
    size_t i;
    json_object_foreach(out->special, key, value)
    {
        const json_t *said = value_of(f, key);
        LATHE_TRY(put(out->add, json_is_object(said) ? said : value, 1, 0, 1, -1));
    }
    for (int k = 0; k < 2; k++)
        json_object_foreach(more[k], key, value) LATHE_TRY(put(out->add, value, 1, 0, 1, -1));
    json_array_foreach(extras, i, value) LATHE_TRY(put(out->add, value, 1, 0, 1, -1));
    return LATHE_OK;
}

/* Some classes of transformers (5.24: GPT2Tokenizer, Qwen2Tokenizer, GPTNeoXTokenizer and more)
 * make the pre-tokenizer anew from this key; those of this list take tokenizer.json's. */
static int32_t prefix_space_of(const files *f)
{
    static const char *const takes_json[] = {"PreTrainedTokenizerFast", "TokenizersBackend",
                                             "LlamaTokenizer",          "LlamaTokenizerFast",
                                             "BloomTokenizer",          "BloomTokenizerFast"};
    const char *name = json_string_value(json_object_get(f->config, "tokenizer_class"));
    const json_t *value = json_object_get(f->config, "add_prefix_space");
    if (name == NULL || !json_is_boolean(value))
        return -1;
    for (size_t i = 0; i < sizeof takes_json / sizeof takes_json[0]; i++)
        if (strcmp(takes_json[i], name) == 0)
            return -1;
    return json_is_true(value);
}

lathe_status lathe_token_names_of(const lathe_token_files *f, lathe_token_names *out)
{
    *out = (lathe_token_names){json_object(), json_array(), -1};
    lathe_status status =
        out->special && out->add ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "the tokens of a folder");
    if (status != LATHE_OK)
        goto out;
    if ((status = check_files(f)) != LATHE_OK)
        goto out;
    if ((status = name_all(f, out)) != LATHE_OK)
        goto out;
    if ((status = add_numbered(f, out)) != LATHE_OK)
        goto out;
    status = add_named(f, out);
out:
    out->prefix_space = prefix_space_of(f);
    if (status != LATHE_OK)
        lathe_token_names_fini(out);
    return status;
}

void lathe_token_names_fini(lathe_token_names *names)
{
    json_decref(names->special);
    json_decref(names->add);
    *names = (lathe_token_names){NULL, NULL, -1};
}
