/* Arguments that the host passes to the kernels of latent_kv_kernel.cu. */
#ifndef LATENT_KV_H
#define LATENT_KV_H

#include <stdint.h>

enum { LATENT_KV_THREADS = 256 };

/* Forward: kv and shared are read, k and v written. Backward: dk and dv are read (NULL: 0), dkv and
 * dshared written (NULL: not wanted). */
typedef struct latent_kv_args {
    const void *kv, *shared, *dk, *dv;
    void *k, *v, *dkv, *dshared;
    int64_t n_tokens, n_heads;
    int64_t own, shared_dim, value_dim; /* channels of a head: Dn, R, Dv */
    int32_t dtype, reserved;
} latent_kv_args;

#endif
