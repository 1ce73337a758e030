/* The quantization_config of a model's folder: the format in which it stores each layer.
 *
 * A format is an instance of the quantization plugin whose read_config understands the
 * configuration; the core itself knows only how a configuration names layers. The folder's tensors
 * decide whether a layer is quantized at all (lathe_weight_is_plain), because files leave layers as
 * they are that their configuration does not list.
 *
 *   in   the text of config.json; the registry of plugins
 *   out  instances of formats
 */
#ifndef LATHE_MODEL_QUANT_SOURCE_H
#define LATHE_MODEL_QUANT_SOURCE_H

#include <jansson.h>

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/hf_config.h"
#include "plug/registry.h"

enum { LATHE_MOST_FORMATS = 16 }; /* plugins of formats in one model */

typedef struct lathe_quant_source lathe_quant_source;

/** Reads the quantization_config of a config.json. `place`: the file, for messages. `chosen`: an
 *  instance of [quant], whose explicit product fields (lathe_quant_v1.product_fields) hold for
 *  layers in its format; NULL: only weights are read.
 *  LATHE_E_CONFIG: no plugin reads it; the message names its quant_method, and either what the
 * plugin supports or the methods that are read. */
lathe_status lathe_quant_source_create(lathe_registry *registry, const char *place,
                                       const char *config_json, const lathe_instance *chosen,
                                       lathe_quant_source **out);

/** The value of which lathe_quant_config.get gives the text: after a slash a path in `root`, a
 *  config.json; else one in `group`, the settings of a layer's own (NULL: none), or where these
 *  have none or null, in `config`, the quantization_config. */
const json_t *lathe_quant_config_at(const json_t *root, const json_t *group, const json_t *config,
                                    const char *path);

/** Whether a value that read_config set satisfies its field: a configuration is foreign data. */
int lathe_quant_value_fits(const lathe_field *field, const lathe_value *value);

/** Whether the instance sets product fields of its format explicitly. */
int32_t lathe_quant_sets_products(const lathe_instance *chosen);

/** Frees it and its instances. NULL is fine. */
void lathe_quant_source_destroy(lathe_quant_source *source);

/** A layer of which a format is asked. */
typedef struct lathe_quant_layer {
    const char *module;  /* "model.layers.0.mlp.up_proj" */
    const char *in_file; /* its name in the folder's files, if it is another one; NULL: the same */
    const char *kind;    /* its class in torch: "Linear", "Conv1D" or "Embedding" */
    const lathe_model_config *model;
    const lathe_safetensors *set; /* of the folder; NULL: it has no weights */
} lathe_quant_layer;

/** Finds the format of a layer; *out NULL: the configuration says that it is not quantized. The
 *  source owns the instances, one for each combination of settings.
 *  LATHE_E_CONFIG: no plugin reads it, as lathe_quant_source_create, or a pattern of the
 *  configuration is no regular expression. */
lathe_status lathe_quant_source_format(lathe_quant_source *source, const lathe_quant_layer *layer,
                                       const lathe_instance **out);

/** The plugins whose formats the rows of a table have, each once, in the order of the rows. Returns
 * their number, at most `most`. */
int32_t lathe_quant_used(const lathe_params *params, const lathe_component **out, int32_t max);

/** The key of a quantization_config (a JSON object) that lists the layers that are not quantized;
 * NULL: it has none. */
const char *lathe_quant_skip_key(const json_t *config);

/** The text of a config.json without quantization_config, malloc'ed: of a folder whose weights were
 *  decoded. */
lathe_status lathe_quant_source_forget(const char *config_json, char **out);

/** Its quant_method. */
const char *lathe_quant_source_method(const lathe_quant_source *source);

#endif
