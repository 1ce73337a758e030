/* Plans gathers, and fills the input that ops with random numbers read: the seed, the step, and
 * which part of the batch of all ranks this rank has. */
#include "exec/program/programs.h"

#include "lathe/rng.h"

void lathe_programs_counter(const lathe_programs *programs, const lathe_program *p, lathe_val input,
                            uint64_t seed, int64_t step)
{
    int64_t *counter = lathe_exec_input(p->exec, input);
    counter[LATHE_RNG_SEED] = (int64_t)seed;
    counter[LATHE_RNG_STEP] = step;
    counter[LATHE_RNG_RANK] = programs->rank;
    counter[LATHE_RNG_RANKS] = programs->n_ranks > 0 ? programs->n_ranks : 1;
    /* a batch has the first rows of all its records, then their second rows, and so on */
    counter[LATHE_RNG_PARTS] = programs->train.exec ? programs->train.rows_per_record : 1;
}

lathe_status lathe_program_divide(lathe_program *p, const lathe_store *store)
{
    const int32_t n_nodes = lathe_exec_graph(p->exec)->n_nodes;
    return lathe_exec_divide(p->exec, store, p->seed == LATHE_NONE ? n_nodes : p->forward_end);
}
