/* Resets the sums of a training run. */
#include "checkpoint/state/counters.h"

#include <string.h>

void lathe_accumulated_clear(lathe_accumulated *sum, lathe_update *update)
{
    memset(sum, 0, sizeof *sum);
    if (update)
        lathe_update_forget_norm(update);
}
