/* A quantization format that loses nothing and asks for arbitrary scales of inputs: a model that
 * was written with it computes the same only if every scale was folded into the right place. */
#include <stdio.h>
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/quant.h"

static lathe_status accepts(void *self, int64_t rows, int64_t cols)
{
    (void)self, (void)rows, (void)cols;
    return LATHE_OK;
}

static int32_t planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    (void)self;
    out[0] = (lathe_plane){"kept", ".kept", lathe_desc_2d(LATHE_F32, rows, cols)};
    return 1;
}

static lathe_status encode(void *self, int64_t rows, int64_t cols, const float *w,
                           void *const *plane)
{
    (void)self;
    memcpy(plane[0], w, (size_t)(rows * cols) * sizeof *w);
    return LATHE_OK;
}

static lathe_status encode_calibrated(void *self, int64_t rows, int64_t cols, const float *w,
                                      const lathe_quant_inputs *inputs, void *const *plane)
{
    (void)inputs;
    return encode(self, rows, cols, w, plane);
}

static lathe_status decode(void *self, int64_t rows, int64_t cols, const void *const *plane,
                           void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)self, (void)scratch, (void)stream;
    for (int64_t i = 0; i < rows * cols; i++)
        lathe_quant_store(w, dtype, i, ((const float *)plane[0])[i]);
    return LATHE_OK;
}

static lathe_status scale_inputs(void *self, const lathe_quant_layers *layers, float *scales)
{
    (void)self;
    for (int64_t p = 0; p < layers->n_places; p++)
        scales[p] = 0.3f + 0.45f * (float)(p * 7 % 9);
    return LATHE_OK;
}

static int64_t config_json(void *self, char *out, int64_t capacity)
{
    (void)self;
    return snprintf(out, capacity > 0 ? (size_t)capacity : 0, "{\"quant_method\": \"scaling\"}");
}

static lathe_status read_config(const lathe_host *host, const lathe_quant_config *config,
                                lathe_value *values)
{
    (void)host, (void)config, (void)values;
    return LATHE_OK;
}

static const char *const methods[] = {"scaling", NULL};

static const lathe_quant_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = accepts,
    .planes = planes,
    .encode = encode,
    .decode = decode,
    .config_json = config_json,
    .methods = methods,
    .read_config = read_config,
    .encode_calibrated = encode_calibrated,
    .scale_inputs = scale_inputs,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .name = "scaling",
    .version = "1.0.0",
    .summary = "plain weights with arbitrary scales of inputs, for a test",
    .source = "ours",
    .license = "Apache-2.0",
    .table = &table,
};
