/* Reads a folder's quantization_config: comparisons of its scalars, and refusals that name the key,
 * what it says and what is supported. */
#ifndef LATHE_QUANT_SOURCE_H
#define LATHE_QUANT_SOURCE_H

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lathe/plugin.h"
#include "lathe/quant.h"

/** Whether the scalar at `path` has this text. */
static inline int source_is(const lathe_quant_config *config, const char *path, const char *text)
{
    const char *seen = config->get(config->ctx, path);
    return seen != NULL && strcmp(seen, text) == 0;
}

/** The integer at `path`; `def` if it is absent. */
static inline int64_t source_int(const lathe_quant_config *config, const char *path, int64_t def)
{
    const char *seen = config->get(config->ctx, path);
    return seen != NULL ? strtoll(seen, NULL, 10) : def;
}

static inline lathe_status source_refuse(const lathe_host *host, const char *format,
                                         const char *path, const char *expected, const char *seen)
{
    return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s reads weights with %s = %s, and here it is %s",
                      format, path, expected, seen != NULL ? seen : "absent");
}

/** LATHE_E_UNSUPPORTED: the scalar is there and is not `text`, in capitals or not. */
static inline lathe_status source_expect(const lathe_host *host, const lathe_quant_config *config,
                                         const char *format, const char *path, const char *text)
{
    const char *seen = config->get(config->ctx, path);
    if (seen == NULL || strcasecmp(seen, text) == 0)
        return LATHE_OK;
    return source_refuse(host, format, path, text, seen);
}

/** The dtype of the layer's tensor of a suffix (lathe_plane.file_suffix); -1: it is not known. */
static inline int32_t source_dtype(const lathe_quant_config *config, const char *suffix)
{
    lathe_desc desc;
    return config->tensor(config->ctx, suffix, &desc) != NULL ? desc.dtype : -1;
}

/* ---- compressed-tensors ---- */

/** The elements that share a scale: "tensor", "channel" (a row of W), "group", "tensor_group" or
 *  "block"; if it is left out, group_size says it. */
static inline const char *source_strategy(const lathe_quant_config *config)
{
    const char *said = config->get(config->ctx, "weights.strategy");
    const int64_t group = source_int(config, "weights.group_size", 0);
    if (said != NULL)
        return said;
    return group == 0 ? "tensor" : group < 0 ? "channel" : "group";
}

/** LATHE_E_NOT_FOUND: compressed-tensors' weights have another layout than one of `layouts`
 *  ("float-quantized|naive-quantized"), or numbers of another type ("float", "int").
 *  LATHE_E_UNSUPPORTED: they are of this layout, and their tensors do not say all that decodes
 * them.
 */
static inline lathe_status source_compressed(const lathe_host *host,
                                             const lathe_quant_config *config, const char *format,
                                             const char *layouts, const char *type)
{
    const char *seen = config->get(config->ctx, "format");
    const char *numbers = config->get(config->ctx, "weights.type");
    int found = 0;
    for (const char *at = layouts; seen != NULL && *at != '\0' && !found; at += *at == '|') {
        const size_t n = strcspn(at, "|");
        found = strlen(seen) == n && memcmp(seen, at, n) == 0;
        at += n;
    }
    if (!found || strcmp(numbers != NULL ? numbers : "int", type) != 0)
        return lathe_fail(host, LATHE_E_NOT_FOUND, "%s reads %s of type %s", format, layouts, type);
    /* The weights are quantized in both; plain ones are not read with the format at all. */
    if (!source_is(config, "quantization_status", "frozen"))
        LATHE_TRY(source_expect(host, config, format, "quantization_status", "compressed"));
    return source_expect(host, config, format, "weights.dynamic", "false");
}

#endif
