/* Takes the LoRA of fused experts apart. */
#include "checkpoint/state/fused_lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define BEFORE ".experts."
#define INNER "base_layer."

/* Returns the rest of the key after ".experts." and any "base_layer."; *out_depth: the number of
 * these. NULL: another tensor. */
static const char *matrix_of(const char *key, int32_t *out_depth)
{
    const char *at = strstr(key, BEFORE);
    *out_depth = 0;
    if (at == NULL)
        return NULL;
    for (at += sizeof BEFORE - 1; strncmp(at, INNER, sizeof INNER - 1) == 0; (*out_depth)++)
        at += sizeof INNER - 1;
    return strcmp(at, "lora_A.weight") == 0 || strcmp(at, "lora_B.weight") == 0 ? at : NULL;
}

int32_t lathe_fused_lora_is(const char *key)
{
    int32_t depth;
    return matrix_of(key, &depth) != NULL;
}

/* Whether an entry of target_parameters, a parameter's name or the end of one, names `leaf` of a
 * module of experts. */
static int names(const json_t *config, const char *leaf)
{
    const json_t *list = json_object_get(config, "target_parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        const char *dot = text != NULL ? strrchr(text, '.') : NULL;
        if (dot != NULL && strcmp(dot + 1, leaf) == 0)
            return 1;
    }
    return 0;
}

lathe_status lathe_fused_lora_projections(const json_t *config, const char *key,
                                          const lathe_st_tensor *t, const char *out[2],
                                          int32_t *out_n)
{
    const int up = names(config, "gate_up_proj"), down = names(config, "down_proj");
    int32_t depth;
    (void)matrix_of(key, &depth);
    if (depth >= up + down)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: '%s' is of a parameter that target_parameters of "
                           "adapter_config.json does not name; expected gate_up_proj, down_proj, "
                           "or both",
                           t->file, t->name);
    const int is_down = down && depth == 0;
    out[0] = is_down ? "down_proj" : "gate_proj";
    out[1] = "up_proj";
    *out_n = is_down ? 1 : 2;
    return LATHE_OK;
}

/* B of one projection: rows first .. of [O, r*E] as [E*rows, r]. */
static void turn(const float *whole, int64_t first, int64_t rows, int64_t r, int64_t experts,
                 float *out)
{
    for (int64_t e = 0; e < experts; e++)
        for (int64_t o = 0; o < rows; o++)
            for (int64_t k = 0; k < r; k++)
                out[(e * rows + o) * r + k] = whole[((first + o) * r + k) * experts + e];
}

lathe_status lathe_fused_lora_read(const json_t *config, const char *key, const lathe_st_tensor *t,
                                   int32_t part, int32_t n_parts, lathe_desc *out_desc, float **out)
{
    int32_t depth;
    const char *matrix = matrix_of(key, &depth);
    const int is_a = strncmp(matrix, "lora_A", 6) == 0;
    const json_t *rank = json_object_get(config, "r");
    const int64_t r = rank != NULL ? json_integer_value(rank) : 8; /* PEFT's default */
    const int64_t n = lathe_desc_count(&t->desc), joined = t->desc.dims[is_a ? 0 : 1];
    *out = NULL;
    if (t->desc.rank != 2 || r < 1 || joined % r != 0 || (!is_a && t->desc.dims[0] % n_parts != 0))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: '%s' is no matrix of rank %lld, the r of adapter_config.json, for "
                           "each of several experts",
                           t->file, t->name, (long long)r);
    float *whole = malloc((size_t)n * sizeof *whole + 1);
    float *turned = is_a ? NULL : malloc((size_t)(n / n_parts) * sizeof *turned + 1);
    lathe_status status = whole != NULL && (is_a || turned != NULL)
                              ? lathe_st_read(t, 0, n, whole, LATHE_F32)
                              : lathe_error(LATHE_E_NOMEM, "no memory to read '%s'", t->name);
    const int64_t experts = joined / r, rows = t->desc.dims[0] / n_parts;
    if (status == LATHE_OK && !is_a)
        turn(whole, part * rows, rows, r, experts, turned);
    *out_desc = is_a ? lathe_desc_2d(LATHE_F32, joined, t->desc.dims[1])
                     : lathe_desc_2d(LATHE_F32, experts * rows, r);
    if (status == LATHE_OK)
        *out = is_a ? whole : turned;
    if (status != LATHE_OK || !is_a)
        free(whole);
    if (status != LATHE_OK)
        free(turned);
    return status;
}
