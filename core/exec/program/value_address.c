/* Finds the addresses of values that outlive a run. */
#include "exec/program/value_address.h"

#include "base/error.h"

lathe_status lathe__value_address(const lathe_gather_uses *gathers, const lathe_store *store,
                                  const lathe_ir_value *v, void **out)
{
    int is_here = 1; /* this rank holds all of it */
    *out = NULL;
    if (v->kind == LATHE_VALUE_PARAM || v->kind == LATHE_VALUE_PLANE) {
        const int32_t plane = v->kind == LATHE_VALUE_PLANE ? v->plane : -1;
        *out = lathe_gather_uses_address(gathers, store, v->param, plane);
        if (*out)
            return LATHE_OK;
        is_here = plane < 0 ? lathe_store_is_whole(store, v->param, LATHE_OF_VALUE)
                            : store->rows[v->param].gathered[1 + plane].gather < 0;
    }
    switch (v->kind) {
    case LATHE_VALUE_PARAM:
        *out = lathe_store_value(store, v->param);
        break;
    case LATHE_VALUE_MASTER:
        *out = lathe_store_master(store, v->param);
        is_here = lathe_store_is_whole(store, v->param, LATHE_OF_PARAMETER);
        break;
    case LATHE_VALUE_GRAD:
        *out = lathe_store_fresh(store, v->param);
        break;
    case LATHE_VALUE_PLANE:
        *out = lathe_store_plane(store, v->param, v->plane);
        break;
    default:
        break;
    }
    return is_here ? LATHE_OK
                   : lathe_error(LATHE_E_STATE, "'%s' is divided among ranks, and is not gathered",
                                 store->params->rows[v->param]->name);
}

lathe_status lathe__planes_address(const lathe_gather_uses *gathers, const lathe_store *store,
                                   const lathe_ir_value *v, const void **out)
{
    lathe_ir_value plane = *v;
    plane.kind = LATHE_VALUE_PLANE;
    for (int32_t k = 0; k < LATHE_MAX_PLANES; k++)
        out[k] = NULL;
    for (plane.plane = 0; plane.plane < store->params->rows[v->param]->n_planes; plane.plane++) {
        void *at = NULL;
        LATHE_TRY(lathe__value_address(gathers, store, &plane, &at));
        out[plane.plane] = at;
    }
    return LATHE_OK;
}
