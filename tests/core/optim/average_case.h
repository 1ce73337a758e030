/* Common code of the tests of averaged weights: hashes of everything that an evaluation could
 * change, and one step. */
#ifndef LATHE_TEST_AVERAGE_CASE_H
#define LATHE_TEST_AVERAGE_CASE_H

#include "run/state/run_saved.h"
#include "support/checkpoint_case.h"

#define FOLDER "/tmp/lathe-average-XXXXXX"

__attribute__((unused)) static uint64_t mix(uint64_t hash, const void *data, int64_t bytes)
{
    const unsigned char *p = data;
    for (int64_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

/* Everything that an evaluation could leave changed. */
__attribute__((unused)) static uint64_t hash_of(const lathe_run *run)
{
    uint64_t h = mix(1, run->store.masters, run->store.master_bytes);
    h = mix(h, run->store.shadows, run->store.shadow_bytes);
    h = mix(h, run->store.averages, run->store.average_bytes);
    return mix(h, run->store.slots, run->store.slot_bytes);
}

__attribute__((unused)) static int one_step(lathe_run *run)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    lathe_step_result r = {.size = (uint32_t)sizeof r};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, &r));
    return r.skipped;
}

__attribute__((unused)) static int64_t count_of(const lathe_run *run, int32_t i)
{
    return lathe_desc_count(&run->params.rows[i]->desc);
}

#endif
