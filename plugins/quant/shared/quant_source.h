/* Reads a folder's quantization_config: comparisons of its scalars, and refusals that name the key,
 * what it says and what is supported. */
#ifndef LATHE_QUANT_SOURCE_H
#define LATHE_QUANT_SOURCE_H

#include <string.h>

#include "lathe/plugin.h"
#include "lathe/quant.h"

/** Whether the scalar at `path` has this text. */
static inline int source_is(const lathe_quant_config *config, const char *path, const char *text)
{
    const char *seen = config->get(config->ctx, path);
    return seen != NULL && strcmp(seen, text) == 0;
}

/** LATHE_E_UNSUPPORTED: the scalar is there and is not `text`. */
static inline lathe_status source_expect(const lathe_host *host, const lathe_quant_config *config,
                                         const char *format, const char *path, const char *text)
{
    const char *seen = config->get(config->ctx, path);
    if (seen == NULL || strcmp(seen, text) == 0)
        return LATHE_OK;
    return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s reads weights with %s = %s, and here it is %s",
                      format, path, text, seen);
}

/** LATHE_E_NOT_FOUND: compressed-tensors' weights have another layout than `layout`
 *  ("float-quantized"). LATHE_E_UNSUPPORTED: they are of this layout, and not plain weights in it.
 */
static inline lathe_status source_compressed(const lathe_host *host,
                                             const lathe_quant_config *config, const char *format,
                                             const char *layout)
{
    if (!source_is(config, "format", layout))
        return lathe_fail(host, LATHE_E_NOT_FOUND, "%s reads %s", format, layout);
    LATHE_TRY(source_expect(host, config, format, "quantization_status", "compressed"));
    LATHE_TRY(source_expect(host, config, format, "weights.dynamic", "false"));
    return source_expect(host, config, format, "weights.symmetric", "true");
}

#endif
