/* Opens the device under check, and copies to and from it. */
#include "check/device/device_session.h"

lathe_status lathe__session_init(lathe__session *d, lathe__subject *s)
{
    char why[256] = "";
    *d = (lathe__session){.s = s, .table = s->table, .info = {.size = sizeof d->info}};
    if (d->table->score(why, sizeof why) == LATHE_SCORE_NO)
        return lathe__skip(s, "not on this machine: %s", why);
    LATHE_TRY(lathe__instance(s, &d->instance));
    const lathe_status status = d->table->info(d->instance.self, &d->info);
    if (status != LATHE_OK)
        lathe_instance_fini(&d->instance);
    return status;
}

lathe_status lathe__session_put(lathe__session *d, const void *host, int64_t bytes, void **out)
{
    LATHE_TRY(d->table->alloc(d->instance.self, bytes, LATHE_MEM_DEVICE, out));
    if (host == NULL)
        return LATHE_OK;
    return d->table->copy(d->instance.self, NULL, *out, host, bytes, LATHE_COPY_TO_DEVICE);
}

lathe_status lathe__session_get(lathe__session *d, const void *device, int64_t bytes, void *host)
{
    LATHE_TRY(d->table->copy(d->instance.self, NULL, host, device, bytes, LATHE_COPY_TO_HOST));
    return LATHE_HAS(d->table, sync) ? d->table->sync(d->instance.self, NULL) : LATHE_OK;
}

uint32_t lathe__session_dtypes(const lathe__session *d)
{
    return (d->info.graph_dtypes ? d->info.graph_dtypes : d->info.compute_dtypes) | 1u << LATHE_F32;
}
