/* Chooses the steps whose nodes are traced. */
#include "train/run_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "graph/ir/flops.h"
#include "graph/ir/op_info.h"

lathe_status lathe_run_trace_steps(lathe_trace_range *trace, const char *text)
{
    char *end = NULL;
    int64_t first = strtoll(text, &end, 10), last = first;
    int32_t fits = end != text && first >= 1;
    if (fits && *end == ':') {
        const char *second = end + 1;
        last = strtoll(second, &end, 10);
        fits = end != second && last >= first;
    }
    if (!fits || *end != '\0')
        return lathe_error(
            LATHE_E_ARG, "steps to trace: '%s' is neither a step nor FIRST:LAST, as in 3:7", text);
    trace->first = first;
    trace->last = last;
    return LATHE_OK;
}

lathe_status lathe_run_trace_only(lathe_run *run, const char *text)
{
    return lathe_run_trace_steps(&run->trace, text);
}

void lathe_run_trace_begin(lathe_run *run, int64_t done, int64_t last)
{
    lathe_trace_range *trace = &run->trace;
    const char *unit = lathe__run_evaluates(run) ? "batches" : "steps";
    lathe_trace_thread("training");
    if (trace->first == 0) {
        trace->first = done + LATHE_TRACE_SKIPPED + 1;
        trace->last = done + LATHE_TRACE_SKIPPED + LATHE_TRACE_STEPS;
    }
    if (lathe_trace_on() && run->programs.rank == 0 && done < last &&
        (trace->first > last || trace->last <= done))
        lathe_log(
            LATHE_LOG_WARN,
            "--trace: no operation is traced: %s %lld to %lld are to be, and %lld to %lld are "
            "computed; choose others with --trace-steps",
            unit, (long long)trace->first, (long long)trace->last, (long long)done + 1,
            (long long)last);
}

static void on_node(const lathe_graph *g, int32_t i, double begin, double end)
{
    static const char *const phases[] = {"forward", "backward", "recompute"};
    const lathe_ir_node *n = &g->nodes[i];
    const char *op = lathe_op_info_get(n->op)->name;
    char args[256];
    int32_t dtype = LATHE_F32;
    for (int32_t k = n->n_out - 1; k >= 0; k--)
        if (n->out[k] != LATHE_NONE)
            dtype = g->values[n->out[k]].desc.dtype;
    (void)snprintf(args, sizeof args,
                   "{\"op\": \"%s\", \"phase\": \"%s\", \"dtype\": \"%s\", \"layer\": %d, "
                   "\"flops\": %.0f}",
                   op, phases[n->phase], lathe_dtype_name(dtype), n->layer, lathe_node_flops(g, i));
    lathe_trace_span("op", n->label && n->label[0] ? n->label : op, begin, end, args);
}

/* exec NULL: that program is not part of the run. */
static void watch(lathe_exec *exec, int wants)
{
    if (exec)
        lathe_exec_watch(exec, wants ? on_node : NULL);
}

void lathe_run_trace_step(lathe_run *run, int64_t step)
{
    if (!lathe_trace_on() && !run->trace.is_on)
        return;
    const int32_t wants = lathe_trace_on() && step >= run->trace.first && step <= run->trace.last;
    lathe_exec *const execs[] = {run->programs.train.exec, run->programs.eval.exec,
                                 run->opt.update ? lathe_update_matrix(run->opt.update) : NULL};
    run->trace.is_on = wants;
    for (int32_t i = 0; i < run->programs.shorter.n; i++) {
        watch(run->programs.shorter.train[i].exec, wants);
        watch(run->programs.shorter.eval[i].exec, wants);
    }
    for (int i = 0; i < 3; i++)
        watch(execs[i], wants);
}
