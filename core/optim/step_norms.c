/* Computes the norms of a step on the device. */
#include "optim/step_norms.h"

#include <string.h>

lathe_status lathe_step_norms_init(lathe_step_norms *n, lathe_machine *m, const lathe_store *store)
{
    n->m = m;
    n->store = store;
    n->expected_at = -1;
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++)
        LATHE_TRY(lathe_squares_init(&n->of[k], m, store, k));
    return LATHE_OK;
}

void lathe_step_norms_fini(lathe_step_norms *n)
{
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++)
        lathe_squares_fini(&n->of[k]);
}

int64_t lathe_step_norms_bytes(const lathe_step_norms *n)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++)
        bytes += lathe_squares_bytes(&n->of[k]);
    return bytes;
}

int64_t lathe_step_norms_staging_bytes(const lathe_step_norms *n)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++)
        bytes += lathe_squares_staging_bytes(&n->of[k]);
    return bytes;
}

lathe_status lathe_step_norms_place(lathe_step_norms *n, char *own, char *staging)
{
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++) {
        lathe_squares *s = &n->of[k];
        LATHE_TRY(lathe_squares_place(s, n->store, k, own, staging));
        own += lathe_squares_bytes(s);
        staging += lathe_squares_staging_bytes(s);
    }
    return LATHE_OK;
}

static lathe_status queue(lathe_step_norms *n, int32_t family)
{
    LATHE_TRY(lathe_squares_queue(&n->of[family]));
    return family == LATHE_SQUARES_GRADIENTS ? lathe_squares_queue(&n->of[LATHE_SQUARES_NARROW])
                                             : LATHE_OK;
}

lathe_status lathe_step_norms_expect(lathe_step_norms *n)
{
    n->expected_at = n->m->n_syncs;
    return queue(n, LATHE_SQUARES_GRADIENTS);
}

void lathe_step_norms_forget(lathe_step_norms *n)
{
    n->expected_at = -1;
}

lathe_status lathe_step_norms_rows(lathe_step_norms *n, int32_t family, double *rows)
{
    const int is_gradient = family == LATHE_SQUARES_GRADIENTS;
    const int have_come = is_gradient && n->expected_at >= 0 && n->expected_at < n->m->n_syncs;
    if (!have_come) {
        LATHE_TRY(queue(n, family));
        LATHE_TRY(lathe_machine_sync(n->m));
    }
    memset(rows, 0, (size_t)n->store->n_rows * sizeof *rows);
    lathe_squares_read(&n->of[family], rows);
    if (!is_gradient)
        return LATHE_OK;
    lathe_squares_read(&n->of[LATHE_SQUARES_NARROW], rows);
    n->expected_at = -1;
    return LATHE_OK;
}
