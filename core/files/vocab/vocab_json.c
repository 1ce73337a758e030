/* Writes the tokenizer.json of a vocabulary in another form. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/byte_level.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json/score.h"
#include "base/utf8.h"
#include "files/vocab/vocab_class.h"
#include "files/vocab/vocab_source.h"

#define SPACE_MARK "\342\226\201" /* U+2581, which stands for a space in pieces */
#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "

/* ---- added tokens ---- */

typedef struct added {
    const char *text; /* borrowed */
    int64_t n, id;
    int8_t special, normalized, lstrip, rstrip, single_word;
} added;

typedef struct added_list {
    added *list;
    int64_t n, capacity;
    int32_t *slots; /* [mask + 1] places in the list by the hash of the text; -1: free */
    uint64_t mask;
    int64_t next_id; /* of a new token: after the model's tokens and all of the list */
} added_list;

static int is_bytes(const lathe_vocab_source *s)
{
    return s->form == LATHE_FORM_TEKKEN || s->form == LATHE_FORM_TIKTOKEN;
}

static int64_t count_model(const lathe_vocab_source *s)
{
    return s->vocab ? (int64_t)json_object_size(s->vocab) : s->list.n + s->n_special;
}

/* The id of a token of the model; -1: there is none. The special ones before the list are added
 * tokens already. */
static int64_t model_id(const lathe_vocab_source *s, const char *text, int64_t n)
{
    uint8_t small[256];
    if (s->vocab) {
        const json_t *id = json_object_get(s->vocab, text);
        return json_is_integer(id) ? json_integer_value(id) : -1;
    }
    if (!is_bytes(s))
        return lathe_token_list_find(&s->list, text, n);
    const int64_t bytes = n <= (int64_t)sizeof small ? lathe_bytes_of_chars(text, n, small) : -1;
    const int32_t id = bytes > 0 ? lathe_token_list_find(&s->list, (const char *)small, bytes) : -1;
    return id < 0 ? -1 : id + s->n_special;
}

/* The slot of a text, or the free one where it would be. */
static uint64_t slot_of(const added_list *list, const char *text, int64_t n)
{
    for (uint64_t at = lathe_hash64(text, n);; at++) {
        const int32_t i = list->slots[at & list->mask];
        if (i < 0 || (list->list[i].n == n && memcmp(list->list[i].text, text, (size_t)n) == 0))
            return at & list->mask;
    }
}

static added *find_added(added_list *list, const char *text, int64_t n)
{
    const int32_t at = list->slots != NULL ? list->slots[slot_of(list, text, n)] : -1;
    return at >= 0 ? &list->list[at] : NULL;
}

static void index_added(added_list *list)
{
    memset(list->slots, 0xff, (list->mask + 1) * sizeof *list->slots);
    for (int64_t i = 0; i < list->n; i++)
        list->slots[slot_of(list, list->list[i].text, list->list[i].n)] = (int32_t)i;
}

/* Makes room for one more; the index has two slots for each place of the list. 1: no memory. */
static int grow_added(added_list *list)
{
    const int64_t capacity = list->capacity > 0 ? list->capacity * 2 : 256;
    if (list->n < list->capacity)
        return 0;
    added *grown = realloc(list->list, (size_t)capacity * sizeof *grown);
    if (grown == NULL)
        return 1;
    list->list = grown;
    int32_t *slots = realloc(list->slots, (size_t)capacity * 2 * sizeof *slots);
    if (slots == NULL)
        return 1;
    list->slots = slots;
    list->capacity = capacity;
    list->mask = (uint64_t)capacity * 2 - 1;
    index_added(list);
    return 0;
}

/* Puts a token with this id (-1: that of the model's token, or the next one), or finds the one with
 * this text, as add_tokens of the tokenizers library does. */
static added *put_added(const lathe_vocab_source *s, added_list *list, const char *text, int64_t n,
                        int64_t id)
{
    added *one = find_added(list, text, n);
    if (one != NULL)
        return one;
    if (grow_added(list))
        return NULL;
    if (id < 0)
        id = model_id(s, text, n);
    if (id < 0)
        id = list->next_id;
    if (id >= list->next_id)
        list->next_id = id + 1;
    one = &list->list[list->n];
    *one = (added){.text = text, .n = n, .id = id};
    list->slots[slot_of(list, text, n)] = (int32_t)list->n++;
    return one;
}

static lathe_status put_special(const lathe_vocab_source *s, added_list *list, const char *text,
                                int64_t n, int64_t id, int special)
{
    added *one = n > 0 ? put_added(s, list, text, n, id) : NULL;
    if (n > 0 && one == NULL)
        return lathe_error(LATHE_E_NOMEM, "added tokens");
    if (one)
        one->special = (int8_t)special;
    return LATHE_OK;
}

/* Control pieces, and user-defined ones unless the pre-tokenizer isolates them. */
static lathe_status add_pieces(const lathe_vocab_source *s, added_list *list)
{
    for (int64_t i = 0; i < s->spm.n; i++) {
        const lathe_spm_piece *piece = &s->spm.pieces[i];
        const int is_user =
            piece->type == LATHE_PIECE_USER_DEFINED && s->which != LATHE_CLASS_GENERIC;
        if (piece->type == LATHE_PIECE_CONTROL || is_user)
            LATHE_TRY(put_special(s, list, piece->text.text, piece->text.n, -1, !is_user));
    }
    for (int64_t i = s->spm.n; s->which == LATHE_CLASS_T5 && i < s->list.n; i++)
        LATHE_TRY(put_special(s, list, s->list.tokens[i].text, s->list.tokens[i].n, -1, 1));
    for (int64_t k = 0; k < s->n_special; k++)
        LATHE_TRY(put_special(s, list, s->special[k], (int64_t)strlen(s->special[k]), k, 1));
    return LATHE_OK;
}

static int by_id(const void *a, const void *b)
{
    const added *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* A file of tiktoken has no special tokens: those of added_tokens_decoder are put at their ids,
 * with names for the ids between them that transformers makes up. The texts are in the arena. */
static lathe_status add_reserved(const lathe_vocab_source *s, lathe_arena *arena, added_list *list)
{
    json_t *decoder = json_object_get(s->config, "added_tokens_decoder"), *value;
    const char *key;
    int64_t max = -1;
    if (s->form != LATHE_FORM_TIKTOKEN)
        return LATHE_OK;
    json_object_foreach(decoder, key, value)
    {
        const int64_t id = strtoll(key, NULL, 10);
        max = id > max ? id : max;
    }
    if (max >= s->list.n + LATHE_MAX_MADE_NAMES)
        return lathe_error(LATHE_E_PARSE,
                           "tokenizer_config.json: added_tokens_decoder.%lld: expected an id below "
                           "%lld, at most %d after the tokens of %s",
                           (long long)max, (long long)s->list.n + LATHE_MAX_MADE_NAMES,
                           LATHE_MAX_MADE_NAMES, s->place);
    for (int64_t id = s->list.n; id <= max; id++) {
        char number[24];
        (void)snprintf(number, sizeof number, "%lld", (long long)id);
        const char *text =
            json_string_value(json_object_get(json_object_get(decoder, number), "content"));
        if (text == NULL)
            text = lathe_arena_printf(arena, "<|reserved_token_%lld|>", (long long)id);
        if (text == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(put_special(s, list, text, (int64_t)strlen(text), -1, 1));
    }
    return LATHE_OK;
}

static lathe_status collect(const lathe_vocab_source *s, const json_t *add, lathe_arena *arena,
                            added_list *list)
{
    json_t *entry;
    size_t i;
    list->next_id = count_model(s);
    LATHE_TRY(add_pieces(s, list));
    LATHE_TRY(add_reserved(s, arena, list));
    json_array_foreach((json_t *)(uintptr_t)add, i, entry)
    {
        const json_t *content = json_object_get(entry, "content");
        const char *text = json_string_value(content);
        const int64_t n = (int64_t)json_string_length(content);
        added *known = json_object_get(entry, "if_missing") ? find_added(list, text, n) : NULL;
        if (known != NULL) { /* a user-defined piece that is named is special */
            known->special = 1;
            continue;
        }
        added *one = put_added(s, list, text, n, -1);
        if (one == NULL)
            return lathe_error(LATHE_E_NOMEM, "added tokens");
        one->special = (int8_t)json_is_true(json_object_get(entry, "special"));
        one->normalized = (int8_t)json_is_true(json_object_get(entry, "normalized"));
        one->lstrip = (int8_t)json_is_true(json_object_get(entry, "lstrip"));
        one->rstrip = (int8_t)json_is_true(json_object_get(entry, "rstrip"));
        one->single_word = (int8_t)json_is_true(json_object_get(entry, "single_word"));
    }
    if (list->n > 1) {
        qsort(list->list, (size_t)list->n, sizeof *list->list, by_id);
        index_added(list);
    }
    return LATHE_OK;
}

static const char *truth(int value)
{
    return value ? "true" : "false";
}

static void write_added(const added_list *list, lathe_buffer *out)
{
    const char *gap = "\n    ";
    lathe_buffer_puts(out, "  \"added_tokens\": [");
    for (int64_t i = 0; i < list->n; i++) {
        const added *one = &list->list[i];
        lathe_buffer_printf(out, "%s{\"id\": %lld, \"content\": ", gap, (long long)one->id);
        lathe_buffer_json_bytes(out, one->text, one->n);
        lathe_buffer_printf(out,
                            ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, "
                            "\"normalized\": %s, \"special\": %s}",
                            truth(one->single_word), truth(one->lstrip), truth(one->rstrip),
                            truth(one->normalized), truth(one->special));
        gap = ",\n    ";
    }
    lathe_buffer_puts(out, "\n  ],\n");
}

/* ---- normalizer, pre-tokenizer, decoder ---- */

static int has_user_pieces(const lathe_spm *spm)
{
    for (int64_t i = 0; i < spm->n; i++)
        if (spm->pieces[i].type == LATHE_PIECE_USER_DEFINED && spm->pieces[i].text.n > 0)
            return 1;
    return 0;
}

static void write_charsmap(const lathe_spm *spm, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
    lathe_base64_append(out, (const uint8_t *)spm->charsmap.text, spm->charsmap.n);
    lathe_buffer_puts(out, "\"}");
}

/* 1: a text after an added token has a prefix, too. */
static int is_legacy(const lathe_vocab_source *s)
{
    const json_t *legacy = json_object_get(s->config, "legacy");
    return legacy == NULL ? s->which == LATHE_CLASS_GENERIC : json_is_true(legacy);
}

static void write_replace(const char *pattern, const char *content, lathe_buffer *out)
{
    lathe_buffer_printf(out, "{\"type\": \"Replace\", \"pattern\": %s, \"content\": \"%s\"}",
                        pattern, content);
}

/* The steps of SentencePiece's own normalizer, in its order. */
static void write_spm_normalizer(const lathe_vocab_source *s, lathe_buffer *out)
{
    const lathe_spm *spm = &s->spm;
    const char *gap = "";
    lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"normalizers\": [");
    if (spm->charsmap.n > 0) {
        write_charsmap(spm, out);
        gap = ", ";
    }
    if (spm->trims_spaces) {
        lathe_buffer_puts(out, gap);
        write_replace("{\"Regex\": \"\\\\A +| +\\\\z\"}", "", out);
        lathe_buffer_puts(out, ", ");
        write_replace("{\"Regex\": \" {2,}\"}", " ", out);
        gap = ", ";
    }
    if (spm->escapes_spaces) {
        lathe_buffer_puts(out, gap);
        write_replace("{\"String\": \" \"}", SPACE_MARK, out);
        gap = ", ";
    }
    if (spm->adds_prefix && is_legacy(s)) { /* Metaspace leaves a text that begins with the mark */
        lathe_buffer_puts(out, gap);
        write_replace("{\"Regex\": \"\\\\A" SPACE_MARK "\"}", SPACE_MARK SPACE_MARK, out);
    }
    lathe_buffer_puts(out, "]}");
}

static void write_normalizer(const lathe_vocab_source *s, lathe_buffer *out)
{
    lathe_buffer_puts(out, "  \"normalizer\": ");
    if (s->which == LATHE_CLASS_GEMMA)
        write_replace("{\"String\": \" \"}", SPACE_MARK, out);
    else if (s->which == LATHE_CLASS_T5 || s->which == LATHE_CLASS_XLM_ROBERTA)
        s->spm.charsmap.n > 0 ? write_charsmap(&s->spm, out) : lathe_buffer_puts(out, "null");
    else if (s->which == LATHE_CLASS_QWEN2 || s->which == LATHE_CLASS_GPT_NEOX)
        lathe_buffer_puts(out, "{\"type\": \"NFC\"}");
    else if (s->which == LATHE_CLASS_BERT)
        lathe_buffer_printf(
            out,
            "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": %s, "
            "\"strip_accents\": %s, \"lowercase\": %s}",
            truth(!json_is_false(json_object_get(s->config, "tokenize_chinese_chars"))),
            s->accents > 0    ? "true"
            : s->accents == 0 ? "false"
                              : "null",
            truth(s->lowers));
    else if (s->form == LATHE_FORM_SENTENCEPIECE && s->which == LATHE_CLASS_GENERIC)
        write_spm_normalizer(s, out);
    else
        lathe_buffer_puts(out, "null");
    lathe_buffer_puts(out, ",\n");
}

static void write_metaspace(const char *scheme, int splits, lathe_buffer *out)
{
    lathe_buffer_printf(out,
                        "{\"type\": \"Metaspace\", \"replacement\": \"" SPACE_MARK
                        "\", \"prepend_scheme\": \"%s\", \"split\": %s}",
                        scheme, truth(splits));
}

/* A longer piece comes first, and of equal ones that with the smaller id. */
static int by_chars(const void *a, const void *b)
{
    const lathe_list_token *x = *(const lathe_list_token *const *)a,
                           *y = *(const lathe_list_token *const *)b;
    int64_t n[2] = {0, 0};
    for (int64_t i = 0; i < x->n; i++)
        n[0] += (x->text[i] & 0xc0) != 0x80;
    for (int64_t i = 0; i < y->n; i++)
        n[1] += (y->text[i] & 0xc0) != 0x80;
    if (n[0] != n[1])
        return n[0] > n[1] ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* An expression that matches every user-defined piece, as JSON text. */
static lathe_status write_user_pattern(const lathe_vocab_source *s, lathe_buffer *out)
{
    const lathe_spm *spm = &s->spm;
    lathe_buffer pattern = LATHE_BUFFER_INIT;
    const lathe_list_token **pieces = malloc(((size_t)spm->n + 1) * sizeof *pieces);
    int64_t n = 0;
    if (pieces == NULL)
        return lathe_error(LATHE_E_NOMEM, "user-defined pieces");
    for (int64_t i = 0; i < spm->n; i++)
        if (spm->pieces[i].type == LATHE_PIECE_USER_DEFINED && s->list.tokens[i].n > 0)
            pieces[n++] = &s->list.tokens[i];
    qsort(pieces, (size_t)n, sizeof *pieces, by_chars);
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            lathe_buffer_puts(&pattern, "|");
        for (int64_t k = 0; k < pieces[i]->n; k++) {
            const char c = pieces[i]->text[k];
            if (lathe_is_one_of(c, "\\^$.|?*+()[]{}#&-~"))
                lathe_buffer_puts(&pattern, "\\");
            lathe_buffer_append(&pattern, &c, 1);
        }
    }
    lathe_status status = pattern.status;
    if (status == LATHE_OK)
        lathe_buffer_json_bytes(out, pattern.data, pattern.len);
    free(pieces);
    lathe_buffer_fini(&pattern);
    return status;
}

static lathe_status write_spm_pre(const lathe_vocab_source *s, lathe_buffer *out)
{
    const int splits = has_user_pieces(&s->spm);
    if (!s->spm.adds_prefix && !splits) {
        lathe_buffer_puts(out, "null");
        return LATHE_OK;
    }
    lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [");
    if (s->spm.adds_prefix)
        write_metaspace(is_legacy(s) ? "always" : "first", 0, out);
    if (splits) {
        lathe_buffer_printf(out, "%s{\"type\": \"Split\", \"pattern\": {\"Regex\": ",
                            s->spm.adds_prefix ? ", " : "");
        LATHE_TRY(write_user_pattern(s, out));
        lathe_buffer_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false}");
    }
    lathe_buffer_puts(out, "]}");
    return LATHE_OK;
}

/* Byte-level after an expression. */
static void write_split(const char *pattern, int prefix, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                           "\"pattern\": {\"Regex\": ");
    lathe_buffer_json_string(out, pattern);
    lathe_buffer_printf(out,
                        "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
                        "\"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, "
                        "\"use_regex\": false}]}",
                        truth(prefix));
}

static lathe_status write_pre(const lathe_vocab_source *s, lathe_buffer *out)
{
    static const char qwen2[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const json_t *prefix = json_object_get(s->config, "add_prefix_space");
    lathe_buffer_puts(out, "  \"pre_tokenizer\": ");
    switch (s->which) {
    case LATHE_CLASS_LLAMA:
        write_metaspace(json_is_false(prefix) ? "never"
                        : is_legacy(s)        ? "always"
                                              : "first",
                        0, out);
        break;
    case LATHE_CLASS_GEMMA:
        lathe_buffer_puts(out, "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, "
                               "\"behavior\": \"MergedWithPrevious\", \"invert\": false}");
        break;
    case LATHE_CLASS_T5:
    case LATHE_CLASS_XLM_ROBERTA:
        lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                               "\"WhitespaceSplit\"}, ");
        write_metaspace(s->which != LATHE_CLASS_T5 && json_is_false(prefix) ? "never" : "always", 1,
                        out);
        lathe_buffer_puts(out, "]}");
        break;
    case LATHE_CLASS_QWEN2:
        write_split(qwen2, json_is_true(prefix), out);
        break;
    case LATHE_CLASS_GPT2:
    case LATHE_CLASS_GPT_NEOX:
    case LATHE_CLASS_ROBERTA:
        lathe_buffer_printf(out,
                            "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": "
                            "true, \"use_regex\": true}",
                            truth(json_is_true(prefix)));
        break;
    case LATHE_CLASS_BERT:
        lathe_buffer_puts(out, "{\"type\": \"BertPreTokenizer\"}");
        break;
    default:
        if (is_bytes(s))
            write_split(s->pattern, 0, out);
        else
            LATHE_TRY(write_spm_pre(s, out));
    }
    lathe_buffer_puts(out, ",\n");
    return out->status;
}

static void write_decoder(const lathe_vocab_source *s, lathe_buffer *out)
{
    const json_t *prefix = json_object_get(s->config, "add_prefix_space");
    const int generic = s->which == LATHE_CLASS_GENERIC;
    const int strips =
        generic ? s->spm.adds_prefix : s->which == LATHE_CLASS_LLAMA && !json_is_false(prefix);
    const int falls_back = generic ? s->spm.byte_fallback : 1;
    lathe_buffer_puts(out, "  \"decoder\": ");
    if (s->which == LATHE_CLASS_T5 || s->which == LATHE_CLASS_XLM_ROBERTA) {
        write_metaspace(s->which != LATHE_CLASS_T5 && json_is_false(prefix) ? "never" : "always", 1,
                        out);
    } else if (s->which == LATHE_CLASS_BERT) {
        lathe_buffer_puts(out, "{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}");
    } else if (s->form != LATHE_FORM_SENTENCEPIECE) {
        lathe_buffer_puts(out, BYTE_LEVEL "\"use_regex\": true}");
    } else {
        lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"decoders\": [");
        write_replace("{\"String\": \"" SPACE_MARK "\"}", " ", out);
        if (falls_back)
            lathe_buffer_puts(out, ", {\"type\": \"ByteFallback\"}");
        if (strips || falls_back)
            lathe_buffer_puts(out, ", {\"type\": \"Fuse\"}");
        if (strips)
            lathe_buffer_puts(out, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
                                   "\"stop\": 0}");
        lathe_buffer_puts(out, "]}");
    }
    lathe_buffer_puts(out, ",\n");
}

/* ---- tokens around a text ---- */

typedef struct frame {
    const char *key[2], *text[2]; /* before and after; NULL: none */
    int64_t n[2], id[2];
} frame;

static void put_frame(frame *f, int at, const char *key, const json_t *special, added_list *list)
{
    const json_t *content = json_object_get(special, key);
    const int64_t n = (int64_t)json_string_length(content);
    const added *one = content ? find_added(list, json_string_value(content), n) : NULL;
    if (one == NULL)
        return;
    f->key[at] = key;
    f->text[at] = one->text;
    f->n[at] = one->n;
    f->id[at] = one->id;
}

static void write_entry(const frame *f, int at, int type_id, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\"SpecialToken\": {\"id\": ");
    lathe_buffer_json_bytes(out, f->text[at], f->n[at]);
    lathe_buffer_printf(out, ", \"type_id\": %d}}", type_id);
}

static void write_template(const frame *f, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\"type\": \"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        lathe_buffer_printf(out, ", \"%s\": [", pair ? "pair" : "single");
        for (int part = 0; part <= pair; part++) {
            lathe_buffer_puts(out, part ? ", " : "");
            if (f->text[0] != NULL && (part == 0 || strcmp(f->key[0], "bos_token") == 0)) {
                write_entry(f, 0, part, out);
                lathe_buffer_puts(out, ", ");
            }
            lathe_buffer_printf(out, "{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}",
                                'A' + part, part);
            if (f->text[1] != NULL) {
                lathe_buffer_puts(out, ", ");
                write_entry(f, 1, part, out);
            }
        }
        lathe_buffer_puts(out, "]");
    }
    lathe_buffer_puts(out, ", \"special_tokens\": {");
    const char *gap = "";
    for (int at = 0; at < 2; at++) {
        if (f->text[at] == NULL || (at == 1 && f->text[0] == f->text[1]))
            continue;
        lathe_buffer_puts(out, gap);
        lathe_buffer_json_bytes(out, f->text[at], f->n[at]);
        lathe_buffer_puts(out, ": {\"id\": ");
        lathe_buffer_json_bytes(out, f->text[at], f->n[at]);
        lathe_buffer_printf(out, ", \"ids\": [%lld], \"tokens\": [", (long long)f->id[at]);
        lathe_buffer_json_bytes(out, f->text[at], f->n[at]);
        lathe_buffer_puts(out, "]}");
        gap = ", ";
    }
    lathe_buffer_puts(out, "}}");
}

static void write_post(const lathe_vocab_source *s, const json_t *special, added_list *list,
                       lathe_buffer *out)
{
    frame f = {{NULL, NULL}, {NULL, NULL}, {0, 0}, {0, 0}};
    lathe_buffer_puts(out, "  \"post_processor\": ");
    switch (s->which) {
    case LATHE_CLASS_T5:
        put_frame(&f, 1, "eos_token", special, list);
        break;
    case LATHE_CLASS_XLM_ROBERTA:
        put_frame(&f, 0, "bos_token", special, list);
        put_frame(&f, 1, "eos_token", special, list);
        break;
    case LATHE_CLASS_BERT:
    case LATHE_CLASS_ROBERTA:
        put_frame(&f, 0, "cls_token", special, list);
        put_frame(&f, 1, "sep_token", special, list);
        break;
    default:
        if (s->adds_bos)
            put_frame(&f, 0, "bos_token", special, list);
        if (s->adds_eos)
            put_frame(&f, 1, "eos_token", special, list);
    }
    if (is_bytes(s) && !s->has_post)
        lathe_buffer_puts(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                               "\"trim_offsets\": false, \"use_regex\": true}");
    else
        write_template(&f, out);
    lathe_buffer_puts(out, ",\n");
}

/* ---- model ---- */

/* Digits that a reader of tokenizer.json (base/json/score.h) takes for exactly this number, which
 * 17 digits alone may miss by its rounding. */
static void write_score(double score, lathe_buffer *out)
{
    char text[40];
    int n = snprintf(text, sizeof text, "%.16e", score);
    if (lathe_score_read(text, n) != score) {
        const char *mark = strchr(text, 'e');
        char digits[24];
        int64_t near = 0, exponent = 0;
        int n_digits = 0;
        for (const char *p = text; mark && p < mark; p++)
            if (*p >= '0' && *p <= '9' && n_digits < 18)
                digits[n_digits++] = *p;
        digits[n_digits] = '\0';
        near = strtoll(digits, NULL, 10);
        exponent = mark ? strtoll(mark + 1, NULL, 10) - 16 : 0;
        for (int64_t k = 1; k <= 64; k++) { /* digits nearby, in growing distance */
            const int64_t digit = near + (k % 2 ? -(k / 2 + 1) : k / 2);
            n = snprintf(text, sizeof text, "%s%llde%lld", score < 0 ? "-" : "", (long long)digit,
                         (long long)exponent);
            if (lathe_score_read(text, n) == score)
                break;
        }
    }
    lathe_buffer_append(out, text, n);
}

static void write_unigram(const lathe_vocab_source *s, lathe_buffer *out)
{
    const char *gap = "\n      [";
    lathe_buffer_printf(out,
                        "    \"type\": \"Unigram\",\n    \"unk_id\": %d,\n    \"byte_fallback\": "
                        "%s,\n    \"vocab\": [",
                        s->which == LATHE_CLASS_T5            ? 2
                        : s->which == LATHE_CLASS_XLM_ROBERTA ? 3
                                                              : s->spm.unk_id,
                        truth(s->which == LATHE_CLASS_GENERIC && s->spm.byte_fallback));
    for (int64_t id = 0; id < s->list.n; id++) {
        lathe_buffer_puts(out, gap);
        lathe_buffer_json_bytes(out, s->list.tokens[id].text, s->list.tokens[id].n);
        lathe_buffer_puts(out, ", ");
        write_score((double)s->list.tokens[id].score, out);
        lathe_buffer_puts(out, "]");
        gap = ",\n      [";
    }
    lathe_buffer_puts(out, "\n    ]\n");
}

/* "vocab": every token by its text; of equal texts the last one. */
static void write_vocab(const lathe_vocab_source *s, lathe_buffer *out)
{
    const char *gap = "\n      ";
    lathe_buffer_puts(out, "    \"vocab\": {");
    for (int64_t id = 0; id < s->n_special; id++) {
        lathe_buffer_puts(out, gap);
        lathe_buffer_json_string(out, s->special[id]);
        lathe_buffer_printf(out, ": %lld", (long long)id);
        gap = ",\n      ";
    }
    for (int64_t id = 0; id < s->list.n; id++) {
        const lathe_list_token *t = &s->list.tokens[id];
        if (lathe_token_list_find(&s->list, t->text, t->n) != id)
            continue;
        lathe_buffer_puts(out, gap);
        lathe_token_list_put(out, t->text, t->n, is_bytes(s));
        lathe_buffer_printf(out, ": %lld", (long long)(id + s->n_special));
        gap = ",\n      ";
    }
    lathe_buffer_puts(out, "\n    }");
}

static void write_bpe(const char *unk, int64_t n_unk, int fuses, int falls_back, int ignores,
                      lathe_buffer *out)
{
    lathe_buffer_puts(out, "    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ");
    if (unk != NULL)
        lathe_buffer_json_bytes(out, unk, n_unk);
    else
        lathe_buffer_puts(out, "null");
    lathe_buffer_printf(out,
                        ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": "
                        "null,\n    \"fuse_unk\": %s,\n    \"byte_fallback\": %s,\n    "
                        "\"ignore_merges\": %s,\n",
                        truth(fuses), truth(falls_back), truth(ignores));
}

static lathe_status write_spm_bpe(const lathe_vocab_source *s, const json_t *special,
                                  lathe_buffer *out)
{
    const lathe_spm *spm = &s->spm;
    const json_t *unk = json_object_get(special, "unk_token");
    const int generic = s->which == LATHE_CLASS_GENERIC;
    if (generic)
        write_bpe(spm->unk.text, spm->unk.n, 1, spm->byte_fallback, has_user_pieces(spm), out);
    else
        write_bpe(s->which == LATHE_CLASS_GEMMA ? json_string_value(unk) : NULL,
                  (int64_t)json_string_length(unk), 1, 1, 0, out);
    write_vocab(s, out);
    lathe_buffer_puts(out, ",\n    \"merges\": [");
    if (!generic)
        return lathe_token_list_merges(&s->list, LATHE_MERGES_BY_ID, out);
    lathe_token_list normal = s->list; /* only normal pieces are merged */
    LATHE_TRY(lathe_token_list_index(&normal, 1));
    const lathe_status status = lathe_token_list_merges(&normal, LATHE_MERGES_BY_SCORE, out);
    free(normal.slots);
    return status;
}

/* The lines of merges.txt, "LEFT RIGHT", after a line "#version". */
static lathe_status write_lines(const lathe_vocab_source *s, lathe_buffer *out)
{
    const char *at = s->merges, *const end = s->merges + s->n_merges, *gap = "\n      [";
    for (int64_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *const next =
                                                                     stop ? stop + 1 : end;
        if (stop == NULL)
            stop = end;
        if (stop > at && stop[-1] == '\r')
            stop--;
        const char *space = memchr(at, ' ', (size_t)(stop - at));
        if (stop - at >= 8 && memcmp(at, "#version", 8) == 0) {
            at = next;
            continue;
        }
        if (space == NULL || memchr(space + 1, ' ', (size_t)(stop - space - 1)) != NULL)
            return lathe_error_in(LATHE_E_PARSE, s->merges_place, line, 1,
                                  "expected two tokens with a space between them");
        lathe_buffer_puts(out, gap);
        lathe_buffer_json_bytes(out, at, space - at);
        lathe_buffer_puts(out, ", ");
        lathe_buffer_json_bytes(out, space + 1, stop - space - 1);
        lathe_buffer_puts(out, "]");
        gap = ",\n      [";
        at = next;
    }
    return out->status;
}

static lathe_status write_model(const lathe_vocab_source *s, const json_t *special,
                                lathe_buffer *out)
{
    const int is_spm = s->form == LATHE_FORM_SENTENCEPIECE;
    const json_t *unk = json_object_get(special, "unk_token");
    lathe_buffer_puts(out, "  \"model\": {\n");
    if (is_spm && (s->which == LATHE_CLASS_T5 || s->which == LATHE_CLASS_XLM_ROBERTA ||
                   (s->which == LATHE_CLASS_GENERIC && s->spm.model_type == LATHE_SPM_UNIGRAM))) {
        write_unigram(s, out);
        lathe_buffer_puts(out, "  }\n}\n");
        return out->status;
    }
    if (s->form == LATHE_FORM_WORDS) {
        lathe_buffer_puts(out, "    \"type\": \"WordPiece\",\n    \"unk_token\": ");
        lathe_buffer_json_string(out, unk ? json_string_value(unk) : "[UNK]");
        lathe_buffer_puts(out, ",\n    \"continuing_subword_prefix\": \"##\",\n    "
                               "\"max_input_chars_per_word\": 100,\n");
        write_vocab(s, out);
        lathe_buffer_puts(out, "\n  }\n}\n");
        return out->status;
    }
    if (is_spm) {
        LATHE_TRY(write_spm_bpe(s, special, out));
    } else if (s->form == LATHE_FORM_MERGES) {
        write_bpe(NULL, 0, 0, 0, 0, out);
        lathe_buffer_puts(out, "    \"vocab\": ");
        lathe_buffer_append(out, s->text, s->n_text);
        lathe_buffer_puts(out, ",\n    \"merges\": [");
        LATHE_TRY(write_lines(s, out));
    } else {
        write_bpe(NULL, 0, 0, 0, 1, out);
        write_vocab(s, out);
        lathe_buffer_puts(out, ",\n    \"merges\": [");
        LATHE_TRY(lathe_token_list_merges(&s->list, LATHE_MERGES_OF_BYTES, out));
    }
    lathe_buffer_puts(out, "\n    ]\n  }\n}\n");
    return out->status;
}

lathe_status lathe_vocab_json(const lathe_vocab_source *source, lathe_buffer *out)
{
    const json_t *special = source->names.special;
    added_list list = {.list = NULL};
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = collect(source, source->names.add, &arena, &list);
    if (status != LATHE_OK)
        goto out;
    lathe_buffer_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": "
                           "null,\n");
    write_added(&list, out);
    write_normalizer(source, out);
    if ((status = write_pre(source, out)) != LATHE_OK)
        goto out;
    write_post(source, special, &list, out);
    write_decoder(source, out);
    status = write_model(source, special, out);
out:
    free(list.list);
    free(list.slots);
    lathe_arena_fini(&arena);
    return status;
}
