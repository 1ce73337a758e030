/* Times on the link, over an engine whose exchanges are done when the test says so. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lathe/collective.h"
#include "lathe/kit/testing.h"

enum { N_RANKS = 4 };

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the engine underneath ---- */

struct lathe_exchange {
    int32_t op;
};

static struct {
    double done_at; /* of every exchange */
    int started, tested, aborted, closed;
    int stops;
} fake;

static int group_object, part_object; /* their addresses are groups */

static lathe_group *group_at(int *object)
{
    return (lathe_group *)(void *)object;
}

static lathe_status fake_info(const lathe_group *group, lathe_group_info *out)
{
    (void)group;
    *out = (lathe_group_info){.size = out->size,
                              .rank = 1,
                              .n_ranks = N_RANKS,
                              .n_local = N_RANKS,
                              .n_hosts = 1,
                              .flags = LATHE_GROUP_DETERMINISTIC,
                              .host_name = "here",
                              .engine = "a fake"};
    return LATHE_OK;
}

static lathe_status fake_split(lathe_group *group, int32_t color, int32_t key, lathe_group **out)
{
    (void)group, (void)key;
    *out = color < 0 ? NULL : group_at(&part_object);
    return LATHE_OK;
}

static lathe_status fake_close(lathe_group *group)
{
    fake.closed += group == group_at(&part_object);
    cr_expect_neq(group, group_at(&group_object), "the group of the other engine is not closed");
    return LATHE_OK;
}

/* Bytes as in a ring; SEND and RECEIVE use one direction. */
static lathe_status fake_prepare(lathe_group *group, const lathe_exchange_problem *p,
                                 lathe_exchange **out, lathe_exchange_info *info)
{
    (void)group;
    const int64_t bytes = p->op == LATHE_ALL_REDUCE ? 2 * p->n * (N_RANKS - 1) / N_RANKS : p->n;
    *out = calloc(1, sizeof **out);
    (*out)->op = p->op;
    *info = (lathe_exchange_info){.size = info->size,
                                  .scratch_bytes = 192,
                                  .sent_bytes = p->op == LATHE_RECEIVE ? 0 : bytes,
                                  .received_bytes = p->op == LATHE_SEND ? 0 : bytes};
    return LATHE_OK;
}

static void fake_destroy(lathe_exchange *x)
{
    free(x);
}

static lathe_status fake_start(lathe_exchange *x, const lathe_exchange_args *args)
{
    (void)x, (void)args;
    fake.started++;
    return LATHE_OK;
}

static lathe_status fake_test(lathe_exchange *x, int32_t *out_done)
{
    (void)x;
    fake.tested++;
    *out_done = now() >= fake.done_at;
    return LATHE_OK;
}

static lathe_status fake_wait(lathe_exchange *x, double deadline)
{
    (void)x;
    if (fake.done_at - now() > deadline)
        return lathe_test_fail(LATHE_E_RANK, "rank 2 did not arrive");
    while (now() < fake.done_at)
        ;
    return LATHE_OK;
}

static lathe_status fake_traffic(const lathe_group *group, int64_t *sent, int64_t *received)
{
    (void)group;
    *sent = 11;
    *received = 22;
    return LATHE_OK;
}

static void fake_abort(lathe_group *group, int32_t exit_code)
{
    cr_expect_eq(group, group_at(&group_object));
    fake.aborted = exit_code;
}

static const lathe_collective_v1 fake_table = {.size = (uint32_t)sizeof fake_table,
                                               .revision = LATHE_COLLECTIVE_REVISION,
                                               .info = fake_info,
                                               .split = fake_split,
                                               .close = fake_close,
                                               .prepare = fake_prepare,
                                               .exchange_destroy = fake_destroy,
                                               .start = fake_start,
                                               .test = fake_test,
                                               .wait = fake_wait,
                                               .traffic = fake_traffic,
                                               .abort = fake_abort};

/* ---- the plugin over it ---- */

static const lathe_collective_v1 *table;
static lathe_group *group;

static int32_t stops(void *arg)
{
    (void)arg;
    return fake.stops;
}

static void open_link(const char *settings)
{
    static void *self;
    const lathe_plugin *plugin = lathe_test_open(LATHE_TEST_PLUGIN);
    const lathe_collective_setup setup = {.size = (uint32_t)sizeof setup,
                                          .base = &fake_table,
                                          .base_group = group_at(&group_object),
                                          .deadline_seconds = 5.0,
                                          .stops = stops};
    table = plugin->table;
    cr_assert_eq(lathe_test_create(plugin, settings, &self), LATHE_OK, "%s", lathe_test_message);
    cr_assert_eq(table->open(self, &setup, &group), LATHE_OK, "%s", lathe_test_message);
}

static lathe_exchange *prepare(int32_t op, int64_t n, const char *label)
{
    lathe_exchange *x;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    const lathe_exchange_problem problem = {
        .size = (uint32_t)sizeof problem, .op = op, .dtype = LATHE_U8, .n = n, .label = label};
    cr_assert_eq(table->prepare(group, &problem, &x, &info), LATHE_OK);
    cr_expect_eq(info.scratch_bytes, 192);
    return x;
}

static const lathe_exchange_args args = {.size = (uint32_t)sizeof args};

static void start(lathe_exchange *x)
{
    cr_assert_eq(table->start(x, &args), LATHE_OK, "%s", lathe_test_message);
}

/* The machine may be busy, so an exchange may take longer; it may never take less. */
static void took(double begin, double seconds)
{
    const double got = now() - begin;
    cr_expect_geq(got, seconds, "%g s", got);
    cr_expect_leq(got, seconds + 0.5, "%g s", got);
}

/* 40000 bytes in 2 * 3 rounds: 60000 bytes at 1 MB/s and 6 * 5 ms. */
Test(throttle, an_exchange_takes_rounds_and_bytes)
{
    open_link("bandwidth=1MB latency=5ms");
    lathe_exchange *const x = prepare(LATHE_ALL_REDUCE, 40000, NULL);
    for (int run = 0; run < 2; run++) {
        int32_t done = 1;
        const int64_t allocs = lathe_test_allocs;
        const double begin = now();
        start(x);
        cr_expect_eq(table->test(x, &done), LATHE_OK);
        cr_expect_eq(done, 0);
        cr_expect_eq(table->wait(x, 5.0), LATHE_OK);
        took(begin, 0.09);
        cr_expect_eq(table->test(x, &done), LATHE_OK);
        cr_expect_eq(done, 1);
        cr_expect_eq(table->wait(x, 5.0), LATHE_OK);
        cr_expect_eq(lathe_test_allocs, allocs);
    }
    cr_expect_gt(fake.tested, 20, "other exchanges go on meanwhile: %d calls", fake.tested);
    table->exchange_destroy(x);
    cr_expect_eq(table->close(group), LATHE_OK);
}

Test(throttle, exchanges_follow_one_another)
{
    open_link("bandwidth=1MB latency=0ms");
    lathe_exchange *const a = prepare(LATHE_ALL_REDUCE, 40000, NULL);
    lathe_exchange *const b = prepare(LATHE_ALL_REDUCE, 40000, NULL);
    int32_t done = 1;
    const double begin = now();
    start(a);
    start(b);
    cr_expect_eq(table->wait(a, 5.0), LATHE_OK);
    took(begin, 0.06);
    if (now() - begin < 0.12) {
        cr_expect_eq(table->test(b, &done), LATHE_OK);
        cr_expect(done == 0 || now() - begin >= 0.12);
    }
    cr_expect_eq(table->wait(b, 5.0), LATHE_OK);
    took(begin, 0.12);
}

Test(throttle, the_directions_are_independent)
{
    open_link("bandwidth=1MB latency=0ms");
    lathe_exchange *const out = prepare(LATHE_SEND, 100000, NULL);
    lathe_exchange *const in = prepare(LATHE_RECEIVE, 100000, NULL);
    lathe_exchange *const both = prepare(LATHE_BROADCAST, 100000, NULL);
    double begin = now();
    start(out);
    start(in);
    cr_expect_eq(table->wait(out, 5.0), LATHE_OK);
    cr_expect_eq(table->wait(in, 5.0), LATHE_OK);
    took(begin, 0.1);
    cr_expect_lt(now() - begin, 0.19);
    begin = now();
    start(in);
    start(both);
    cr_expect_eq(table->wait(both, 5.0), LATHE_OK);
    took(begin, 0.2);
}

Test(throttle, a_slow_engine_is_not_hurried)
{
    open_link("bandwidth=1GB latency=0ms");
    lathe_exchange *const x = prepare(LATHE_ALL_GATHER, 1000, NULL);
    int32_t done = 1;
    const double begin = now();
    fake.done_at = begin + 0.1;
    start(x);
    while (now() - begin < 0.05)
        ;
    cr_expect_eq(table->test(x, &done), LATHE_OK);
    cr_expect(done == 0 || now() - begin >= 0.1);
    cr_expect_eq(table->wait(x, 5.0), LATHE_OK);
    took(begin, 0.1);
}

Test(throttle, a_link_that_is_too_slow_meets_the_deadline)
{
    int32_t done;
    open_link("bandwidth=1KB latency=0ms");
    lathe_exchange *const x = prepare(LATHE_ALL_REDUCE, 40000, "gradients 1 of 7");
    const double begin = now();
    start(x);
    cr_expect_eq(table->wait(x, 0.2), LATHE_E_RANK);
    took(begin, 0.2);
    cr_expect_not_null(strstr(lathe_test_message,
                              "rank 1 of 4 on here: all_reduce (gradients 1 of 7): timed out "
                              "after 0.2 s: the link of collective/throttle (1KB 0ms) needs 60 s "
                              "for it"),
                       "%s", lathe_test_message);
    cr_expect_eq(table->test(x, &done), LATHE_E_RANK);
    cr_expect_eq(table->start(x, &args), LATHE_E_RANK);
    table->abort(group, 7);
    cr_expect_eq(fake.aborted, 7);
}

Test(throttle, a_rank_that_does_not_arrive_is_the_engines_error)
{
    open_link("bandwidth=1GB latency=0ms");
    lathe_exchange *const x = prepare(LATHE_ALL_GATHER, 1000, NULL);
    fake.done_at = now() + 100.0;
    start(x);
    cr_expect_eq(table->wait(x, 0.1), LATHE_E_RANK);
    cr_expect_str_eq(lathe_test_message, "rank 2 did not arrive");
}

Test(throttle, waiting_for_the_link_can_be_stopped)
{
    open_link("bandwidth=1KB latency=0ms");
    lathe_exchange *const x = prepare(LATHE_ALL_REDUCE, 40000, NULL);
    const double begin = now();
    start(x);
    fake.stops = 1;
    cr_expect_eq(table->wait(x, 30.0), LATHE_E_INTERRUPTED);
    took(begin, 0.0);
}

Test(throttle, an_exchange_under_way_is_not_started_again)
{
    int32_t done = 0;
    open_link("bandwidth=1MB latency=0ms");
    lathe_exchange *const x = prepare(LATHE_ALL_REDUCE, 100000, NULL);
    cr_expect_eq(table->test(x, &done), LATHE_OK);
    cr_expect_eq(done, 1, "it was never started");
    cr_expect_eq(table->wait(x, 1.0), LATHE_OK);
    start(x);
    cr_expect_eq(table->start(x, &args), LATHE_E_STATE);
    cr_expect_eq(fake.started, 1);
    cr_expect_eq(table->wait(x, 5.0), LATHE_OK);
}

Test(throttle, groups_are_those_of_the_engine)
{
    lathe_group *part;
    lathe_group_info info = {.size = (uint32_t)sizeof info};
    int64_t sent, received;
    open_link("bandwidth=10Gbit latency=0.2ms");
    cr_expect_eq(table->info(group, &info), LATHE_OK);
    cr_expect_eq(info.rank, 1);
    cr_expect_eq(info.n_ranks, N_RANKS);
    cr_expect_eq(info.flags, LATHE_GROUP_DETERMINISTIC);
    cr_expect_str_eq(info.engine, "10Gbit 0.2ms over a fake");
    cr_expect_eq(table->traffic(group, &sent, &received), LATHE_OK);
    cr_expect_eq(sent, 11);
    cr_expect_eq(received, 22);
    cr_expect_eq(table->split(group, -1, 0, &part), LATHE_OK);
    cr_expect_null(part);
    cr_expect_eq(table->split(group, 3, 0, &part), LATHE_OK);
    cr_expect_eq(table->close(part), LATHE_OK);
    cr_expect_eq(fake.closed, 1);
    cr_expect_eq(table->close(group), LATHE_OK);
    cr_expect_eq(fake.closed, 1);
    cr_expect_eq(table->close(NULL), LATHE_OK);
}

Test(throttle, wrong_links_are_refused)
{
    static const struct {
        const char *settings, *message;
    } rows[] = {
        {"bandwidth=0Mbit", "bandwidth is \"0Mbit\"; expected a bandwidth above 0"},
        {"bandwidth=10Gb", "bandwidth is \"10Gb\"; expected a number with bit, Kbit"},
        {"bandwidth=fast", "bandwidth is \"fast\"; expected a number with bit"},
        {"latency=1h", "latency is \"1h\"; expected a number with ns, us, ms or s"},
        {"latency=-1ms", "latency is \"-1ms\"; expected a number with ns"},
    };
    const lathe_plugin *plugin = lathe_test_open(LATHE_TEST_PLUGIN);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *self;
        cr_expect_eq(lathe_test_create(plugin, rows[i].settings, &self), LATHE_E_CONFIG, "%s",
                     rows[i].settings);
        cr_expect_eq(strncmp(lathe_test_message, rows[i].message, strlen(rows[i].message)), 0, "%s",
                     lathe_test_message);
    }
}

Test(throttle, it_needs_another_engine)
{
    void *self;
    lathe_group *none = NULL;
    const lathe_plugin *plugin = lathe_test_open(LATHE_TEST_PLUGIN);
    const lathe_collective_setup setup = {.size = (uint32_t)sizeof setup, .deadline_seconds = 1.0};
    char why[128] = "";
    table = plugin->table;
    cr_assert_eq(lathe_test_create(plugin, "", &self), LATHE_OK);
    cr_expect_eq(table->open(self, &setup, &none), LATHE_E_CONFIG);
    cr_expect_null(none);
    cr_expect_neq(table->flags & LATHE_COLLECTIVE_NEEDS_BASE, 0);
    cr_expect_eq(table->score(NULL, why, sizeof why), LATHE_SCORE_NO, "never chosen by \"auto\"");
}
