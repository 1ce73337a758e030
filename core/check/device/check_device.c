/* Checks of devices: their score and description, memory and copies. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/device/device_checks.h"
#include "check/device/device_session.h"
#include "exec/store/memory_kind.h"

static lathe_status scores_with_a_reason(lathe__subject *s)
{
    const lathe_device_v1 *table = s->table;
    char why[256] = "", again[256] = "";
    const int32_t score = table->score(why, sizeof why);
    if (score < 0 || score > 1000)
        return lathe_error(LATHE_E_PLUGIN, "score is %d", score);
    if (why[0] == '\0' || strchr(why, '\n') != NULL)
        return lathe_error(LATHE_E_PLUGIN, "score gives no line of reason");
    if (table->score(again, sizeof again) != score || strcmp(why, again) != 0)
        return lathe_error(LATHE_E_PLUGIN, "score answers otherwise the second time");
    char few[8] = "abcdefg";
    (void)table->score(few, 4);
    if (few[4] != 'e')
        return lathe_error(LATHE_E_CORRUPT, "score writes more than its capacity");
    lathe__note(s, "%d: %s", score, why);
    return LATHE_OK;
}

static lathe_status describes_the_machine(lathe__subject *s)
{
    lathe__session d;
    LATHE_TRY(lathe__session_init(&d, s));
    lathe_status status = LATHE_OK;
    if (d.info.n_workers < 1 || d.info.memory_bytes < 1 || d.info.model[0] == '\0' ||
        d.info.isa[0] == '\0' || !(d.info.compute_dtypes & 1u << LATHE_F32))
        status = lathe_error(LATHE_E_PLUGIN,
                             "info: %d workers, %lld bytes, model '%s', isa '%s', dtypes 0x%x",
                             d.info.n_workers, (long long)d.info.memory_bytes, d.info.model,
                             d.info.isa, d.info.compute_dtypes);
    lathe__note(s, "%s, %s", d.info.model, d.info.isa);
    lathe_instance_fini(&d.instance);
    return status;
}

static lathe_status memory_round_trip(lathe__subject *s)
{
    enum { N = 10007 };
    lathe__session d;
    void *a = NULL, *b = NULL;
    LATHE_TRY(lathe__session_init(&d, s));
    const float *x = lathe__random(s, N, 1, 1.0);
    unsigned char *back = lathe__memory(s, N * 4);
    lathe_status status = lathe__session_put(&d, NULL, N * 4, &a);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__session_get(&d, a, N * 4, back)) != LATHE_OK)
        goto out;
    for (int64_t i = 0; i < N * 4 && status == LATHE_OK; i++)
        if (back[i] != 0)
            status = lathe_error(LATHE_E_PLUGIN, "fresh memory is not zero");
    if (status != LATHE_OK)
        goto out;
    if (lathe_memory_kind_of(&d.info)->runs_host_code && (uintptr_t)a % 64 != 0) {
        status = lathe_error(LATHE_E_PLUGIN, "memory is not aligned to 64 bytes");
        goto out;
    }
    if ((status = lathe__session_put(&d, x, N * 4, &b)) != LATHE_OK)
        goto out;
    status = d.table->copy(d.instance.self, NULL, a, b, N * 4, LATHE_COPY_ON_DEVICE);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__session_get(&d, a, N * 4, back)) != LATHE_OK)
        goto out;
    if (!lathe__same(back, x, N * 4))
        status = lathe_error(LATHE_E_PLUGIN, "a copy to the device and back changes the bytes");
out:
    d.table->free(d.instance.self, a);
    d.table->free(d.instance.self, b);
    lathe_instance_fini(&d.instance);
    return status;
}

const lathe__check *lathe__checks_device(void)
{
    static const lathe__check checks[] = {
        {"scores_with_a_reason", scores_with_a_reason, 0},
        {"describes_the_machine", describes_the_machine, 0},
        {"memory_round_trip", memory_round_trip, 0},
        {"streams_in_order", lathe__streams_in_order, 0},
        {"events_tell_time", lathe__events_tell_time, 0},
        {"refuses_wrong_problems", lathe__refuses_wrong_problems, 0},
        {"refuses_unknown_numbers", lathe__refuses_unknown_numbers, 0},
        {"kernels_are_apart", lathe__kernels_are_apart, 0},
        {"kernel_runs_a_thousand_times", lathe__kernel_runs_a_thousand_times, 0},
        {"quantizes_activations", lathe__quantizes_activations, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
