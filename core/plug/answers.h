/* Calls functions of plugins and checks the results before the core relies on them.
 *
 * Counts, sizes, shapes, names and enumeration values come from foreign code. Each function here
 * asks one question and refuses an answer that breaks the rule in the plugin's header, with
 * LATHE_E_PLUGIN and the plugin's name. Arrays for a plugin's answer have spare room, so a plugin
 * that writes too much is refused and does not damage the core's memory.
 */
#ifndef LATHE_PLUG_ANSWERS_H
#define LATHE_PLUG_ANSWERS_H

#include "lathe/adapter.h"
#include "lathe/attention.h"
#include "lathe/optimizer.h"
#include "lathe/quant.h"
#include "lathe/stage.h"
#include "plug/select.h"

/** Slots and partition of a parameter; also checks block(), scratch() and room(). */
lathe_status lathe_answer_slots(const lathe_instance *optimizer, const lathe_param_info *param,
                                lathe_slot out[LATHE_MAX_SLOTS], int32_t *out_n,
                                int32_t *out_partition);

/** The base learning rate: a finite number, at least 0. */
lathe_status lathe_answer_base_lr(const lathe_instance *optimizer, double *out);

/** The planes of a [rows, cols] weight: 1 to LATHE_MAX_PLANES. */
lathe_status lathe_answer_planes(const lathe_instance *quant, int64_t rows, int64_t cols,
                                 lathe_plane out[LATHE_MAX_PLANES], int32_t *out_n);

/** The dtype to which products with a [rows, cols] weight quantize their inputs, LATHE_I8; 0: they
 *  do not. */
lathe_status lathe_answer_activations(const lathe_instance *quant, int64_t rows, int64_t cols,
                                      int32_t *out_dtype);

/** Whether a parameter trains (0 or 1), and its group, at least 0 and below n_groups. */
lathe_status lathe_answer_select(const lathe_instance *adapter, const lathe_param_info *param,
                                 int32_t n_groups, int32_t *out_trainable, int32_t *out_group);

/** The factor of the learning rate of a trained parameter: finite and above 0; 1 if the adapter has
 *  no rate(). */
lathe_status lathe_answer_rate(const lathe_instance *adapter, const char *param_name, double *out);

/** Whether the adapter can change the head over the vocabulary: head() or head_scaled(). */
int32_t lathe_answer_adapts_head(const lathe_adapter_v1 *table);

/** Whether the adapter adds to the biases of the layers that it wraps, so that merging changes
 * these, too. 0 if the instance has no component. */
int32_t lathe_answer_adds_bias(const lathe_instance *adapter);

/** The models that a stage needs with its settings, LATHE_NEEDS_*: a part of what its table
 *  declares. 0 if the instance has no component. */
uint32_t lathe_answer_needs(const lathe_instance *stage);

/** Bit i: the stage has head i of its table with its settings. 0 if the instance has no
 *  component. */
uint32_t lathe_answer_heads(const lathe_instance *stage);

/** The stage's objective for a document: CAUSAL if it has no objective(). LATHE_E_PLUGIN: settings
 *  out of range, or rows that are not packed. */
lathe_status lathe_answer_objective(const lathe_instance *stage, lathe_objective *out);

/** Whether a metric of the loss is divided by metric i, which then needs no name. */
int lathe_stage_metric_divides(const lathe_stage_loss *loss, int32_t i);

/** The loss of a stage, and its metrics with names and a known unit. After the call, values have
 *  the numbers 0 to n_values - 1. */
lathe_status lathe_answer_loss(const lathe_instance *stage, const lathe_stage_build *build,
                               lathe_stage_loss *out);

/** Scratch bytes of an attention problem, forward or backward. */
lathe_status lathe_answer_attention_scratch(const lathe_instance *attention,
                                            const lathe_attention_problem *problem,
                                            int32_t is_backward, int64_t *out);

/** Which of its table's needs (LATHE_NEEDS_*) the stage has with its settings; 0 without a stage.
 */
uint32_t lathe_stage_needs(const lathe_instance *stage);

/** info() of a device: at least one worker, texts with a final zero. out->size is set. */
lathe_status lathe_answer_device_info(const lathe_instance *device, lathe_device_info *out);

/** Creates a kernel and checks its scratch size. */
lathe_status lathe_answer_kernel(const lathe_instance *device, const lathe_kernel_problem *problem,
                                 lathe_kernel **out, int64_t *out_scratch_bytes);

#endif
