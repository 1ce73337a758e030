/* Sets a row of the store, its master and its compute copy, on the CPU and on a device whose memory
 * the host cannot access. */
#include "exec/store/row_kernels.h"
#include "support/far_case.h"

static lathe_run *open_bf16(int where, int mode, char *dir)
{
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_small(&s, dir, where);
    set(&s, "train.precision=bf16");
    return open_run(mode, s.list);
}

/* Row of a matrix. */
static int32_t matrix_of(const lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n; i++)
        if (run->params.rows[i]->desc.rank == 2)
            return i;
    cr_assert_fail("no matrix");
    return -1;
}

/* Sets a row to values that bf16 rounds up, down, and in ties to even. */
static float *set_row(lathe_run *run, int32_t row, int64_t *out_n)
{
    const int64_t n = lathe_desc_count(&run->params.rows[row]->desc);
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t k = 0; k < n; k++)
        values[k] = (k % 2 ? -1.0f : 1.0f) * (1.0f + (float)(k % 1021) * 0x1p-9f);
    OK(lathe_store_set(&run->store, row, values));
    *out_n = n;
    return values;
}

static void expect_shadow(lathe_run *run, int32_t row, const float *values, int64_t n)
{
    uint16_t *shadow = malloc((size_t)n * sizeof *shadow);
    OK(lathe_store_get(&run->store, shadow, lathe_store_shadow(&run->store, row), 2 * n));
    for (int64_t k = 0; k < n; k++)
        cr_assert_eq(shadow[k], lathe_f32_to_bf16(values[k]), "element %lld", (long long)k);
    free(shadow);
}

static void close_case(lathe_run *run, const char *dir)
{
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(store_set, the_device_casts_the_master_to_the_compute_copy)
{
    for (int where = ON_CPU; where <= ON_FAR; where++) {
        char dir[] = "/tmp/lathe_store_XXXXXX";
        int64_t n = 0;
        lathe_run *run = open_bf16(where, LATHE_OPEN_TRAIN, dir);
        const int32_t row = matrix_of(run);
        cr_assert(lathe_store_master(&run->store, row));
        float *values = set_row(run, row, &n);
        float *master = malloc((size_t)n * sizeof *master);
        OK(lathe_store_get(&run->store, master, lathe_store_master(&run->store, row), 4 * n));
        cr_assert_eq(memcmp(master, values, (size_t)n * sizeof *values), 0, "%s",
                     where_names[where]);
        expect_shadow(run, row, values, n);
        free(master);
        free(values);
        close_case(run, dir);
    }
}

/* Regression test: the compute copy of such a row was not set in host memory. */
Test(store_set, a_row_without_a_master_gets_its_compute_copy)
{
    for (int where = ON_CPU; where <= ON_FAR; where++) {
        char dir[] = "/tmp/lathe_store_XXXXXX";
        int64_t n = 0;
        lathe_run *run = open_bf16(where, LATHE_OPEN_INFER, dir);
        const int32_t row = matrix_of(run);
        cr_assert(!lathe_store_master(&run->store, row));
        float *values = set_row(run, row, &n);
        expect_shadow(run, row, values, n);
        free(values);
        close_case(run, dir);
    }
}
