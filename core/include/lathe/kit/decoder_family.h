/* Defines the plugin of a model family from the description of a decoder.
 *
 *     static const lathe_field fields[] = {LATHE_MODEL_FIELDS("mine", "false"),
 *                                          LATHE_DECODER_FIELDS("2048"), ...};
 *     static const lathe_model_type types[] = {{"mine", "MineForCausalLM"}};
 *     -- read() calls lathe_decoder_shape first
 *     static lathe_status read(lathe_decoder *d, const lathe_keys *k);
 *     LATHE_DECODER_FAMILY(mine, types, NULL, 0, read, .version = "1.0.0", .summary = "...", ...);
 *
 * A family with other layers defines its own table and build(), which calls the functions of
 * decoder_graph.h and decoder_layer.h.
 */
#ifndef LATHE_KIT_DECODER_FAMILY_H
#define LATHE_KIT_DECODER_FAMILY_H

#include "decoder_layer.h"
#include "decoder_tensors.h"
#include "instance.h"

static inline lathe_status lathe_decoder_describe(void *self, lathe_model_info *out)
{
    const lathe_decoder *d = (const lathe_decoder *)self;
    const uint32_t size = out->size;
    *out = d->info;
    out->size = size;
    return LATHE_OK;
}

static inline void lathe_decoder_destroy(void *self)
{
    lathe_decoder *d = (lathe_decoder *)self;
    if (d == NULL)
        return;
    d->host->free(d->shapes);
    d->host->free(d->layers);
    d->host->free(d->keys.values);
    d->host->free(d);
}

/** Makes an instance of a decoder: copies the values, sets the defaults that decoders share,
 *  calls read(). */
static inline lathe_status
lathe_decoder_create(const lathe_host *host, const lathe_field *fields, const lathe_value *values,
                     int32_t n, lathe_status (*read)(lathe_decoder *d, const lathe_keys *k),
                     void **out_self)
{
    lathe_decoder *d = (lathe_decoder *)host->alloc((int64_t)sizeof *d);
    if (d == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a model's description");
    d->host = host;
    d->keys =
        (lathe_keys){host, fields, (lathe_value *)host->alloc(n * (int64_t)sizeof *values), n};
    d->info.prefix = "model.";
    d->info.embedding = "model.embed_tokens.weight";
    d->info.head = "lm_head.weight";
    d->layer_prefix = "model.layers.";
    d->final_norm = "model.norm";
    lathe_status status = LATHE_E_NOMEM;
    if (d->keys.values != NULL) {
        memcpy(d->keys.values, values, (size_t)n * sizeof *values);
        d->info.values = d->keys.values;
        d->info.ropes = d->ropes;
        status = read(d, &d->keys);
    }
    if (status == LATHE_OK)
        *out_self = d;
    else
        lathe_decoder_destroy(d);
    return status;
}

/** Defines the plugin of a decoder family: `fields` and read() as above; type_list: its
 *  lathe_model_type[]. default_list: lathe_model_v1.defaults; wrapper_list: its
 *  lathe_model_wrapper[]. */
#define LATHE_DECODER_FAMILY_IN_WRAPPERS(id, type_list, default_list, wrapper_list, alias_list,    \
                                         alias_count, read, ...)                                   \
    LATHE_DECODER_FAMILY_TABLE(id, type_list, default_list, wrapper_list,                          \
                               LATHE_N_FIELDS(wrapper_list), alias_list, alias_count, read,        \
                               __VA_ARGS__)

/** Defines a family that is in no wrapper. */
#define LATHE_DECODER_FAMILY(id, type_list, alias_list, alias_count, read, ...)                    \
    LATHE_DECODER_FAMILY_TABLE(id, type_list, NULL, NULL, 0, alias_list, alias_count, read,        \
                               __VA_ARGS__)

#define LATHE_DECODER_FAMILY_TABLE(id, type_list, default_list, wrapper_list, wrapper_count,       \
                                   alias_list, alias_count, read, ...)                             \
    static lathe_status id##_create(const lathe_host *host, const lathe_value *values,             \
                                    int32_t n_values, void **out_self)                             \
    {                                                                                              \
        return lathe_decoder_create(host, fields, values, n_values, read, out_self);               \
    }                                                                                              \
    static const lathe_model_v1 id##_table = {.size = (uint32_t)sizeof id##_table,                 \
                                              .revision = LATHE_MODEL_REVISION,                    \
                                              .types = type_list,                                  \
                                              .n_types = LATHE_N_FIELDS(type_list),                \
                                              .n_aliases = alias_count,                            \
                                              .aliases = alias_list,                               \
                                              .describe = lathe_decoder_describe,                  \
                                              .tensors = lathe_decoder_tensors,                    \
                                              .build = lathe_decoder_build,                        \
                                              .wrappers = wrapper_list,                            \
                                              .defaults = default_list,                            \
                                              .n_wrappers = wrapper_count};                        \
    const lathe_plugin LATHE_PLUGIN_ENTRY = {LATHE_PLUGIN_HEADER,                                  \
                                             .kind = LATHE_KIND_MODEL,                             \
                                             .revision = LATHE_MODEL_REVISION,                     \
                                             .name = #id,                                          \
                                             .table = &id##_table,                                 \
                                             .create = id##_create,                                \
                                             .destroy = lathe_decoder_destroy,                     \
                                             LATHE_PLUGIN_FIELDS,                                  \
                                             __VA_ARGS__}

#endif
