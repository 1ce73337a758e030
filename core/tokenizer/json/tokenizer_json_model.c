/* Reads the model of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel, with its settings. */
#include "tokenizer/json/tokenizer_json_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/encode/pipeline.h"
#include "tokenizer/json/tokenizer_json_members.h"
#include "tokenizer/json/tokenizer_json_merges.h"
#include "tokenizer/json/tokenizer_json_unigram.h"
#include "tokenizer/json/tokenizer_json_vocab.h"

static void find_byte_ids(lathe_tokenizer *tok)
{
    for (int32_t byte = 0; byte < 256; byte++) {
        const uint8_t b = (uint8_t)byte;
        tok->byte_id[byte] = lathe__vocab_find(&tok->vocab, &b, 1);
    }
}

static int32_t find_text(const lathe_tokenizer *tok, const char *text)
{
    return lathe__vocab_find(&tok->vocab, text, (int64_t)strlen(text));
}

static int has_byte_level(const lathe_pipeline *p)
{
    for (int32_t i = 0; i < p->n_normal; i++)
        if (p->normal[i].kind == LATHE_NORMAL_BYTE_LEVEL)
            return 1;
    for (int32_t i = 0; i < p->n_pre; i++)
        if (p->pre[i].kind == LATHE_PRE_BYTE_LEVEL)
            return 1;
    return 0;
}

/* Finds the tokens that stand for single bytes: those of the byte-level characters if a step is
 * ByteLevel, and those named "<0x00>" to "<0xFF>" if byte_fallback is set. */
static void find_byte_tokens(lathe_tokenizer *tok)
{
    lathe_pipeline *p = tok->pipeline;
    char key[8];
    p->byte_level = has_byte_level(p);
    for (int32_t byte = 0; byte < 256; byte++) {
        lathe__byte_key(byte, key);
        p->byte_char[byte] = p->byte_level ? find_text(tok, key) : -1;
        snprintf(key, sizeof key, "<0x%02X>", (unsigned)byte);
        p->byte_token[byte] = p->byte_fallback ? find_text(tok, key) : -1;
    }
}

static lathe_status finish_general(lathe_tokenizer *tok)
{
    lathe_pipeline *p = tok->pipeline;
    find_byte_tokens(tok);
    p->is_control = calloc((size_t)tok->vocab.n + 1, 1);
    return p->is_control ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for the vocabulary");
}

/* ---- BPE ---- */

static lathe_status read_bpe(lathe_tokenizer *tok, const char *file, const char *place,
                             const json_t *model, const lathe_token_tables *t)
{
    const char *prefix, *suffix;
    const json_t *merges = json_object_get(model, "merges");
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *dropout = json_object_get(model, "dropout");
    int32_t fuse_unk, byte_fallback;
    if (!json_is_object(vocab))
        return lathe__tj_expected(place, "vocab", vocab, "an object");
    if (!json_is_array(merges))
        return lathe__tj_expected(place, "merges", merges, "a list");
    if (dropout && !json_is_null(dropout) && !json_is_number(dropout))
        return lathe__tj_expected(place, "dropout", dropout, "a number or null");
    if (json_number_value(dropout) != 0.0)
        return lathe__tj_unsupported(place, "dropout", "above 0", "0 or null");
    LATHE_TRY(lathe__tj_text(place, model, "continuing_subword_prefix", &prefix));
    LATHE_TRY(lathe__tj_text(place, model, "end_of_word_suffix", &suffix));
    if (prefix && *prefix)
        return lathe__tj_unsupported(place, "continuing_subword_prefix", prefix, "null");
    if (suffix && *suffix)
        return lathe__tj_unsupported(place, "end_of_word_suffix", suffix, "null");
    const json_t *unk = json_object_get(model, "unk_token");
    if (unk && !json_is_null(unk) && !json_is_string(unk))
        return lathe__tj_expected(place, "unk_token", unk, "a string or null");
    LATHE_TRY(lathe__tj_flag(place, model, "fuse_unk", 0, &fuse_unk));
    LATHE_TRY(lathe__tj_flag(place, model, "byte_fallback", 0, &byte_fallback));
    LATHE_TRY(lathe__tj_flag(place, model, "ignore_merges", 0, &tok->ignore_merges));
    LATHE_TRY(lathe__read_vocab(tok, file, vocab, t));
    if (tok->kind == LATHE_TOKENIZER_BPE)
        find_byte_ids(tok);
    LATHE_TRY(lathe__read_merges(tok, file, vocab, merges, t));
    if (tok->kind == LATHE_TOKENIZER_BPE)
        return LATHE_OK;
    tok->pipeline->fuse_unk = fuse_unk;
    tok->pipeline->byte_fallback = byte_fallback;
    tok->pipeline->unk = -1;
    if (json_is_string(unk)) {
        tok->pipeline->unk = lathe__vocab_find(&tok->vocab, json_string_value(unk),
                                               (int64_t)json_string_length(unk));
        if (tok->pipeline->unk < 0)
            return lathe_error(LATHE_E_PARSE, "%s.unk_token \"%s\" is not in model.vocab", place,
                               json_string_value(unk));
    }
    return finish_general(tok);
}

/* ---- Unigram ---- */

lathe_status lathe__finish_model(lathe_tokenizer *tok)
{
    lathe_pipeline *p = tok->pipeline;
    if (p == NULL || p->scores == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe__unigram_create(&tok->vocab, p->scores, p->n_scores, &p->unigram));
    p->scores = NULL;
    return LATHE_OK;
}

static lathe_status read_unigram(lathe_tokenizer *tok, const char *file, const char *place,
                                 const json_t *model, const lathe_token_tables *t)
{
    const json_t *vocab = json_object_get(model, "vocab"), *unk = json_object_get(model, "unk_id");
    if (!json_is_array(vocab))
        return lathe__tj_expected(place, "vocab", vocab, "a list");
    const int64_t n = t ? t->n_scored : (int64_t)json_array_size(vocab);
    if (n == 0 || n > LATHE_MAX_ID)
        return lathe_error(LATHE_E_PARSE, "%s.vocab has %lld tokens; expected 1 to 2^24", place,
                           (long long)n);
    if (unk && !json_is_null(unk) &&
        (!json_is_integer(unk) || json_integer_value(unk) < 0 || json_integer_value(unk) >= n))
        return lathe__tj_expected(place, "unk_id", unk, "an id of the vocabulary or null");
    tok->pipeline->model = LATHE_MODEL_UNIGRAM;
    tok->pipeline->unk = json_is_integer(unk) ? (int32_t)json_integer_value(unk) : -1;
    LATHE_TRY(lathe__tj_flag(place, model, "byte_fallback", 0, &tok->pipeline->byte_fallback));
    tok->pipeline->n_scores = n;
    tok->pipeline->scores = malloc((size_t)n * sizeof *tok->pipeline->scores);
    if (tok->pipeline->scores == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the vocabulary");
    LATHE_TRY(lathe__read_unigram_vocab(tok, file, vocab, t, n, tok->pipeline->scores));
    return finish_general(tok);
}

/* ---- WordPiece, WordLevel ---- */

static lathe_status read_subword(const char *place, const json_t *model, lathe_pipeline *p)
{
    const json_t *chars = json_object_get(model, "max_input_chars_per_word");
    if (json_object_get(model, "continuing_subword_prefix"))
        LATHE_TRY(lathe__tj_copy(place, model, "continuing_subword_prefix", &p->subword));
    else if ((p->subword.text = lathe__tj_copy_text("##", 2)) != NULL)
        p->subword.bytes = 2;
    else
        return lathe_error(LATHE_E_NOMEM, "tokenizer");
    if (chars && (!json_is_integer(chars) || json_integer_value(chars) < 0))
        return lathe__tj_expected(place, "max_input_chars_per_word", chars, "a count");
    p->max_chars = chars ? json_integer_value(chars) : 100;
    return LATHE_OK;
}

/* The unknown token stands for every word that the vocabulary lacks, so it has to be there. */
static lathe_status read_words(lathe_tokenizer *tok, const char *file, const char *place,
                               const json_t *model, const lathe_token_tables *t, int32_t kind)
{
    lathe_pipeline *p = tok->pipeline;
    json_t *vocab = json_object_get(model, "vocab");
    const char *unk;
    if (!json_is_object(vocab))
        return lathe__tj_expected(place, "vocab", vocab, "an object");
    LATHE_TRY(lathe__tj_text(place, model, "unk_token", &unk));
    if (unk == NULL)
        unk = kind == LATHE_MODEL_WORD_PIECE ? "[UNK]" : "<unk>";
    p->model = kind;
    if (kind == LATHE_MODEL_WORD_PIECE)
        LATHE_TRY(read_subword(place, model, p));
    LATHE_TRY(lathe__read_vocab(tok, file, vocab, t));
    p->unk = find_text(tok, unk);
    if (p->unk < 0)
        return lathe_error(LATHE_E_PARSE, "%s.unk_token \"%s\" is not in model.vocab", place, unk);
    for (int64_t id = 0; id < tok->vocab.n; id++)
        p->longest = tok->vocab.len[id] > p->longest ? tok->vocab.len[id] : p->longest;
    return finish_general(tok);
}

lathe_status lathe__read_model(lathe_tokenizer *tok, const char *file, const json_t *model,
                               const lathe_token_tables *tables)
{
    const char *type;
    char place[LATHE_PLACE];
    snprintf(place, sizeof place, "%s: model", file);
    if (!json_is_object(model))
        return lathe__tj_expected(place, "", model, "an object");
    LATHE_TRY(lathe__tj_text(place, model, "type", &type));
    if (type == NULL) /* files from before 2021 have none */
        type = json_object_get(model, "merges")                                      ? "BPE"
               : json_is_array(json_object_get(model, "vocab"))                      ? "Unigram"
               : json_is_string(json_object_get(model, "continuing_subword_prefix")) ? "WordPiece"
               : json_is_string(json_object_get(model, "unk_token"))                 ? "WordLevel"
                                                                                     : NULL;
    if (type == NULL)
        return lathe__tj_expected(place, "type", NULL,
                                  "\"BPE\", \"Unigram\", \"WordPiece\" or \"WordLevel\"");
    if (!strcmp(type, "BPE"))
        return read_bpe(tok, file, place, model, tables);
    if (!strcmp(type, "Unigram") && tok->kind == LATHE_TOKENIZER_GENERAL)
        return read_unigram(tok, file, place, model, tables);
    if (!strcmp(type, "WordPiece") && tok->kind == LATHE_TOKENIZER_GENERAL)
        return read_words(tok, file, place, model, tables, LATHE_MODEL_WORD_PIECE);
    if (!strcmp(type, "WordLevel") && tok->kind == LATHE_TOKENIZER_GENERAL)
        return read_words(tok, file, place, model, tables, LATHE_MODEL_WORD_LEVEL);
    return lathe__tj_unsupported(place, "type", type, "BPE, Unigram, WordPiece, WordLevel");
}
