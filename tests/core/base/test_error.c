/* The thread's error record. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "base/diag.h"
#include "base/error.h"

Test(error, keeps_code_and_message)
{
    cr_assert_eq(lathe_error(LATHE_E_SHAPE, "%s is %d", "rows", 3), LATHE_E_SHAPE);
    cr_assert_str_eq(lathe_error_message(), "rows is 3");
    lathe_error_clear();
    cr_assert_str_eq(lathe_error_message(), "");
}

Test(error, context_goes_before_the_message)
{
    (void)lathe_error(LATHE_E_IO, "cannot read");
    cr_assert_eq(lathe_error_context(LATHE_E_IO, "shard %d", 7), LATHE_E_IO);
    cr_assert_str_eq(lathe_error_message(), "shard 7: cannot read");
}

Test(error, may_quote_its_own_message)
{
    (void)lathe_error(LATHE_E_IO, "inner");
    (void)lathe_error(LATHE_E_PLUGIN, "outer (%s)", lathe_error_message());
    cr_assert_str_eq(lathe_error_message(), "outer (inner)");
}

Test(error, long_messages_are_cut_not_overrun)
{
    char text[9000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)lathe_error(LATHE_E_IO, "%s", text);
    const size_t n = strlen(lathe_error_message());
    cr_assert(n > 1000 && n < 8000);
    (void)lathe_error_context(LATHE_E_IO, "%s", text);
    cr_assert(strlen(lathe_error_message()) < 8000);
    (void)lathe_error(LATHE_E_IO, "%.*s", 4000, text);
    (void)lathe_error_context(LATHE_E_IO, "%.*s", 94, text);
    cr_assert_eq(strlen(lathe_error_message()), 4095);
}

static void *other_thread(void *arg)
{
    (void)lathe_error(LATHE_E_IO, "theirs");
    return arg;
}

Test(error, is_the_threads_own)
{
    pthread_t thread;
    (void)lathe_error(LATHE_E_IO, "ours");
    cr_assert_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_str_eq(lathe_error_message(), "ours");
}

Test(error, every_code_has_a_text)
{
    cr_assert_str_eq(lathe_status_text(LATHE_E_SHAPE), "shapes do not agree");
    cr_assert_str_eq(lathe_status_text(LATHE_OK), "success");
    cr_assert_str_eq(lathe_status_text(-999), "unknown status");
}

Test(error, keeps_its_place_beside_the_message)
{
    char words[64];
    cr_assert_eq(lathe_error_in(LATHE_E_PARSE, "a.json", 3, 7, "no %s", "comma"), LATHE_E_PARSE);
    cr_assert_str_eq(lathe_error_message(), "a.json:3:7: no comma");
    (void)lathe_error_suggest(LATHE_E_PARSE, "colon");
    (void)lathe_error_context(LATHE_E_PARSE, "shard %d", 7);
    cr_assert_str_eq(lathe_error_message(),
                     "shard 7: a.json:3:7: no comma (did you mean 'colon'?)");
    const lathe_place at = lathe_error_place();
    cr_assert_str_eq(at.file, "a.json");
    cr_expect(at.line == 3 && at.column == 7);
    cr_expect_str_eq(lathe_error_suggestion(), "colon");
    cr_expect_str_eq(lathe_error_words(words, sizeof words), "shard 7: no comma");
    (void)lathe_error_in(LATHE_E_PARSE, lathe_error_place().file, 4, 0, "b");
    cr_expect_str_eq(lathe_error_message(), "a.json:4: b");
    cr_expect_null(lathe_error_suggestion());
    (void)lathe_error(LATHE_E_PARSE, "c");
    cr_expect_null(lathe_error_place().file);
    (void)lathe_error_from(LATHE_E_PARSE, "d.jsonl", 2, 0);
    (void)lathe_error_from(LATHE_E_PARSE, "e.toml", 1, 1); /* the place is the innermost */
    cr_expect_str_eq(lathe_error_message(), "e.toml:1:1: d.jsonl:2: c");
    cr_expect_str_eq(lathe_error_place().file, "d.jsonl");
    cr_expect_str_eq(lathe_error_words(words, sizeof words), "e.toml:1:1: c");
}

/* The place of a record counts before that of the template or of the text that fails for it. */
Test(error, of_a_record_has_the_record_as_its_place)
{
    char words[64];
    (void)lathe_error_in(LATHE_E_CONFIG, "chat.jinja", 2, 5, "no orders");
    (void)lathe_error_in_record(LATHE_E_CONFIG, "a.jsonl", NULL, 3);
    (void)lathe_error_in_record(LATHE_E_CONFIG, "a.jsonl", NULL, 4); /* it has one in this file */
    cr_expect_str_eq(lathe_error_message(), "a.jsonl:3: chat.jinja:2:5: no orders");
    cr_expect_str_eq(lathe_error_words(words, sizeof words), "chat.jinja:2:5: no orders");
    lathe_place at = lathe_error_place();
    cr_expect(strcmp(at.file, "a.jsonl") == 0 && at.line == 3 && at.column == 0 && at.record == 0);
    (void)lathe_error(LATHE_E_CONFIG, "no column");
    (void)lathe_error_context(LATHE_E_CONFIG, "reward 1");
    lathe_kept_error kept;
    (void)lathe_error_in_record(LATHE_E_CONFIG, "b.parquet", "row", 7);
    lathe_error_keep(&kept);
    lathe_error_clear();
    (void)lathe_error_raise(LATHE_E_CONFIG, &kept);
    cr_expect_str_eq(lathe_error_message(), "b.parquet: row 7: reward 1: no column");
    cr_expect_str_eq(lathe_error_words(words, sizeof words), "reward 1: no column");
    at = lathe_error_place();
    cr_expect(strcmp(at.file, "b.parquet") == 0 && at.line == 0 && at.record == 7);
}

Test(error, of_diagnostics_is_a_list)
{
    lathe_diags diags = {0};
    const lathe_place places[] = {
        {"r.toml", 9, 1, 0}, {"r.toml", 2, 5, 0}, {"--train.seed", 0, 0, 0}};
    for (int i = 0; i < 6; i++) /* each twice */
        lathe_diags_add(&diags, LATHE_DIAG_ERROR, &places[i % 3], i % 3 == 1 ? "lr" : NULL, "x%d",
                        i % 3);
    lathe_diags_add(&diags, LATHE_DIAG_WARNING, &places[0], NULL, "w");
    cr_assert_eq(lathe_diags_status(&diags), LATHE_E_CONFIG);
    lathe_diags_fini(&diags);
    const lathe_diags *told = lathe_error_diags();
    cr_assert_not_null(told);
    cr_assert_eq(told->n, 3);
    cr_expect(told->items[0].place.line == 2 && strcmp(told->items[0].message, "x1") == 0);
    cr_expect_str_eq(told->items[0].suggestion, "lr");
    cr_expect_str_eq(told->items[2].place.file, "--train.seed");
    (void)lathe_error_context(LATHE_E_CONFIG, "step");
    cr_expect_eq(lathe_error_diags(), told);
    cr_expect_eq(lathe_error_context_bytes(), 6);
    (void)lathe_error(LATHE_E_IO, "another");
    cr_expect_null(lathe_error_diags());
}

/* Comparing each with all, and sorting by insertion, took half an hour for so many. */
Test(error, a_million_diagnostics_are_sorted_and_told_once, .timeout = 60)
{
    enum { N = 1000000 };
    lathe_diags diags = {0};
    for (int32_t i = 0; i < N; i++) {
        const lathe_place place = {.file = "r.toml", .line = N - i / 2, .column = 1};
        lathe_diags_add(&diags, LATHE_DIAG_ERROR, &place, NULL, "unknown key 'k%d'", i / 2);
    }
    cr_assert_eq(diags.n, N / 2);
    lathe_diags_sort(&diags);
    for (int64_t i = 1; i < diags.n; i++)
        cr_assert_lt(diags.items[i - 1].place.line, diags.items[i].place.line);
    lathe_diags_fini(&diags);
}
