/* A test weight: its values, its encoded planes, and the results of decoding them. */
#ifndef LATHE_CHECK_QUANT_WEIGHT_H
#define LATHE_CHECK_QUANT_WEIGHT_H

#include "check/harness/subject.h"
#include "lathe/quant.h"

typedef struct lathe__weight {
    int64_t rows, cols;
    int32_t n_planes;
    lathe_plane planes[LATHE_MAX_PLANES];
    void *data[LATHE_MAX_PLANES];
    void *scratch;
    float *w;
} lathe__weight;

/** LATHE_E_PLUGIN: plane i of a [rows, cols] weight lacks a name or dtype, or is far larger than
 *  the weight. */
lathe_status lathe__check_plane(const lathe_plane *p, int32_t i, int64_t rows, int64_t cols);

/** Encodes w [rows, cols], after a check of the planes that the codec declares. */
lathe_status lathe__weight_init(lathe__subject *s, void *self, int64_t rows, int64_t cols,
                                const float *w, lathe__weight *out);

/** Runs decode() in host memory; lathe__decode runs the image instead if the
 *  subject has a device. */
lathe_status lathe__decode_on_host(lathe__subject *s, void *self, const lathe__weight *w,
                                   int32_t dtype, void **out);
lathe_status lathe__decode(lathe__subject *s, void *self, const lathe__weight *w, int32_t dtype,
                           void **out);

/** Runs `one` over every shape that the format accepts. */
lathe_status lathe__each_shape(lathe__subject *s, lathe_status (*one)(lathe__subject *s, void *self,
                                                                      int64_t rows, int64_t cols));

/* Checks. */
lathe_status lathe__codec_has_no_gain_and_no_bias(lathe__subject *s);
lathe_status lathe__codec_every_element_comes_back(lathe__subject *s);
lathe_status lathe__codec_weights_of_any_size(lathe__subject *s);
lathe_status lathe__codec_decodes_a_thousand_times(lathe__subject *s);
lathe_status lathe__codec_instances_are_apart(lathe__subject *s);
lathe_status lathe__codec_refuses_unknown_dtypes(lathe__subject *s);
lathe_status lathe__codec_refuses_what_is_not_finite(lathe__subject *s);
lathe_status lathe__codec_parts_have_the_bits_of_the_whole(lathe__subject *s);
lathe_status lathe__codec_codes_have_the_bits_of_the_whole(lathe__subject *s);
lathe_status lathe__codec_scaled_codes_are_the_weight(lathe__subject *s);
lathe_status lathe__codec_activations_are_codes(lathe__subject *s);
lathe_status lathe__codec_reads_what_it_writes(lathe__subject *s);
lathe_status lathe__codec_refuses_damaged_metadata(lathe__subject *s);
lathe_status lathe__codec_survives_damaged_planes(lathe__subject *s);
lathe_status lathe__codec_survives_configurations(lathe__subject *s);
lathe_status lathe__codec_uses_calibration_data(lathe__subject *s);
lathe_status lathe__codec_scales_inputs(lathe__subject *s);

#endif
