/* The ways in which a byte-level tokenizer splits text before BPE, by their names in GGUF.
 *
 *   Source  llama.cpp, llama-vocab.cpp: the expressions of each pre-tokenizer.
 */
#include <string.h>

#include "files/gguf/gguf_pre.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SLASH_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL
#define QWEN2 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WORDS(end)                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER     \
    "*" end

/* The first of several with the same content is the one that is written. */
static const lathe_gguf_pre ways[] = {
    {"gpt-2", NULL, 0, 0, 0},
    {"smollm", NULL, 1, 0, 0},
    {"llama-bpe", LLAMA3, 0, 1, 0},
    {"dbrx", LLAMA3, 0, 0, 0},
    {"qwen2", QWEN2, 0, 0, 1},
    {"tekken", WORDS("") "|\\p{N}" SLASH_TAIL, 0, 1, 0},
    {"gpt-4o", WORDS(CONTRACTIONS "?") "|\\p{N}{1,3}" SLASH_TAIL, 0, 0, 0},
};

/* Names that llama.cpp treats as the way of that index. */
static const struct {
    const char *name;
    int32_t way;
} aliases[] = {
    {"phi-2", 0},     {"olmo", 0},      {"mpt", 0},       {"exaone4", 0},          {"mellum", 0},
    {"starcoder", 1}, {"refact", 1},    {"command-r", 1}, {"exaone", 1},           {"codeshell", 1},
    {"llama3", 2},    {"falcon3", 2},   {"llama-v3", 2},  {"pixtral", 2},          {"lfm2", 2},
    {"smaug-bpe", 3}, {"stablelm2", 4}, {"megrez", 4},    {"deepseek-r1-qwen", 4}, {"kormo", 4},
    {"llama4", 6},    {"kanana2", 6},
};

static int is(const char *name, const char *text, int64_t bytes)
{
    return (int64_t)strlen(name) == bytes && memcmp(name, text, (size_t)bytes) == 0;
}

const lathe_gguf_pre *lathe_gguf_pre_of_name(const char *name, int64_t bytes)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (is(ways[i].name, name, bytes))
            return &ways[i];
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (is(aliases[i].name, name, bytes))
            return &ways[aliases[i].way];
    return NULL;
}

static int has_type(const json_t *node, const char *type)
{
    const char *seen = json_string_value(json_object_get(node, "type"));
    return seen != NULL && strcmp(seen, type) == 0;
}

/* 1: ByteLevel without a space in front, with or without its expression. */
static int is_byte_level(const json_t *node, int use_regex)
{
    const json_t *regex = json_object_get(node, "use_regex");
    return has_type(node, "ByteLevel") &&
           !json_is_true(json_object_get(node, "add_prefix_space")) &&
           (regex == NULL || json_is_true(regex)) == use_regex;
}

/* The expression of a Split that isolates its matches; NULL: another step. */
static const char *split_pattern(const json_t *node)
{
    const char *behavior = json_string_value(json_object_get(node, "behavior"));
    if (!has_type(node, "Split") || behavior == NULL || strcmp(behavior, "Isolated") != 0 ||
        json_is_true(json_object_get(node, "invert")))
        return NULL;
    return json_string_value(json_object_get(json_object_get(node, "pattern"), "Regex"));
}

const lathe_gguf_pre *lathe_gguf_pre_of_json(const json_t *pre_tokenizer, int32_t ignore_merges)
{
    const json_t *list = json_object_get(pre_tokenizer, "pretokenizers");
    const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
    if (is_byte_level(pre_tokenizer, 1) || (json_array_size(list) == 1 && is_byte_level(first, 1)))
        return &ways[0];
    if (!has_type(pre_tokenizer, "Sequence") || json_array_size(list) != 2)
        return NULL;
    if (has_type(first, "Digits") && json_is_true(json_object_get(first, "individual_digits")))
        return is_byte_level(second, 1) ? &ways[1] : NULL;
    const char *pattern = is_byte_level(second, 0) ? split_pattern(first) : NULL;
    const lathe_gguf_pre *near = NULL;
    for (size_t i = 0; pattern != NULL && i < sizeof ways / sizeof ways[0]; i++)
        if (ways[i].pattern != NULL && strcmp(ways[i].pattern, pattern) == 0 &&
            ways[i].ignore_merges == ignore_merges)
            near = near != NULL ? near : &ways[i];
    return near;
}
