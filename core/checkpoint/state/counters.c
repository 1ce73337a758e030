/* Resets the sums of a training run. */
#include "checkpoint/state/counters.h"

#include <string.h>

void lathe_expert_loads_clear(const lathe_expert_loads *loads)
{
    for (int64_t i = 0; i < loads->n; i++)
        loads->counts[i] = 0.0;
}

void lathe_accumulated_clear(lathe_accumulated *sum, lathe_update *update)
{
    memset(sum, 0, sizeof *sum);
    if (update)
        lathe_update_forget_norm(update);
}
