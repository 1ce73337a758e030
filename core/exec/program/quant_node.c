/* Runs the nodes that decode quantized weights. */
#include "exec/program/quant_node.h"

#include "base/error.h"

lathe_status lathe__quant_prepare(const lathe_machine *m, const lathe_param *param,
                                  const lathe_desc *w, int64_t *out_scratch_bytes)
{
    const lathe_instance *format = param->format;
    if (!format)
        return lathe_error(LATHE_E_STATE, "%s: a quantized weight without a format", param->name);
    const lathe_quant_v1 *table = format->table;
    if (!lathe_machine_memory(m)->runs_host_code &&
        !(LATHE_HAS(table, cuda_image) && LATHE_HAS(m->dev, launch)))
        return lathe_error(LATHE_E_UNSUPPORTED, "quant \"%s\" has no code for device \"%s\"",
                           format->component->plugin->name, m->device->component->plugin->name);
    *out_scratch_bytes = LATHE_HAS(table, decode_scratch)
                             ? table->decode_scratch(format->self, w->dims[0], w->dims[1])
                             : 0;
    return LATHE_OK;
}

lathe_status lathe__quant_run(const lathe_machine *m, const lathe_param *param, const lathe_desc *w,
                              const void *const *planes, void *out, void *scratch)
{
    const lathe_instance *format = param->format;
    const lathe_quant_v1 *table = format->table;
    if (lathe_machine_memory(m)->runs_host_code)
        return table->decode(format->self, w->dims[0], w->dims[1], planes, out, w->dtype, scratch,
                             m->stream);
    lathe_quant_args args = {.out = out,
                             .scratch = scratch,
                             .rows = w->dims[0],
                             .cols = w->dims[1],
                             .n_chunks =
                                 (lathe_desc_count(w) + LATHE_QUANT_CHUNK - 1) / LATHE_QUANT_CHUNK,
                             .dtype = w->dtype};
    for (int32_t k = 0; k < LATHE_MAX_PLANES; k++) {
        args.planes[k] = planes[k];
        args.n_planes += planes[k] != NULL;
    }
    if (LATHE_HAS(table, image_settings))
        table->image_settings(format->self, args.settings);
    return m->dev->launch(m->device->self, m->stream, table->cuda_image, LATHE_QUANT_KERNEL,
                          args.n_chunks, LATHE_QUANT_THREADS, &args, (int64_t)sizeof args);
}
