/* An optimizer that misbehaves at the moment WILD_WHEN; otherwise it is plain gradient descent. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lathe/optimizer.h"
#include "lathe/plugin.h"

#ifndef WILD_SLOTS
#define WILD_SLOTS 0
#endif

/* The loader refuses a library that imports exit(); a plugin that hides the call is caught
 * later. */
__attribute__((unused)) static void end_with_0(void)
{
    void (*end)(int) = NULL;
    *(void **)&end = dlsym(RTLD_DEFAULT, "exit");
    end(0);
}

__attribute__((unused)) static void end_unseen(void)
{
    (void)syscall(SYS_exit_group, 0);
}

__attribute__((unused)) static void crash(void)
{
    (void)raise(SIGSEGV);
}

__attribute__((unused)) static void hang(void)
{
    for (;;)
        (void)pause();
}

__attribute__((unused)) static void nothing(void)
{
}

enum { NEVER, CONSTRUCTOR, CREATE, STEP };

static void maybe(int when)
{
    if (when == WILD_WHEN)
        WILD_DOES();
}

__attribute__((constructor)) static void construct(void)
{
    maybe(CONSTRUCTOR);
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    maybe(CREATE);
    (void)host, (void)out_self;
    return LATHE_OK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self, (void)param;
    for (int32_t i = 0; i < WILD_SLOTS; i++)
        out[i] = (lathe_slot){NULL, {LATHE_F32, 1, {INT64_C(1) << 60, 1, 1, 1}}};
    return WILD_SLOTS;
}

static double base_lr(void *self)
{
    (void)self;
    return 0.01;
}

static lathe_status step(void *self, const lathe_optimizer_step *todo)
{
    (void)self;
    maybe(STEP);
    const float scale = todo->scalars[LATHE_SCALAR_LR] * todo->scalars[LATHE_SCALAR_GRAD_SCALE];
    for (int32_t t = 0; t < todo->n_tensors; t++)
        for (int64_t i = 0; i < todo->tensors[t].n; i++)
            todo->tensors[t].param[i] -= scale * todo->tensors[t].grad[i];
    return LATHE_OK;
}

static const lathe_optimizer_v1 table = {.size = (uint32_t)sizeof table,
                                         .revision = LATHE_OPTIMIZER_REVISION,
                                         .slots = slots,
                                         .base_lr = base_lr,
                                         .step = step};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER, .kind = LATHE_KIND_OPTIMIZER, .revision = LATHE_OPTIMIZER_REVISION,
    .name = WILD_NAME,   .version = "1.0.0",           .summary = "a fixture",
    .source = "ours",    .license = "Apache-2.0",      .table = &table,
    .create = create,
};
