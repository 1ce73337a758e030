/* The group of one rank, whose exchanges are copies, with one fault. */
#define FAULT_N_FIELDS 0
#include "fault.h"

#include "lathe/kit/collective_kit.h"

struct lathe_group {
    instance *x;
};

struct lathe_exchange {
    instance *x;
    lathe_exchange_problem problem;
    int64_t bytes;
    int n_tests;
};

static int64_t moved;
static int under_way, n_scores;

static int32_t score(const lathe_collective_probe *probe, char *why, int64_t why_bytes)
{
    if (!IS(scores_in_silence))
        (void)snprintf(why, (size_t)why_bytes, IS(scores_in_two_lines) ? "a\nb" : "one rank");
    if (IS(scores_change))
        return n_scores++ % 2;
    if (IS(scores_too_much))
        return 5000;
    return probe->host_memory ? LATHE_SCORE_PORTABLE : LATHE_SCORE_NO;
}

static lathe_status make_group(instance *x, lathe_group **out)
{
    *out = x->host->alloc((int64_t)sizeof **out);
    (*out)->x = x;
    return LATHE_OK;
}

static lathe_status open_group(void *self, const lathe_collective_setup *setup, lathe_group **out)
{
    instance *const x = self;
    if (IS(opens_in_silence))
        return LATHE_E_IO;
    if (IS(opens_nothing)) {
        *out = NULL;
        return LATHE_OK;
    }
    misbehave(x->host);
    return make_group(x, out);
}

static lathe_status info(const lathe_group *group, lathe_group_info *out)
{
    lathe_group_info all = {.size = out->size,
                            .rank = IS(rank_outside) ? 1 : 0,
                            .n_ranks = IS(group_of_none) ? 0 : 1,
                            .local_rank = 0,
                            .n_local = IS(more_local_ranks) ? 2 : 1,
                            .n_hosts = IS(no_hosts) ? 0 : 1,
                            .flags = IS(unknown_group_flags) ? 64 : 3,
                            .host_name = "here",
                            .engine = "fault"};
    if (IS(host_without_name))
        all.host_name[0] = '\0';
    if (IS(engine_without_end))
        memset(all.engine, 'e', sizeof all.engine);
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
    return LATHE_OK;
}

static lathe_status split(lathe_group *group, int32_t color, int32_t key, lathe_group **out)
{
    *out = NULL;
    if (IS(splits_in_silence))
        return LATHE_E_UNSUPPORTED;
    if (color < 0 || IS(splits_into_nothing))
        return color < 0 ? LATHE_OK : lathe_fail(group->x->host, LATHE_E_STATE, "no parts");
    return make_group(group->x, out);
}

static lathe_status close_group(lathe_group *group)
{
    if (IS(closes_null_badly) && group == NULL)
        return LATHE_E_ARG;
    if (IS(closes_with_an_error) && group != NULL)
        return lathe_fail(group->x->host, LATHE_E_IO, "not closed");
    if (group != NULL)
        group->x->host->free(group);
    return LATHE_OK;
}

static lathe_status prepare(lathe_group *group, const lathe_exchange_problem *problem,
                            lathe_exchange **out, lathe_exchange_info *out_info)
{
    const lathe_host *const host = group->x->host;
    const lathe_exchange_info all = {.size = out_info->size,
                                     .scratch_bytes = IS(negative_scratch)    ? -1
                                                      : IS(uses_more_scratch) ? 64
                                                                              : 0,
                                     .sent_bytes = IS(announces_traffic) ? 8 : 0};
    const lathe_status status = lathe_exchange_check(host, problem, 0, 1);
    *out = NULL;
    if (IS(refuses_in_silence) && status != LATHE_OK) {
        (void)host->fail(LATHE_OK, "");
        return status;
    }
    if (status != LATHE_OK && !(IS(takes_unknown_ops) && problem->op == 99) &&
        !(IS(takes_unknown_types) && problem->op == LATHE_ALL_REDUCE && problem->dtype == 99))
        return status;
    if (IS(refuses_bf16) && problem->dtype == LATHE_BF16)
        return lathe_fail(host, LATHE_E_DTYPE, "no bf16");
    if (IS(refuses_barriers) && problem->op == LATHE_BARRIER)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "no barrier");
    lathe_exchange *const x = host->alloc((int64_t)sizeof *x);
    x->x = group->x;
    x->problem = *problem;
    x->bytes = status == LATHE_OK
                   ? lathe_exchange_out(problem, 0, 1) * lathe_dtype_bytes(problem->dtype)
                   : 0;
    memcpy(out_info, &all, out_info->size < sizeof all ? out_info->size : sizeof all);
    *out = x;
    return LATHE_OK;
}

static void exchange_destroy(lathe_exchange *x)
{
    if (IS(destroys_no_null) && x == NULL)
        crash();
    if (x != NULL)
        x->x->host->free(x);
}

/* Faults in the numbers of an output that has just been written. */
static void spoil(lathe_exchange *x, const lathe_exchange_args *args)
{
    unsigned char *const out = args->out;
    float *const f = args->out;
    const int is_f32 = x->problem.dtype == LATHE_F32;
    if (IS(leaves_the_last_byte) && x->bytes > 0)
        out[x->bytes - 1] = 0xab;
    if (IS(writes_too_far))
        out[x->bytes] = 1;
    if (IS(writes_its_input) && x->bytes > 0 && args->in != args->out)
        ((unsigned char *)(uintptr_t)args->in)[0] ^= 1;
    for (int64_t i = 0; i < x->bytes / 4 && is_f32 && x->problem.op == LATHE_ALL_REDUCE; i++) {
        if (IS(sums_vary))
            f[i] += f[i] != rintf(f[i]) ? 1e-7f * (float)x->x->calls : 0.0f;
        if (IS(sums_are_rounded) && f[i] != rintf(f[i]))
            f[i] = nextafterf(f[i], 9.0f);
        if (IS(sum_drops_nan) && x->problem.reduce == 0 && isnan(f[i]))
            f[i] = 0.0f;
        if (IS(max_drops_nan) && x->problem.reduce == 1 && isnan(f[i]))
            f[i] = -2.0f;
        if (IS(min_drops_nan) && x->problem.reduce == 2 && isnan(f[i]))
            f[i] = 2.0f;
    }
}

static lathe_status start(lathe_exchange *x, const lathe_exchange_args *args)
{
    if (IS(starts_in_silence))
        return LATHE_E_IO;
    if (IS(one_at_a_time) && under_way++ > 0)
        return lathe_fail(x->x->host, LATHE_E_STATE, "another one is under way");
    if (IS(takes_memory_to_start))
        x->x->host->free(x->x->host->alloc(64));
    if (IS(uses_more_scratch))
        ((char *)args->scratch)[64] = 1;
    if (IS(clears_the_output))
        memset(args->out, 0, (size_t)x->bytes);
    if (IS(counts_twice))
        moved += 8;
    x->x->calls++;
    if (x->bytes > 0 && args->out != args->in && !IS(moves_nothing))
        memmove(args->out, args->in, (size_t)x->bytes);
    spoil(x, args);
    return LATHE_OK;
}

static lathe_status test(lathe_exchange *x, int32_t *out_done)
{
    *out_done = !IS(is_never_done);
    return IS(tests_in_silence) ? LATHE_E_IO : LATHE_OK;
}

static lathe_status wait(lathe_exchange *x, double deadline_seconds)
{
    under_way = 0;
    if (IS(hangs_in_wait))
        hang();
    return IS(waits_in_silence) ? LATHE_E_RANK : LATHE_OK;
}

static lathe_status traffic(const lathe_group *group, int64_t *out_sent, int64_t *out_received)
{
    *out_sent = moved;
    *out_received = 0;
    return LATHE_OK;
}

static void abort_all(lathe_group *group, int32_t exit_code)
{
}

static const lathe_collective_v1 table = {
    .size = IS(table_too_short) ? 24 : sizeof table,
    .revision = LATHE_COLLECTIVE_REVISION,
    .flags = IS(unknown_flags) ? 8 : 0,
    .score = score,
    .open = open_group,
    .info = info,
    .split = split,
    .close = close_group,
    .prepare = prepare,
    .exchange_destroy = exchange_destroy,
    .start = IS(null_start) ? NULL : start,
    .test = test,
    .wait = wait,
    .traffic = traffic,
    .abort = IS(null_abort) ? NULL : abort_all,
};

FAULTY_PLUGIN(LATHE_KIND_COLLECTIVE, LATHE_COLLECTIVE_REVISION, &table);
