/* The reference attention for the far device: queued on its stream. */
#include <stdio.h>
#include <string.h>

#include "far.h"
#include "lathe/attention.h"

static const lathe_attention_v1 *real;

typedef struct call_args {
    void *self;
    const lathe_attention_problem *problem; /* the core's, which lives as long as the executable */
    lathe_attention_args args;
} call_args;

static lathe_status run_forward(const void *args)
{
    const call_args *a = args;
    return real->forward(a->self, a->problem, &a->args);
}

static lathe_status run_backward(const void *args)
{
    const call_args *a = args;
    return real->backward(a->self, a->problem, &a->args);
}

static lathe_status forward(void *self, const lathe_attention_problem *problem,
                            const lathe_attention_args *args)
{
    const call_args a = {self, problem, *args};
    return args->stream->enqueue(args->stream, run_forward, &a, (int64_t)sizeof a);
}

static lathe_status backward(void *self, const lathe_attention_problem *problem,
                             const lathe_attention_args *args)
{
    const call_args a = {self, problem, *args};
    return args->stream->enqueue(args->stream, run_backward, &a, (int64_t)sizeof a);
}

static int32_t score(void *self, const lathe_attention_problem *problem, char *why,
                     int64_t why_bytes)
{
    (void)self;
    const int here = problem->device && strcmp(problem->device->isa, "far") == 0;
    (void)snprintf(why, (size_t)why_bytes, here ? "of the far device" : "not the far device");
    return here ? LATHE_SCORE_PORTABLE : LATHE_SCORE_NO;
}

static lathe_attention_v1 table;

static void fill(lathe_plugin *entry)
{
    *entry = *far_real_plugin("attention", "reference");
    real = entry->table;
    table = *real;
    table.score = score;
    table.forward = forward;
    table.backward = backward;
    entry->name = "far_reference";
    entry->table = &table;
}

FAR_ENTRY(fill)
