/* Scores a batch with all rewards, checks the scores, and adds them. */
#include "reward/rewards.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/json/json_record.h"
#include "base/log.h"

/* Seconds between two tries at most, and looks at the stop in a second. */
enum { LONGEST_REST = 30, PARTS_OF_SECOND = 20 };

typedef struct reward {
    lathe_reward_part part;
    lathe__scorer *scorer; /* NULL: part.score */
    double *scores;        /* [capacity] */
} reward;

struct lathe_rewards {
    int32_t n;
    int32_t capacity; /* of each reward's scores */
    reward list[];
};

lathe_status lathe_rewards_create(const lathe_reward_part *parts, int32_t n, lathe_rewards **out)
{
    lathe_rewards *r = calloc(1, sizeof *r + (size_t)n * sizeof *r->list);
    lathe_status status = LATHE_OK;
    *out = NULL;
    if (r == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: %d rewards", n);
    r->n = n;
    for (int32_t i = 0; i < n && status == LATHE_OK; i++) {
        r->list[i].part = parts[i];
        if (parts[i].instance != NULL)
            status = lathe__scorer_create(parts[i].instance, &r->list[i].scorer);
    }
    if (status != LATHE_OK) {
        lathe_rewards_destroy(r);
        return status;
    }
    *out = r;
    return LATHE_OK;
}

void lathe_rewards_destroy(lathe_rewards *r)
{
    for (int32_t i = 0; r != NULL && i < r->n; i++) {
        lathe__scorer_destroy(r->list[i].scorer);
        free(r->list[i].scores);
    }
    free(r);
}

int32_t lathe_rewards_count(const lathe_rewards *r)
{
    return r->n;
}

const char *lathe_rewards_label(const lathe_rewards *r, int32_t index)
{
    return r->list[index].part.label;
}

const double *lathe_rewards_scores(const lathe_rewards *r, int32_t index)
{
    return r->list[index].scores;
}

void lathe_rewards_set_model(lathe_rewards *r, int32_t index,
                             lathe_status (*score)(void *arg, const lathe_reward_item *items,
                                                   int32_t n, double *out),
                             void *arg)
{
    r->list[index].part.score = score;
    r->list[index].part.arg = arg;
}

static lathe_status reserve(lathe_rewards *r, int32_t n)
{
    for (int32_t i = 0; i < r->n && n > r->capacity; i++) {
        double *grown = realloc(r->list[i].scores, (size_t)n * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "out of memory: scores of %d completions", n);
        r->list[i].scores = grown;
    }
    r->capacity = n > r->capacity ? n : r->capacity;
    return LATHE_OK;
}

/* ---- errors ---- */

enum { MAX_RECORD = 200 }; /* bytes of a record in a message */

/* Writes "completion 3 of 8, record {...}". */
static void place(const lathe_reward_item *items, int32_t n, int32_t at, char *out, size_t bytes)
{
    const lathe_reward_item *item = &items[at];
    int64_t shown = item->record_bytes;
    if (shown > MAX_RECORD)
        for (shown = MAX_RECORD; shown > 0 && ((unsigned char)item->record[shown] & 0xc0) == 0x80;)
            shown--; /* not inside a character */
    (void)snprintf(out, bytes, "completion %d of %d, record %.*s%s", at + 1, n, (int)shown,
                   shown > 0 ? item->record : "", shown < item->record_bytes ? "..." : "");
}

/* The first completion without a score; n: all have one. */
static int32_t first_unset(const double *scores, int32_t n)
{
    int32_t i = 0;
    while (i < n && lathe__score_is_set(&scores[i]))
        i++;
    return i;
}

static lathe_status late(const reward *x, const lathe_reward_item *items, int32_t n,
                         const double *scores)
{
    char where[MAX_RECORD + 100];
    const int32_t at = first_unset(scores, n);
    place(items, n, at < n ? at : n - 1, where, sizeof where);
    return lathe_error(LATHE_E_PLUGIN,
                       "reward \"%s\" did not return within reward.timeout_seconds = %g; it has "
                       "scored %d of %d completions, the next is %s",
                       x->part.label, x->part.timeout_seconds, at, n, where);
}

static lathe_status failed(const reward *x, lathe_status status, const char *message,
                           const lathe_reward_item *items, int32_t n, const double *scores)
{
    char where[MAX_RECORD + 100];
    const int32_t at = first_unset(scores, n);
    if (message[0] == '\0')
        message = lathe_status_text(status);
    place(items, n, at < n ? at : n - 1, where, sizeof where);
    if (status == LATHE_E_PARSE || status == LATHE_E_CONFIG) /* of an answer, not of the run file */
        status = LATHE_E_PLUGIN;
    return lathe_error(status, "reward \"%s\": %s; at %s", x->part.label, message, where);
}

/* Whether a stage can compute with a score: in f64 the square of such a number is finite, so a
 * group that has it has a standard deviation. With 1e308 it had none, and nothing was learnt. */
static int is_usable(double score)
{
    return fabs(score) <= (double)FLT_MAX;
}

/* Every score must be set, and a usable number or "no score". */
static lathe_status check(const reward *x, const lathe_reward_item *items, int32_t n,
                          const double *scores)
{
    char where[MAX_RECORD + 100];
    for (int32_t i = 0; i < n; i++) {
        if (is_usable(scores[i]) || lathe_reward_is_no_score(&scores[i]))
            continue;
        place(items, n, i, where, sizeof where);
        if (x->scorer != NULL && !lathe__score_is_set(&scores[i]))
            return lathe_error(LATHE_E_PLUGIN, "reward \"%s\" gave no score for %s", x->part.label,
                               where);
        if (isfinite(scores[i]))
            return lathe_error(LATHE_E_NUMERIC,
                               "reward \"%s\" gave %g, expected a number from -3.4e38 to 3.4e38, "
                               "for %s",
                               x->part.label, scores[i], where);
        return lathe_error(LATHE_E_NUMERIC,
                           "reward \"%s\" gave %s, expected a finite number, for %s", x->part.label,
                           isnan(scores[i])  ? "nan"
                           : scores[i] > 0.0 ? "inf"
                                             : "-inf",
                           where);
    }
    return LATHE_OK;
}

/* ---- records ---- */

lathe_status lathe_rewards_check_record(const lathe_rewards *r, const char *record, int64_t bytes,
                                        int32_t *out_index)
{
    char columns[256];
    for (int32_t i = 0; i < r->n; i++) {
        const lathe_instance *instance = r->list[i].part.instance;
        const lathe_reward_v1 *table = instance != NULL ? instance->table : NULL;
        *out_index = i;
        if (table == NULL || !LATHE_HAS(table, check_record))
            continue;
        lathe_error_clear();
        const lathe_status status = table->check_record(instance->self, record, bytes);
        if (status == LATHE_OK)
            continue;
        const char *why = lathe_error_message();
        lathe_json_record_keys(record, bytes, columns, (int64_t)sizeof columns);
        return lathe_error(status, "reward \"%s\": %s; the record has: %s", r->list[i].part.label,
                           why[0] != '\0' ? why : lathe_status_text(status), columns);
    }
    return LATHE_OK;
}

/* ---- scoring ---- */

static lathe_status finish_once(reward *x, const lathe_reward_item *items, int32_t n,
                                lathe_reward_stop stop)
{
    lathe__scores got;
    lathe__scorer_wait(x->scorer, x->part.timeout_seconds, stop, &got);
    if (got.is_stopped)
        return lathe_error(LATHE_E_INTERRUPTED, "reward \"%s\": interrupted", x->part.label);
    if (got.is_late)
        return late(x, items, n, got.out);
    if (got.status != LATHE_OK)
        return failed(x, got.status, got.message, items, n, got.out);
    LATHE_TRY(check(x, items, n, got.out));
    memcpy(x->scores, got.out, (size_t)n * sizeof *x->scores);
    return LATHE_OK;
}

/* Waits before try number `tried` + 1, twice as long each time. Returns 1 if the run is asked to
 * end. */
static int rest(int32_t tried, lathe_reward_stop stop)
{
    const struct timespec part = {0, 1000000000 / PARTS_OF_SECOND};
    const int seconds = tried < 5 ? 1 << tried : LONGEST_REST;
    for (int i = 0; i < seconds * PARTS_OF_SECOND; i++) {
        if (stop.stops != NULL && stop.stops(stop.arg))
            return 1;
        (void)nanosleep(&part, NULL);
    }
    return 0;
}

/* Begins the batch again, with another instance: the last one may be in any state, or never have
 * returned. */
static lathe_status begin_again(reward *x, const lathe_reward_item *items, int32_t n)
{
    lathe__scorer_destroy(x->scorer); /* sets an instance to zeros that never returned */
    x->scorer = NULL;
    lathe_instance_fini(x->part.instance);
    LATHE_TRY(lathe_instance_init(x->part.instance, x->part.component, x->part.values));
    LATHE_TRY(lathe__scorer_create(x->part.instance, &x->scorer));
    return lathe__scorer_begin(x->scorer, items, n);
}

static lathe_status finish(reward *x, const lathe_reward_item *items, int32_t n,
                           lathe_reward_stop stop)
{
    lathe_status status = finish_once(x, items, n, stop);
    for (int32_t i = 0; i < x->part.retries; i++) {
        if (status == LATHE_OK || status == LATHE_E_INTERRUPTED)
            return status;
        lathe_log(LATHE_LOG_WARN, "%s; it is tried again, time %d of reward.retries = %d",
                  lathe_error_message(), i + 1, x->part.retries);
        if (rest(i, stop))
            return lathe_error(LATHE_E_INTERRUPTED, "reward \"%s\": interrupted", x->part.label);
        status = begin_again(x, items, n);
        if (status == LATHE_OK)
            status = finish_once(x, items, n, stop);
    }
    return status;
}

static lathe_status score_here(reward *x, const lathe_reward_item *items, int32_t n)
{
    if (x->part.score == NULL)
        return lathe_error(LATHE_E_STATE, "reward \"%s\" has no function", x->part.label);
    const lathe_status status = x->part.score(x->part.arg, items, n, x->scores);
    if (status != LATHE_OK)
        return lathe_error_context(status, "reward \"%s\"", x->part.label);
    return check(x, items, n, x->scores);
}

static lathe_status add_up(const lathe_rewards *r, const lathe_reward_item *items, int32_t n,
                           double *out)
{
    char where[MAX_RECORD + 100];
    for (int32_t i = 0; i < n; i++) {
        int has_score = 1;
        out[i] = 0.0;
        for (int32_t k = 0; k < r->n; k++) {
            out[i] += r->list[k].part.weight * r->list[k].scores[i];
            has_score &= !lathe_reward_is_no_score(&r->list[k].scores[i]);
        }
        if (!has_score)
            lathe_reward_no_score(&out[i]);
        if (!has_score || is_usable(out[i]))
            continue;
        place(items, n, i, where, sizeof where);
        return lathe_error(LATHE_E_NUMERIC,
                           "the weighted sum of the rewards is too large for a number, for %s",
                           where);
    }
    return LATHE_OK;
}

lathe_status lathe_rewards_score(lathe_rewards *r, const lathe_reward_item *items, int32_t n,
                                 lathe_reward_stop stop, double *out)
{
    lathe_status first = LATHE_OK;
    char message[1024] = "";
    int32_t n_begun = 0;
    if (n <= 0)
        return LATHE_OK;
    LATHE_TRY(reserve(r, n));
    for (; n_begun < r->n && first == LATHE_OK; n_begun++)
        if (r->list[n_begun].scorer != NULL) {
            first = lathe__scorer_begin(r->list[n_begun].scorer, items, n);
            if (first != LATHE_OK) {
                (void)lathe_error_context(first, "reward \"%s\"", r->list[n_begun].part.label);
                break;
            }
        }
    /* Every batch that has begun is waited for, after an error too. */
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n_begun; i++) {
            const int has_thread = r->list[i].scorer != NULL;
            if (has_thread != (pass == 1) || (!has_thread && first != LATHE_OK))
                continue;
            if (first != LATHE_OK && message[0] == '\0')
                (void)snprintf(message, sizeof message, "%s", lathe_error_message());
            const lathe_status status = has_thread ? finish(&r->list[i], items, n, stop)
                                                   : score_here(&r->list[i], items, n);
            first = first != LATHE_OK ? first : status;
        }
    if (message[0] != '\0')
        return lathe_error(first, "%s", message);
    return first != LATHE_OK ? first : add_up(r, items, n, out);
}
