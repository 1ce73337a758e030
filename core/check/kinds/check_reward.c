/* Checks of rewards: scores are finite, depend on the item alone, and are given for every kind of
 * completion: empty, long, in any script, many at once. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/subject.h"
#include "check/kinds/checks.h"
#include "lathe/reward.h"
#include "reward/score_thread.h"

/* Columns that rewards often read, so that one with its default settings finds its own. */
#define RECORD                                                                                     \
    "{\"prompt\": \"6 * 7?\", \"text\": \"6 * 7 = 42\", \"completion\": \"42\", "                  \
    "\"answer\": \"6 * 7 is 42.\\n#### 42\", \"solution\": \"42\", \"target\": \"42\", "           \
    "\"label\": true, \"weight\": 1.5, \"tags\": [\"a\", \"b\"], \"extra\": {\"level\": 1}}"

enum { N_KINDS = 8, N_TOKENS = 300, N_MANY = 1000 };

/* One completion of each kind. */
static const struct {
    const char *name, *prompt, *completion;
    int64_t bytes; /* of the completion */
    int32_t n_tokens;
} kinds[N_KINDS] = {
    {"an answer", "6 * 7?", "6 * 7 = 42\n#### 42", 19, 12},
    {"an empty completion", "6 * 7?", "", 0, 0},
    {"an empty prompt", "", "42", 2, 1},
    {"white space", "6 * 7?", " \n\t ", 4, 2},
    {"many scripts", "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
     "\xe4\xbd\xa0\xe5\xa5\xbd \xd0\xbf\xd1\x80\xd0\xb8 \xf0\x9f\xa6\x8a e\xcc\x81 \xef\xbf\xbd",
     26, 9},
    {"quotes, escapes and a NUL", "\"", "\"\\\" \0 \x01\x7f {}[] \r\n", 16, 10},
    {"a wrong answer", "6 * 7?", "#### -1,234.5", 13, 8},
    {"a long completion", "Count.", NULL, 60000, N_TOKENS},
};

typedef struct batch {
    lathe_instance instance;
    const lathe_reward_v1 *table;
    lathe_reward_item *items; /* [n] */
    double *out;              /* [n], and one more */
    int32_t n;
} batch;

static const double canary = 0x1.23456789abcdep-3;

static void fill(lathe_reward_item *item, int kind, const char *text, const int32_t *tokens)
{
    *item = (lathe_reward_item){.size = (uint32_t)sizeof *item,
                                .n_tokens = kinds[kind].n_tokens,
                                .tokens = kinds[kind].n_tokens > 0 ? tokens : NULL,
                                .prompt = kinds[kind].prompt,
                                .prompt_bytes = (int64_t)strlen(kinds[kind].prompt),
                                .completion = text,
                                .completion_bytes = kinds[kind].bytes,
                                .record = RECORD,
                                .record_bytes = (int64_t)strlen(RECORD)};
}

/* Makes the items of a batch, of all kinds in turn, in new memory, which is guarded. */
static lathe_status place_items(lathe__subject *s, batch *out)
{
    char *texts[N_KINDS];
    const int32_t n = out->n;
    int32_t *tokens = lathe__memory(s, N_TOKENS * (int64_t)sizeof *tokens);
    out->items = lathe__memory(s, n * (int64_t)sizeof *out->items);
    out->out = lathe__memory(s, (n + 1) * (int64_t)sizeof *out->out);
    if (tokens == NULL || out->items == NULL || out->out == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = 3 + i * 7 % 1000;
    for (int k = 0; k < N_KINDS; k++) {
        texts[k] = lathe__memory(s, kinds[k].bytes + 1);
        if (texts[k] == NULL)
            return LATHE_E_NOMEM;
        for (int64_t i = 0; i < kinds[k].bytes; i++)
            texts[k][i] =
                kinds[k].completion != NULL ? kinds[k].completion[i] : "one two 3 "[i % 10];
    }
    for (int32_t i = 0; i < n; i++)
        fill(&out->items[i], i % N_KINDS, texts[i % N_KINDS], tokens);
    return LATHE_OK;
}

/* An instance and n items. */
static lathe_status start(lathe__subject *s, int32_t n, batch *out)
{
    *out = (batch){.table = s->table, .n = n};
    LATHE_TRY(place_items(s, out));
    return lathe__instance(s, &out->instance);
}

/* Scores items [from, from + n) and checks that score() wrote n numbers and no more. */
static lathe_status score(batch *b, const lathe_reward_item *items, int32_t n, double *out)
{
    for (int32_t i = 0; i < n; i++)
        lathe__score_clear(&b->out[i]);
    b->out[n] = canary;
    lathe_error_clear();
    const lathe_status status = b->table->score(b->instance.self, items, n, b->out);
    if (status != LATHE_OK && lathe_error_message()[0] == '\0')
        return lathe_error(status, "score() returns %d and records no message", status);
    LATHE_TRY(status);
    if (!lathe__same(&b->out[n], &canary, sizeof canary))
        return lathe_error(LATHE_E_PLUGIN, "score() of %d items wrote out[%d]", n, n);
    for (int32_t i = 0; i < n; i++) {
        const char *name = kinds[(&items[i] - b->items) % N_KINDS].name;
        if (!lathe__score_is_set(&b->out[i]))
            return lathe_error(LATHE_E_PLUGIN, "score() of %d items did not write out[%d] (%s)", n,
                               i, name);
        if (!isfinite(b->out[i]))
            return lathe_error(LATHE_E_NUMERIC, "the score of %s is %g", name, b->out[i]);
    }
    memcpy(out, b->out, (size_t)n * sizeof *out);
    return LATHE_OK;
}

static lathe_status compare(const double *a, const double *b, int32_t n, const char *when)
{
    for (int32_t i = 0; i < n; i++)
        if (!lathe__same(&a[i], &b[i], sizeof a[i]))
            return lathe_error(LATHE_E_PLUGIN, "%s, the score of %s is %.17g instead of %.17g",
                               when, kinds[i % N_KINDS].name, b[i], a[i]);
    return LATHE_OK;
}

static lathe_status scores_are_finite(lathe__subject *s)
{
    batch b;
    double scores[N_KINDS];
    LATHE_TRY(start(s, N_KINDS, &b));
    const lathe_status status = score(&b, b.items, N_KINDS, scores);
    if (status == LATHE_OK)
        lathe__note(s, "an answer scores %g, an empty completion %g", scores[0], scores[1]);
    lathe_instance_fini(&b.instance);
    return status;
}

static lathe_status same_items_same_scores(lathe__subject *s)
{
    batch b;
    double first[N_KINDS], again[N_KINDS];
    LATHE_TRY(start(s, N_KINDS, &b));
    lathe_status status = score(&b, b.items, N_KINDS, first);
    for (int i = 0; i < 3 && status == LATHE_OK; i++) {
        status = score(&b, b.items, N_KINDS, again);
        if (status == LATHE_OK)
            status = compare(first, again, N_KINDS, "the second time");
    }
    lathe_instance_fini(&b.instance);
    return status;
}

/* A resumed run makes other batches, at other addresses. */
static lathe_status batches_do_not_matter(lathe__subject *s)
{
    batch b;
    double all[N_KINDS], alone[N_KINDS];
    LATHE_TRY(start(s, N_KINDS, &b));
    lathe_status status = score(&b, b.items, N_KINDS, all);
    if (status == LATHE_OK && lathe__memory(s, 1000) != NULL) /* an odd distance */
        status = place_items(s, &b);
    for (int i = N_KINDS - 1; i >= 0 && status == LATHE_OK; i--)
        status = score(&b, &b.items[i], 1, &alone[i]);
    if (status == LATHE_OK)
        status = compare(all, alone, N_KINDS, "alone and in another order");
    lathe_instance_fini(&b.instance);
    return status;
}

static lathe_status takes_many_items(lathe__subject *s)
{
    batch b;
    LATHE_TRY(start(s, N_MANY, &b));
    double *scores = lathe__memory(s, N_MANY * (int64_t)sizeof *scores);
    lathe_status status = scores != NULL ? score(&b, b.items, N_MANY, scores) : LATHE_E_NOMEM;
    for (int32_t i = N_KINDS; i < N_MANY && status == LATHE_OK; i++)
        if (!lathe__same(&scores[i], &scores[i % N_KINDS], sizeof *scores))
            status = lathe_error(
                LATHE_E_PLUGIN, "in a batch of %d, the score of %s is %.17g at %d and %.17g at %d",
                N_MANY, kinds[i % N_KINDS].name, scores[i % N_KINDS], i % N_KINDS, scores[i], i);
    lathe_instance_fini(&b.instance);
    return status;
}

static lathe_status leaves_the_items_alone(lathe__subject *s)
{
    batch b;
    double scores[N_KINDS];
    lathe_reward_item before[N_KINDS];
    uint64_t sums[2] = {0, 0};
    LATHE_TRY(start(s, N_KINDS, &b));
    memcpy(before, b.items, sizeof before);
    lathe_status status = LATHE_OK;
    for (int pass = 0; pass < 2 && status == LATHE_OK; pass++) {
        for (int k = 0; k < N_KINDS; k++) {
            for (int64_t i = 0; i <= before[k].completion_bytes; i++)
                sums[pass] = sums[pass] * 31 + (unsigned char)before[k].completion[i];
            for (int32_t i = 0; i < before[k].n_tokens; i++)
                sums[pass] = sums[pass] * 31 + (uint64_t)before[k].tokens[i];
        }
        if (pass == 0)
            status = score(&b, b.items, N_KINDS, scores);
    }
    if (status == LATHE_OK && (!lathe__same(before, b.items, sizeof before) || sums[0] != sums[1]))
        status = lathe_error(LATHE_E_PLUGIN, "score() changed the items");
    lathe_instance_fini(&b.instance);
    return status;
}

/* Asks whether the plugin can use the record, and scores a completion of it if it can. A plugin
 * without check_record() says of every record that it can. */
static lathe_status check_one(batch *b, const char *record, int32_t *out_accepts)
{
    double score_of_it;
    lathe_reward_item item = b->items[0];
    item.record = record;
    item.record_bytes = (int64_t)strlen(record);
    const int asks = LATHE_HAS(b->table, check_record) && b->table->check_record != NULL;
    lathe_error_clear();
    const lathe_status status =
        asks ? b->table->check_record(b->instance.self, record, item.record_bytes) : LATHE_OK;
    *out_accepts = status == LATHE_OK;
    if (status != LATHE_OK && lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "check_record() returns %d and records no message",
                           status);
    if (status != LATHE_OK)
        return LATHE_OK;
    b->items[0] = item;
    if (score(b, b->items, 1, &score_of_it) == LATHE_OK)
        return LATHE_OK;
    return lathe_error_context(LATHE_E_PLUGIN,
                               asks
                                   ? "check_record() accepts the record %s, and score() fails"
                                   : "it has no check_record(), so every record can be scored, and "
                                     "score() fails for %s",
                               record);
}

/* Records without columns, with a null, and with values of other types. */
static lathe_status records_that_pass_can_be_scored(lathe__subject *s)
{
    static const char *const records[] = {"{}",
                                          "{\"answer\": null}",
                                          "{\"answer\": [1, 2]}",
                                          "{\"answer\": {\"a\": 1}}",
                                          "{\"answer\": \"\"}",
                                          "{\"answer\": true, \"prompt\": 7}",
                                          "{\"answer\": 1e400}",
                                          "{\"other\": \"\\u00e9\"}"};
    batch b;
    int32_t accepts = 1, n = 0;
    LATHE_TRY(start(s, N_KINDS, &b));
    lathe_status status = check_one(&b, RECORD, &accepts);
    if (status == LATHE_OK && !accepts)
        status = lathe_error(LATHE_E_PLUGIN, "check_record() refuses the record that score() uses");
    for (size_t i = 0; i < sizeof records / sizeof *records && status == LATHE_OK; i++) {
        status = check_one(&b, records[i], &accepts);
        n += accepts;
    }
    lathe__note(s, "%d of %zu records without the usual columns pass", n,
                sizeof records / sizeof *records);
    lathe_instance_fini(&b.instance);
    return status;
}

static lathe_status instances_are_apart(lathe__subject *s)
{
    batch a, b;
    double alone[N_KINDS], beside[N_KINDS], other[N_KINDS];
    LATHE_TRY(start(s, N_KINDS, &a));
    lathe_status status = score(&a, a.items, N_KINDS, alone);
    if (status != LATHE_OK)
        goto out;
    if ((status = start(s, N_KINDS, &b)) != LATHE_OK)
        goto out;
    status = score(&b, &b.items[1], N_KINDS - 1, other);
    lathe_instance_fini(&b.instance);
    if (status != LATHE_OK)
        goto out;
    if ((status = score(&a, a.items, N_KINDS, beside)) != LATHE_OK)
        goto out;
    status = compare(alone, beside, N_KINDS, "beside another instance");
out:
    lathe_instance_fini(&a.instance);
    return status;
}

static int32_t stops_now(void *arg)
{
    (void)arg;
    return 1;
}

/* Asks a score() that has just begun to end, as a run does that gets SIGTERM. */
static lathe_status cancel_ends_a_score(lathe__subject *s)
{
    const lathe_reward_v1 *table = s->table;
    batch b;
    lathe__scorer *scorer = NULL;
    lathe__scores scores;
    if (!LATHE_HAS(table, cancel))
        return lathe__skip(s, "no cancel()");
    LATHE_TRY(start(s, N_MANY, &b));
    lathe_status status = lathe__scorer_create(&b.instance, &scorer);
    if (status == LATHE_OK)
        status = lathe__scorer_begin(scorer, b.items, N_MANY);
    if (status == LATHE_OK)
        lathe__scorer_wait(scorer, 60.0, (lathe_reward_stop){stops_now, NULL}, &scores);
    lathe__scorer_destroy(scorer); /* takes the instance of a score() that never returned */
    if (status == LATHE_OK && b.instance.table == NULL)
        return lathe_error(LATHE_E_PLUGIN, "score() does not return after cancel()");
    lathe_instance_fini(&b.instance);
    return status;
}

const lathe__check *lathe__checks_reward(void)
{
    static const lathe__check checks[] = {
        {"scores_are_finite", scores_are_finite, 0},
        {"same_items_same_scores", same_items_same_scores, 0},
        {"batches_do_not_matter", batches_do_not_matter, 0},
        {"takes_many_items", takes_many_items, 0},
        {"leaves_the_items_alone", leaves_the_items_alone, 0},
        {"records_that_pass_can_be_scored", records_that_pass_can_be_scored, 0},
        {"instances_are_apart", instances_are_apart, 0},
        {"cancel_ends_a_score", cancel_ends_a_score, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
