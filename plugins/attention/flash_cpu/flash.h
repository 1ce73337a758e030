/* A variant of the kernels: the flash kernels compiled for one instruction set and for products
 * of f32 or of bf16. */
#ifndef LATHE_ATTENTION_FLASH_H
#define LATHE_ATTENTION_FLASH_H

#include "lathe/attention.h"
#include "lathe/host.h"

/* One call, with checked arguments. */
typedef struct flash_call {
    const lathe_host *host;
    const lathe_attention_problem *p;
    const lathe_attention_args *a;
    int32_t workers; /* number of workers that the scratch is for; >= host->n_threads() */
} flash_call;

typedef struct flash_variant {
    const char *name;
    int64_t (*forward_scratch)(const lathe_attention_problem *p, int32_t workers);
    int64_t (*backward_scratch)(const lathe_attention_problem *p, int32_t workers);
    void (*forward)(const flash_call *call);
    void (*backward)(const flash_call *call);
} flash_variant;

extern const flash_variant flash_generic; /* f32 products, any machine */
#if defined(__x86_64__)
extern const flash_variant flash_avx2;        /* f32 products, x86-64-v3 */
extern const flash_variant flash_avx512;      /* f32 products, x86-64-v4 */
extern const flash_variant flash_avx512_bf16; /* bf16 products, for bf16 tensors */
#endif

#endif
