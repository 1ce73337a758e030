/* Settings that opening a run appends to those of the command line. */
#include "opening/more_overrides.h"

#include "base/error.h"

lathe_override *lathe__more_overrides(lathe_run *run, int32_t n)
{
    lathe_override *list =
        lathe_arena_alloc(&run->arena, (run->open.n_overrides + n) * (int64_t)sizeof *list);
    for (int32_t i = 0; list && i < run->open.n_overrides; i++)
        list[i] = run->open.overrides[i];
    if (list)
        run->open.overrides = list;
    else
        (void)lathe_error(LATHE_E_NOMEM, "no memory for more settings of a run");
    return list;
}
