/* Makes and prints the report of `lathe tokenizer check` from the members of tokenizer.json. */
#include "tokenizer/json/tokenizer_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/print.h"
#include "tokenizer/json/tokenizer_json.h"

static const char *type_of(const json_t *node)
{
    const char *type = json_string_value(json_object_get(node, "type"));
    return type ? type : json_is_object(node) ? "without a type" : "none";
}

/* The parts of a sequence; NULL for another type. */
static const json_t *parts_of(const json_t *node)
{
    static const char *const keys[] = {"normalizers", "pretokenizers", "processors", "decoders"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *list = json_object_get(node, keys[i]);
        if (json_is_array(list))
            return list;
    }
    return NULL;
}

/* Writes the type of a part: "NFC", "Sequence(Split, ByteLevel)". */
static void describe(const json_t *node, int depth, lathe_buffer *out)
{
    const json_t *parts = parts_of(node);
    lathe_buffer_puts(out, type_of(node));
    if (parts == NULL || depth > 4)
        return;
    lathe_buffer_puts(out, "(");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        if (i > 0)
            lathe_buffer_puts(out, ", ");
        describe(json_array_get(parts, i), depth + 1, out);
    }
    lathe_buffer_puts(out, ")");
}

/* Returns 1 if the part, or one of its parts, has this type, or has the flag `type` set. */
static int holds(const json_t *node, const char *type, int depth)
{
    const json_t *parts = parts_of(node);
    if (strcmp(type_of(node), type) == 0 || json_is_true(json_object_get(node, type)))
        return 1;
    for (size_t i = 0; depth < 5 && i < json_array_size(parts); i++)
        if (holds(json_array_get(parts, i), type, depth + 1))
            return 1;
    return 0;
}

/* The reason why decoding may not give back the text; NULL if it always does. */
static const char *rewrites(const json_t *root)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer"), *token;
    size_t i;
    if (json_is_object(json_object_get(root, "normalizer")))
        return "its normalizer";
    if (holds(pre, "Metaspace", 0))
        return "its pre-tokenizer: Metaspace";
    if (holds(pre, "add_prefix_space", 0))
        return "its pre-tokenizer: add_prefix_space";
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
    {
        if (json_is_true(json_object_get(token, "lstrip")) ||
            json_is_true(json_object_get(token, "rstrip")))
            return "added tokens that take the spaces around them";
    }
    return NULL;
}

static lathe_status put_described(json_t *report, const char *key, const json_t *node)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    describe(node, 0, &text);
    const lathe_status status = text.status;
    if (status == LATHE_OK)
        json_object_set_new(report, key, json_string(text.data));
    lathe_buffer_fini(&text);
    return status;
}

lathe_status lathe_tokenizer_report_file(json_t *report, const char *file, const char *json,
                                         int64_t bytes)
{
    static const char *const sections[] = {"normalizer", "pre_tokenizer", "post_processor",
                                           "decoder"};
    static const char *const unused[] = {"truncation", "padding"};
    json_t *root, *ignored = json_array();
    json_object_set_new(report, "ignored", ignored);
    int64_t n_merges = 0;
    lathe_status status = LATHE_OK;
    LATHE_TRY(lathe__tokenizer_tree(file, json, bytes, &root, &n_merges));
    const json_t *model = json_object_get(root, "model");
    json_object_set_new(report, "kind", json_string(type_of(model)));
    json_object_set_new(report, "merges", json_integer((json_int_t)n_merges));
    json_object_set_new(
        report, "added_tokens",
        json_integer((json_int_t)json_array_size(json_object_get(root, "added_tokens"))));
    for (size_t i = 0; i < sizeof sections / sizeof sections[0] && status == LATHE_OK; i++)
        status = put_described(report, sections[i], json_object_get(root, sections[i]));
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
        if (json_is_object(json_object_get(root, unused[i])))
            json_array_append_new(ignored, json_string(unused[i]));
    const char *why = rewrites(root);
    if (why)
        json_object_set_new(report, "rewrites", json_string(why));
    json_decref(root);
    return status;
}

static void print_special(const json_t *report, const char *key)
{
    const json_t *token = json_object_get(report, key);
    if (json_is_object(token))
        lathe_print("  %-15s %lld %s\n", key,
                    (long long)json_integer_value(json_object_get(token, "id")),
                    json_string_value(json_object_get(token, "piece")));
    else
        lathe_print("  %-15s none\n", key);
}

static void print_text(const json_t *text)
{
    const json_t *differs = json_object_get(text, "differs_at");
    lathe_print("text %s\n", json_string_value(json_object_get(text, "file")));
    lathe_print(
        "  %lld bytes, %lld characters, %lld tokens: %.3f bytes and %.3f characters a token\n",
        (long long)json_integer_value(json_object_get(text, "bytes")),
        (long long)json_integer_value(json_object_get(text, "chars")),
        (long long)json_integer_value(json_object_get(text, "tokens")),
        json_real_value(json_object_get(text, "bytes_per_token")),
        json_real_value(json_object_get(text, "chars_per_token")));
    if (json_is_integer(differs))
        lathe_print("  decoded: other bytes from %lld on\n",
                    (long long)json_integer_value(differs));
    else
        lathe_print("  decoded: the same bytes\n");
    const json_t *lost = json_object_get(text, "lost");
    if (lost)
        lathe_print("  bytes without a token: %lld left out, %lld became the unknown token: %s\n",
                    (long long)json_integer_value(json_object_get(lost, "left_out")),
                    (long long)json_integer_value(json_object_get(lost, "unknown")),
                    json_string_value(json_object_get(lost, "bytes")));
}

void lathe_tokenizer_report_print(const json_t *report)
{
    static const char *const parts[] = {"kind", "normalizer", "pre_tokenizer", "post_processor",
                                        "decoder"};
    static const char *const counts[] = {"tokens", "vocab_size", "merges", "added_tokens",
                                         "special_tokens"};
    static const char *const specials[] = {"bos", "eos", "pad"};
    const json_t *item;
    size_t i;
    lathe_print("%s\n", json_string_value(json_object_get(report, "file")));
    for (i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (json_object_get(report, parts[i]))
            lathe_print("  %-15s %s\n", parts[i],
                        json_string_value(json_object_get(report, parts[i])));
    for (i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (json_object_get(report, counts[i]))
            lathe_print("  %-15s %lld\n", counts[i],
                        (long long)json_integer_value(json_object_get(report, counts[i])));
    for (i = 0; i < sizeof specials / sizeof specials[0] && json_object_get(report, "bos"); i++)
        print_special(report, specials[i]);
    json_array_foreach(json_object_get(report, "ignored"), i, item)
        lathe_print("  %-15s %s\n", i ? "" : "not used", json_string_value(item));
    if (json_object_get(report, "rewrites"))
        lathe_print("  %-15s %s\n", "rewrites text",
                    json_string_value(json_object_get(report, "rewrites")));
    if (json_object_get(report, "model_vocab_size"))
        lathe_print("  %-15s %lld\n", "config.json has",
                    (long long)json_integer_value(json_object_get(report, "model_vocab_size")));
    json_array_foreach(json_object_get(report, "texts"), i, item) print_text(item);
    json_array_foreach(json_object_get(report, "problems"), i, item)
        lathe_print("problem: %s\n", json_string_value(item));
    json_array_foreach(json_object_get(report, "warnings"), i, item)
        lathe_print("warning: %s\n", json_string_value(item));
    if (json_array_size(json_object_get(report, "problems")) == 0 &&
        json_array_size(json_object_get(report, "warnings")) == 0)
        lathe_print("no problem found\n");
}
