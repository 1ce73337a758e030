/* Opens the vocabulary of a folder: which files it is, and which settings go with them. */
#include "files/vocab/vocab_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log_once.h"
#include "base/model_path.h"
#include "base/utf8.h"
#include "files/vocab/vocab_class.h"

#define MAX_FILE (1LL << 30)

enum { MAX_PIECE = 1024 }; /* bytes of the longest renamed piece, as in byte_ranks.c */

/* Llama 3's, which TikTokenConverter of transformers takes for a file of tiktoken. */
static const char tiktoken_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Files by the order in which one is taken; a file of the second column must be there, too. */
static const struct {
    const char *name, *with;
    int32_t form;
} files[] = {{"tekken.json", NULL, LATHE_FORM_TEKKEN},
             {"tokenizer.model", NULL, LATHE_FORM_SENTENCEPIECE},
             {"spiece.model", NULL, LATHE_FORM_SENTENCEPIECE},
             {"sentencepiece.bpe.model", NULL, LATHE_FORM_SENTENCEPIECE},
             {"tiktoken.model", NULL, LATHE_FORM_TIKTOKEN},
             {"vocab.json", "merges.txt", LATHE_FORM_MERGES},
             {"vocab.txt", NULL, LATHE_FORM_WORDS}};
enum { N_FILES = sizeof files / sizeof files[0] };

static int find_file(const char *folder)
{
    for (int i = 0; i < N_FILES; i++)
        if (lathe_folder_holds(folder, files[i].name) &&
            (files[i].with == NULL || lathe_folder_holds(folder, files[i].with)))
            return i;
    return -1;
}

int32_t lathe_vocab_is_other(const char *folder)
{
    return !lathe_folder_holds(folder, "tokenizer.json") && find_file(folder) >= 0;
}

/* ---- the class ---- */

static lathe_status cannot(const lathe_vocab_source *s, const char *folder, const char *name)
{
    const char *what = s->which == LATHE_CLASS_OTHER
                           ? "is read by a class of transformers that Lathe does not convert"
                       : s->which == LATHE_CLASS_GENERIC
                           ? "does not say how a text is split, and neither does tokenizer_class"
                           : "is not the file that tokenizer_class reads";
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s has no tokenizer.json, and %s %s (%s): make it with transformers, "
                       "AutoTokenizer.from_pretrained(\"%s\").save_pretrained(\"%s\"), or name "
                       "GPT2Tokenizer, Qwen2Tokenizer, BertTokenizer or another class that fits as "
                       "tokenizer_class in tokenizer_config.json",
                       folder, s->place, what, name, folder, folder);
}

/* Whether transformers reads a file of the form with the class. */
static int fits(int32_t form, int32_t which)
{
    switch (which) {
    case LATHE_CLASS_GENERIC:
        return form == LATHE_FORM_SENTENCEPIECE || form == LATHE_FORM_TEKKEN ||
               form == LATHE_FORM_TIKTOKEN;
    case LATHE_CLASS_LLAMA:
    case LATHE_CLASS_GEMMA:
    case LATHE_CLASS_T5:
    case LATHE_CLASS_XLM_ROBERTA:
        return form == LATHE_FORM_SENTENCEPIECE;
    case LATHE_CLASS_GPT2:
    case LATHE_CLASS_QWEN2:
    case LATHE_CLASS_GPT_NEOX:
    case LATHE_CLASS_ROBERTA:
        return form == LATHE_FORM_MERGES;
    case LATHE_CLASS_BERT:
        return form == LATHE_FORM_WORDS;
    default:
        return 0;
    }
}

static lathe_status load_object(lathe_arena *arena, const char *folder, const char *name,
                                json_t **out)
{
    const char *path = lathe_path_join(arena, folder, name);
    char *text = NULL;
    int64_t n = 0;
    *out = NULL;
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_folder_holds(folder, name))
        return LATHE_OK;
    LATHE_TRY(lathe_file_read(path, MAX_FILE, &text, &n));
    lathe_status status = lathe_json_load_with_nul(path, text, n, out);
    free(text);
    if (status == LATHE_OK && !json_is_object(*out))
        status = lathe_error(LATHE_E_PARSE, "%s: not a JSON object", path);
    return status;
}

/* ---- tokenizer_config.json ---- */

static lathe_status put_default(json_t *config, const char *key, const char *text, int64_t n)
{
    if (text == NULL || json_object_get(config, key) != NULL)
        return LATHE_OK;
    if (json_object_set_new(config, key, json_stringn(text, (size_t)n)) != 0)
        return lathe_error(LATHE_E_NOMEM, "tokenizer_config.json");
    return LATHE_OK;
}

/* The special tokens that the vocabulary itself names. */
static lathe_status name_own(lathe_vocab_source *s)
{
    const lathe_spm *spm = &s->spm;
    if (s->which != LATHE_CLASS_GENERIC)
        return LATHE_OK;
    if (s->form == LATHE_FORM_SENTENCEPIECE) {
        if (spm->bos_id >= 0)
            LATHE_TRY(put_default(s->config, "bos_token", spm->bos.text, spm->bos.n));
        if (spm->eos_id >= 0)
            LATHE_TRY(put_default(s->config, "eos_token", spm->eos.text, spm->eos.n));
        if (spm->unk_id >= 0)
            LATHE_TRY(put_default(s->config, "unk_token", spm->unk.text, spm->unk.n));
    }
    /* convert_tekken_tokenizer of transformers names these */
    static const char *const tekken[][2] = {{"bos_token", "<s>"},
                                            {"eos_token", "</s>"},
                                            {"pad_token", "<pad>"},
                                            {"unk_token", "<unk>"}};
    for (int i = 0; i < 4 && s->form == LATHE_FORM_TEKKEN; i++)
        for (int64_t k = 0; k < s->n_special; k++)
            if (strcmp(s->special[k], tekken[i][1]) == 0)
                LATHE_TRY(put_default(s->config, tekken[i][0], tekken[i][1],
                                      (int64_t)strlen(tekken[i][1])));
    return LATHE_OK;
}

/* A generic tokenizer with a prefix finds added tokens in the text as it was given. */
static void set_raw(json_t *decoder)
{
    const char *key;
    json_t *value;
    json_object_foreach(decoder, key, value)
    {
        if (json_is_object(value))
            (void)json_object_set_new(value, "normalized", json_false());
    }
}

static lathe_status finish_config(lathe_vocab_source *s)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    json_t *config = s->config;
    s->has_post = json_object_get(config, "add_bos_token") != NULL ||
                  json_object_get(config, "add_eos_token") != NULL;
    s->adds_bos = json_is_true(json_object_get(config, "add_bos_token"));
    s->adds_eos = json_is_true(json_object_get(config, "add_eos_token"));
    const json_t *accents = json_object_get(config, "strip_accents");
    s->lowers = !json_is_false(json_object_get(config, "do_lower_case"));
    s->accents = json_is_boolean(accents) ? json_is_true(accents) : -1;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = lathe_vocab_class_token(s->which, keys[i]);
        if (text)
            LATHE_TRY(put_default(config, keys[i], text, (int64_t)strlen(text)));
    }
    LATHE_TRY(name_own(s));
    if (s->which == LATHE_CLASS_GENERIC && s->form == LATHE_FORM_SENTENCEPIECE &&
        s->spm.adds_prefix)
        set_raw(json_object_get(config, "added_tokens_decoder"));
    /* said by tokenizer.json now, or of the code that is no longer needed */
    static const char *const done[] = {"auto_map", "do_lower_case", "strip_accents"};
    for (size_t i = 0; i < sizeof done / sizeof done[0]; i++)
        (void)json_object_del(config, done[i]);
    if (json_object_set_new(config, "tokenizer_class", json_string("PreTrainedTokenizerFast")) != 0)
        return lathe_error(LATHE_E_NOMEM, "tokenizer_config.json");
    return LATHE_OK;
}

lathe_status lathe_vocab_config(const lathe_vocab_source *source, lathe_buffer *out)
{
    char *text = json_dumps(source->config, JSON_INDENT(2));
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "tokenizer_config.json");
    lathe_buffer_puts(out, text);
    lathe_buffer_puts(out, "\n");
    free(text);
    return out->status;
}

/* ---- the forms ---- */

/* The name that added_tokens_decoder gives to an id; NULL: none. */
static const char *renamed(const json_t *decoder, int64_t id)
{
    char key[24];
    (void)snprintf(key, sizeof key, "%lld", (long long)id);
    const json_t *value = json_object_get(decoder, key);
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

/* The generic class gives pieces of a BPE the names of added_tokens_decoder, such as "<|im_end|>"
 * instead of "<unused_3>", except a name that another piece keeps. */
static lathe_status rename_pieces(lathe_vocab_source *s)
{
    const json_t *decoder = json_object_get(s->config, "added_tokens_decoder");
    if (s->which != LATHE_CLASS_GENERIC || s->spm.model_type != LATHE_SPM_BPE ||
        json_object_size(decoder) == 0)
        return LATHE_OK;
    lathe_token_list kept = s->list; /* finds the names of the pieces before any is changed */
    LATHE_TRY(lathe_token_list_index(&kept, 0));
    lathe_spm_text *names = lathe_arena_alloc(&s->arena, (s->list.n + 1) * (int64_t)sizeof *names);
    lathe_status status = names ? LATHE_OK : LATHE_E_NOMEM;
    for (int64_t id = 0; id < s->list.n && names != NULL; id++)
        names[id] = (lathe_spm_text){s->list.tokens[id].text, s->list.tokens[id].n};
    for (int64_t id = 0; id < s->list.n && status == LATHE_OK; id++) {
        const char *name = renamed(decoder, id);
        if (name == NULL)
            continue;
        const int64_t n = (int64_t)strlen(name);
        if (n == 0 || n > MAX_PIECE) {
            status = lathe_error(LATHE_E_PARSE,
                                 "tokenizer_config.json: added_tokens_decoder.%lld: expected a "
                                 "text of 1 to %d bytes",
                                 (long long)id, MAX_PIECE);
            continue;
        }
        const int32_t other = lathe_token_list_find(&kept, name, n);
        if (other >= 0 && renamed(decoder, other) == NULL)
            continue;
        names[id] = (lathe_spm_text){lathe_arena_strndup(&s->arena, name, n), n};
        status = names[id].text ? LATHE_OK : LATHE_E_NOMEM;
    }
    free(kept.slots);
    for (int64_t id = 0; id < s->list.n && status == LATHE_OK; id++) {
        s->list.tokens[id].text = names[id].text;
        s->list.tokens[id].n = (int32_t)names[id].n;
    }
    return status;
}

/* The text of a special token in tokenizer_config.json, or of the class. */
static const char *special_text(const lathe_vocab_source *s, const char *key)
{
    const json_t *value = json_object_get(s->config, key);
    const char *text =
        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    return text ? text : lathe_vocab_class_token(s->which, key);
}

static lathe_status put_piece(lathe_vocab_source *s, int64_t id, const char *text)
{
    lathe_list_token *token = &s->list.tokens[id];
    token->text = text ? lathe_arena_strdup(&s->arena, text) : NULL;
    token->n = text ? (int32_t)strlen(text) : 0;
    return token->text ? LATHE_OK : LATHE_E_NOMEM;
}

/* Pieces of T5 are followed by its sentinels, the last one first; XLM-RoBERTa has other special
 * tokens instead of the first three, one more, and a mask after all.
 * Source: T5Converter and XLMRobertaConverter, convert_from_spm. */
static lathe_status list_pieces(lathe_vocab_source *s)
{
    static const char *const first[] = {"bos_token", "pad_token", "eos_token", "unk_token"};
    const int is_xlm = s->which == LATHE_CLASS_XLM_ROBERTA;
    const json_t *extra = json_object_get(s->config, "extra_ids");
    const int64_t n_extra = s->which != LATHE_CLASS_T5 ? 0
                            : json_is_integer(extra)   ? json_integer_value(extra)
                                                       : 100;
    const int64_t from = is_xlm ? 3 : 0, to = is_xlm ? 4 : 0;
    if (n_extra < 0 || n_extra > LATHE_MAX_MADE_NAMES)
        return lathe_error(LATHE_E_PARSE,
                           "tokenizer_config.json: extra_ids is %lld; expected 0 to %d",
                           (long long)n_extra, LATHE_MAX_MADE_NAMES);
    if (s->spm.n < from)
        return lathe_error(LATHE_E_PARSE, "%s: %lld pieces; expected %lld or more", s->place,
                           (long long)s->spm.n, (long long)from);
    LATHE_TRY(lathe_token_list_create(s->spm.n - from + to + n_extra + is_xlm, &s->list));
    for (int64_t i = from; i < s->spm.n; i++) {
        const lathe_spm_piece *piece = &s->spm.pieces[i];
        s->list.tokens[i - from + to] =
            (lathe_list_token){.text = piece->text.text,
                               .n = (int32_t)piece->text.n,
                               .is_merged = piece->type == LATHE_PIECE_NORMAL,
                               .score = piece->score};
    }
    for (int64_t i = 0; i < to; i++)
        LATHE_TRY(put_piece(s, i, special_text(s, first[i])));
    if (is_xlm)
        return put_piece(s, s->list.n - 1, special_text(s, "mask_token"));
    for (int64_t i = 0; i < n_extra; i++) {
        char text[40];
        (void)snprintf(text, sizeof text, "<extra_id_%lld>", (long long)i);
        LATHE_TRY(put_piece(s, s->list.n - 1 - i, text));
    }
    return LATHE_OK;
}

static lathe_status open_sentencepiece(lathe_vocab_source *s)
{
    LATHE_TRY(lathe_spm_read(s->place, (const uint8_t *)s->text, s->n_text, &s->spm));
    LATHE_TRY(list_pieces(s));
    LATHE_TRY(rename_pieces(s));
    return lathe_token_list_index(&s->list, 0);
}

static lathe_status open_ranks(lathe_vocab_source *s)
{
    lathe_byte_ranks ranks;
    const int is_tekken = s->form == LATHE_FORM_TEKKEN;
    const lathe_status status =
        is_tekken ? lathe_tekken_read(s->place, s->text, s->n_text, &s->arena, &ranks)
                  : lathe_tiktoken_read(s->place, s->text, s->n_text, &s->arena, &ranks);
    s->list = ranks.list; /* owned from here on, whatever the status */
    LATHE_TRY(status);
    s->n_special = ranks.n_special;
    s->special = ranks.special;
    s->pattern = is_tekken ? ranks.pattern : tiktoken_pattern;
    if (!is_tekken) {
        const char *text = lathe_arena_printf(
            &s->arena,
            "%s does not say where a text is split: Llama 3's expression is taken, as transformers "
            "does; if the model has another one, put its tokenizer.json there",
            s->place);
        if (text != NULL)
            lathe_log_once(LATHE_LOG_WARN, text);
    }
    return lathe_token_list_index(&s->list, 0);
}

static lathe_status open_merges(lathe_vocab_source *s, const char *folder)
{
    s->merges_place = lathe_path_join(&s->arena, folder, "merges.txt");
    if (s->merges_place == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_json_load(s->place, s->text, s->n_text, &s->vocab));
    if (!json_is_object(s->vocab))
        return lathe_error(LATHE_E_PARSE, "%s: not a JSON object", s->place);
    LATHE_TRY(lathe_file_read(s->merges_place, MAX_FILE, &s->merges, &s->n_merges));
    if (lathe_utf8_prefix((const uint8_t *)s->merges, s->n_merges) != s->n_merges)
        return lathe_error(LATHE_E_PARSE, "%s: not UTF-8", s->merges_place);
    return LATHE_OK;
}

/* A line of vocab.txt without the white space at its end; *at moves to the next line. */
static lathe_list_token read_word(const char **at, const char *end)
{
    const char *begin = *at, *stop = memchr(begin, '\n', (size_t)(end - begin));
    if (stop == NULL)
        stop = end;
    *at = stop < end ? stop + 1 : end;
    while (stop > begin) {
        const char *last = stop - 1;
        int32_t len;
        while (last > begin && (*last & 0xc0) == 0x80)
            last--;
        if (!lathe_is_space(lathe_utf8_at((const uint8_t *)last, stop - last, &len)))
            break;
        stop = last;
    }
    return (lathe_list_token){.text = begin, .n = (int32_t)(stop - begin)};
}

static lathe_status open_words(lathe_vocab_source *s)
{
    const char *const end = s->text + s->n_text;
    int64_t n = 0;
    if (lathe_utf8_prefix((const uint8_t *)s->text, s->n_text) != s->n_text)
        return lathe_error(LATHE_E_PARSE, "%s: not UTF-8", s->place);
    for (const char *at = s->text; at < end; n++)
        if (read_word(&at, end).n > 1 << 20)
            return lathe_error(LATHE_E_PARSE, "%s: line %lld: a token of more than 2^20 bytes",
                               s->place, (long long)n + 1);
    if (n == 0 || n > 1 << 24)
        return lathe_error(LATHE_E_PARSE, "%s: %lld tokens; expected 1 to 2^24", s->place,
                           (long long)n);
    LATHE_TRY(lathe_token_list_create(n, &s->list));
    n = 0;
    for (const char *at = s->text; at < end;)
        s->list.tokens[n++] = read_word(&at, end);
    return lathe_token_list_index(&s->list, 0);
}

static lathe_status open_form(lathe_vocab_source *s, const char *folder)
{
    switch (s->form) {
    case LATHE_FORM_SENTENCEPIECE:
        return open_sentencepiece(s);
    case LATHE_FORM_TEKKEN:
    case LATHE_FORM_TIKTOKEN:
        return open_ranks(s);
    case LATHE_FORM_MERGES:
        return open_merges(s, folder);
    default:
        return open_words(s);
    }
}

/* Reads the tokens that the files name, as beside a tokenizer.json with the config that is made. */
static lathe_status name_tokens(lathe_vocab_source *s, const char *folder)
{
    lathe_token_files f = {.config = s->config};
    lathe_status status = LATHE_OK;
    f.config_place = lathe_path_join(&s->arena, folder, "tokenizer_config.json");
    f.map_place = lathe_path_join(&s->arena, folder, "special_tokens_map.json");
    f.added_place = lathe_path_join(&s->arena, folder, "added_tokens.json");
    if (!f.config_place || !f.map_place || !f.added_place)
        return LATHE_E_NOMEM;
    if (json_object_get(s->config, "added_tokens_decoder") == NULL) {
        status = load_object(&s->arena, folder, "special_tokens_map.json", &f.map);
        if (status == LATHE_OK)
            status = load_object(&s->arena, folder, "added_tokens.json", &f.added);
    }
    if (status == LATHE_OK)
        status = lathe_token_names_of(&f, &s->names);
    json_decref(f.map);
    json_decref(f.added);
    return status;
}

lathe_status lathe_vocab_open(const char *folder, lathe_vocab_source *out)
{
    const int k = find_file(folder);
    json_t *config = NULL;
    const char *name = "";
    *out = (lathe_vocab_source){.form = k >= 0 ? files[k].form : LATHE_FORM_NONE};
    if (k < 0)
        return lathe_error(LATHE_E_NOT_FOUND, "%s has no tokenizer.json", folder);
    out->place = lathe_path_join(&out->arena, folder, files[k].name);
    if (out->place == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(load_object(&out->arena, folder, "tokenizer_config.json", &out->config));
    if (out->config == NULL && (out->config = json_object()) == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s", folder);
    const lathe_status status = load_object(&out->arena, folder, "config.json", &config);
    if (status == LATHE_OK)
        out->which = lathe_vocab_class(out->config, config, &name);
    name = lathe_arena_strdup(&out->arena, name);
    json_decref(config);
    LATHE_TRY(status);
    if (name == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_file_read(out->place, MAX_FILE, &out->text, &out->n_text));
    if (out->form == LATHE_FORM_SENTENCEPIECE && lathe_is_tiktoken(out->text, out->n_text))
        out->form = LATHE_FORM_TIKTOKEN;
    if (!fits(out->form, out->which))
        return cannot(out, folder, name);
    LATHE_TRY(open_form(out, folder));
    LATHE_TRY(finish_config(out));
    return name_tokens(out, folder);
}

void lathe_vocab_close(lathe_vocab_source *source)
{
    lathe_spm_fini(&source->spm);
    lathe_token_list_fini(&source->list);
    lathe_token_names_fini(&source->names);
    json_decref(source->config);
    json_decref(source->vocab);
    free(source->text);
    free(source->merges);
    lathe_arena_fini(&source->arena);
    *source = (lathe_vocab_source){.form = LATHE_FORM_NONE};
}
