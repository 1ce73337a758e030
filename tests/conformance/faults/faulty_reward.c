/* The number of lower-case letters in a completion, and one fault. */
#include "fault.h"

#include "lathe/reward.h"

static double memory;

/* They need a column of the record, and have no check_record() that says so. */
#define WITHOUT_CHECK                                                                              \
    (IS(needs_a_column) || IS(needs_a_text) || IS(crashes_without_a_column) ||                     \
     IS(scores_nan_without_a_column) || IS(sound_reward_of_any_record))

static double letters(const lathe_reward_item *item)
{
    double n = 0.0;
    for (int64_t i = 0; i < item->completion_bytes; i++)
        n += item->completion[i] >= 'a' && item->completion[i] <= 'z';
    return n;
}

static double score_of(instance *x, const lathe_reward_item *item, int32_t i, int32_t n)
{
    const double found = letters(item);
    x->calls++;
    if (IS(share_of_letters_is_nan))
        return found / (double)item->completion_bytes;
    if (IS(empty_prompt_is_infinite))
        return found / (double)item->prompt_bytes;
    if (IS(counts_its_items))
        return found + 1e-6 * (double)x->calls;
    if (IS(ranks_within_the_batch))
        return found / (double)n;
    if (IS(prefers_the_first))
        return found + (i == 0 ? 1.0 : 0.0);
    if (IS(remembers_in_a_static))
        return found + (memory = memory * 0.5 + found);
    if (IS(reads_by_address))
        return (double)((uintptr_t)item->completion % 4096);
    return found;
}

#define HAS_CANCEL                                                                                 \
    (IS(hangs_when_cancelled) || IS(crashes_when_cancelled) || IS(sound_reward_to_cancel))

static _Atomic int cancelled;

static void cancel(void *self)
{
    (void)self;
    if (IS(crashes_when_cancelled))
        crash();
    cancelled = 1;
}

/* Half a second's work, in the middle of which it may be cancelled. */
static lathe_status wait_for_cancel(const instance *x)
{
    for (int i = 0; i < 50; i++) {
        if (cancelled && IS(hangs_when_cancelled))
            hang();
        if (cancelled)
            return lathe_fail(x->host, LATHE_E_STATE, "cancelled");
        (void)usleep(10000);
    }
    return LATHE_OK;
}

static lathe_status score(void *self, const lathe_reward_item *items, int32_t n, double *out)
{
    instance *x = self;
    misbehave(x->host);
    if (HAS_CANCEL && n > 64)
        LATHE_TRY(wait_for_cancel(x));
    if (IS(fails_in_silence))
        return LATHE_E_IO;
    if (IS(takes_64_items) && n > 64)
        return lathe_fail(x->host, LATHE_E_ARG, "more than 64 items");
    if (IS(writes_too_far))
        out[n] = 1.0;
    for (int32_t i = 0; i < n; i++) {
        if (IS(skips_empty_completions) && items[i].completion_bytes == 0)
            continue;
        if (IS(refuses_empty_completions) && items[i].completion_bytes == 0)
            return lathe_fail(x->host, LATHE_E_ARG, "an empty completion");
        if (IS(accepts_every_record) && items[i].record_bytes < 8)
            return lathe_fail(x->host, LATHE_E_CONFIG, "a record without columns");
        const char *answer = strstr(items[i].record, "\"answer\": ");
        if (IS(needs_a_column) && answer == NULL)
            return lathe_fail(x->host, LATHE_E_CONFIG, "no answer");
        if (IS(needs_a_text) && answer != NULL && answer[10] != '"')
            return lathe_fail(x->host, LATHE_E_CONFIG, "the answer is no text");
        if (IS(crashes_without_a_column) && answer == NULL)
            crash();
        if (IS(scores_nan_without_a_column) && answer == NULL) {
            out[i] = (double)NAN;
            continue;
        }
        if (IS(reads_tokens_of_none))
            out[i] = items[i].tokens[0];
        if (IS(refuses_other_scripts) && items[i].completion_bytes > 0 &&
            (items[i].completion[0] & 0x80) != 0)
            return lathe_fail(x->host, LATHE_E_PARSE, "not ASCII");
        if (IS(cuts_the_text) && items[i].completion_bytes > 2)
            ((char *)(uintptr_t)items[i].completion)[2] = '\0';
        out[i] = score_of(x, &items[i], i, n);
    }
    return LATHE_OK;
}

static lathe_status check_record(void *self, const char *record, int64_t bytes)
{
    instance *x = self;
    (void)record;
    if (IS(refuses_records_in_silence) && bytes < 8)
        return LATHE_E_CONFIG;
    if (IS(refuses_good_records))
        return lathe_fail(x->host, LATHE_E_CONFIG, "a record");
    return LATHE_OK;
}

static const lathe_reward_v1 table = {
    .size = IS(table_too_short) ? 8 : sizeof table,
    .revision = LATHE_REWARD_REVISION,
    .score = IS(null_score) ? NULL : score,
    .cancel = HAS_CANCEL ? cancel : NULL,
    .check_record = WITHOUT_CHECK ? NULL : check_record,
};

FAULTY_PLUGIN(LATHE_KIND_REWARD, LATHE_REWARD_REVISION, &table);
