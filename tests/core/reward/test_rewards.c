/* The rewards of a run: the weighted sum, deadlines, and scores that are missing or not finite. */
#include "reward/rewards.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

/* Faults of the plugin at the completion "bad". */
enum { NAN_AT, INF_AT, SKIPS, HANGS, FAILS, FAILS_IN_SILENCE, SCORES };

typedef struct tester {
    int at_bad;
    double factor;
    atomic_int stop, calls;
} tester;

static lathe_status fail_at(tester *t)
{
    return t->at_bad == FAILS ? lathe_error(LATHE_E_IO, "the command ended: no such file")
                              : LATHE_E_IO;
}

/* The length of the completion, times a factor. */
static lathe_status score(void *self, const lathe_reward_item *items, int32_t n, double *out)
{
    tester *t = self;
    const struct timespec moment = {0, 1000000};
    atomic_fetch_add(&t->calls, 1);
    lathe_error_clear();
    for (int32_t i = 0; i < n; i++) {
        const int is_bad = strcmp(items[i].completion, "bad") == 0;
        if (is_bad && t->at_bad == HANGS) {
            while (!atomic_load(&t->stop))
                (void)nanosleep(&moment, NULL);
            return LATHE_E_INTERRUPTED;
        }
        if (is_bad && (t->at_bad == FAILS || t->at_bad == FAILS_IN_SILENCE))
            return fail_at(t);
        if (is_bad && t->at_bad == SKIPS)
            continue;
        out[i] = t->factor * (double)items[i].completion_bytes + (double)items[i].n_tokens / 8.0;
        if (is_bad && t->at_bad == NAN_AT)
            out[i] = (double)NAN;
        if (is_bad && t->at_bad == INF_AT)
            out[i] = -(double)INFINITY;
    }
    return LATHE_OK;
}

static void cancel(void *self)
{
    atomic_store(&((tester *)self)->stop, 1);
}

static const lathe_reward_v1 with_cancel = {.size = sizeof with_cancel,
                                            .revision = LATHE_REWARD_REVISION,
                                            .score = score,
                                            .cancel = cancel};
static const lathe_reward_v1 without_cancel = {
    .size = sizeof without_cancel, .revision = LATHE_REWARD_REVISION, .score = score};

static lathe_reward_item item(const char *completion, const char *record)
{
    static const int32_t tokens[4] = {1, 2, 3, 4};
    return (lathe_reward_item){.size = (uint32_t)sizeof(lathe_reward_item),
                               .n_tokens = 4,
                               .tokens = tokens,
                               .prompt = "p",
                               .prompt_bytes = 1,
                               .completion = completion,
                               .completion_bytes = (int64_t)strlen(completion),
                               .record = record,
                               .record_bytes = (int64_t)strlen(record)};
}

typedef struct fixture {
    tester testers[2];
    lathe_instance instances[2];
    lathe_reward_part parts[2];
    lathe_rewards *rewards;
} fixture;

static void open_with(fixture *f, int at_bad, const lathe_reward_v1 *table, double seconds)
{
    static const char *const labels[2] = {"length", "other"};
    static const lathe_plugin plugin = {.size = sizeof plugin, .kind = LATHE_KIND_REWARD};
    static const lathe_component component = {&plugin, "reward.so"};
    for (int i = 0; i < 2; i++) {
        f->testers[i].at_bad = i == 0 ? SCORES : at_bad;
        f->testers[i].factor = i == 0 ? 1.0 : 10.0;
        f->instances[i] = (lathe_instance){.component = &component,
                                           .table = i == 0 ? &with_cancel : table,
                                           .self = &f->testers[i]};
        f->parts[i] = (lathe_reward_part){.label = labels[i],
                                          .weight = i == 0 ? 1.0 : -0.25,
                                          .timeout_seconds = seconds,
                                          .instance = &f->instances[i]};
    }
    cr_assert_eq(lathe_rewards_create(f->parts, 2, &f->rewards), LATHE_OK);
}

/* Scores "good", "bad", "better" with a plugin that does `at_bad` at "bad"; the message must hold
 * the text. */
static lathe_status score_bad(fixture *f, int at_bad, const lathe_reward_v1 *table)
{
    const lathe_reward_item items[3] = {item("good", "{\"id\": 1}"), item("bad", "{\"id\": 2}"),
                                        item("better", "{\"id\": 3}")};
    double out[3];
    open_with(f, at_bad, table, at_bad == HANGS ? 0.5 : 30.0);
    return lathe_rewards_score(f->rewards, items, 3, (lathe_reward_stop){0}, out);
}

static void message_is(const char *expected)
{
    cr_expect_str_eq(lathe_error_message(), expected);
}

Test(rewards, scores_are_added_with_their_weights)
{
    static fixture f;
    const lathe_reward_item items[3] = {item("four", "{}"), item("", "{}"),
                                        item("\xe4\xbd\xa0\xe5\xa5\xbd", "{}")};
    double out[3];
    open_with(&f, SCORES, &with_cancel, 30.0);
    for (int pass = 0; pass < 2; pass++) {
        cr_assert_eq(lathe_rewards_score(f.rewards, items, 3, (lathe_reward_stop){0}, out),
                     LATHE_OK);
        for (int i = 0; i < 3; i++) {
            const double bytes = (double)items[i].completion_bytes;
            cr_expect_eq(lathe_rewards_scores(f.rewards, 0)[i], bytes + 0.5);
            cr_expect_eq(lathe_rewards_scores(f.rewards, 1)[i], 10.0 * bytes + 0.5);
            cr_expect_eq(out[i], bytes + 0.5 - 0.25 * (10.0 * bytes + 0.5));
        }
    }
    cr_expect_eq(lathe_rewards_count(f.rewards), 2);
    cr_expect_str_eq(lathe_rewards_label(f.rewards, 1), "other");
    cr_assert_eq(lathe_rewards_score(f.rewards, items, 0, (lathe_reward_stop){0}, out), LATHE_OK);
    cr_expect_eq(atomic_load(&f.testers[0].calls), 2, "no completions, no call");
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, items_are_copied_before_another_thread_reads_them)
{
    static fixture f;
    char text[] = "four";
    lathe_reward_item one = item(text, "{}");
    double out[1];
    open_with(&f, SCORES, &with_cancel, 30.0);
    cr_assert_eq(lathe_rewards_score(f.rewards, &one, 1, (lathe_reward_stop){0}, out), LATHE_OK);
    cr_expect_eq(out[0], 4.5 - 0.25 * 40.5);
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, a_score_that_is_not_a_number_names_reward_completion_and_record)
{
    static fixture f;
    cr_expect_eq(score_bad(&f, NAN_AT, &with_cancel), LATHE_E_NUMERIC);
    message_is("reward \"other\" gave nan, expected a finite number, for completion 2 of 3, record "
               "{\"id\": 2}");
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, an_infinite_score_is_refused)
{
    static fixture f;
    cr_expect_eq(score_bad(&f, INF_AT, &with_cancel), LATHE_E_NUMERIC);
    message_is("reward \"other\" gave -inf, expected a finite number, for completion 2 of 3, "
               "record {\"id\": 2}");
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, a_score_that_was_not_written_is_refused)
{
    static fixture f;
    cr_expect_eq(score_bad(&f, SKIPS, &with_cancel), LATHE_E_PLUGIN);
    message_is("reward \"other\" gave no score for completion 2 of 3, record {\"id\": 2}");
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, an_error_of_a_plugin_names_the_first_completion_without_a_score)
{
    static fixture f;
    cr_expect_eq(score_bad(&f, FAILS, &with_cancel), LATHE_E_IO);
    message_is("reward \"other\": the command ended: no such file; at completion 2 of 3, record "
               "{\"id\": 2}");
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, an_error_without_a_message_says_what_the_code_means)
{
    static fixture f;
    cr_expect_eq(score_bad(&f, FAILS_IN_SILENCE, &with_cancel), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), lathe_status_text(LATHE_E_IO)), "%s",
                       lathe_error_message());
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, a_reward_that_hangs_is_cancelled_and_named)
{
    static fixture f;
    cr_expect_eq(score_bad(&f, HANGS, &with_cancel), LATHE_E_PLUGIN);
    message_is("reward \"other\" did not return within reward.timeout_seconds = 0.5; it has scored "
               "1 of 3 completions, the next is completion 2 of 3, record {\"id\": 2}");
    cr_expect_eq(atomic_load(&f.testers[1].stop), 1);
    lathe_rewards_destroy(f.rewards);
    cr_expect_not_null(f.instances[1].component, "it returned, so that its instance may be freed");
}

Test(rewards, a_reward_that_never_returns_keeps_its_instance)
{
    static fixture f;
    cr_expect_eq(score_bad(&f, HANGS, &without_cancel), LATHE_E_PLUGIN);
    cr_expect_not_null(strstr(lathe_error_message(), "did not return within"), "%s",
                       lathe_error_message());
    lathe_rewards_destroy(f.rewards);
    cr_expect_null(f.instances[1].component);
    cr_expect_not_null(f.instances[0].component);
    atomic_store(&f.testers[1].stop, 1);
}

Test(rewards, a_long_record_is_cut_between_characters)
{
    static fixture f;
    char record[600] = "{\"a\": \"";
    for (int i = 0; i < 100; i++)
        strcat(record, "\xe4\xbd\xa0");
    strcat(record, "\"}");
    lathe_reward_item one = item("bad", record);
    double out[1];
    open_with(&f, NAN_AT, &with_cancel, 30.0);
    cr_expect_eq(lathe_rewards_score(f.rewards, &one, 1, (lathe_reward_stop){0}, out),
                 LATHE_E_NUMERIC);
    const char *message = lathe_error_message(), *end = strstr(message, "...");
    cr_assert_not_null(end, "%s", message);
    cr_expect_str_eq(end, "...");
    cr_expect_eq(memcmp(end - 3, "\xe4\xbd\xa0", 3), 0);
    lathe_rewards_destroy(f.rewards);
}

static lathe_status model_score(void *arg, const lathe_reward_item *items, int32_t n, double *out)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = *(double *)arg * (double)items[i].n_tokens;
    return LATHE_OK;
}

Test(rewards, a_reward_model_scores_on_the_calling_thread_beside_plugins)
{
    static fixture f;
    static double factor = 3.0;
    const lathe_reward_item one = item("four", "{}");
    double out[1];
    open_with(&f, SCORES, &with_cancel, 30.0);
    lathe_rewards_destroy(f.rewards);
    f.parts[1].instance = NULL;
    cr_assert_eq(lathe_rewards_create(f.parts, 2, &f.rewards), LATHE_OK);
    cr_expect_eq(lathe_rewards_score(f.rewards, &one, 1, (lathe_reward_stop){0}, out),
                 LATHE_E_STATE);
    lathe_rewards_set_model(f.rewards, 1, model_score, &factor);
    cr_assert_eq(lathe_rewards_score(f.rewards, &one, 1, (lathe_reward_stop){0}, out), LATHE_OK);
    cr_expect_eq(out[0], 4.5 - 0.25 * 12.0);
    lathe_rewards_destroy(f.rewards);
}

Test(rewards, a_sum_that_is_too_large_is_refused)
{
    static fixture f;
    static double factor = 5e37; /* for each of four bytes */
    const lathe_reward_item one = item("four", "{}");
    double out[1];
    open_with(&f, SCORES, &with_cancel, 30.0);
    lathe_rewards_destroy(f.rewards);
    f.parts[1].instance = NULL;
    f.parts[1].weight = 1e6;
    cr_assert_eq(lathe_rewards_create(f.parts, 2, &f.rewards), LATHE_OK);
    lathe_rewards_set_model(f.rewards, 1, model_score, &factor);
    cr_expect_eq(lathe_rewards_score(f.rewards, &one, 1, (lathe_reward_stop){0}, out),
                 LATHE_E_NUMERIC);
    message_is("the weighted sum of the rewards is too large for a number, for completion 1 of 1, "
               "record {}");
    factor = 2.5e307; /* finite, and its square is not */
    cr_expect_eq(lathe_rewards_score(f.rewards, &one, 1, (lathe_reward_stop){0}, out),
                 LATHE_E_NUMERIC);
    message_is("reward \"other\" gave 1e+308, expected a number from -3.4e38 to 3.4e38, for "
               "completion 1 of 1, record {}");
    lathe_rewards_destroy(f.rewards);
}
