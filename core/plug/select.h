/* Chooses among candidates by score. */
#ifndef LATHE_PLUG_SELECT_H
#define LATHE_PLUG_SELECT_H

#include "lathe/attention.h"
#include "lathe/collective.h"
#include "plug/registry.h"

/** Among the candidates for `name` (an exact name, a family such as "cpu", or "auto"), the device
 *  plugin with the highest score on this machine; equal scores are decided by name. *out_why, if
 *  not NULL, gets its one-line reason (in arena). Errors: LATHE_E_UNSUPPORTED with the reason of
 *  every candidate; LATHE_E_NOT_FOUND, LATHE_E_PLUGIN. */
lathe_status lathe_select_device(lathe_registry *registry, const char *name, lathe_arena *arena,
                                 const lathe_component **out, const char **out_why);

/** The index of the instance with the highest score for an attention problem; equal scores are
 *  decided by order. LATHE_E_UNSUPPORTED lists all reasons. *out_why as above. */
lathe_status lathe_select_attention(const lathe_instance *instances, int64_t n,
                                    const lathe_attention_problem *problem, lathe_arena *arena,
                                    int64_t *out_index, const char **out_why);

/** Among the candidates for `name`, the engine with the highest score for this process and these
 *  buffers; equal scores are decided by name. Errors and *out_why as of lathe_select_device. */
lathe_status lathe_select_collective(lathe_registry *registry, const char *name,
                                     const lathe_collective_probe *probe, lathe_arena *arena,
                                     const lathe_component **out, const char **out_why);

#endif
