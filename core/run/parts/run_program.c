/* Makes programs that a run needs beside those of its plan. */
#include "run/parts/run_parts.h"
#include "run/state/run_state.h"

lathe_status lathe__run_program(lathe_run *run, int32_t kind, lathe_program *out)
{
    lathe_program_config config = lathe__run_program_config(run);
    const int64_t shared = run->programs.arena_bytes;
    config.invariant = out == &run->programs.scoring;
    LATHE_TRY(lathe_program_build(&config, kind, out));
    LATHE_TRY(lathe_program_prepare(out, &run->machine));
    LATHE_TRY(lathe_program_divide(out, &run->store));
    const lathe_plan *plan = lathe_exec_plan(out->exec);
    void *arena = run->programs.arena;
    if (plan->arena_bytes > shared) { /* a caller's program, which is not in the plan */
        LATHE_TRY(
            lathe_machine_alloc(&run->machine, LATHE_MEM_ACTIVATIONS, plan->arena_bytes, &arena));
        out->own_arena = arena;
        out->own_bytes = plan->arena_bytes;
    }
    return lathe_exec_place(out->exec, &run->store, arena);
}
