/* The place of each rank: by host, in groups that divide, copies and islands. */
#include <criterion/criterion.h>

#include "base/error.h"
#include "parallel/ranks/rank_layout.h"

/* Four ranks, dealt to two hosts in turn (mpirun --map-by node): 0 and 2 are on one host. */
Test(rank_layout, ranks_are_counted_host_by_host)
{
    const int32_t hosts[] = {0, 1, 0, 1}, locals[] = {0, 0, 1, 1}, want[] = {0, 2, 1, 3};
    int32_t counted[4];
    lathe_layout_count(hosts, locals, 4, counted);
    for (int k = 0; k < 4; k++)
        cr_expect_eq(counted[k], want[k], "rank %d is counted as %d", counted[k], k);
}

/* A refusal names what would fit: the nearest numbers that divide, and the most ranks up to the
 * number. */
Test(rank_layout, what_does_not_divide_is_refused)
{
    static const struct {
        int32_t n;
        lathe_layout_ask ask;
        const char *key, *said;
    } rows[] = {
        {8, {1, 4}, NULL, NULL},
        {8, {2, 4}, NULL, NULL},
        {8,
         {1, 3},
         "shard_ranks",
         "parallel.shard_ranks is 3, and does not divide the 8 ranks; set it to 2 or 4, or start 6 "
         "ranks"},
        {8,
         {4, 4},
         "shard_ranks",
         "parallel.shard_ranks is 4, and does not divide the 2 ranks of an island; set it to 2, or "
         "start 16 ranks"},
        {8,
         {3, 0},
         "diloco_islands",
         "parallel.diloco_islands is 3, and does not divide the 8 ranks; set it to 2 or 4, or "
         "start 6 ranks"},
        {7,
         {3, 0},
         "diloco_islands",
         "parallel.diloco_islands is 3, and does not divide the 7 ranks; set it to 7, or start 6 "
         "ranks"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *key = "unset";
        const lathe_status status = lathe_layout_check(rows[i].n, &rows[i].ask, &key);
        cr_expect_eq(status, rows[i].said ? LATHE_E_CONFIG : LATHE_OK);
        if (rows[i].said) {
            cr_expect_str_eq(lathe_error_message(), rows[i].said);
            cr_expect_str_eq(key, rows[i].key);
        } else {
            cr_expect_null(key);
        }
    }
    cr_expect_eq(lathe_layout_most_ranks(11, &(lathe_layout_ask){2, 2}), 8);
    cr_expect_eq(lathe_layout_most_ranks(3, &(lathe_layout_ask){2, 2}), 0);
}

/* 12 ranks that are not there, in 2 islands of 6: groups of 3 divide, so there are 2 copies. */
Test(rank_layout, ranks_that_are_not_there_have_places)
{
    lathe_rank_layout *l = NULL;
    cr_assert_eq(lathe_rank_layout_create(NULL, 12, &(lathe_layout_ask){2, 3}, &l), LATHE_OK);
    cr_expect_eq(l->n_islands, 2);
    cr_expect_eq(l->n_copies, 2);
    cr_expect_eq(l->n_shard, 3);
    cr_expect_eq(lathe_layout_inside(l), 6);
    const lathe_division_ask divided = lathe_layout_division(l, LATHE_SHARD_OPTIMIZER, 1000);
    cr_expect(divided.n_ranks == 3 && divided.n_copies == 2 && divided.rank == 0);
    lathe_rank_layout_destroy(l);
    l = NULL;
    cr_assert_eq(lathe_rank_layout_create(NULL, 12, &(lathe_layout_ask){2, 1}, &l), LATHE_OK);
    const lathe_division_ask whole = lathe_layout_division(l, LATHE_SHARD_NONE, 1000);
    cr_expect(whole.n_ranks == 6 && whole.n_copies == 1, "all of an island add gradients");
    lathe_rank_layout_destroy(l);
}
