/* Checks of collective engines, by every rank of the group that the environment gives: alone, or
 * under a launcher (mpirun -n 4 lathe plugin check mpi.so). */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/device/collective_trial.h"
#include "check/device/device_checks.h"
#include "lathe/kit/collective_kit.h"

enum { N_SIZES = 5 };

static lathe_status scores_with_a_reason(lathe__subject *s)
{
    const lathe_collective_v1 *table = s->table;
    for (int32_t host = 0; host < 2; host++) {
        const lathe_collective_probe probe = {(uint32_t)sizeof probe, host, host ? "cpu" : "other"};
        char why[64] = "", again[64] = "";
        const int32_t score = table->score(&probe, why, sizeof why);
        if (score < 0 || score > 1000 || memchr(why, '\0', sizeof why) == NULL || why[0] == '\0' ||
            strchr(why, '\n') != NULL)
            return lathe_error(LATHE_E_PLUGIN, "score() is %d with the reason \"%.60s\"", score,
                               why);
        if (table->score(&probe, again, sizeof again) != score || strcmp(why, again) != 0)
            return lathe_error(LATHE_E_PLUGIN, "score() is different at a second call");
    }
    return LATHE_OK;
}

static lathe_status joins_its_group(lathe__subject *s)
{
    lathe__joined j;
    const lathe_status status = lathe__collective_join(s, &j);
    if (status != LATHE_OK)
        return status;
    lathe__note(s, "rank %d of %d, %s", j.info.rank, j.info.n_ranks, j.info.engine);
    return lathe__collective_leave(&j, LATHE_OK);
}

/* Every op in every type, for sizes with and without remainder; with extents per rank too. */
static lathe_status all_ops(const lathe__joined *j, int32_t dtype)
{
    static const int64_t sizes[N_SIZES] = {0, 1, 7, 1000, 100003};
    for (int32_t op = 0; op < LATHE_N_EXCHANGES; op++) {
        const int reduces = op == LATHE_ALL_REDUCE || op == LATHE_REDUCE_SCATTER;
        const int has_extents = op == LATHE_REDUCE_SCATTER || op == LATHE_ALL_GATHER;
        if (op == LATHE_SEND || op == LATHE_RECEIVE)
            continue;
        for (int i = 0; i < (dtype == LATHE_F32 ? N_SIZES : N_SIZES - 1); i++)
            for (int32_t reduce = 0; reduce < (reduces ? LATHE_N_REDUCES : 1); reduce++)
                for (int uneven = 0; uneven <= has_extents; uneven++) {
                    lathe__trial t = {0};
                    t.problem =
                        lathe__collective_problem(j, op, dtype, reduce, sizes[i], uneven, &t);
                    LATHE_TRY(lathe__collective_try(j, &t));
                }
    }
    return LATHE_OK;
}

static lathe_status exchanges_are_right(lathe__subject *s)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_F64, LATHE_BF16, LATHE_F16,
                                     LATHE_I32, LATHE_I64, LATHE_U8};
    lathe__joined j;
    lathe_status status = lathe__collective_join(s, &j);
    if (status != LATHE_OK)
        return status;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && status == LATHE_OK; i++)
        status = all_ops(&j, dtypes[i]);
    lathe__note(s, "rank %d of %d", j.info.rank, j.info.n_ranks);
    return lathe__collective_leave(&j, status);
}

/* Random numbers, where the order of a sum shows: the same bits in each run and on each rank, and
 * those of the order of ranks if the group says so. */
static lathe_status same_bits(const lathe__joined *j)
{
    enum { N = 300001 };
    lathe__trial t = {0}, all = {0};
    t.problem =
        lathe__collective_problem(j, LATHE_ALL_REDUCE, LATHE_F32, LATHE_REDUCE_SUM, N, 0, &t);
    all.problem = lathe__collective_problem(j, LATHE_ALL_GATHER, LATHE_F32, 0,
                                            (int64_t)N * j->info.n_ranks, 0, &all);
    LATHE_TRY(lathe__collective_prepare(j, &t));
    LATHE_TRY(lathe__collective_prepare(j, &all));
    memcpy(t.in, lathe__random(j->s, N, 77 + (uint64_t)j->info.rank, 1.0), N * sizeof(float));
    float *first = lathe__memory(j->s, N * (int64_t)sizeof *first), *const out = t.out;
    if (first == NULL)
        return LATHE_E_NOMEM;
    for (int run = 0; run < 3; run++) {
        LATHE_TRY(lathe__collective_send(j));
        LATHE_TRY(lathe__collective_start(j, &t, t.in));
        LATHE_TRY(lathe__collective_finish(j, &t));
        if (run == 0)
            memcpy(first, out, N * sizeof *first);
        if (!lathe__same(first, out, N * (int64_t)sizeof *first))
            return lathe_error(LATHE_E_PLUGIN, "a sum has other bits at its repetition %d", run);
    }
    LATHE_TRY(lathe__collective_start(j, &all, out)); /* the results of all ranks */
    LATHE_TRY(lathe__collective_finish(j, &all));
    for (int32_t q = 0; q < j->info.n_ranks; q++)
        if (!lathe__same((const float *)all.out + (int64_t)q * N, first,
                         N * (int64_t)sizeof *first))
            return lathe_error(LATHE_E_PLUGIN, "the sum of rank %d has other bits", q);
    LATHE_TRY(lathe__collective_start(j, &all, t.in)); /* the inputs of all ranks */
    LATHE_TRY(lathe__collective_finish(j, &all));
    for (int64_t i = 0; i < N && (j->info.flags & LATHE_GROUP_RANK_ORDER); i++) {
        float sum = ((const float *)all.out)[i];
        for (int32_t q = 1; q < j->info.n_ranks; q++)
            sum += ((const float *)all.out)[(int64_t)q * N + i];
        if (!lathe__same(&sum, &first[i], sizeof sum))
            return lathe_error(LATHE_E_PLUGIN, "a sum is not in the order of ranks: %.9g and %.9g",
                               (double)first[i], (double)sum);
    }
    j->table->exchange_destroy(all.exchange);
    j->table->exchange_destroy(t.exchange);
    return LATHE_OK;
}

static lathe_status sums_have_the_same_bits(lathe__subject *s)
{
    lathe__joined j;
    LATHE_TRY(lathe__collective_join(s, &j));
    if (!(j.info.flags & LATHE_GROUP_DETERMINISTIC)) {
        LATHE_TRY(lathe__collective_leave(&j, LATHE_OK));
        return lathe__skip(s, "it does not say that its sums are deterministic");
    }
    return lathe__collective_leave(&j, same_bits(&j));
}

/* A NaN of one rank is a NaN for all, in sums, maxima and minima. */
static lathe_status nan_is_kept(lathe__subject *s)
{
    lathe__joined j;
    LATHE_TRY(lathe__collective_join(s, &j));
    lathe_status status = LATHE_OK;
    for (int32_t reduce = 0; reduce < LATHE_N_REDUCES && status == LATHE_OK; reduce++) {
        lathe__trial t = {0};
        t.problem = lathe__collective_problem(&j, LATHE_ALL_REDUCE, LATHE_F32, reduce, 64, 0, &t);
        status = lathe__collective_prepare(&j, &t);
        if (status == LATHE__SKIP) { /* it refuses maxima of floats */
            status = LATHE_OK;
            continue;
        }
        if (status == LATHE_OK && j.info.rank == j.info.n_ranks / 2)
            ((float *)t.in)[5] = NAN;
        if (status == LATHE_OK)
            status = lathe__collective_send(&j);
        if (status == LATHE_OK)
            status = lathe__collective_start(&j, &t, t.in);
        if (status == LATHE_OK)
            status = lathe__collective_finish(&j, &t);
        for (int64_t i = 0; i < 64 && status == LATHE_OK; i++)
            if ((i == 5) != isnan(((const float *)t.out)[i]))
                status = lathe_error(LATHE_E_PLUGIN,
                                     "reduction %d with a NaN in element 5: element "
                                     "%lld is %g",
                                     reduce, (long long)i, (double)((const float *)t.out)[i]);
        j.table->exchange_destroy(status == LATHE_OK ? t.exchange : NULL);
    }
    return lathe__collective_leave(&j, status);
}

/* In one memory: all_reduce and broadcast; all_gather with its extent in place. */
static lathe_status in_place(const lathe__joined *j)
{
    static const int32_t ops[] = {LATHE_ALL_REDUCE, LATHE_BROADCAST, LATHE_ALL_GATHER};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        lathe__trial t = {0};
        t.problem = lathe__collective_problem(j, ops[i], LATHE_F32, 0, 1000, 1, &t);
        LATHE_TRY(lathe__collective_prepare(j, &t));
        const int64_t at =
            ops[i] == LATHE_ALL_GATHER ? lathe__collective_extent_begin(j, &t, j->info.rank) : 0;
        float *const own = (float *)t.out + at;
        memcpy(own, t.in, (size_t)t.n_in * sizeof(float));
        LATHE_TRY(lathe__collective_send(j));
        LATHE_TRY(lathe__collective_start(j, &t, own));
        LATHE_TRY(lathe__collective_finish(j, &t));
        LATHE_TRY(lathe__collective_compare(j, &t));
        j->table->exchange_destroy(t.exchange);
    }
    return LATHE_OK;
}

static lathe_status works_in_place(lathe__subject *s)
{
    lathe__joined j;
    LATHE_TRY(lathe__collective_join(s, &j));
    return lathe__collective_leave(&j, in_place(&j));
}

/* Several exchanges under way, waited for in another order; and a second start is refused. */
static lathe_status several(const lathe__joined *j)
{
    enum { N = 4 };
    lathe__trial t[N];
    memset(t, 0, sizeof t);
    for (int i = 0; i < N; i++) {
        t[i].problem = lathe__collective_problem(j, i % 2 ? LATHE_ALL_GATHER : LATHE_ALL_REDUCE,
                                                 LATHE_F32, 0, 3000 * (i + 1), 0, &t[i]);
        LATHE_TRY(lathe__collective_prepare(j, &t[i]));
    }
    LATHE_TRY(lathe__collective_send(j));
    for (int i = 0; i < N; i++)
        LATHE_TRY(lathe__collective_start(j, &t[i], t[i].in));
    for (int i = N - 1; i >= 0; i--)
        LATHE_TRY(lathe__collective_finish(j, &t[i]));
    for (int i = 0; i < N; i++) {
        LATHE_TRY(lathe__collective_compare(j, &t[i]));
        j->table->exchange_destroy(t[i].exchange);
    }
    j->table->exchange_destroy(NULL);
    return LATHE_OK;
}

static lathe_status several_are_under_way(lathe__subject *s)
{
    lathe__joined j;
    LATHE_TRY(lathe__collective_join(s, &j));
    return lathe__collective_leave(&j, several(&j));
}

/* Each rank sends to the next one and receives from the one before; two tags, in any order. */
static lathe_status ring(const lathe__joined *j)
{
    const int32_t n_ranks = j->info.n_ranks, rank = j->info.rank;
    lathe__trial t[4];
    memset(t, 0, sizeof t);
    for (int i = 0; i < 4; i++) {
        t[i].problem =
            (lathe_exchange_problem){.size = (uint32_t)sizeof t[i].problem,
                                     .op = i < 2 ? LATHE_SEND : LATHE_RECEIVE,
                                     .dtype = LATHE_I32,
                                     .peer = (rank + (i < 2 ? 1 : n_ranks - 1)) % n_ranks,
                                     .tag = i % 2 ? 32767 : 0,
                                     .n = i % 2 ? 10 : 100000};
        const lathe_status status = lathe__collective_prepare(j, &t[i]);
        if (status == LATHE__SKIP)
            return lathe__skip(j->s, "%.200s", lathe_error_message());
        LATHE_TRY(status);
    }
    LATHE_TRY(lathe__collective_send(j));
    for (int i = 3; i >= 0; i--)
        LATHE_TRY(lathe__collective_start(j, &t[i], t[i].in));
    for (int i = 0; i < 4; i++) {
        LATHE_TRY(lathe__collective_finish(j, &t[i]));
        LATHE_TRY(lathe__collective_compare(j, &t[i]));
    }
    for (int i = 0; i < 4; i++)
        j->table->exchange_destroy(t[i].exchange);
    return LATHE_OK;
}

static lathe_status pairs_find_each_other(lathe__subject *s)
{
    lathe__joined j;
    LATHE_TRY(lathe__collective_join(s, &j));
    if (j.info.n_ranks > 1) {
        const lathe_status status = ring(&j);
        const lathe_status left =
            lathe__collective_leave(&j, status == LATHE__SKIP ? LATHE_OK : status);
        return left == LATHE_OK ? status : left;
    }
    LATHE_TRY(lathe__collective_leave(&j, LATHE_OK));
    return lathe__skip(s, "a group of one; start it under its launcher");
}

/* Even and odd ranks, in reverse order; the last rank is in no group. */
static lathe_status split(const lathe__joined *j)
{
    const int32_t n_ranks = j->info.n_ranks, rank = j->info.rank;
    const int32_t is_out = n_ranks > 1 && rank == n_ranks - 1;
    lathe__joined part = *j;
    lathe_status status =
        j->table->split(j->group, is_out ? -1 : rank % 2, n_ranks - rank, &part.group);
    if (status != LATHE_OK)
        return lathe__collective_failed("split()", status);
    if (is_out)
        return part.group == NULL ? LATHE_OK
                                  : lathe_error(LATHE_E_PLUGIN, "split(-1) gives a group");
    LATHE_TRY(lathe__collective_info(j->table, part.group, &part.info));
    const int32_t rest = n_ranks > 1 ? n_ranks - 1 : 1;
    const int32_t n = (rest + 1 - rank % 2) / 2, want = n - 1 - rank / 2;
    if (part.info.n_ranks != n || part.info.rank != want)
        return lathe_error(LATHE_E_PLUGIN,
                           "rank %d of %d is %d of %d in its part, expected %d of %d", rank,
                           n_ranks, part.info.rank, part.info.n_ranks, want, n);
    lathe__trial t = {0};
    t.problem = lathe__collective_problem(&part, LATHE_ALL_REDUCE, LATHE_F32, 0, 1000, 0, &t);
    LATHE_TRY(lathe__collective_try(&part, &t));
    status = j->table->close(part.group);
    return status == LATHE_OK ? LATHE_OK : lathe__collective_failed("close() of a part", status);
}

static lathe_status splits_into_groups(lathe__subject *s)
{
    lathe__joined j;
    LATHE_TRY(lathe__collective_join(s, &j));
    return lathe__collective_leave(&j, split(&j));
}

static lathe_status refuses_wrong_problems(lathe__subject *s)
{
    static const lathe_exchange_problem wrong[] = {
        {.op = 99, .n = 1},
        {.op = -1, .n = 1},
        {.op = LATHE_ALL_REDUCE, .dtype = LATHE_I8, .n = 1},
        {.op = LATHE_ALL_REDUCE, .dtype = 99, .n = 1},
        {.op = LATHE_ALL_REDUCE, .reduce = 9, .n = 1},
        {.op = LATHE_ALL_REDUCE, .n = -1},
        {.op = LATHE_BROADCAST, .peer = LATHE__MAX_RANKS + 1, .n = 1},
        {.op = LATHE_SEND, .peer = -1, .n = 1},
        {.op = LATHE_ALL_TO_ALL},
    };
    lathe__joined j;
    LATHE_TRY(lathe__collective_join(s, &j));
    lathe_status status = LATHE_OK;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong && status == LATHE_OK; i++) {
        lathe_exchange_problem p = wrong[i];
        lathe_exchange *x = NULL;
        lathe_exchange_info info = {.size = (uint32_t)sizeof info};
        p.size = (uint32_t)sizeof p;
        lathe_error_clear();
        const lathe_status got = j.table->prepare(j.group, &p, &x, &info);
        if (got == LATHE_OK || x != NULL)
            status = lathe_error(LATHE_E_PLUGIN, "prepare() takes the wrong problem %zu", i);
        else if (lathe_error_message()[0] == '\0')
            status = lathe__collective_failed("prepare()", got);
    }
    return lathe__collective_leave(&j, status);
}

const lathe__check *lathe__checks_collective(void)
{
    static const lathe__check checks[] = {
        {"scores_with_a_reason", scores_with_a_reason, 0},
        {"joins_its_group", joins_its_group, 0},
        {"exchanges_are_right", exchanges_are_right, 0},
        {"sums_have_the_same_bits", sums_have_the_same_bits, 0},
        {"nan_is_kept", nan_is_kept, 0},
        {"works_in_place", works_in_place, 0},
        {"several_are_under_way", several_are_under_way, 0},
        {"pairs_find_each_other", pairs_find_each_other, 0},
        {"splits_into_groups", splits_into_groups, 0},
        {"refuses_wrong_problems", refuses_wrong_problems, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
