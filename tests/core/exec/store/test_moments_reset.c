/* Resets of optimizer state: pruning against the function of ReLoRA's authors on torch tensors,
 * ties, bf16, random elements, refusals. Golden: tests/golden/relora.py. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/moments_reset.h"
#include "files/safetensors/safetensors.h"
#include "lathe/dtype.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

/* A store of one trained vector with one slot in host memory. */
typedef struct one_slot {
    lathe_params params;
    lathe_store_row row;
    lathe_store store;
} one_slot;

static void make(one_slot *x, int64_t n, lathe_desc slot, int32_t partition, void *memory)
{
    const lathe_param row = {
        .name = "m.lora_A.weight", .desc = lathe_desc_1d(LATHE_F32, n), .trainable = 1};
    int32_t index;
    lathe_params_init(&x->params, LATHE_F32);
    OK(lathe_params_add(&x->params, &row, &index));
    memset(&x->row, 0xff, sizeof x->row);
    x->row.n_slots = 1;
    x->row.slot[0] = 0;
    x->row.slots[0] = (lathe_slot){"exp_avg", slot};
    x->row.partition = partition;
    x->store = (lathe_store){
        .params = &x->params, .rows = &x->row, .n_rows = 1, .slots = memory, .is_host = 1};
}

static void reset(float *data, int64_t n, int32_t how, double ratio, int64_t step)
{
    one_slot x;
    make(&x, n, lathe_desc_1d(LATHE_F32, n), LATHE_PARTITION_ELEMENT, data);
    OK(lathe_moments_reset(&x.store, 0, how, ratio, 5, step));
    lathe_params_fini(&x.params);
}

Test(moments_reset, pruning_keeps_what_the_authors_function_keeps)
{
    static const int percents[] = {0, 1, 50, 90, 99};
    lathe_safetensors *golden = NULL;
    OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/relora.safetensors", &golden));
    const lathe_st_tensor *slots = lathe_safetensors_find(golden, "slots");
    cr_assert(slots);
    const int64_t n = lathe_desc_count(&slots->desc);
    float *data = malloc((size_t)n * sizeof *data);
    for (size_t k = 0; k < sizeof percents / sizeof percents[0]; k++) {
        char name[32];
        snprintf(name, sizeof name, "pruned.%d", percents[k]);
        const lathe_st_tensor *want = lathe_safetensors_find(golden, name);
        cr_assert(want, "%s", name);
        memcpy(data, slots->data, (size_t)n * sizeof *data);
        reset(data, n, LATHE_RESET_PRUNE, percents[k] / 100.0, 1);
        for (int64_t i = 0; i < n; i++)
            cr_assert_eq(data[i], ((const float *)want->data)[i], "%s[%lld]: %g", name,
                         (long long)i, (double)data[i]);
    }
    free(data);
    lathe_safetensors_close(golden);
}

Test(moments_reset, a_case_by_hand_with_ties_and_signs)
{
    float x[8] = {3.0f, -1.0f, 0.5f, 1.0f, -4.0f, 2.0f, -1.0f, 8.0f};
    /* |x| sorted: .5 1 1 1 2 3 4 8; index floor(.5*7) = 3 is 1, so .5 and the three ones go */
    const float want[8] = {3.0f, 0.0f, 0.0f, 0.0f, -4.0f, 2.0f, 0.0f, 8.0f};
    reset(x, 8, LATHE_RESET_PRUNE, 0.5, 1);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(x[i], want[i], "%d: %g", i, (double)x[i]);
    reset(x, 8, LATHE_RESET_ZERO, 0.0, 1);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(x[i], 0.0f);
    float one = 2.0f;
    reset(&one, 1, LATHE_RESET_PRUNE, 0.0, 1); /* the largest is the smallest as well */
    cr_expect_eq(one, 0.0f);
    one = 2.0f;
    reset(&one, 1, LATHE_RESET_NONE, 0.9, 1);
    cr_expect_eq(one, 2.0f);
}

Test(moments_reset, bf16_is_pruned_like_f32)
{
    enum { N = 301 };
    static uint16_t narrow[N];
    static float wide[N];
    one_slot x;
    for (int i = 0; i < N; i++) {
        narrow[i] = lathe_f32_to_bf16((float)((i * 7919) % 1009 - 500) * 1e-9f);
        wide[i] = lathe_bf16_to_f32(narrow[i]);
    }
    make(&x, N, lathe_desc_1d(LATHE_BF16, N), LATHE_PARTITION_ELEMENT, narrow);
    OK(lathe_moments_reset(&x.store, 0, LATHE_RESET_PRUNE, 0.9, 5, 1));
    lathe_params_fini(&x.params);
    reset(wide, N, LATHE_RESET_PRUNE, 0.9, 1);
    for (int i = 0; i < N; i++)
        cr_expect_eq(lathe_bf16_to_f32(narrow[i]), wide[i], "%d", i);
}

static int zeros_in(const float *x, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += x[i] == 0.0f;
    return count;
}

Test(moments_reset, random_elements_are_others_at_another_step_and_the_same_again)
{
    enum { N = 10000 };
    static float a[N], b[N], c[N];
    for (int i = 0; i < N; i++)
        a[i] = b[i] = c[i] = 1.0f;
    reset(a, N, LATHE_RESET_RANDOM, 0.9, 7);
    reset(b, N, LATHE_RESET_RANDOM, 0.9, 7);
    reset(c, N, LATHE_RESET_RANDOM, 0.9, 8);
    cr_expect_eq(memcmp(a, b, sizeof a), 0);
    cr_expect_neq(memcmp(a, c, sizeof a), 0);
    /* a binomial of 10000 draws: the standard deviation is 30 */
    cr_expect(abs(zeros_in(a, N) - 9000) < 150, "%d", zeros_in(a, N));
}

Test(moments_reset, state_that_is_not_a_moment_of_each_element_is_refused)
{
    one_slot x;
    make(&x, 64, lathe_desc_1d(LATHE_U8, 64), LATHE_PARTITION_BLOCK, NULL);
    OK(lathe_moments_check(&x.store, 0, LATHE_RESET_NONE));
    OK(lathe_moments_check(&x.store, 0, LATHE_RESET_ZERO));
    cr_expect_eq(lathe_moments_check(&x.store, 0, LATHE_RESET_PRUNE), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "choose \"zero\" or \"none\""), "%s",
              lathe_error_message());
    lathe_params_fini(&x.params);
    make(&x, 64, lathe_desc_2d(LATHE_F32, 4, 8), LATHE_PARTITION_MATRIX, NULL);
    cr_expect_eq(lathe_moments_check(&x.store, 0, LATHE_RESET_ZERO), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "choose \"none\""), "%s", lathe_error_message());
    lathe_params_fini(&x.params);
    make(&x, 64, lathe_desc_1d(LATHE_F32, 64), LATHE_PARTITION_MATRIX, NULL);
    OK(lathe_moments_check(&x.store, 0, LATHE_RESET_ZERO));
    OK(lathe_moments_check(&x.store, 0, LATHE_RESET_RANDOM));
    lathe_params_fini(&x.params);
}
