/* Runs nodes whose op is a plugin's. */
#include "exec/program/op_node.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "exec/program/node_kernel.h"

struct lathe_op_node {
    const lathe_op_kernel *kernel;
    const char *plugin;
    void *self;
    lathe_op_call call;
    lathe_desc in[LATHE_OP_MAX_IN], out[LATHE_OP_MAX_OUT];
};

/* Whether the machine can run a kernel: in its memory, or by launching an image. */
static const char *refusal(const lathe_machine *m, const lathe_op_kernel *k)
{
    const int shares = lathe_machine_memory(m)->runs_host_code;
    if (shares != (k->run != NULL))
        return shares ? "it is for devices with memory of their own" : "it runs in host memory";
    if (!shares && k->image == NULL)
        return "it was built without nvcc";
    return !shares && !LATHE_HAS(m->dev, launch) ? "the device launches no images" : NULL;
}

static lathe_status choose(const lathe_machine *m, const lathe_ir_node *n, lathe_op_node *to)
{
    enum { WHY = 200 };
    lathe_buffer why_not = LATHE_BUFFER_INIT;
    lathe_status status = LATHE_OK;
    int32_t n_kernels = 0, best = LATHE_SCORE_NO;
    const lathe_op_kernel *kernels = lathe_plugin_op_kernels(n->op, &n_kernels);
    for (int32_t i = 0; i < n_kernels; i++) {
        char why[WHY] = "";
        const char *cannot = refusal(m, &kernels[i]);
        const int32_t score =
            cannot == NULL ? kernels[i].score(to->self, &to->call, why, WHY) : LATHE_SCORE_NO;
        why[WHY - 1] = '\0';
        if (score > best) {
            best = score;
            to->kernel = &kernels[i];
        } else if (score <= LATHE_SCORE_NO) {
            lathe_buffer_printf(&why_not, "; %s: %s", kernels[i].name,
                                cannot != NULL ? cannot : why);
        }
    }
    if (why_not.status != LATHE_OK)
        status = why_not.status;
    else if (to->kernel == NULL)
        status = lathe_error(LATHE_E_UNSUPPORTED, "op %s has no kernel for it on device \"%s\"%s",
                             to->plugin, m->device->component->plugin->name, why_not.data);
    lathe_buffer_fini(&why_not);
    return status;
}

lathe_status lathe_op_node_prepare(const lathe_machine *m, const lathe_graph *g,
                                   const lathe_ir_node *n, lathe_arena *arena, lathe_op_node **out,
                                   int64_t *out_scratch_bytes)
{
    lathe_op_node *node = lathe_arena_alloc(arena, (int64_t)sizeof *node);
    lathe_op_problem p;
    if (node == NULL)
        return LATHE_E_NOMEM;
    lathe__graph_problem(g, n, &p);
    memcpy(node->in, p.in, sizeof node->in);
    memcpy(node->out, p.out, sizeof node->out);
    node->kernel = NULL;
    node->plugin = lathe_plugin_op_get(n->op)->plugin->name;
    node->self = n->self;
    const uint32_t set = lathe__write_mask(n, LATHE_WRITE_SET),
                   add = lathe__write_mask(n, LATHE_WRITE_ADD),
                   both = lathe__write_mask(n, LATHE_WRITE_RUNTIME);
    node->call = (lathe_op_call){.size = (uint32_t)sizeof node->call,
                                 .flags = m->flags,
                                 .in = node->in,
                                 .out = node->out,
                                 .n_in = n->n_in,
                                 .n_out = n->n_out,
                                 .may_accumulate = add | both,
                                 .may_overwrite = set | both,
                                 .n_threads = m->n_threads,
                                 .device = &m->info};
    LATHE_TRY(choose(m, n, node));
    const lathe_op_kernel *k = node->kernel;
    *out_scratch_bytes = k->scratch != NULL ? k->scratch(node->self, &node->call) : 0;
    if (*out_scratch_bytes < 0 || *out_scratch_bytes > INT64_C(1) << 46)
        return lathe_error(LATHE_E_PLUGIN, "op %s: kernel %s wants %lld bytes of scratch",
                           node->plugin, k->name, (long long)*out_scratch_bytes);
    *out = node;
    return LATHE_OK;
}

/* A launch of a node's image. */
typedef struct launching {
    const lathe_machine *m;
    const lathe_op_node *node;
    lathe_stream *stream;
} launching;

static lathe_status launch(void *ctx, const char *kernel, int64_t n_blocks, int32_t n_threads,
                           const void *args, int64_t args_bytes)
{
    const launching *l = ctx;
    return l->m->dev->launch(l->m->device->self, l->stream, l->node->kernel->image, kernel,
                             n_blocks, n_threads, args, args_bytes);
}

lathe_status lathe_op_node_run(const lathe_machine *m, const lathe_op_node *node,
                               const lathe_kernel_args *args)
{
    launching l = {m, node, args->stream};
    const lathe_op_launcher to = {.size = (uint32_t)sizeof to, .ctx = &l, .launch = launch};
    const lathe_op_kernel *k = node->kernel;
    return k->run != NULL ? k->run(node->self, &node->call, args)
                          : k->queue(node->self, &node->call, args, &to);
}

const char *lathe_op_node_kernel(const lathe_op_node *node)
{
    return node->kernel->name;
}
