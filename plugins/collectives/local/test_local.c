/* The group of one rank. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/collective.h"
#include "lathe/kit/testing.h"

static const lathe_collective_v1 *table;

static lathe_status open_group(lathe_group **out)
{
    static void *self;
    const lathe_plugin *plugin = lathe_test_open(LATHE_TEST_PLUGIN);
    const lathe_collective_setup setup = {.size = (uint32_t)sizeof setup, .deadline_seconds = 5.0};
    table = plugin->table;
    cr_assert_eq(lathe_test_create(plugin, "", &self), LATHE_OK);
    return table->open(self, &setup, out);
}

static lathe_status once(lathe_group *group, const lathe_exchange_problem *problem, const void *in,
                         void *out)
{
    lathe_exchange *x;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    const lathe_exchange_args args = {.size = (uint32_t)sizeof args, .in = in, .out = out};
    const lathe_status status = table->prepare(group, problem, &x, &info);
    if (status != LATHE_OK)
        return status;
    cr_expect_eq(info.scratch_bytes, 0);
    cr_expect_eq(info.sent_bytes, 0);
    const int64_t before = lathe_test_allocs;
    for (int i = 0; i < 3; i++) {
        int32_t done = 0;
        cr_assert_eq(table->start(x, &args), LATHE_OK, "%s", lathe_test_message);
        cr_assert_eq(table->test(x, &done), LATHE_OK);
        cr_expect_eq(done, 1);
        cr_assert_eq(table->wait(x, 1.0), LATHE_OK);
    }
    cr_expect_eq(lathe_test_allocs, before);
    table->exchange_destroy(x);
    return LATHE_OK;
}

Test(local_collective, it_is_rank_0_of_1)
{
    lathe_group *group, *part;
    lathe_group_info info = {.size = (uint32_t)sizeof info};
    cr_assert_eq(open_group(&group), LATHE_OK, "%s", lathe_test_message);
    cr_assert_eq(table->info(group, &info), LATHE_OK);
    cr_expect_eq(info.rank, 0);
    cr_expect_eq(info.n_ranks, 1);
    cr_expect_eq(info.n_local, 1);
    cr_expect_eq(info.n_hosts, 1);
    cr_expect_eq(info.flags, LATHE_GROUP_DETERMINISTIC | LATHE_GROUP_RANK_ORDER);
    cr_expect_gt(strlen(info.host_name), 0);
    cr_assert_eq(table->split(group, 7, 0, &part), LATHE_OK);
    cr_assert_not_null(part);
    cr_assert_eq(table->close(part), LATHE_OK);
    cr_assert_eq(table->split(group, -1, 0, &part), LATHE_OK);
    cr_expect_null(part);
    cr_expect_eq(table->split(group, -2, 0, &part), LATHE_E_ARG);
    cr_assert_eq(table->close(group), LATHE_OK);
}

Test(local_collective, exchanges_are_copies)
{
    lathe_group *group;
    const float in[5] = {1.0f, -2.0f, 3.5f, 0.0f, 1e30f};
    const int64_t five = 5;
    cr_assert_eq(open_group(&group), LATHE_OK);
    for (int32_t op = LATHE_ALL_REDUCE; op <= LATHE_ALL_TO_ALL; op++) {
        float out[5] = {0};
        const lathe_exchange_problem problem = {
            .size = (uint32_t)sizeof problem,
            .op = op,
            .dtype = LATHE_F32,
            .n = op == LATHE_ALL_TO_ALL ? 0 : 5,
            .counts = op == LATHE_ALL_TO_ALL ? &five : NULL,
            .from = op == LATHE_ALL_TO_ALL ? &five : NULL,
        };
        cr_assert_eq(once(group, &problem, in, out), LATHE_OK, "%s", lathe_test_message);
        cr_expect_arr_eq(out, in, sizeof in, "exchange %d", op);
    }
    const lathe_exchange_problem barrier = {.size = (uint32_t)sizeof barrier, .op = LATHE_BARRIER};
    cr_expect_eq(once(group, &barrier, NULL, NULL), LATHE_OK);
    cr_assert_eq(table->close(group), LATHE_OK);
}

Test(local_collective, wrong_problems_are_refused)
{
    static const struct {
        int32_t op, dtype, reduce, peer, tag;
        int64_t n;
        lathe_status want;
        const char *message;
    } rows[] = {
        {99, 0, 0, 0, 0, 1, LATHE_E_UNSUPPORTED, "no exchange has the number 99"},
        {LATHE_ALL_REDUCE, LATHE_I8, 0, 0, 0, 1, LATHE_E_DTYPE, "all_reduce of i8"},
        {LATHE_ALL_REDUCE, 77, 0, 0, 0, 1, LATHE_E_DTYPE, "all_reduce of ?"},
        {LATHE_ALL_REDUCE, 0, 3, 0, 0, 1, LATHE_E_ARG, "all_reduce with the reduction 3"},
        {LATHE_ALL_GATHER, 0, 1, 0, 0, 1, LATHE_E_ARG, "all_gather with the reduction 1"},
        {LATHE_ALL_REDUCE, 0, 0, 0, 0, -1, LATHE_E_ARG, "all_reduce of -1 elements"},
        {LATHE_BARRIER, 0, 0, 0, 0, 1, LATHE_E_ARG, "barrier of 1 elements"},
        {LATHE_BROADCAST, 0, 0, 1, 0, 1, LATHE_E_ARG, "broadcast with rank 1: this is rank 0 of 1"},
        {LATHE_SEND, 0, 0, 0, 0, 1, LATHE_E_ARG, "send with rank 0: this is rank 0 of 1"},
        {LATHE_ALL_REDUCE, 0, 0, 0, 5, 1, LATHE_E_ARG, "all_reduce with the tag 5"},
        {LATHE_ALL_TO_ALL, 0, 0, 0, 0, 0, LATHE_E_ARG, "all_to_all needs counts and from"},
    };
    lathe_group *group;
    cr_assert_eq(open_group(&group), LATHE_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float data[1] = {0};
        const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                                .op = rows[i].op,
                                                .dtype = rows[i].dtype,
                                                .reduce = rows[i].reduce,
                                                .peer = rows[i].peer,
                                                .tag = rows[i].tag,
                                                .n = rows[i].n};
        cr_expect_eq(once(group, &problem, data, data), rows[i].want, "row %zu", i);
        cr_expect_eq(strncmp(lathe_test_message, rows[i].message, strlen(rows[i].message)), 0, "%s",
                     lathe_test_message);
    }
    const int64_t four = 4;
    const lathe_exchange_problem extents = {
        .size = (uint32_t)sizeof extents, .op = LATHE_ALL_GATHER, .n = 5, .counts = &four};
    cr_expect_eq(once(group, &extents, NULL, NULL), LATHE_E_ARG);
    cr_expect_not_null(strstr(lathe_test_message, "whose sum is n = 5"), "%s", lathe_test_message);
    cr_assert_eq(table->close(group), LATHE_OK);
}

Test(local_collective, one_of_several_processes_is_refused)
{
    lathe_group *group;
    cr_assert_eq(setenv("OMPI_COMM_WORLD_SIZE", "4", 1), 0);
    cr_assert_eq(setenv("OMPI_COMM_WORLD_RANK", "1", 1), 0);
    cr_expect_eq(open_group(&group), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_test_message, "OMPI_COMM_WORLD_SIZE is 4"), "%s",
                       lathe_test_message);
    cr_assert_eq(setenv("OMPI_COMM_WORLD_SIZE", "junk", 1), 0);
    cr_expect_eq(open_group(&group), LATHE_E_CONFIG);
    cr_assert_eq(setenv("OMPI_COMM_WORLD_SIZE", "1", 1), 0);
    cr_assert_eq(open_group(&group), LATHE_OK);
    cr_assert_eq(table->close(group), LATHE_OK);
}
