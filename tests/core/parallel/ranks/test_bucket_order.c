/* The order in which buckets of gradients are complete. */
#include <criterion/criterion.h>

#include "parallel/ranks/bucket_order.h"

Test(bucket_order, buckets_follow_the_nodes_that_complete_them)
{
    const lathe_graph graphs[2] = {{.n_nodes = 12}, {.n_nodes = 12}};
    const int32_t last[2][4] = {{9, 4, -1, 4}, {0, 1, 2, 3}};
    const int32_t order[4] = {2, 1, 3, 0}, sorted[4] = {-1, 4, 4, 9};
    lathe_bucket_orders orders = {.list = NULL};
    const lathe_bucket_order *found = NULL;
    cr_assert_eq(lathe_bucket_orders_init(&orders, 2), LATHE_OK);
    cr_assert_eq(lathe_bucket_orders_find(&orders, &graphs[0], &found), LATHE_E_STATE);
    for (int g = 0; g < 2; g++)
        cr_assert_eq(lathe_bucket_orders_add(&orders, &graphs[g], last[g], 4), LATHE_OK);
    cr_assert_eq(lathe_bucket_orders_add(&orders, &graphs[0], last[0], 4), LATHE_E_STATE);
    cr_assert_eq(lathe_bucket_orders_find(&orders, &graphs[0], &found), LATHE_OK);
    for (int k = 0; k < 4; k++) {
        cr_expect_eq(found->order[k], order[k], "place %d", k);
        cr_expect_eq(found->last[k], sorted[k], "place %d", k);
    }
    cr_assert_eq(lathe_bucket_orders_find(&orders, &graphs[1], &found), LATHE_OK);
    cr_expect_eq(found->order[3], 3);
    lathe_bucket_orders_fini(&orders);
    lathe_bucket_orders_fini(&orders);
}
