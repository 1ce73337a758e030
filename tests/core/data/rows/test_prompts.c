/* Rows of prompts alone: their tokens and records, and the order in which they are given. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "chat/template/chat_template.h"
#include "data/rows/loader.h"
#include "tokenizer/json/tokenizer_file.h"

#define PLAIN                                                                                      \
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}"                           \
    "{{ 'a' if add_generation_prompt }}"

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;
static lathe_shards *shards;
static lathe_chat_template *chat;
static lathe_loader *loader;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_prompts_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
    cr_assert_eq(lathe_chat_template_create("t", PLAIN, (int64_t)strlen(PLAIN), NULL, &chat),
                 LATHE_OK);
}

static void teardown(void)
{
    lathe_loader_destroy(loader);
    lathe_shards_destroy(shards);
    lathe_chat_template_destroy(chat);
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_tokenizer_destroy(raw);
    lathe_arena_fini(&arena);
}

TestSuite(prompts, .init = setup, .fini = teardown);

static lathe_status prepare(const char *name, const char *text)
{
    const lathe_dataset dataset = {.path = at(name), .type = LATHE_DATASET_AUTO, .chat = chat};
    cr_assert_eq(lathe_file_write_atomic(at(name), text, (int64_t)strlen(text)), LATHE_OK);
    return lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PROMPTS, raw, at("cache"), NULL, NULL,
                                &shards);
}

static void open_loader(int32_t row_tokens, int32_t shuffled, int32_t rank, int32_t n_ranks,
                        int64_t n_epochs)
{
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = 2,
                                        .row_tokens = row_tokens,
                                        .no_shuffle = !shuffled,
                                        .rank = rank,
                                        .n_ranks = n_ranks,
                                        .seed = 3,
                                        .n_epochs = n_epochs,
                                        .n_prefetch = 2,
                                        .packing = LATHE_PACK_AUTO};
    lathe_loader_destroy(loader);
    loader = NULL;
    cr_assert_eq(lathe_loader_create(&config, &loader), LATHE_OK, "%s", lathe_error_message());
}

static void check_next(const char *tokens, const char *record)
{
    lathe_prompt_row p;
    int32_t n;
    cr_assert_eq(lathe_prompt_next(loader, 1, &p, &n), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(n, 1);
    cr_assert_eq(p.n_tokens, (int32_t)strlen(tokens), "%d tokens", p.n_tokens);
    for (int32_t i = 0; i < p.n_tokens; i++)
        cr_expect_eq(p.tokens[i], tokens[i]);
    cr_assert_eq(p.record_bytes, (int64_t)strlen(record), "%.*s", (int)p.record_bytes, p.record);
    cr_expect_eq(memcmp(p.record, record, strlen(record)), 0, "%.*s", (int)p.record_bytes,
                 p.record);
}

Test(prompts, are_texts_messages_or_token_ids_with_their_records)
{
    const char *text = "{\"prompt\": \"2+2\", \"answer\": \"4\"}\n"
                       "  {\"prompt\": [{\"role\": \"user\", \"content\": \"hi\"}], \"n\": [1]} \n"
                       "{\"prompt\": [65, 66]}\n"
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"yo\"}, {\"role\": "
                       "\"assistant\", \"content\": \"no\"}]}\n";
    cr_assert_eq(prepare("p.jsonl", text), LATHE_OK, "%s", lathe_error_message());
    open_loader(16, 0, 0, 1, 1);
    check_next("2+2", "{\"prompt\": \"2+2\", \"answer\": \"4\"}");
    check_next("uhi;a", "{\"prompt\": [{\"role\": \"user\", \"content\": \"hi\"}], \"n\": [1]}");
    check_next("AB", "{\"prompt\": [65, 66]}");
    check_next("uyo;a", "{\"messages\": [{\"role\": \"user\", \"content\": \"yo\"}, {\"role\": "
                        "\"assistant\", \"content\": \"no\"}]}");
    lathe_prompt_row p;
    int32_t n;
    cr_assert_eq(lathe_prompt_next(loader, 1, &p, &n), LATHE_OK);
    cr_expect_eq(n, 0, "the epoch is over");
}

Test(prompts, of_csv_have_their_row_as_an_object)
{
    cr_assert_eq(prepare("p.csv", "answer,prompt,\"a \"\"b\"\"\"\n4,2+2,\"x,\ny\"\n"), LATHE_OK,
                 "%s", lathe_error_message());
    open_loader(16, 0, 0, 1, 1);
    check_next("2+2", "{\"answer\": \"4\", \"prompt\": \"2+2\", \"a \\\"b\\\"\": \"x,\\ny\"}");
}

Test(prompts, that_fill_a_row_are_left_out_and_counted)
{
    lathe_loader_facts facts;
    cr_assert_eq(prepare("p.jsonl", "{\"prompt\": \"abcd\"}\n{\"prompt\": \"abc\"}\n"), LATHE_OK);
    open_loader(4, 0, 0, 1, 1);
    lathe_loader_facts_get(loader, &facts);
    cr_expect_eq(facts.n_left_out, 1);
    cr_expect_eq(facts.n_documents, 1);
    check_next("abc", "{\"prompt\": \"abc\"}");
}

/* Takes prompts from the loader in calls of `step`; out: the record of each. */
static void take(int32_t step, int32_t n, int64_t *out)
{
    lathe_prompt_row p[8];
    int32_t got;
    for (int32_t i = 0; i < n; i += step) {
        cr_assert_eq(lathe_prompt_next(loader, step, p, &got), LATHE_OK);
        cr_assert_eq(got, step);
        for (int32_t k = 0; k < step; k++)
            out[i + k] = p[k].index;
    }
}

Test(prompts, come_in_an_order_that_the_cursor_and_ranks_keep)
{
    char text[2048] = "";
    int64_t all[24], rest[12], first[12], second[12];
    lathe_cursor cursor;
    for (int i = 0; i < 10; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text),
                       "{\"prompt\": \"number %d\"}\n", i);
    cr_assert_eq(prepare("p.jsonl", text), LATHE_OK);
    open_loader(16, 1, 0, 1, 0);
    take(4, 24, all);
    open_loader(16, 1, 0, 1, 0);
    take(2, 12, rest);
    cr_expect_arr_eq(rest, all, sizeof rest, "the number of prompts of a call changes no order");
    lathe_loader_cursor(loader, &cursor);
    cr_expect_eq(cursor.epoch, 1);
    cr_expect_eq(cursor.index, 2);
    open_loader(16, 1, 0, 1, 0);
    cr_assert_eq(lathe_loader_seek(loader, &cursor), LATHE_OK);
    take(4, 12, rest);
    cr_expect_arr_eq(rest, all + 12, sizeof rest);
    open_loader(16, 1, 0, 2, 0);
    take(4, 12, first);
    open_loader(16, 1, 1, 2, 0);
    take(4, 12, second);
    for (int i = 0; i < 24; i++) /* calls of 4 in turn */
        cr_expect_eq(all[i], (i / 4 % 2 ? second : first)[i / 8 * 4 + i % 4], "prompt %d", i);
}

static void refuse(const char *text, const char *message)
{
    cr_expect_neq(prepare("bad.jsonl", text), LATHE_OK);
    cr_expect_not_null(strstr(lathe_error_message(), message), "%s", lathe_error_message());
    lathe_shards_destroy(shards);
    shards = NULL;
}

Test(prompts, that_cannot_be_read_are_named_by_line)
{
    refuse("{\"prompt\": \"a\"}\n{\"prompt\": [1, 999]}\n",
           "bad.jsonl:2: element 2 of \"prompt\" is no token id; expected whole numbers of 0 to");
    refuse("{\"prompt\": []}\n", "bad.jsonl:1: column \"prompt\" is an empty list");
    refuse("{\"prompt\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n",
           "bad.jsonl:1: \"prompt\" has no message before the assistant's");
    refuse("{\"text\": \"a\"}\n", "bad.jsonl:1: no column \"prompt\"");
}
