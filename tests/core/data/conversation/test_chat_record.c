/* Conversations of a dataset: their tokens in shards, and which of them are targets. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "chat/template/chat_template.h"
#include "data/rows/shards.h"
#include "tokenizer/json/tokenizer_file.h"

#define PLAIN                                                                                      \
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}"                           \
    "{{ 'a' if add_generation_prompt }}"
#define MARKED                                                                                     \
    "{% for m in messages %}{{ m.role[0] }}{% generation %}{{ m.content if m.role == 'assistant' " \
    "}}{% endgeneration %}{{ m.content if m.role != 'assistant' }};{% endfor %}"

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;
static lathe_shards *shards;
static lathe_chat_template *chat;

static void setup(void)
{
    strcpy(root, "/tmp/lathe_talk_XXXXXX");
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

TestSuite(chat_record, .init = setup, .fini = teardown);

static lathe_status prepare(const char *tpl, const char *data, int32_t rows, const char *messages)
{
    const char *path = lathe_path_join(&arena, root, "d.jsonl");
    lathe_dataset dataset = {.path = path, .type = LATHE_DATASET_AUTO};
    dataset.messages = messages;
    cr_assert_eq(lathe_file_write_atomic(path, data, (int64_t)strlen(data)), LATHE_OK);
    if (tpl)
        cr_assert_eq(lathe_chat_template_create("t", tpl, (int64_t)strlen(tpl), NULL, &chat),
                     LATHE_OK, "%s", lathe_error_message());
    dataset.chat = chat;
    dataset.no_chat = "there is none";
    return lathe_shards_prepare(&dataset, 1, rows, raw, lathe_path_join(&arena, root, "cache"),
                                NULL, NULL, &shards);
}

/* One character per token of the stream: the token's own if it is a target, else `_`. */
static void check_targets(const char *want)
{
    const int64_t n = lathe_shards_tokens(shards);
    int32_t ids[200];
    cr_assert_eq(n, (int64_t)strlen(want), "%lld tokens", (long long)n);
    cr_assert_eq(lathe_shards_read(shards, 0, n, ids), LATHE_OK);
    lathe_shards_mask(shards, 0, n, ids);
    for (int64_t i = 0; i < n; i++)
        cr_expect_eq(ids[i] < 0 ? '_' : ids[i], want[i], "token %lld", (long long)i);
}

#define TALK                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "        \
    "\"content\": \"yo\"}, {\"role\": \"user\", \"content\": \"?\"}, {\"role\": \"assistant\", "   \
    "\"content\": \"!\"}]}\n"

Test(chat_record, every_answer_is_learnt_with_the_end_of_its_turn)
{
    cr_assert_eq(prepare(PLAIN, TALK TALK, LATHE_ROWS_COMPLETIONS, NULL), LATHE_OK, "%s",
                 lathe_error_message());
    check_targets("_____yo;____!;_____yo;____!;");
    cr_expect_eq(lathe_shards_segments(shards), 2);
}

Test(chat_record, what_the_template_marks_is_learnt)
{
    cr_assert_eq(prepare(MARKED, TALK, LATHE_ROWS_COMPLETIONS, NULL), LATHE_OK, "%s",
                 lathe_error_message());
    check_targets("_____yo_____!_");
}

Test(chat_record, pretraining_learns_all_of_a_conversation)
{
    cr_assert_eq(prepare(PLAIN, TALK, LATHE_ROWS_PACKED, NULL), LATHE_OK, "%s",
                 lathe_error_message());
    check_targets("uhi;ayo;u?;a!;");
}

Test(chat_record, conversations_without_an_answer_are_left_out_and_counted)
{
    cr_assert_eq(prepare(PLAIN,
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n" TALK,
                         LATHE_ROWS_COMPLETIONS, NULL),
                 LATHE_OK, "%s", lathe_error_message());
    check_targets("_____yo;____!;");
    cr_expect_eq(lathe_shards_skipped(shards), 1);
}

Test(chat_record, messages_may_have_another_name)
{
    cr_assert_eq(prepare(PLAIN,
                         "{\"completion\": \"c\", \"talk\": [{\"role\": \"assistant\", "
                         "\"content\": \"x\"}]}\n",
                         LATHE_ROWS_COMPLETIONS, "talk"),
                 LATHE_OK, "%s", lathe_error_message());
    check_targets("_x;");
}

Test(chat_record, a_text_comes_before_messages)
{
    cr_assert_eq(prepare(PLAIN, "{\"text\": \"c\", \"messages\": []}\n", LATHE_ROWS_PACKED, NULL),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(lathe_shards_tokens(shards), 2); /* c and the end of text */
}

Test(chat_record, a_character_that_is_several_tokens_counts_as_in_transformers)
{
    /* The mask of transformers (5.24) has every token with a byte of the part. */
    cr_assert_eq(prepare(MARKED,
                         "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\\u00e9\"}]}\n",
                         LATHE_ROWS_COMPLETIONS, NULL),
                 LATHE_OK, "%s", lathe_error_message());
    int32_t targets[5] = {0};
    cr_assert_eq(lathe_shards_tokens(shards), 5);
    lathe_shards_mask(shards, 0, 5, targets);
    static const int32_t want[5] = {-1, 0, 0, 0, -1}; /* a x \xc3 \xa9 ; */
    for (int i = 0; i < 5; i++)
        cr_expect_eq(targets[i], want[i], "token %d", i);
}

static void refuses(const char *tpl, const char *data, const char *message)
{
    cr_expect_neq(prepare(tpl, data, LATHE_ROWS_COMPLETIONS, NULL), LATHE_OK);
    cr_expect(strstr(lathe_error_message(), message), "%s", lathe_error_message());
}

Test(chat_record, messages_without_a_template_are_refused)
{
    refuses(NULL, TALK, "d.jsonl:1: the column \"messages\" needs a chat template: there is none");
}

Test(chat_record, errors_of_the_template_name_the_record)
{
    refuses("{{ raise_exception('no') }}", "\n" TALK, "d.jsonl:2: t:1:4: the template refuses: no");
}

Test(chat_record, a_record_of_another_form_names_the_record)
{
    refuses(PLAIN, TALK "{\"messages\": [1]}\n", "d.jsonl:2: message 1 is no object");
}

#define SAY(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"

Test(chat_record, each_cause_of_a_conversation_without_targets_is_counted_with_its_line)
{
    const char *data = "{\"messages\": [" SAY("user", "a") "]}\n" TALK "{\"messages\": [" SAY(
        "user", "a") ", " SAY("asistant",
                              "b") "]}\n"
                                   "{\"messages\": [" SAY(
                                       "user", "c") "]}\n"
                                                    "{\"prompt\": \"p\", \"completion\": \"\"}\n";
    lathe_buffer text = LATHE_BUFFER_INIT;
    cr_assert_eq(prepare(PLAIN, data, LATHE_ROWS_COMPLETIONS, NULL), LATHE_OK, "%s",
                 lathe_error_message());
    const lathe_shards_set *set = lathe_shards_set_get(shards, 0);
    cr_expect_eq(lathe_shards_skipped(shards), 4);
    cr_expect_eq(set->counts.left[LATHE_LEFT_NO_ANSWER].n, 2);
    cr_expect_eq(set->counts.left[LATHE_LEFT_UNKNOWN_ROLE].n, 1);
    cr_expect_eq(set->counts.left[LATHE_LEFT_EMPTY].n, 1);
    lathe_shards_put_left(shards, set, LATHE_LEFT_NO_ANSWER, &text);
    cr_expect_not_null(strstr(text.data, "2 conversations have no message of the assistant: "));
    cr_expect_not_null(strstr(text.data, "d.jsonl:1, ..."), "%s", text.data);
    lathe_buffer_fini(&text);
    lathe_shards_put_left(shards, set, LATHE_LEFT_UNKNOWN_ROLE, &text);
    cr_expect_not_null(strstr(text.data, "but one of the role \"asistant\": "), "%s", text.data);
    cr_expect_not_null(strstr(text.data, "d.jsonl:3"), "%s", text.data);
    lathe_buffer_fini(&text);
}

Test(chat_record, answers_that_the_template_does_not_mark_are_counted_as_masked)
{
    cr_expect_eq(prepare("{% for m in messages %}{{ m.content }}{% generation %}{% endgeneration "
                         "%}{% endfor %}",
                         TALK, LATHE_ROWS_COMPLETIONS, NULL),
                 LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(),
                              "left out: 1 conversation has answers, but the chat template marks "
                              "nothing to learn: "),
                       "%s", lathe_error_message());
}

/* A template in the manner of SmolLM2's, which adds a system message unless the first one is of
 * that role: the prompt of no messages has none, or cannot be written. */
Test(chat_record, a_conversation_that_begins_with_the_assistant_is_learnt)
{
    static const char tpl[] = "{% for m in messages %}{% if loop.first and messages[0].role != "
                              "'system' %}SYS;{% endif %}{{ m.role[0] }}{{ m.content }};{% endfor "
                              "%}{{ 'a' if add_generation_prompt }}";
    cr_assert_eq(prepare(tpl,
                         "{\"messages\": [" SAY("assistant", "hello") ", " SAY(
                             "user", "u") ", " SAY("assistant", "bye") "]}\n",
                         LATHE_ROWS_COMPLETIONS, NULL),
                 LATHE_OK, "%s", lathe_error_message());
    check_targets("_____hello;____bye;");
}

Test(chat_record, content_that_is_null_or_a_list_is_named_with_its_message)
{
    refuses("{% for m in messages %}{{ m.content + ';' }}{% endfor %}",
            TALK "{\"messages\": [" SAY("user", "a") ", {\"role\": \"assistant\", \"content\": "
                                                     "null}]}\n",
            "d.jsonl:2: message 2: \"content\" is null, and the chat template fails: t:1:");
}

Test(chat_record, a_list_as_content_is_named_with_its_message)
{
    refuses("{% for m in messages %}{{ m.content + ';' }}{% endfor %}",
            "{\"messages\": [{\"role\": \"user\", \"content\": []}]}\n",
            "d.jsonl:1: message 1: \"content\" is a list, and the chat template fails: t:1:");
}

static char warned[1024];

static void keep_warning(void *arg, int32_t level, const char *text)
{
    (void)arg;
    if (level == LATHE_LOG_WARN)
        (void)snprintf(warned, sizeof warned, "%s", text);
}

Test(chat_record, a_template_that_writes_the_date_is_told_of_when_data_are_prepared)
{
    lathe_log_set_sink(keep_warning, NULL);
    cr_assert_eq(prepare("{{ strftime_now('%Y') }}" PLAIN, TALK, LATHE_ROWS_PACKED, NULL), LATHE_OK,
                 "%s", lathe_error_message());
    cr_expect_not_null(strstr(warned, "the chat template writes the date (strftime_now)"), "%s",
                       warned);
    lathe_log_set_sink(NULL, NULL);
}

/* ---- calls and tools that the template does not write ---- */

#define CALL                                                                                       \
    "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "                   \
    "\"arguments\": {}}}]"
#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]"
#define CALLS                                                                                      \
    "{\"messages\": [" SAY("user", "a") ", {\"role\": \"assistant\", \"content\": \"\", " CALL     \
                                        "}, " SAY("tool", "7") ", " SAY("assistant",               \
                                                                        "b") "], " TOOLS "}\n"
#define CALLS_AND_TEXT                                                                             \
    "{\"messages\": [" SAY("user", "a") ", {\"role\": \"assistant\", \"content\": \"c\", " CALL    \
                                        "}]}\n"
#define TOOLS_ALONE "{\"messages\": [" SAY("user", "a") ", " SAY("assistant", "b") "], " TOOLS "}\n"

static void check_count(lathe_record_count c, int64_t n, int64_t line)
{
    cr_expect_eq(c.n, n, "%lld", (long long)c.n);
    cr_expect(n == 0 || LATHE_SHARD_LINE_LINE(c.first) == line, "%lld", (long long)c.first);
}

Test(chat_record, calls_that_the_template_does_not_write_are_counted)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    cr_assert_eq(prepare(PLAIN, TALK CALLS CALLS_AND_TEXT TOOLS_ALONE CALLS TOOLS_ALONE,
                         LATHE_ROWS_COMPLETIONS, NULL),
                 LATHE_OK, "%s", lathe_error_message());
    const lathe_shards_set *set = lathe_shards_set_get(shards, 0);
    check_targets("_____yo;____!;"
                  "___"
                  "_c;"
                  "____b;____b;");
    check_count(set->counts.left[LATHE_LEFT_CALLS], 2, 2);
    check_count(set->counts.unwritten[LATHE_UNWRITTEN_CALLS], 1, 3);
    check_count(set->counts.unwritten[LATHE_UNWRITTEN_TOOLS], 2, 4);
    cr_expect_eq(lathe_shards_skipped(shards), 2);
    lathe_shards_put_left(shards, set, LATHE_LEFT_CALLS, &text);
    cr_expect_not_null(strstr(text.data,
                              "2 records have an answer that is only calls of tools, and "
                              "the chat template does not write calls: "),
                       "%s", text.data);
    cr_expect_not_null(strstr(text.data, "d.jsonl:2, ..."), "%s", text.data);
    lathe_buffer_fini(&text);
    lathe_shards_put_unwritten(shards, set, LATHE_UNWRITTEN_TOOLS, &text);
    cr_expect_not_null(strstr(text.data, "2 records are used without their lists of tools, which "
                                         "the chat template does not write: "),
                       "%s", text.data);
    lathe_buffer_fini(&text);
}

Test(chat_record, calls_that_the_template_writes_are_learnt)
{
    cr_assert_eq(prepare("{% for m in messages %}{{ m.role[0] }}{% if m.tool_calls %}"
                         "{{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %};"
                         "{% endfor %}{{ 'a' if add_generation_prompt }}",
                         CALLS, LATHE_ROWS_COMPLETIONS, NULL),
                 LATHE_OK, "%s", lathe_error_message());
    const lathe_shards_set *set = lathe_shards_set_get(shards, 0);
    check_targets("____f;____b;");
    check_count(set->counts.left[LATHE_LEFT_CALLS], 0, 0);
    check_count(set->counts.unwritten[LATHE_UNWRITTEN_CALLS], 0, 0);
    check_count(set->counts.unwritten[LATHE_UNWRITTEN_TOOLS], 1, 1);
}

/* A template that cannot render a conversation without its calls needs them. */
Test(chat_record, calls_without_which_the_template_fails_are_written)
{
    cr_assert_eq(prepare("{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' and "
                         "not m.content and not m.tool_calls %}{{ raise_exception('empty') }}{% "
                         "endif %}{{ m.content }};{% endfor %}{{ 'a' if add_generation_prompt }}",
                         CALLS, LATHE_ROWS_COMPLETIONS, NULL),
                 LATHE_OK, "%s", lathe_error_message());
    check_count(lathe_shards_set_get(shards, 0)->counts.left[LATHE_LEFT_CALLS], 0, 0);
}
