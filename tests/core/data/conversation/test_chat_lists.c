/* Records whose columns are lists of messages: tokens as TRL's, sharegpt records, refusals. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "chat/template/chat_template.h"
#include "data/records/corpus.h"
#include "data/rows/shards.h"
#include "tokenizer/json/tokenizer_file.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/chat_lists/"
#define PLAIN                                                                                      \
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}"                           \
    "{{ 'a' if add_generation_prompt }}"
#define CALLS                                                                                      \
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }}"                                        \
    "{{ m.tool_calls[0].function.name if m.tool_calls }};{% endfor %}"                             \
    "{{ 'a' if add_generation_prompt }}"

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;
static lathe_shards *shards;
static lathe_chat_template *chat;

static void setup(void)
{
    strcpy(root, "/tmp/lathe_lists_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
}

static void teardown(void)
{
    lathe_shards_destroy(shards);
    lathe_chat_template_destroy(chat);
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_tokenizer_destroy(raw);
    lathe_arena_fini(&arena);
}

TestSuite(chat_lists, .init = setup, .fini = teardown);

static void compare(const char *kind, const char *name, int32_t rows)
{
    const int64_t step = rows == LATHE_ROWS_PAIRS ? 3 : 2;
    char path[512];
    lathe_tokenizer *tok;
    json_t *golden;
    int32_t ids[512];
    snprintf(path, sizeof path, LATHE_TEST_DATA "/golden/data/tokenizer/%s.json", name);
    cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK);
    snprintf(path, sizeof path, GOLDEN "%s.jsonl", kind);
    const lathe_dataset dataset = {.path = path, .type = LATHE_DATASET_JSONL, .chat = chat};
    cr_assert_eq(lathe_shards_prepare(&dataset, 1, rows, tok,
                                      lathe_path_join(&arena, root, "cache"), NULL, NULL, &shards),
                 LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_json_load_file(GOLDEN "want.json", &golden), LATHE_OK);
    const json_t *want = json_object_get(json_object_get(golden, kind), name);
    cr_assert_eq(lathe_shards_segments(shards), step * (int64_t)json_array_size(want));
    for (int64_t i = 0; i < lathe_shards_segments(shards); i++) {
        const json_t *list =
            json_array_get(json_array_get(want, (size_t)(i / step)), (size_t)(i % step));
        const int64_t begin = lathe_shards_offset(shards, i);
        const int64_t n = lathe_shards_offset(shards, i + 1) - begin;
        cr_assert_eq(n, (int64_t)json_array_size(list), "%s %s record %lld part %lld: %lld tokens",
                     kind, name, (long long)(i / step), (long long)(i % step), (long long)n);
        cr_assert_leq(n, 512);
        cr_assert_eq(lathe_shards_read(shards, begin, begin + n, ids), LATHE_OK);
        for (int64_t k = 0; k < n; k++)
            cr_expect_eq(ids[k], json_integer_value(json_array_get(list, (size_t)k)));
    }
    json_decref(golden);
    lathe_shards_destroy(shards);
    shards = NULL;
    lathe_tokenizer_destroy(tok);
}

Test(chat_lists, pairs_and_completions_of_messages_have_the_tokens_of_trl)
{
    cr_assert_eq(lathe_chat_template_load(GOLDEN "template.jinja", &chat), LATHE_OK, "%s",
                 lathe_error_message());
    compare("pairs", "gpt2", LATHE_ROWS_PAIRS);
    compare("pairs", "llama3", LATHE_ROWS_PAIRS);
    compare("completions", "gpt2", LATHE_ROWS_UNPAIRED);
    compare("completions", "llama3", LATHE_ROWS_UNPAIRED);
}

static lathe_status prepare(const char *data, int32_t rows)
{
    const char *path = lathe_path_join(&arena, root, "d.jsonl");
    cr_assert_eq(lathe_file_write_atomic(path, data, (int64_t)strlen(data)), LATHE_OK);
    if (!chat)
        cr_assert_eq(lathe_chat_template_create("t", PLAIN, (int64_t)strlen(PLAIN), NULL, &chat),
                     LATHE_OK);
    const lathe_dataset dataset = {.path = path, .type = LATHE_DATASET_AUTO, .chat = chat};
    lathe_shards_destroy(shards);
    shards = NULL;
    return lathe_shards_prepare(&dataset, 1, rows, raw, lathe_path_join(&arena, root, "cache"),
                                NULL, NULL, &shards);
}

/* The tokens of all segments as text; those that are no targets stand in [] for masked rows. */
static const char *stream(void)
{
    static char text[512];
    int32_t ids[400], targets[400];
    const int64_t n = lathe_shards_tokens(shards);
    size_t k = 0;
    cr_assert_leq(n, 200);
    cr_assert_eq(lathe_shards_read(shards, 0, n, ids), LATHE_OK);
    memcpy(targets, ids, sizeof targets);
    lathe_shards_mask(shards, 0, n, targets);
    for (int64_t i = 0; i < n; i++) {
        if (targets[i] < 0 && (i == 0 || targets[i - 1] >= 0))
            text[k++] = '[';
        text[k++] = ids[i] == 256 ? '|' : (char)ids[i];
        if (targets[i] < 0 && (i + 1 == n || targets[i + 1] >= 0))
            text[k++] = ']';
    }
    text[k] = '\0';
    return text;
}

Test(chat_lists, sharegpt_conversations_are_found_from_their_columns)
{
    cr_assert_eq(
        prepare("{\"conversations\": [{\"from\": \"human\", \"value\": \"hi\"}, {\"from\": "
                "\"gpt\", \"value\": \"yo\"}], \"system\": \"S\"}\n",
                LATHE_ROWS_COMPLETIONS),
        LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "[sS;uhi;a]yo;");
    cr_assert_eq(prepare("{\"conversations\": [{\"from\": \"human\", \"value\": \"hi\"}], "
                         "\"chosen\": {\"from\": \"gpt\", \"value\": \"yo\"}, \"rejected\": "
                         "{\"from\": \"gpt\", \"value\": \"no\"}}\n",
                         LATHE_ROWS_PAIRS),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "uhi;ayo;no;");
    lathe_chat_template_destroy(chat);
    cr_assert_eq(lathe_chat_template_create("t", CALLS, (int64_t)strlen(CALLS), NULL, &chat),
                 LATHE_OK);
    cr_assert_eq(
        prepare("{\"conversations\": [{\"from\": \"human\", \"value\": \"2\"}, {\"from\": "
                "\"function_call\", \"value\": \"{\\\"name\\\": \\\"f\\\", "
                "\\\"arguments\\\": {}}\"}, {\"from\": \"observation\", \"value\": \"4\"}, "
                "{\"from\": \"gpt\", \"value\": \"4\"}]}\n",
                LATHE_ROWS_COMPLETIONS),
        LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "[u2;a]f;[t4;a]4;");
    /* an integer beyond 64 bits keeps its digits, as in any other JSON text of a record */
    cr_assert_eq(prepare("{\"conversations\": [{\"from\": \"human\", \"value\": \"2\"}, {\"from\": "
                         "\"function_call\", \"value\": \"{\\\"name\\\": \\\"f\\\", "
                         "\\\"arguments\\\": {\\\"x\\\": 123456789012345678901234567890}}\"}]}\n",
                         LATHE_ROWS_COMPLETIONS),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "[u2;a]f;");
}

static void refuse(const char *data, int32_t rows, const char *message);

#define ALPACA                                                                                     \
    "{\"instruction\": \"1\", \"input\": \"2\", \"output\": \"3\", \"system\": \"S\", "            \
    "\"history\": "                                                                                \
    "[[\"h\", \"y\"]], \"kto_tag\": true}\n"                                                       \
    "{\"instruction\": \"4\", \"input\": \"\", \"output\": \"5\", \"system\": null}\n"

/* Like LLaMA-Factory, Lathe reads them as conversations, with the template; without one they are
 * texts. */
Test(chat_lists, alpaca_records_are_conversations)
{
    cr_assert_eq(prepare(ALPACA, LATHE_ROWS_COMPLETIONS), LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "[sS;uh;a]y;[u1\n2;a]3;[u4;a]5;");
    cr_assert_eq(prepare(ALPACA, LATHE_ROWS_UNPAIRED), LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "sS;uh;ay;u1\n2;a3;u4;a5;");
    cr_expect_eq(lathe_shards_offset(shards, 1), (int64_t)strlen("sS;uh;ay;u1\n2;a"));
    cr_assert_eq(prepare("{\"instruction\": \"1\", \"chosen\": \"2\", \"rejected\": \"3\"}\n",
                         LATHE_ROWS_PAIRS),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "u1;a2;3;");
    refuse("{\"instruction\": \"1\", \"output\": \"2\", \"history\": [\"h\"]}\n",
           LATHE_ROWS_COMPLETIONS,
           "d.jsonl:1: column \"history\" is no list of pairs of strings, [question, answer]");
    refuse("{\"instruction\": \"1\", \"output\": \"2\", \"input\": 3}\n", LATHE_ROWS_COMPLETIONS,
           "d.jsonl:1: column \"input\" is not a string");
}

Test(chat_lists, alpaca_rows_of_csv_are_conversations)
{
    static const char rows[] = "instruction,input,output,system\n\"say \"\"x\"\"\",,y,\n1,2,3,S\n";
    const char *path = lathe_path_join(&arena, root, "a.csv");
    cr_assert_eq(lathe_file_write_atomic(path, rows, (int64_t)strlen(rows)), LATHE_OK);
    cr_assert_eq(lathe_chat_template_create("t", PLAIN, (int64_t)strlen(PLAIN), NULL, &chat),
                 LATHE_OK);
    const lathe_dataset dataset = {.path = path, .type = LATHE_DATASET_CSV, .chat = chat};
    cr_assert_eq(lathe_shards_prepare(&dataset, 1, LATHE_ROWS_COMPLETIONS, raw,
                                      lathe_path_join(&arena, root, "cache"), NULL, NULL, &shards),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "[usay \"x\";a]y;[sS;u1\n2;a]3;");
}

Test(chat_lists, an_unpaired_conversation_ends_with_its_completion)
{
    cr_assert_eq(
        prepare("{\"conversations\": [{\"from\": \"human\", \"value\": \"hi\"}, {\"from\": "
                "\"gpt\", \"value\": \"yo\"}], \"system\": \"S\", \"kto_tag\": true}\n"
                "{\"messages\": [{\"role\": \"user\", \"content\": \"1\"}, {\"role\": "
                "\"assistant\", \"content\": \"2\"}, {\"role\": \"user\", \"content\": "
                "\"3\"}, {\"role\": \"assistant\", \"content\": \"4\"}]}\n",
                LATHE_ROWS_UNPAIRED),
        LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "sS;uhi;ayo;u1;a2;u3;a4;");
    cr_assert_eq(lathe_shards_segments(shards), 4);
    cr_expect_eq(lathe_shards_offset(shards, 1), (int64_t)strlen("sS;uhi;a"));
    cr_expect_eq(lathe_shards_offset(shards, 3) - lathe_shards_offset(shards, 2),
                 (int64_t)strlen("u1;a2;u3;a"));
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"1\"}]}\n", LATHE_ROWS_UNPAIRED,
           "d.jsonl:1: \"messages\" ends without an answer; expected a message of the assistant at "
           "its end, which is the completion");
}

static void refuse(const char *data, int32_t rows, const char *message)
{
    cr_expect_neq(prepare(data, rows), LATHE_OK);
    cr_expect_not_null(strstr(lathe_error_message(), message), "%s", lathe_error_message());
}

Test(chat_lists, lists_that_cannot_be_used_are_named_by_line_and_column)
{
    refuse("{\"prompt\": \"a\", \"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n",
           LATHE_ROWS_COMPLETIONS,
           "d.jsonl:1: column \"prompt\" is not a list of messages, but another column is");
    refuse("{\"chosen\": [], \"rejected\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n",
           LATHE_ROWS_PAIRS, "d.jsonl:1: column \"chosen\" is an empty list");
    refuse("{\"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n",
           LATHE_ROWS_COMPLETIONS, "there is no prompt");
    refuse("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"chosen\": [{\"role\": "
           "\"user\", \"content\": \"b\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": "
           "\"c\"}]}\n",
           LATHE_ROWS_PAIRS,
           "d.jsonl:1: column \"chosen\" begins with a message of role \"user\", but \"prompt\" is "
           "the prompt; expected an answer");
    refuse("{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": "
           "\"function_call\", \"value\": \"f()\"}]}\n",
           LATHE_ROWS_COMPLETIONS,
           "d.jsonl:1: message 2 is from \"function_call\", but its value is no JSON of a call");
    refuse("{\"conversations\": [{\"from\": \"humn\", \"value\": \"hi\"}]}\n",
           LATHE_ROWS_COMPLETIONS, "d.jsonl:1: message 1 is from \"humn\"; expected human, gpt");
}

Test(chat_lists, a_tokenizer_learned_from_data_reads_the_contents_of_messages)
{
    const char *path = lathe_path_join(&arena, root, "d.jsonl");
    const char *data = "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": "
                       "\"assistant\", \"content\": \"two\"}]}\n{\"text\": \"three\"}\n";
    const lathe_dataset dataset = {.path = path, .type = LATHE_DATASET_AUTO};
    const char *text;
    lathe_corpus *corpus;
    int64_t n;
    cr_assert_eq(lathe_file_write_atomic(path, data, (int64_t)strlen(data)), LATHE_OK);
    cr_assert_eq(lathe_corpus_open(&dataset, 1, LATHE_ROWS_PACKED, &corpus), LATHE_OK);
    cr_assert_eq(lathe_corpus_next(corpus, &text, &n), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(n, 8);
    cr_expect_eq(memcmp(text, "one\ntwo\n", 8), 0);
    cr_assert_eq(lathe_corpus_next(corpus, &text, &n), LATHE_OK);
    cr_assert_eq(n, 5);
    cr_assert_eq(lathe_corpus_next(corpus, &text, &n), LATHE_OK);
    cr_expect_null(text);
    lathe_corpus_close(corpus);
}

#define CALL                                                                                       \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": "     \
    "\"f\"}}]}"
#define SAY(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"

/* The calls of the prompt are not learnt: they are told, and the record stays. */
Test(chat_lists, answers_that_are_only_unwritten_calls_are_left_out)
{
    cr_assert_eq(
        prepare("{\"prompt\": [" SAY("user", "q") "], \"chosen\": [" CALL "], \"rejected\": [" SAY(
                    "assistant",
                    "b") "]}\n"
                         "{\"prompt\": [" SAY("user", "q") ", " CALL ", " SAY(
                             "tool",
                             "7") "], \"chosen\": [" SAY("assistant",
                                                         "a") "], \"rejected\": [" SAY("assistant",
                                                                                       "b") "]}\n",
                LATHE_ROWS_PAIRS),
        LATHE_OK, "%s", lathe_error_message());
    const lathe_record_counts *c = &lathe_shards_set_get(shards, 0)->counts;
    cr_expect_str_eq(stream(), "uq;a;t7;aa;b;");
    cr_expect_eq(c->left[LATHE_LEFT_CALLS].n, 1);
    cr_expect_eq(LATHE_SHARD_LINE_LINE(c->left[LATHE_LEFT_CALLS].first), 1);
    cr_expect_eq(c->unwritten[LATHE_UNWRITTEN_CALLS].n, 1);
    cr_expect_eq(LATHE_SHARD_LINE_LINE(c->unwritten[LATHE_UNWRITTEN_CALLS].first), 2);
    cr_assert_eq(
        prepare("{\"messages\": [" SAY("user", "q") ", " CALL "], \"label\": true}\n"
                                                    "{\"messages\": [" SAY("user", "q") ", " SAY(
                                                        "assistant", "a") "], \"label\": false}\n",
                LATHE_ROWS_UNPAIRED),
        LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "uq;aa;");
    cr_expect_eq(lathe_shards_set_get(shards, 0)->counts.left[LATHE_LEFT_CALLS].n, 1);
}

#define PAIR(chosen, rejected) "{\"chosen\": [" chosen "], \"rejected\": [" rejected "]}\n"
#define U(text) SAY("user", text)
#define A(text) SAY("assistant", text)

/* Pairs without a prompt may differ in what the assistant says, and after that in anything. */
Test(chat_lists, pairs_of_different_prompts_are_left_out_and_counted)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    cr_assert_eq(prepare(PAIR(U("q") ", " A("b"), U("q") ", " A("c")) /* uq;a b; c; */
                         PAIR(U("q") ", " A("b"), U("r") ", " A("c")) /* left out */
                         PAIR(SAY("system", "s") ", " U("q") ", " A("b"),
                              SAY("system", "s") ", " U("r") ", " A("c")) /* left out */
                         PAIR(U("q") ", " A("b"), A("c"))                 /* left out */
                         PAIR(U("q") ", " A("b") ", " U("x") ", " A("d"),
                              U("q") ", " A("c") ", " U("y") ", " A("e")),
                         LATHE_ROWS_PAIRS),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(stream(), "uq;ab;c;uq;ab;ux;ad;c;uy;ae;");
    const lathe_shards_set *set = lathe_shards_set_get(shards, 0);
    cr_expect_eq(set->counts.left[LATHE_LEFT_PROMPTS].n, 3);
    lathe_shards_put_left(shards, set, LATHE_LEFT_PROMPTS, &text);
    cr_expect_not_null(
        strstr(text.data, "3 pairs have different prompts in chosen and rejected: "));
    cr_expect_not_null(strstr(text.data, "d.jsonl:2, ..."), "%s", text.data);
    lathe_buffer_fini(&text);
}
