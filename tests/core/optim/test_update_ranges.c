/* Updates by ranges: every element is updated once, with its own slot and index, however the tensor
 * is cut. */
#include "optim/update_ranges.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"

enum { ROWS = 300, COLS = 250, N = ROWS * COLS, BLOCK = 100 };

static int64_t smallest, largest; /* sizes of the ranges that step() got */
static int calls;

/* p = p - g. Each slot element contains its own number. */
static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    const int64_t per = *(const int64_t *)self; /* elements per slot element */
    calls++;
    for (int32_t k = 0; k < s->n_tensors; k++) {
        const lathe_optimizer_tensor *t = &s->tensors[k];
        const float *slot = t->slots[0];
        smallest = t->n < smallest ? t->n : smallest;
        largest = t->n > largest ? t->n : largest;
        for (int64_t i = 0; i < t->n; i++) {
            /* the slot knows which element, row or block it belongs to */
            cr_assert_eq(slot[i / per], (float)((t->first + i) / per), "element %lld",
                         (long long)(t->first + i));
            t->param[i] -= t->grad[i];
        }
    }
    return LATHE_OK;
}

static int64_t block(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return BLOCK;
}

/* One tensor of N elements with a slot of `slot_n`, in ranges of at most `capacity` elements. */
static void check(int32_t partition, int64_t slot_n, int64_t capacity, int64_t unit)
{
    static float param[N], grad[N], slot[N], before[N];
    static double sums[2 * LATHE_RANGES_CHUNKS];
    static const lathe_optimizer_v1 table = {
        .size = sizeof table, .revision = 1, .step = step, .block = block};
    int64_t per = N / slot_n;
    const lathe_instance optimizer = {.table = &table, .self = &per};
    lathe_params params;
    lathe_store store = {.params = &params};
    int32_t index;
    lathe_params_init(&params, LATHE_F32);
    const lathe_param p = {
        .name = "w", .desc = lathe_desc_2d(LATHE_F32, ROWS, COLS), .trainable = 1, .layer = -1};
    cr_assert_eq(lathe_params_add(&params, &p, &index), LATHE_OK);
    lathe_store_row row = {.n_slots = 1, .partition = partition};
    row.slots[0] = (lathe_slot){"s", lathe_desc_1d(LATHE_F32, slot_n)};
    store.rows = &row;
    store.n_rows = 1;
    double update2 = 0.0, param2 = 0.0, want_update = 0.0, want_param = 0.0;
    for (int64_t i = 0; i < N; i++) {
        param[i] = (float)(i % 97) - 48.0f;
        grad[i] = (float)(i % 13) * 0.25f;
        want_update += (double)grad[i] * (double)grad[i]; /* exact: small multiples of 1/4 */
        want_param += pow((double)param[i] - (double)grad[i], 2.0);
    }
    for (int64_t i = 0; i < slot_n; i++)
        slot[i] = (float)i;
    lathe_optimizer_tensor t = {
        .param = param, .grad = grad, .slots = {slot}, .n = N, .rows = ROWS, .cols = COLS};
    lathe_ranges r = {.optimizer = &optimizer,
                      .store = &store,
                      .tensors = &t,
                      .n_tensors = 1,
                      .before = before,
                      .sums = sums};
    cr_expect_leq(lathe__ranges_capacity(&r, 64), N);
    r.capacity = capacity;
    const lathe_optimizer_step whole = {.size = sizeof whole, .step = 1};
    smallest = N;
    largest = calls = 0;
    cr_assert_eq(lathe__ranges_run(&r, &whole, &update2, &param2), LATHE_OK, "%s",
                 lathe_error_message());
    for (int64_t i = 0; i < N; i++)
        cr_assert_eq(param[i], (float)(i % 97) - 48.0f - grad[i], "element %lld", (long long)i);
    cr_expect_eq(update2, want_update);
    cr_expect_eq(param2, want_param);
    cr_expect_leq(largest, capacity);
    cr_expect(unit == 0 ? calls == 1 : calls > 1);
    cr_expect(unit == 0 || largest % unit == 0, "%lld is no multiple of %lld", (long long)largest,
              (long long)unit);
    lathe_params_fini(&params);
}

Test(update_ranges, elements_are_cut_anywhere)
{
    check(LATHE_PARTITION_ELEMENT, N, 20000, 1);
    check(LATHE_PARTITION_ELEMENT, N, 16384, 16384);
    check(LATHE_PARTITION_ELEMENT, N, N, 0); /* it fits whole */
}

Test(update_ranges, rows_and_blocks_stay_whole_and_keep_their_slots)
{
    check(LATHE_PARTITION_ROW, N, 20000, COLS);
    check(LATHE_PARTITION_ROW, ROWS, 20000, COLS); /* a number per row */
    check(LATHE_PARTITION_BLOCK, N / BLOCK, 20000, BLOCK);
    check(LATHE_PARTITION_BLOCK, N, 777, BLOCK);
}

Test(update_ranges, a_tensor_with_other_slots_is_given_whole)
{
    check(LATHE_PARTITION_ELEMENT, 10, N, 0);
}

Test(update_ranges, too_little_room_for_a_whole_tensor_is_an_error)
{
    static float param[N], grad[N], slot[10], before[100];
    static double sums[2 * LATHE_RANGES_CHUNKS];
    static const lathe_optimizer_v1 table = {.size = sizeof table, .revision = 1, .step = step};
    const lathe_instance optimizer = {.table = &table};
    lathe_store_row row = {.n_slots = 1};
    row.slots[0] = (lathe_slot){"s", lathe_desc_1d(LATHE_F32, 10)};
    lathe_params params;
    int32_t index;
    const lathe_param p = {
        .name = "w", .desc = lathe_desc_1d(LATHE_F32, N), .trainable = 1, .layer = -1};
    lathe_params_init(&params, LATHE_F32);
    cr_assert_eq(lathe_params_add(&params, &p, &index), LATHE_OK);
    const lathe_store store = {.params = &params, .rows = &row, .n_rows = 1};
    lathe_optimizer_tensor t = {
        .param = param, .grad = grad, .slots = {slot}, .n = N, .rows = 1, .cols = N};
    lathe_ranges r = {.optimizer = &optimizer,
                      .store = &store,
                      .tensors = &t,
                      .n_tensors = 1,
                      .before = before,
                      .sums = sums};
    const lathe_optimizer_step whole = {.size = sizeof whole, .step = 1};
    double a = 0.0, b = 0.0;
    cr_expect_eq(lathe__ranges_capacity(&r, 1), N); /* the requested capacity is enough */
    r.capacity = 100;
    cr_expect_eq(lathe__ranges_run(&r, &whole, &a, &b), LATHE_E_STATE);
    lathe_params_fini(&params);
}
