/* The members of a format's tables that every format has. */
#ifndef LATHE_QUANT_TABLE_H
#define LATHE_QUANT_TABLE_H

#include "lathe/quant.h"

/* Initializers of lathe_quant_v1 that every format has, from functions called type##_accepts, ...;
 * the members that only some formats have follow it in a table. */
#define CODEC_TABLE(type)                                                                          \
    .size = sizeof(type##_table), .revision = LATHE_QUANT_REVISION, .accepts = type##_accepts,     \
    .planes = type##_planes, .encode = type##_encode, .decode = type##_decode,                     \
    .decode_part = type##_decode_part, .codes = type##_codes, .part_scales = type##_part_scales,   \
    .config_json = type##_config_json, .read_config = type##_read_config,                          \
    .cuda_image = LATHE_CUDA_IMAGE

/* Initializers of a format's lathe_plugin. */
#define CODEC_KIND .kind = LATHE_KIND_QUANT, .revision = LATHE_QUANT_REVISION

#endif
