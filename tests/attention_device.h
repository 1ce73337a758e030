/* Runs the tests of all attention backends on those of the CUDA device. Arguments are copied to the
 * device and results back; each tensor is a block of its own that ends with its last element. The
 * tests run on the real GPU if there is one, otherwise on the emulated one (tests/emulator). The
 * includer defines ATTENTION_ON_DEVICE as the backend's name, and ATTENTION_HAS_LIBRARY: whether a
 * library that the real GPU's backend opens is installed. */
#ifndef LATHE_TESTS_ATTENTION_DEVICE_H
#define LATHE_TESTS_ATTENTION_DEVICE_H

#include <stdio.h>
#include <unistd.h>

#include "plug/host_table.h"
#include "support/build_folder.h"

#ifndef ATTENTION_HAS_LIBRARY
#define ATTENTION_HAS_LIBRARY 1
#endif

typedef struct attention_gpu {
    const lathe_device_v1 *table;
    const lathe_plugin *plugin; /* the backend */
    void *self;                 /* of the device */
    lathe_device_info info;
    int32_t is_emulated;
} attention_gpu;

/* Opens the plugin at a path of the build folder; NULL: it was not built. */
static inline const lathe_plugin *attention_open(const char *folder, const char *file)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s/%s.so", lathe_test_build(), folder, file);
    if (access(path, F_OK) != 0)
        return NULL;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(so, "%s: %s", path, dlerror());
    return dlsym(so, LATHE_PLUGIN_ENTRY_NAME);
}

static inline const attention_gpu *attention_gpu_get(void)
{
    static const char *const folders[] = {"lib/lathe/plugins", "tests/emulated"};
    static attention_gpu gpu;
    for (int i = 0; i < 2 && gpu.plugin == NULL; i++) {
        char devices[64], backends[64], why[256] = "";
        (void)snprintf(devices, sizeof devices, "%s/device", folders[i]);
        (void)snprintf(backends, sizeof backends, "%s/attention", folders[i]);
        const lathe_plugin *device = attention_open(devices, "cuda");
        const lathe_plugin *backend = attention_open(backends, ATTENTION_ON_DEVICE);
        if (device == NULL || backend == NULL || (i == 0 && !(ATTENTION_HAS_LIBRARY)))
            continue;
        gpu.table = device->table;
        if (gpu.table->score(why, sizeof why) == 0)
            continue;
        cr_assert(device->create(lathe_host_get(), NULL, 0, &gpu.self) == LATHE_OK);
        gpu.info.size = sizeof gpu.info;
        cr_assert(gpu.table->info(gpu.self, &gpu.info) == LATHE_OK);
        gpu.plugin = backend;
        gpu.is_emulated = i;
    }
    cr_assert(gpu.plugin, "neither a GPU nor the emulated one has the backend");
    return &gpu;
}

static inline const lathe_plugin *attention_plugin(void)
{
    return attention_gpu_get()->plugin;
}

static inline const lathe_device_info *attention_device(void)
{
    return &attention_gpu_get()->info;
}

static inline int32_t attention_is_emulated(void)
{
    return attention_gpu_get()->is_emulated;
}

/* A tensor of the call: rows of `width` bytes, `stride` bytes apart. */
typedef struct attention_block {
    void *host, *device;
    int64_t rows, width, stride;
} attention_block;

static inline int64_t attention_block_bytes(const attention_block *b)
{
    return b->rows > 0 ? (b->rows - 1) * b->stride + b->width : 0;
}

static inline void *attention_upload(attention_block *b)
{
    const attention_gpu *g = attention_gpu_get();
    const int64_t bytes = attention_block_bytes(b);
    if (b->host == NULL)
        return NULL;
    cr_assert(g->table->alloc(g->self, bytes + (bytes == 0), LATHE_MEM_DEVICE, &b->device) ==
              LATHE_OK);
    if (bytes > 0)
        cr_assert(g->table->copy(g->self, NULL, b->device, b->host, bytes, LATHE_COPY_TO_DEVICE) ==
                  LATHE_OK);
    cr_assert(g->table->sync(g->self, NULL) == LATHE_OK);
    return b->device;
}

/* Copies the block to the host and stores its rows one by one, because columns of other tensors may
 * be between them. With `check`, stores nothing and checks that the bytes between the rows were not
 * written. */
static inline void attention_download(attention_block *b, int check)
{
    const attention_gpu *g = attention_gpu_get();
    const int64_t bytes = attention_block_bytes(b), gap = b->stride - b->width;
    char *copy = malloc((size_t)bytes + 1), *host = b->host;
    if (host != NULL && bytes > 0)
        cr_assert(g->table->copy(g->self, NULL, copy, b->device, bytes, LATHE_COPY_TO_HOST) ==
                  LATHE_OK);
    cr_assert(g->table->sync(g->self, NULL) == LATHE_OK);
    for (int64_t r = 0; host != NULL && r < b->rows; r++) {
        const int64_t at = r * b->stride;
        if (!check)
            memcpy(host + at, copy + at, (size_t)b->width);
        else if (r + 1 < b->rows)
            cr_assert(memcmp(host + at + b->width, copy + at + b->width, (size_t)gap) == 0,
                      "wrote between the rows of a tensor");
    }
    free(copy);
}

/* Runs forward (pass 0) or backward (1) on copies of the arguments. */
static inline lathe_status attention_compute(void *self, const lathe_attention_problem *p,
                                             const lathe_attention_args *a, int pass)
{
    const attention_gpu *g = attention_gpu_get();
    const lathe_attention_v1 *t = g->plugin->table;
    const int64_t e = lathe_dtype_bytes(p->dtype), rq = p->batch * p->t_q, rk = p->batch * p->t_k;
    const int64_t wq = p->n_heads * e * p->head_dim, wk = p->n_kv_heads * e * p->head_dim;
    const int64_t dim = p->value_dim > 0 ? p->value_dim : p->head_dim;
    const int64_t wo = p->n_heads * e * dim, wv = p->n_kv_heads * e * dim;
    const int64_t scratch = pass ? t->backward_scratch(self, p) : t->forward_scratch(self, p);
    const int64_t lengths = p->batch * 4 * (p->block_tokens > 0 ? p->kv_stride : 1);
    lathe_attention_args on = *a;
    const struct {
        attention_block block;
        void *slot;   /* member of `on` */
        int32_t pass; /* pass that writes it; -1: none */
    } list[] = {
        {{(void *)(uintptr_t)a->q, NULL, rq, wq, p->q_stride * e}, &on.q, -1},
        {{(void *)(uintptr_t)a->k, NULL, rk, wk, p->k_stride * e}, &on.k, -1},
        {{(void *)(uintptr_t)a->v, NULL, rk, wv, p->v_stride * e}, &on.v, -1},
        {{(void *)(uintptr_t)a->doc_start, NULL, 1, rq * 4, 0}, &on.doc_start, -1},
        {{(void *)(uintptr_t)a->key_end, NULL, 1, rq * 4, 0}, &on.key_end, -1},
        {{(void *)(uintptr_t)a->kv_len, NULL, 1, lengths, 0}, &on.kv_len, -1},
        {{(void *)(uintptr_t)a->slopes, NULL, 1, p->n_heads * 4, 0}, &on.slopes, -1},
        {{(void *)(uintptr_t)a->sinks, NULL, 1, p->n_heads * 4, 0}, &on.sinks, -1},
        {{(void *)(uintptr_t)a->d_o, NULL, rq, wo, p->o_stride * e}, &on.d_o, -1},
        {{a->o, NULL, rq, wo, p->o_stride * e}, &on.o, 0},
        {{a->lse, NULL, 1, rq * p->n_heads * 4, 0}, &on.lse, 0},
        {{a->dq, NULL, rq, wq, p->dq_stride * e}, &on.dq, 1},
        {{a->dk, NULL, rk, wk, p->dk_stride * e}, &on.dk, 1},
        {{a->dv, NULL, rk, wv, p->dv_stride * e}, &on.dv, 1},
        {{a->scratch, NULL, 1, scratch + 64, 0}, &on.scratch, pass},
    };
    enum { N = sizeof list / sizeof list[0] };
    attention_block blocks[N];
    for (int i = 0; i < N; i++) {
        blocks[i] = list[i].block;
        void *device = attention_upload(&blocks[i]);
        memcpy(list[i].slot, &device, sizeof device);
    }
    const lathe_status status = (pass ? t->backward : t->forward)(self, p, &on);
    cr_assert(g->table->sync(g->self, NULL) == LATHE_OK);
    for (int i = 0; i < 2 * N; i++) /* all checks before the first copy */
        if (status == LATHE_OK && list[i % N].pass == pass)
            attention_download(&blocks[i % N], i < N);
    for (int i = 0; i < N; i++)
        g->table->free(g->self, blocks[i].device);
    return status;
}

#endif
