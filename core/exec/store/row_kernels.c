/* Prepares and runs kernels over whole rows of the store. */
#include "exec/store/row_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plug/answers.h"

static lathe_status make(const lathe_machine *m, int32_t op, const lathe_op_attrs *attrs,
                         const lathe_desc *in, int32_t n_in, lathe_desc out, lathe_kernel **to,
                         int64_t *io_scratch)
{
    int64_t scratch = 0;
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = op,
                                          .attrs = attrs,
                                          .in = in,
                                          .out = &out,
                                          .n_in = n_in,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = m->flags,
                                          .n_threads = m->n_threads};
    LATHE_TRY(lathe_answer_kernel(m->device, &problem, to, &scratch));
    *io_scratch = scratch > *io_scratch ? scratch : *io_scratch;
    return LATHE_OK;
}

static lathe_status make_narrow(const lathe_machine *m, const lathe_store *store, int32_t i,
                                int64_t n, lathe_kernel **to, int64_t *io_scratch)
{
    const int32_t dtype = lathe_params_value_dtype(store->params, i);
    const lathe_op_attrs narrow = {.dtype = dtype};
    const lathe_desc wide = lathe_desc_1d(LATHE_F32, n);
    return store->rows[i].shadow < 0
               ? LATHE_OK
               : make(m, LATHE_OP_CAST, &narrow, &wide, 1, lathe_desc_1d(dtype, n), to, io_scratch);
}

static lathe_status make_row(lathe_row_kernels *k, const lathe_store *store, int32_t i)
{
    const int64_t n = store->rows[i].held[LATHE_OF_STATE].n;
    /* a - share*(a - w): the same bits as a + share*(w - a) */
    const lathe_op_attrs towards = {.alpha = -1.0, .beta = 1.0};
    const lathe_desc wide = lathe_desc_1d(LATHE_F32, n);
    const lathe_desc in[3] = {wide, wide, lathe_desc_1d(LATHE_F32, 1)};
    LATHE_TRY(make(k->m, LATHE_OP_APPLY_UPDATE, &towards, in, 3, wide, &k->towards[i],
                   &k->scratch_bytes));
    return make_narrow(k->m, store, i, n, &k->narrow[i], &k->scratch_bytes);
}

lathe_status lathe_row_kernels_init(lathe_row_kernels *k, lathe_machine *m,
                                    const lathe_store *store)
{
    const size_t n = (size_t)store->n_rows + 1;
    *k = (lathe_row_kernels){.m = m, .n_rows = store->n_rows};
    k->towards = calloc(n, sizeof(lathe_kernel *));
    k->narrow = calloc(n, sizeof(lathe_kernel *));
    if (!k->towards || !k->narrow)
        return lathe_error(LATHE_E_NOMEM, "no memory for kernels of %d rows", store->n_rows);
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->rows[i].average >= 0)
            LATHE_TRY(make_row(k, store, i));
    return LATHE_OK;
}

void lathe_row_kernels_fini(lathe_row_kernels *k)
{
    lathe_kernel **const lists[2] = {k->towards, k->narrow};
    for (int l = 0; l < 2; l++)
        for (int32_t i = 0; lists[l] && i < k->n_rows; i++)
            if (lists[l][i])
                k->m->dev->kernel_destroy(k->m->device->self, lists[l][i]);
    free(k->towards);
    free(k->narrow);
    memset(k, 0, sizeof *k);
}

static lathe_status run(const lathe_machine *m, lathe_kernel *kernel, const void *const *in,
                        void *out, void *scratch)
{
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .in = in,
                                    .out = &out,
                                    .scratch = scratch,
                                    .stream = m->stream};
    return m->dev->kernel_run(m->device->self, kernel, &args);
}

/* The elements of a master, and of a compute copy, that this rank updates: it holds them. */
static float *own_master(const lathe_store *store, int32_t row)
{
    const lathe_extent *held = store->rows[row].held;
    return lathe_store_master(store, row) +
           (held[LATHE_OF_STATE].begin - held[LATHE_OF_PARAMETER].begin);
}

static void *own_shadow(const lathe_store *store, int32_t row)
{
    return (char *)lathe_store_shadow(store, row) +
           (store->rows[row].held[LATHE_OF_STATE].begin -
            store->rows[row].held[LATHE_OF_VALUE].begin) *
               lathe_dtype_bytes(lathe_params_value_dtype(store->params, row));
}

lathe_status lathe_row_towards(const lathe_row_kernels *k, const lathe_store *store, int32_t row,
                               void *scratch)
{
    float *average = lathe_store_average(store, row);
    const void *const in[3] = {average, own_master(store, row), &store->step->share};
    return run(k->m, k->towards[row], in, average, scratch);
}

lathe_status lathe_row_narrow(const lathe_row_kernels *k, const lathe_store *store, int32_t row,
                              void *scratch)
{
    if (!k->narrow[row])
        return LATHE_OK;
    const void *const in[1] = {own_master(store, row)};
    return run(k->m, k->narrow[row], in, own_shadow(store, row), scratch);
}

lathe_status lathe_row_refresh_from(const lathe_store *store, int32_t row, const float *values)
{
    lathe_machine *m = store->m;
    lathe_kernel *kernel = NULL;
    void *scratch = NULL;
    int64_t bytes = 0;
    const lathe_extent *held = &store->rows[row].held[LATHE_OF_VALUE];
    const void *const in[1] = {values + held->begin};
    if (held->n == 0)
        return LATHE_OK;
    LATHE_TRY(make_narrow(m, store, row, held->n, &kernel, &bytes));
    if (!kernel)
        return LATHE_OK;
    lathe_status status =
        bytes > 0 ? lathe_machine_alloc(m, LATHE_MEM_SCRATCH, bytes, &scratch) : LATHE_OK;
    if (status == LATHE_OK)
        status = run(m, kernel, in, lathe_store_shadow(store, row), scratch);
    if (status == LATHE_OK)
        status = lathe_machine_sync(m);
    lathe_machine_free(m, LATHE_MEM_SCRATCH, bytes, scratch);
    m->dev->kernel_destroy(m->device->self, kernel);
    return status;
}

lathe_status lathe_row_refresh(const lathe_store *store, int32_t row)
{
    return lathe_row_refresh_from(store, row, lathe_store_master(store, row));
}
