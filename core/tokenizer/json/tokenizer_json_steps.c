/* Reads tokenizer.json's normalizer, pre_tokenizer and decoder into lists of steps. */
#include "tokenizer/json/tokenizer_json_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/splitter.h"
#include "tokenizer/json/tokenizer_json_members.h"
#include "tokenizer/unicode/scanner.h"

enum { MAX_NESTING = 4 };

/* Copies an expression with \x{0} for each NUL; *out is malloc'ed. */
static lathe_status write_out_nul(const char *place, const lathe_piece *in, char **out)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    int64_t n_backslashes = 0; /* directly before this character */
    lathe_buffer_puts(&text, "");
    for (int64_t i = 0; i < in->bytes; i++) {
        const char c = in->text[i];
        if (c == 0 && n_backslashes % 2) {
            lathe_buffer_fini(&text);
            return lathe_error(LATHE_E_UNSUPPORTED, "%s: a backslash before \\u0000; write \\x{0}",
                               place);
        }
        n_backslashes = c == '\\' ? n_backslashes + 1 : 0;
        lathe_buffer_append(&text, c ? &c : "\\x{0}", c ? 1 : 5);
    }
    *out = text.data;
    return text.status;
}

/* {"String": ...} or {"Regex": ...} under "pattern". */
static lathe_status read_pattern(const char *place, const json_t *node, lathe_pattern *out)
{
    const json_t *pattern = json_object_get(node, "pattern");
    char inner[LATHE_PLACE];
    snprintf(inner, sizeof inner, "%s.pattern", place);
    if (!json_is_object(pattern))
        return lathe__tj_expected(place, "pattern", pattern,
                                  "{\"String\": ...} or {\"Regex\": ...}");
    lathe_piece text;
    if (json_object_get(pattern, "Regex")) {
        LATHE_TRY(lathe__tj_copy(inner, pattern, "Regex", &text));
        const lathe_status status = write_out_nul(inner, &text, &out->source);
        free(text.text);
        LATHE_TRY(status);
        int jit = 0;
        LATHE_TRY(lathe__regex_compile(inner, out->source, &out->code, &jit));
        out->jit = jit;
        return LATHE_OK;
    }
    LATHE_TRY(lathe__tj_copy(inner, pattern, "String", &text));
    out->text = text.text;
    out->bytes = text.bytes;
    return text.bytes ? LATHE_OK : lathe__tj_unsupported(inner, "String", "", "text");
}

/* Reads a string of one character. */
static lathe_status read_char(const char *place, const json_t *node, const char *key,
                              lathe_piece *out)
{
    int32_t len = 0;
    LATHE_TRY(lathe__tj_copy(place, node, key, out));
    if (out->bytes > 0)
        lathe_utf8_at((const uint8_t *)out->text, out->bytes, &len);
    if (len == 0 || len != out->bytes)
        return lathe__tj_expected(place, key, json_object_get(node, key), "one character");
    return LATHE_OK;
}

/* Reads a list of steps with `read`, which reads one step. */
static lathe_status
read_list(const char *place, const json_t *node, const char *key, lathe_pipeline *pipeline,
          int depth, lathe_status (*read)(const char *, const json_t *, lathe_pipeline *, int))
{
    const json_t *list = json_object_get(node, key);
    if (!json_is_array(list))
        return lathe__tj_expected(place, key, list, "a list");
    if (depth == MAX_NESTING)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: sequences more than %d deep", place,
                           MAX_NESTING);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char inner[LATHE_PLACE];
        snprintf(inner, sizeof inner, "%s.%s[%zu]", place, key, i);
        LATHE_TRY(read(inner, json_array_get(list, i), pipeline, depth + 1));
    }
    return LATHE_OK;
}

static lathe_status too_many(const char *place)
{
    return lathe_error(LATHE_E_UNSUPPORTED, "%s: more than %d steps", place, LATHE_MAX_STEPS);
}

/* ---- normalizer ---- */

static lathe_status read_precompiled(const char *place, const json_t *node, lathe_normal_step *step)
{
    const char *base64;
    LATHE_TRY(lathe__tj_text(place, node, "precompiled_charsmap", &base64));
    if (base64 == NULL)
        return lathe__tj_expected(place, "precompiled_charsmap",
                                  json_object_get(node, "precompiled_charsmap"), "base64 text");
    return lathe__charsmap_create(place, base64, &step->map);
}

/* strip_accents null: as lowercase. */
static lathe_status read_bert(const char *place, const json_t *node, lathe_normal_step *step)
{
    LATHE_TRY(lathe__tj_flag(place, node, "clean_text", 1, &step->cleans));
    LATHE_TRY(lathe__tj_flag(place, node, "handle_chinese_chars", 1, &step->chinese));
    LATHE_TRY(lathe__tj_flag(place, node, "lowercase", 1, &step->lowers));
    return lathe__tj_flag(place, node, "strip_accents", step->lowers, &step->accents);
}

static lathe_status read_normal_step(const char *place, const json_t *node,
                                     lathe_pipeline *pipeline, int depth)
{
    static const struct {
        const char *type;
        lathe_normal_kind kind;
    } kinds[] = {{"NFC", LATHE_NORMAL_NFC},
                 {"NFD", LATHE_NORMAL_NFD},
                 {"NFKC", LATHE_NORMAL_NFKC},
                 {"NFKD", LATHE_NORMAL_NFKD},
                 {"Lowercase", LATHE_NORMAL_LOWERCASE},
                 {"Strip", LATHE_NORMAL_STRIP},
                 {"StripAccents", LATHE_NORMAL_STRIP_ACCENTS},
                 {"Nmt", LATHE_NORMAL_NMT},
                 {"Replace", LATHE_NORMAL_REPLACE},
                 {"Prepend", LATHE_NORMAL_PREPEND},
                 {"ByteLevel", LATHE_NORMAL_BYTE_LEVEL},
                 {"Precompiled", LATHE_NORMAL_PRECOMPILED},
                 {"BertNormalizer", LATHE_NORMAL_BERT}};
    const size_t n_kinds = sizeof kinds / sizeof *kinds;
    const char *type;
    size_t k = 0;
    LATHE_TRY(lathe__tj_type(place, node, &type));
    if (!strcmp(type, "Sequence"))
        return read_list(place, node, "normalizers", pipeline, depth, read_normal_step);
    while (k < n_kinds && strcmp(type, kinds[k].type) != 0)
        k++;
    if (k == n_kinds)
        return lathe__tj_unsupported(place, "type", type,
                                     "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, "
                                     "Replace, Prepend, ByteLevel, Precompiled, BertNormalizer, "
                                     "Sequence");
    if (pipeline->n_normal == LATHE_MAX_STEPS)
        return too_many(place);
    lathe_normal_step *step = &pipeline->normal[pipeline->n_normal++];
    step->kind = kinds[k].kind;
    switch (step->kind) {
    case LATHE_NORMAL_STRIP:
        LATHE_TRY(lathe__tj_flag(place, node, "strip_left", 1, &step->left));
        return lathe__tj_flag(place, node, "strip_right", 1, &step->right);
    case LATHE_NORMAL_REPLACE:
        LATHE_TRY(read_pattern(place, node, &step->pattern));
        return lathe__tj_copy(place, node, "content", &step->content);
    case LATHE_NORMAL_PREPEND:
        return lathe__tj_copy(place, node, "prepend", &step->content);
    case LATHE_NORMAL_PRECOMPILED:
        return read_precompiled(place, node, step);
    case LATHE_NORMAL_BERT:
        return read_bert(place, node, step);
    default:
        return LATHE_OK;
    }
}

lathe_status lathe__read_normalizer(const char *place, const json_t *node, lathe_pipeline *pipeline)
{
    return node == NULL || json_is_null(node) ? LATHE_OK
                                              : read_normal_step(place, node, pipeline, 0);
}

/* ---- pre_tokenizer ---- */

static int is_space(int32_t c)
{
    return lathe_is_space(c);
}

static lathe_status read_behavior(const char *place, const json_t *node, const char *missing,
                                  lathe_behavior *out)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name;
    LATHE_TRY(lathe__tj_text(place, node, "behavior", &name));
    if (name == NULL)
        name = missing;
    if (name == NULL)
        return lathe__tj_expected(place, "behavior", NULL, "a string");
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) {
            *out = (lathe_behavior)i;
            return LATHE_OK;
        }
    return lathe__tj_unsupported(
        place, "behavior", name,
        "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

static lathe_status compile(const char *place, const char *source, lathe_pattern *out)
{
    int jit = 0;
    out->source = strdup(source);
    if (out->source == NULL)
        return lathe_error(LATHE_E_NOMEM, "tokenizer");
    LATHE_TRY(lathe__regex_compile(place, source, &out->code, &jit));
    out->jit = jit;
    return LATHE_OK;
}

static lathe_status read_split(const char *place, const json_t *node, lathe_pre_step *step)
{
    LATHE_TRY(read_pattern(place, node, &step->pattern));
    LATHE_TRY(read_behavior(place, node, NULL, &step->behavior));
    LATHE_TRY(lathe__tj_flag(place, node, "invert", 0, &step->invert));
    if (step->behavior == LATHE_ISOLATED)
        step->isolated = step->pattern.source;
    return LATHE_OK;
}

static lathe_status read_digits(const char *place, const json_t *node, lathe_pre_step *step)
{
    int32_t single;
    LATHE_TRY(lathe__tj_flag(place, node, "individual_digits", 0, &single));
    step->pattern.is_in = lathe__is_numeric;
    step->behavior = single ? LATHE_ISOLATED : LATHE_CONTIGUOUS;
    step->isolated = single ? "\\p{N}" : "\\p{N}+";
    return LATHE_OK;
}

static lathe_status read_byte_level(const char *place, const json_t *node, lathe_pre_step *step)
{
    int32_t use_regex;
    step->kind = LATHE_PRE_BYTE_LEVEL;
    LATHE_TRY(lathe__tj_flag(place, node, "add_prefix_space", 1, &step->prefix_space));
    LATHE_TRY(lathe__tj_flag(place, node, "use_regex", 1, &use_regex));
    return use_regex ? compile(place, LATHE_GPT2_PATTERN, &step->pattern) : LATHE_OK;
}

static lathe_status read_scheme(const char *place, const json_t *node, lathe_scheme *out)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name;
    int32_t prefix;
    LATHE_TRY(lathe__tj_text(place, node, "prepend_scheme", &name));
    LATHE_TRY(lathe__tj_flag(place, node, "add_prefix_space", 1, &prefix));
    *out = LATHE_ALWAYS;
    for (int i = 0; name && i < 4; i++) {
        if (i == 3)
            return lathe__tj_unsupported(place, "prepend_scheme", name, "always, first, never");
        if (strcmp(name, names[i]) != 0)
            continue;
        *out = (lathe_scheme)i;
        break;
    }
    if (!prefix && name && *out != LATHE_NEVER)
        return lathe_error(LATHE_E_PARSE, "%s: add_prefix_space is false and prepend_scheme \"%s\"",
                           place, name);
    if (!prefix)
        *out = LATHE_NEVER;
    return LATHE_OK;
}

static lathe_status read_metaspace(const char *place, const json_t *node, lathe_pre_step *step)
{
    int32_t splits;
    step->kind = LATHE_PRE_METASPACE;
    LATHE_TRY(read_char(place, node, "replacement", &step->replacement));
    LATHE_TRY(read_scheme(place, node, &step->scheme));
    LATHE_TRY(lathe__tj_flag(place, node, "split", 1, &splits));
    if (!splits)
        return LATHE_OK;
    lathe_piece copy;
    LATHE_TRY(lathe__tj_copy(place, node, "replacement", &copy));
    step->pattern.text = copy.text;
    step->pattern.bytes = copy.bytes;
    return step->pattern.text ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "tokenizer");
}

static lathe_status read_punctuation(const char *place, const json_t *node, lathe_pre_step *step)
{
    step->pattern.is_in = lathe__is_punctuation;
    LATHE_TRY(read_behavior(place, node, "Isolated", &step->behavior));
    if (step->behavior == LATHE_ISOLATED)
        step->isolated = "[!-/:-@\\[-`{-~\\p{P}]";
    else if (step->behavior == LATHE_CONTIGUOUS)
        step->isolated = "[!-/:-@\\[-`{-~\\p{P}]+";
    return LATHE_OK;
}

static lathe_status read_pre_step(const char *place, const json_t *node, lathe_pipeline *pipeline,
                                  int depth)
{
    const char *type;
    LATHE_TRY(lathe__tj_type(place, node, &type));
    if (!strcmp(type, "Sequence"))
        return read_list(place, node, "pretokenizers", pipeline, depth, read_pre_step);
    if (pipeline->n_pre == LATHE_MAX_STEPS)
        return too_many(place);
    lathe_pre_step *step = &pipeline->pre[pipeline->n_pre++];
    if (!strcmp(type, "ByteLevel"))
        return read_byte_level(place, node, step);
    if (!strcmp(type, "Metaspace"))
        return read_metaspace(place, node, step);
    step->kind = LATHE_PRE_SPLIT;
    if (!strcmp(type, "Split"))
        return read_split(place, node, step);
    if (!strcmp(type, "Digits"))
        return read_digits(place, node, step);
    if (!strcmp(type, "Punctuation"))
        return read_punctuation(place, node, step);
    step->behavior = LATHE_REMOVED;
    if (!strcmp(type, "WhitespaceSplit")) {
        step->pattern.is_in = is_space;
        return LATHE_OK;
    }
    if (!strcmp(type, "BertPreTokenizer")) { /* WhitespaceSplit, then Punctuation */
        step->pattern.is_in = is_space;
        if (pipeline->n_pre == LATHE_MAX_STEPS)
            return too_many(place);
        step = &pipeline->pre[pipeline->n_pre++];
        step->kind = LATHE_PRE_SPLIT;
        step->behavior = LATHE_ISOLATED;
        step->pattern.is_in = lathe__is_punctuation;
        return LATHE_OK;
    }
    if (!strcmp(type, "Whitespace")) { /* \w of Rust, which contains the joiners */
        step->invert = 1;
        return compile(place, "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+",
                       &step->pattern);
    }
    return lathe__tj_unsupported(place, "type", type,
                                 "ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, "
                                 "WhitespaceSplit, BertPreTokenizer, Sequence");
}

lathe_status lathe__read_pre_tokenizer(const char *place, const json_t *node,
                                       lathe_pipeline *pipeline)
{
    return node == NULL || json_is_null(node) ? LATHE_OK : read_pre_step(place, node, pipeline, 0);
}

/* ---- decoder ---- */

static lathe_status read_count(const char *place, const json_t *node, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(node, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return lathe__tj_expected(place, key, value, "a count");
    *out = json_integer_value(value);
    return LATHE_OK;
}

static lathe_status read_decode_step(const char *place, const json_t *node,
                                     lathe_pipeline *pipeline, int depth)
{
    static const char *const types[] = {"ByteLevel", "ByteFallback", "Metaspace", "Replace",
                                        "Strip",     "Fuse",         "WordPiece"};
    const char *type;
    int kind = 0;
    LATHE_TRY(lathe__tj_type(place, node, &type));
    if (!strcmp(type, "Sequence"))
        return read_list(place, node, "decoders", pipeline, depth, read_decode_step);
    while (kind < 7 && strcmp(type, types[kind]) != 0)
        kind++;
    if (kind == 7)
        return lathe__tj_unsupported(
            place, "type", type,
            "ByteLevel, ByteFallback, Metaspace, Replace, Strip, Fuse, WordPiece, Sequence");
    if (pipeline->n_decode == LATHE_MAX_STEPS)
        return too_many(place);
    lathe_decode_step *step = &pipeline->decode[pipeline->n_decode++];
    step->kind = (lathe_decode_kind)kind;
    if (step->kind == LATHE_DECODE_REPLACE) {
        LATHE_TRY(read_pattern(place, node, &step->pattern));
        return lathe__tj_copy(place, node, "content", &step->content);
    }
    if (step->kind == LATHE_DECODE_WORD_PIECE) {
        LATHE_TRY(lathe__tj_copy(place, node, "prefix", &step->content));
        return lathe__tj_flag(place, node, "cleanup", 1, &step->cleans_up);
    }
    if (step->kind == LATHE_DECODE_STRIP) {
        LATHE_TRY(read_char(place, node, "content", &step->content));
        LATHE_TRY(read_count(place, node, "start", &step->start));
        return read_count(place, node, "stop", &step->stop);
    }
    if (step->kind == LATHE_DECODE_METASPACE) {
        lathe_scheme scheme;
        LATHE_TRY(read_char(place, node, "replacement", &step->content));
        LATHE_TRY(read_scheme(place, node, &scheme));
        step->keeps_first = scheme == LATHE_NEVER;
    }
    return LATHE_OK;
}

lathe_status lathe__read_decoder(const char *place, const json_t *node, lathe_pipeline *pipeline)
{
    pipeline->has_decoder = node && !json_is_null(node);
    return pipeline->has_decoder ? read_decode_step(place, node, pipeline, 0) : LATHE_OK;
}
