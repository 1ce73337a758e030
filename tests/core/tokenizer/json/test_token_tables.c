/* The tables of a tokenizer.json compared with the JSON reader's, and files that are left to that
 * reader. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/token_tables.h"
#include "tokenizer/json/tokenizer_json.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/tokenizer/"

static const char *const names[] = {"gpt2", "llama3", "qwen2", "prefix", "twice", "flags"};
enum { N_NAMES = sizeof names / sizeof names[0] };

static char *read_golden(const char *name, int64_t *n)
{
    char path[512], *text;
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    cr_assert_eq(lathe_file_read(path, 0, &text, n), LATHE_OK, "%s", lathe_error_message());
    return text;
}

static void same_text(const char *got, int32_t n, const json_t *want)
{
    cr_assert_eq((size_t)n, json_string_length(want));
    cr_assert_arr_eq(got, json_string_value(want), (size_t)n);
}

static void compare(const char *text, int64_t n)
{
    lathe_token_tables t;
    json_t *root, *rest;
    cr_assert(lathe__token_tables_read(text, n, &t));
    cr_assert_eq(lathe_json_load("all", text, n, &root), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_json_load("rest", t.rest, t.rest_bytes, &rest), LATHE_OK, "%s",
                 lathe_error_message());
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    cr_assert_eq((size_t)t.n_tokens, json_object_size(vocab));
    for (int64_t i = 0; i < t.n_tokens; i++) {
        char key[256];
        snprintf(key, sizeof key, "%.*s", t.tokens[i].n, t.tokens[i].text);
        const json_t *id = json_object_get(vocab, key);
        cr_assert(id && json_integer_value(id) == t.tokens[i].id, "\"%s\"", key);
    }
    cr_assert_eq((size_t)t.n_merges, json_array_size(merges));
    for (int64_t i = 0; i < t.n_merges; i++) {
        const json_t *pair = json_array_get(merges, (size_t)i);
        same_text(t.merges[i].left, t.merges[i].n_left, json_array_get(pair, 0));
        same_text(t.merges[i].right, t.merges[i].n_right, json_array_get(pair, 1));
    }
    json_object_clear(vocab);
    json_object_set_new(model, "merges", json_array());
    cr_expect(json_equal(root, rest), "the rest has changed");
    json_decref(root);
    json_decref(rest);
    lathe__token_tables_fini(&t);
}

Test(token_tables, hold_what_json_holds)
{
    for (int i = 0; i < N_NAMES; i++) {
        int64_t n;
        char *text = read_golden(names[i], &n);
        compare(text, n);
        json_t *root; /* also written differently: without blanks, with escapes wherever possible */
        cr_assert_eq(lathe_json_load(names[i], text, n, &root), LATHE_OK);
        char *ascii = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ESCAPE_SLASH);
        compare(ascii, (int64_t)strlen(ascii));
        char *sorted = json_dumps(root, JSON_INDENT(7) | JSON_SORT_KEYS); /* merges before vocab */
        compare(sorted, (int64_t)strlen(sorted));
        free(sorted);
        free(ascii);
        json_decref(root);
        free(text);
    }
}

/* Parses the file with `from` replaced by `to`. NULL if it is refused. */
static lathe_tokenizer *parse_changed(const char *name, const char *from, const char *to)
{
    int64_t n;
    char *text = read_golden(name, &n), *at = strstr(text, from);
    cr_assert_not_null(at, "%s has no %s", name, from);
    char *changed = malloc((size_t)n + strlen(to) + 1);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    lathe_tokenizer *tok = NULL;
    if (lathe__tokenizer_parse("changed", changed, (int64_t)strlen(changed), &tok) != LATHE_OK) {
        free(changed);
        return NULL;
    }
    return tok;
}

/* Checks that two tokenizers are equal: tokens, and ids of the corpus. */
static void compare_tokenizers(lathe_tokenizer *const toks[2], const char *corpus, int64_t n)
{
    lathe_ids ids[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    for (int k = 0; k < 2; k++) {
        cr_assert_not_null(toks[k], "%s", lathe_error_message());
        cr_assert_eq(lathe_tokenizer_encode(toks[k], corpus, n, 0, &ids[k]), LATHE_OK);
    }
    cr_assert_eq(toks[0]->kind, toks[1]->kind);
    cr_assert_eq(lathe_tokenizer_vocab_size(toks[0]), lathe_tokenizer_vocab_size(toks[1]));
    for (int32_t id = 0; id < lathe_tokenizer_vocab_size(toks[0]); id++) {
        int64_t a = 0, b = 0;
        const char *x = lathe_tokenizer_token(toks[0], id, &a);
        const char *y = lathe_tokenizer_token(toks[1], id, &b);
        cr_assert(a == b && !x == !y && (!x || !memcmp(x, y, (size_t)a)), "token %d", id);
        cr_assert(!x || lathe_tokenizer_id(toks[0], x, a) == lathe_tokenizer_id(toks[1], x, a));
    }
    cr_assert_eq(ids[0].n, ids[1].n);
    cr_assert_arr_eq(ids[0].data, ids[1].data, (size_t)ids[0].n * sizeof(int32_t));
    for (int k = 0; k < 2; k++) {
        lathe_ids_fini(&ids[k]);
        lathe_tokenizer_destroy(toks[k]);
    }
}

/* A key written with an escape is not recognised; the ordinary reader then reads the file. */
Test(token_tables, both_ways_give_one_tokenizer)
{
    char *corpus;
    int64_t n;
    cr_assert_eq(lathe_file_read(GOLDEN "corpus.txt", 0, &corpus, &n), LATHE_OK);
    for (int i = 0; i < N_NAMES; i++) {
        lathe_tokenizer *const toks[2] = {parse_changed(names[i], "\"vocab\"", "\"vocab\""),
                                          parse_changed(names[i], "\"vocab\"", "\"voc\\u0061b\"")};
        compare_tokenizers(toks, corpus, n);
    }
    free(corpus);
}

/* A Unigram with this list after the key `vocab`; <s> is added as id 1. NULL if it is refused. */
static lathe_tokenizer *unigram(const char *vocab, const char *list)
{
    static const char frame[] = "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\"}], "
                                "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"%s\": %s}}";
    char *text = malloc(sizeof frame + strlen(list) + 16);
    lathe_tokenizer *tok = NULL;
    sprintf(text, frame, vocab, list);
    if (lathe__tokenizer_parse("changed", text, (int64_t)strlen(text), &tok) != LATHE_OK)
        free(text);
    return tok;
}

Test(token_tables, both_ways_give_one_unigram)
{
    static const char list[] =
        "[ [\"<unk>\", 0.0], [\"<s>\",0] ,[\"a\", -1.25e0], [\"\\u0061b\",-3.5],[\"a\",-9],"
        "[\"\\ud83d\\ude00\", -2], [\"\xc3\xa9\", -1e-3], [\"<s>x\", 1e300], [\"\", -1],"
        "[\"b\", -123456789012345678901]\n]";
    static const char corpus[] = "abab a\xc3\xa9 \xf0\x9f\x98\x80<s>x b";
    lathe_token_tables tables;
    char model[sizeof list + 64];
    sprintf(model, "{\"model\": {\"vocab\": %s}}", list);
    cr_expect(lathe__token_tables_read(model, (int64_t)strlen(model), &tables));
    cr_expect_eq(tables.n_scored, 10);
    cr_expect_str_eq(tables.rest, "{\"model\": {\"vocab\": []}}");
    lathe__token_tables_fini(&tables);
    lathe_tokenizer *const toks[2] = {unigram("vocab", list), unigram("voc\\u0061b", list)};
    compare_tokenizers(toks, corpus, sizeof corpus - 1);
}

/* Errors have the same words, whichever reader finds them. */
Test(token_tables, mistakes_in_a_unigram_give_the_usual_messages)
{
    /* The column of a syntax error differs, because "voc\\u0061b" is longer than "vocab". */
    enum { EQUAL, OTHER_COLUMN };
    static const struct {
        const char *text, *message;
        int column;
    } lists[] = {
        {"[]", "has 0 tokens", EQUAL},
        {"[[\"a\"]]", "model.vocab[0]", EQUAL},
        {"[[\"a\", 1, 2]]", "model.vocab[0]", EQUAL},
        {"[[\"a\", \"1\"]]", "model.vocab[0]", EQUAL},
        {"[[1, 1]]", "model.vocab[0]", EQUAL},
        {"[[\"a\", 0], [\"<t>\", 0]]", "id 1", EQUAL},
        {"[[\"a\", 0], [\"<s>\", 0], [\"<s>\", 0]]", "\"<s>\" is 2", EQUAL},
        {"[[\"a\", 01]]", "changed:1:", OTHER_COLUMN},
        {"[[\"a\", 1e999]]", "changed:1:", OTHER_COLUMN},
        {"[[\"\\ud800\", 1]]", "changed:1:", OTHER_COLUMN},
        {"[[\"a\", 1],]", "changed:1:", OTHER_COLUMN},
        {"[[\"a\", 1]", "changed:1:", OTHER_COLUMN},
        {"[[\"a\", nan]]", "changed:1:", OTHER_COLUMN},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char said[512];
        cr_expect_null(unigram("voc\\u0061b", lists[i].text), "%s", lists[i].text);
        cr_expect(strstr(lathe_error_message(), lists[i].message), "%s: \"%s\"", lists[i].text,
                  lathe_error_message());
        snprintf(said, sizeof said, "%s", lathe_error_message());
        cr_expect_null(unigram("vocab", lists[i].text), "%s", lists[i].text);
        if (lists[i].column == EQUAL)
            cr_expect_str_eq(lathe_error_message(), said);
    }
}

Test(token_tables, mistakes_give_the_usual_messages)
{
    static const char *const changes[][3] = {
        {"\"!\": 1,", "\"!\": 1, \"!\": 1,", "duplicate"},
        {"\"!\": 1,", "\"!\": 1, \"!\": 600,", "duplicate"},
        {"\"!\": 1,", "\"!\": 1, \"\\u0021\": 600,", "duplicate"},
        {"\"!\": 1,", "\"!\": 1, \"a b\": 600, \"a b\": 601,", "duplicate"},
        {"\"!\": 1,", "\"!\": 2,", "id 2"},
        {"\"!\": 1,", "\"!\": 01,", "changed:"},
        {"\"!\": 1,", "\"!\": 1.5,", "model.vocab[\"!\"]"},
        {"\"!\": 1,", "\"!\": \"1\",", "model.vocab[\"!\"]"},
        {"\"!\": 1,", "\"!\": 1", "changed:"},
        {"\"!\": 1,", "\"!\" 1,", "changed:"},
        {"\"!\": 1,", "\"\\ud800\": 1,", "changed:"},
        {"\"!\": 1,", "\"\x01\": 1,", "changed:"},
        {"\"!\": 1,", "\"\xff\": 1,", "changed:"},
        {"\"<|endoftext|>\": 0", "\"<|endoftext|>\": 600", "<|endoftext|>"},
        {"\"merges\": [", "\"merges\": [\"a b c\",", "model.merges[0]"},
        {"\"merges\": [", "\"merges\": [\"ab\",", "model.merges[0]"},
        {"\"merges\": [", "\"merges\": [[\"a\"],", "model.merges[0]"},
        {"\"merges\": [", "\"merges\": [[\"a\", \"b\", \"c\"],", "model.merges[0]"},
        {"\"merges\": [", "\"merges\": [[\"zq\", \"b\"],", "model.merges[0]"},
        {"\"merges\": [", "\"merges\": [],\"merges\": [", "duplicate"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        lathe_tokenizer *tok = parse_changed("gpt2", changes[i][0], changes[i][1]);
        cr_expect_null(tok, "%s is taken", changes[i][1]);
        cr_expect(strstr(lathe_error_message(), changes[i][2]), "%s: \"%s\" lacks \"%s\"",
                  changes[i][1], lathe_error_message(), changes[i][2]);
        lathe_tokenizer_destroy(tok);
    }
}

/* A file that is cut anywhere has no tables, and nothing after the cut is read. */
Test(token_tables, a_cut_file_has_none)
{
    int64_t n;
    char *text = read_golden("gpt2", &n);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    for (int64_t cut = 0; cut < n; cut += cut < 4000 || cut > n - 400 ? 1 : 13) {
        char *part = malloc((size_t)cut + 1);
        memcpy(part, text, (size_t)cut);
        part[cut] = 0;
        lathe_token_tables t;
        cr_assert_not(lathe__token_tables_read(part, cut, &t), "cut at %lld", (long long)cut);
        lathe__token_tables_fini(&t);
        free(part);
    }
    free(text);
}
