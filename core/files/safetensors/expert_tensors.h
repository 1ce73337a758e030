/* Joins the matrices of experts, which files hold one by one, to one tensor each, and so the norms
 * of heads.
 *
 * "L.experts.0.up_proj.weight" [O, I], "L.experts.1.up_proj.weight", .. become
 * "L.experts.up_proj.weight" [E*O, I], with the rows of expert 0 first;
 * "L.q_layernorm.norms.0.weight" [D], "L.q_layernorm.norms.1.weight", .. become
 * "L.q_layernorm.norms.weight" [H*D].
 *
 * Files that hold the experts of a layer fused are read alike: "L.experts.gate_up_proj" [E, 2F, C]
 * and "L.experts.down_proj" [E, C, F] become "L.experts.gate_proj.weight" [E*F, C],
 * "L.experts.up_proj.weight" and "L.experts.down_proj.weight" [E*C, F]. Tensors of "mtp." layers,
 * which no model computes, stay as they are. */
#ifndef LATHE_FILES_EXPERT_TENSORS_H
#define LATHE_FILES_EXPERT_TENSORS_H

#include "files/safetensors/safetensors.h"

/** Replaces *io by a set with joined tensors, which takes it over; a set without experts stays.
 *  Tensors of f32, bf16 or f16 with numbers from 0 on and one shape and dtype are joined; others
 *  stay, and are then no part of a model. On failure *io stays.
 *
 *  copies 1: the joined values are copied to memory now, and are plain data; 0: they are decoded
 *  when they are read. */
lathe_status lathe_expert_tensors_join(lathe_safetensors **io, int32_t copies);

/** Opens a folder or a file as lathe_safetensors_open_all does, and joins its experts. */
lathe_status lathe_safetensors_open_joined(const char *path, lathe_safetensors **out);

/** The name in files of expert e of the tensor `name`: "L.experts.0.up_proj.weight" of
 *  "L.experts.up_proj.weight". Returns the bytes without the zero, or -1 if `name` has
 *  neither ".experts." nor "_layernorm.norms.". */
int32_t lathe_expert_tensor_name(const char *name, int64_t e, char *out, size_t bytes);

#endif
