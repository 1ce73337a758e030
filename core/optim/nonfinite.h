/* Searches parameters and the results of nodes for NaN and infinity. */
#ifndef LATHE_OPTIM_NONFINITE_H
#define LATHE_OPTIM_NONFINITE_H

#include "exec/program/program.h"
#include "exec/store/store.h"

/** Inputs and result of a search. The result is a line of text, cut at line_bytes. */
typedef struct lathe_nonfinite {
    lathe_machine *machine;
    const lathe_store *store;
    const lathe_program *program; /* whose nodes are run */
    char *line;
    int64_t line_bytes;
    int32_t is_found; /* 1: a value was not finite, and `line` says where */
} lathe_nonfinite;

/** Searches the parameters, and only reads them. */
lathe_status lathe_nonfinite_in_parameters(lathe_nonfinite *s);

/** Runs the nodes [begin, end) one by one and searches the results of each, until one is not
 * finite. The line names the node with its layer, label and element. accumulates 1: gradients are
 * added to those of earlier backwards. micro: number of the micro-batch in the step, from 1. */
lathe_status lathe_nonfinite_in_nodes(lathe_nonfinite *s, int32_t begin, int32_t end,
                                      int32_t accumulates, int32_t micro);

/** Returns LATHE_E_NUMERIC for a NaN or infinity in an evaluation or a generation. The message
 * names it ("the logits of token", 12) and the first parameter that is not finite, or says that all
 * parameters are finite. */
LATHE_MUST_USE lathe_status lathe_nonfinite_refuse(lathe_machine *m, const lathe_store *store,
                                                   int32_t compute_dtype, const char *what,
                                                   int64_t index);

#endif
