/* The reference attention for the far device, queued on its stream. FAR_FAULT: it breaks one rule
 * on that device. */
#include <stdio.h>
#include <string.h>

#include "far.h"
#include "lathe/attention.h"

static const lathe_attention_v1 *real;

typedef struct call_args {
    void *self;
    const lathe_attention_problem *problem; /* the core's, valid as long as the executable */
    lathe_attention_args args;
} call_args;

enum {
    FAULT_NONE,
    FAULT_WRONG,   /* one element of o is wrong */
    FAULT_OVERRUN, /* writes one element after lse */
    FAULT_CHANGES  /* every other call gives different bits */
};
#ifndef FAR_FAULT
#define FAR_FAULT FAULT_NONE
#define FAR_CALLED "far_reference"
#else
#define FAR_CALLED FAR_NAME
#endif

/* Applies the fault to a correct forward. */
static void spoil(const lathe_attention_problem *p, const lathe_attention_args *a)
{
    static int n_calls;
    float *o = a->o;
    if (FAR_FAULT == FAULT_OVERRUN)
        a->lse[p->batch * p->n_heads * p->t_q] = 0.0f;
    if (p->dtype != LATHE_F32)
        return;
    if (FAR_FAULT == FAULT_WRONG)
        o[0] += 1e-2f;
    if (FAR_FAULT == FAULT_CHANGES && n_calls++ % 2)
        o[0] *= 1.0f + 0x1p-22f;
}

static lathe_status run_forward(const void *args)
{
    const call_args *a = args;
    LATHE_TRY(real->forward(a->self, a->problem, &a->args));
    spoil(a->problem, &a->args);
    return LATHE_OK;
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
    lathe_device_info host = {.size = (uint32_t)sizeof host};
    lathe_attention_problem there = *problem;
    if (!problem->device || strcmp(problem->device->isa, "far") != 0) {
        (void)snprintf(why, (size_t)why_bytes, "not the far device");
        return LATHE_SCORE_NO;
    }
    host = *problem->device;
    host.host_memory = 1;
    there.device = &host;
    return real->score(self, &there, why, why_bytes);
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
    entry->name = FAR_CALLED;
    entry->table = &table;
}

FAR_ENTRY(fill)
