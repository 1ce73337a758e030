/* Reads the planes of quantized weights. */
#include "model/family/weight_planes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "graph/ir/desc_text.h"
#include "model/family/weight_tensor.h"
#include "plug/plugin_instance.h"

enum { MAX_NAME = 512 };

lathe_status lathe_plane_name(const char *weight, const char *suffix, char *out, int64_t bytes)
{
    const char *dot = strrchr(weight, '.');
    const int replaces = strncmp(suffix, "../", 3) == 0;
    const size_t keep = replaces && dot != NULL ? (size_t)(dot - weight) + 1 : strlen(weight);
    const int n =
        snprintf(out, (size_t)bytes, "%.*s%s", (int)keep, weight, replaces ? suffix + 3 : suffix);
    if (n < 0 || n >= bytes)
        return lathe_error(LATHE_E_ARG, "the name of a plane of %s is too long", weight);
    return LATHE_OK;
}

int32_t lathe_weight_is_plain(const lathe_safetensors *set, const lathe_model_config *config,
                              const lathe_param *row)
{
    const lathe_st_tensor *t = lathe_weights_find(set, config, row->name);
    lathe_desc want = lathe_weights_file_desc(row);
    if (t == NULL || !lathe_convert_takes(t->desc.dtype))
        return 0;
    want.dtype = t->desc.dtype;
    return memcmp(&want, &t->desc, sizeof want) == 0;
}

/* The tensor of a suffix; *out NULL: there is none. */
static lathe_status find(const lathe_safetensors *set, const lathe_model_config *config,
                         const lathe_param *row, const char *suffix, const lathe_st_tensor **out)
{
    char name[MAX_NAME];
    LATHE_TRY(lathe_plane_name(row->name, suffix, name, sizeof name));
    *out = lathe_weights_find(set, config, name);
    return LATHE_OK;
}

/* Whether a plane can be filled from a tensor (lathe_plane). */
static int fits(const lathe_desc *plane, const lathe_desc *tensor)
{
    if (plane->dtype == LATHE_U8)
        return lathe_desc_bytes(plane) == lathe_desc_bytes(tensor);
    if (lathe_desc_count(plane) != lathe_desc_count(tensor))
        return 0;
    return plane->dtype == tensor->dtype ||
           (plane->dtype == LATHE_F32 &&
            (tensor->dtype == LATHE_BF16 || tensor->dtype == LATHE_F16));
}

static const char *format_name(const lathe_param *row)
{
    return row->format->component->plugin->name;
}

static lathe_status find_plane(const lathe_safetensors *set, const lathe_model_config *config,
                               const lathe_param *row, int32_t k, const lathe_st_tensor **out)
{
    const lathe_plane *plane = &row->planes[k];
    char wanted[80], seen[80], name[MAX_NAME];
    LATHE_TRY(find(set, config, row, plane->file_suffix, out));
    LATHE_TRY(lathe_plane_name(row->name, plane->file_suffix, name, sizeof name));
    (void)lathe_desc_text(&plane->desc, wanted, sizeof wanted);
    if (*out == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor %s: plane %s of format %s, %s",
                           lathe_safetensors_path(set), name, plane->name, format_name(row),
                           wanted);
    if (!fits(&plane->desc, &(*out)->desc))
        return lathe_error(LATHE_E_SHAPE, "%s: tensor %s is %s, plane %s of format %s expects %s",
                           (*out)->file, name, lathe_desc_text(&(*out)->desc, seen, sizeof seen),
                           plane->name, format_name(row), wanted);
    return LATHE_OK;
}

static lathe_status find_meta(const lathe_safetensors *set, const lathe_model_config *config,
                              const lathe_param *row, const lathe_st_tensor **out)
{
    const lathe_quant_v1 *table = row->format->table;
    *out = NULL;
    if (!LATHE_HAS(table, meta_suffix))
        return LATHE_OK;
    LATHE_TRY(find(set, config, row, table->meta_suffix, out));
    if (*out != NULL)
        return LATHE_OK;
    char name[MAX_NAME];
    LATHE_TRY(lathe_plane_name(row->name, table->meta_suffix, name, sizeof name));
    return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor %s: metadata of format %s",
                       lathe_safetensors_path(set), name, format_name(row));
}

lathe_status lathe_weight_planes_check(const lathe_safetensors *set,
                                       const lathe_model_config *config, const lathe_param *row)
{
    const lathe_st_tensor *t = NULL;
    for (int32_t k = 0; k < row->n_planes; k++)
        if (row->planes[k].file_suffix != NULL)
            LATHE_TRY(find_plane(set, config, row, k, &t));
    return find_meta(set, config, row, &t);
}

/* Refuses planes whose values would lead decoding out of them. */
static lathe_status check_values(const lathe_safetensors *set, const lathe_param *row,
                                 const void *const *planes)
{
    const lathe_quant_v1 *table = row->format->table;
    if (!LATHE_HAS(table, check_planes))
        return LATHE_OK;
    const lathe_status status =
        table->check_planes(row->format->self, row->desc.dims[0], row->desc.dims[1], planes);
    return status == LATHE_OK ? LATHE_OK
                              : lathe_error(status, "%s: %s: %s", lathe_safetensors_path(set),
                                            row->name, lathe_error_message());
}

lathe_status lathe_weight_planes_read(const lathe_safetensors *set,
                                      const lathe_model_config *config, const lathe_param *row,
                                      void *const *planes)
{
    const lathe_quant_v1 *table = row->format->table;
    const lathe_st_tensor *t = NULL;
    for (int32_t k = 0; k < row->n_planes; k++) {
        const lathe_desc *desc = &row->planes[k].desc;
        if (row->planes[k].file_suffix == NULL)
            continue;
        LATHE_TRY(find_plane(set, config, row, k, &t));
        if (desc->dtype != t->desc.dtype && desc->dtype != LATHE_U8)
            LATHE_TRY(lathe_convert(planes[k], desc->dtype, t->data, t->desc.dtype,
                                    lathe_desc_count(desc)));
        else
            memcpy(planes[k], t->data, (size_t)lathe_desc_bytes(desc));
    }
    LATHE_TRY(find_meta(set, config, row, &t));
    if (t == NULL)
        return check_values(set, row, (const void *const *)planes);
    const lathe_status status =
        table->read_meta(row->format->self, row->desc.dims[0], row->desc.dims[1], t->data,
                         lathe_desc_bytes(&t->desc), planes);
    if (status != LATHE_OK)
        return lathe_error(status, "%s: %s: %s", t->file, t->name, lathe_error_message());
    return check_values(set, row, (const void *const *)planes);
}

lathe_status lathe_weight_planes_mark(const lathe_safetensors *set,
                                      const lathe_model_config *config, const lathe_param *row,
                                      uint8_t *used, int *out_complete)
{
    const lathe_quant_v1 *table = row->format->table;
    const lathe_st_tensor *t = NULL;
    for (int32_t k = 0; k <= row->n_planes; k++) {
        const char *suffix = k < row->n_planes               ? row->planes[k].file_suffix
                             : LATHE_HAS(table, meta_suffix) ? table->meta_suffix
                                                             : NULL;
        if (suffix == NULL)
            continue;
        LATHE_TRY(find(set, config, row, suffix, &t));
        if (t != NULL)
            used[t - lathe_safetensors_at(set, 0)] = 1;
        else
            *out_complete = 0;
    }
    return LATHE_OK;
}

/* ---- decoding ---- */

static int64_t padded(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Reads the planes into `memory`, and decodes them. */
static lathe_status decode(const lathe_safetensors *set, const lathe_model_config *config,
                           const lathe_param *row, char *memory, char *scratch, float *values)
{
    const lathe_quant_v1 *table = row->format->table;
    void *planes[LATHE_MAX_PLANES] = {NULL};
    for (int32_t k = 0; k < row->n_planes; k++) {
        planes[k] = memory;
        memory += padded(lathe_desc_bytes(&row->planes[k].desc));
    }
    LATHE_TRY(lathe_weight_planes_read(set, config, row, planes));
    return table->decode(row->format->self, row->desc.dims[0], row->desc.dims[1],
                         (const void *const *)planes, values, LATHE_F32, scratch, NULL);
}

lathe_status lathe_weight_planes_decode(const lathe_safetensors *set,
                                        const lathe_model_config *config, const lathe_param *row,
                                        float *values)
{
    const lathe_quant_v1 *table = row->format->table;
    const int64_t scratch =
        LATHE_HAS(table, decode_scratch)
            ? table->decode_scratch(row->format->self, row->desc.dims[0], row->desc.dims[1])
            : 0;
    int64_t bytes = 64;
    for (int32_t k = 0; k < row->n_planes; k++)
        bytes += padded(lathe_desc_bytes(&row->planes[k].desc));
    char *memory = aligned_alloc(64, (size_t)(bytes + padded(scratch)));
    if (memory == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
    memset(memory, 0, (size_t)(bytes + padded(scratch)));
    const lathe_status status =
        decode(set, config, row, memory, scratch > 0 ? memory + bytes : NULL, values);
    free(memory);
    return status;
}
