/* The formats in which a model's folder stores its weights, as formats of the rows of a table. */
#ifndef LATHE_MODEL_STORED_FORMATS_H
#define LATHE_MODEL_STORED_FORMATS_H

#include "files/safetensors/safetensors.h"
#include "model/family/hf_config.h"
#include "model/family/quant_source.h"

/** A model's folder. All members are borrowed. */
typedef struct lathe_stored_model {
    const char *path;
    const lathe_model_config *model;
    lathe_quant_source *source;   /* of its quantization_config; NULL: it has none */
    const lathe_safetensors *set; /* NULL: a folder without weights, made for planning */
} lathe_stored_model;

/** Opens the weights of a model's folder. *out NULL: the folder has none. */
lathe_status lathe_stored_weights_open(const char *path, lathe_safetensors **out);

/** Whether folders in this format may hold Conv1D weights (lathe_quant_v1.stores_conv1d). */
int32_t lathe_format_stores_conv1d(const lathe_instance *format);

/** Whether a folder may store the row quantized: a matrix, a head or an embedding. */
int32_t lathe_param_may_be_stored(const lathe_param *row);

/** Finds the format in which the folder stores a matrix, a head or an embedding. *out NULL: it
 * stores plain numbers, or lacks the weight. LATHE_E_CONFIG: a Conv1D weight in a format that
 * stores none. */
lathe_status lathe_stored_format(const lathe_stored_model *stored, const lathe_param *row,
                                 const lathe_instance **out);

/** Sets the format of a matrix and its planes. LATHE_E_SHAPE: the format cannot hold it. */
lathe_status lathe_param_set_format(lathe_param *row, const lathe_instance *format);

/** Takes a format that lathe_stored_format found: the weight is decoded when it is read
 *  (lathe_param.stored), and has plain numbers in memory. */
lathe_status lathe_param_decode_stored(const lathe_stored_model *stored, lathe_params *params,
                                       int32_t index, const lathe_instance *format);

/** Takes a format that lathe_stored_format found: the planes will be read from the folder. A matrix
 *  keeps them in memory; a head or an embedding is decoded when it is read. */
lathe_status lathe_param_take_stored(const lathe_stored_model *stored, lathe_params *params,
                                     int32_t index, const lathe_instance *format);

/** Gives each weight of a frozen model the format in which its folder stores it. *out_source owns
 *  the formats, and must outlive the table; NULL: the folder is not quantized.
 *
 *  Errors  those of lathe_quant_source_create, lathe_stored_format and lathe_param_set_format */
lathe_status lathe_stored_formats_take(lathe_registry *registry, const char *path,
                                       const lathe_model_config *model, lathe_params *params,
                                       lathe_quant_source **out_source);

/** Refuses a folder that stores one of the matrices quantized, where `what` needs plain numbers. A
 *  quantization_config over weights that are all plain, which other programs leave behind when
 *  they merge into decoded weights, says nothing. LATHE_E_CONFIG. */
lathe_status lathe_stored_formats_refuse(lathe_registry *registry, const char *path,
                                         const lathe_model_config *model, lathe_params *params,
                                         const char *what);

/** Whether a matrix of the table is read from planes in its folder. */
int32_t lathe_params_have_planes(const lathe_params *params);

#endif
