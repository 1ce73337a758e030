/* The kinds of plugins: number, name, interface revision. */
#ifndef LATHE_PLUG_KIND_H
#define LATHE_PLUG_KIND_H

#include "lathe/plugin.h"

/** "optimizer" for LATHE_KIND_OPTIMIZER; "?" for an unknown kind. Also the name of the kind's
 *  folder and of its TOML table. */
const char *lathe_kind_name(int32_t kind);

/** LATHE_KIND_* of a name; 0: unknown. */
int32_t lathe_kind_id(const char *name);

/** Whether a text is a valid component name: [a-z][a-z0-9_]*. */
int lathe_name_is_valid(const char *name);

/** The newest revision of the kind's interface that this core knows; it accepts older ones. */
uint32_t lathe_kind_revision(int32_t kind);

/** Minimum size of a table of the kind: up to the last required member. */
uint32_t lathe_kind_table_bytes(int32_t kind);

/** The plugin that a run uses if the file names none ("adamw"). */
const char *lathe_kind_default(int32_t kind);

/** 1 if a name may be "auto" or a family, and score() decides: attention, device, renderer,
 *  collective. */
int lathe_kind_is_scored(int32_t kind);

/** The name with which the run chooses a plugin of this kind by its plan: "auto" of adapter; NULL:
 * there is none. */
const char *lathe_kind_planned(int32_t kind);

/** A sentence about what chooses plugins of a kind that no table of a run file names: readers and
 *  ops. NULL: the kind's table does. */
const char *lathe_kind_chosen(int32_t kind);

/** The name that means that the run has no plugin of this kind: "none" of quant and reward, "jinja"
 *  of renderer (the folder's template is interpreted); NULL: the kind has no such name. */
const char *lathe_kind_none(int32_t kind);

#endif
