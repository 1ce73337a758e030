/* The kinds of plugins: number, name, interface revision. */
#ifndef LATHE_PLUG_KIND_H
#define LATHE_PLUG_KIND_H

#include "lathe/plugin.h"

/** "optimizer" for LATHE_KIND_OPTIMIZER; "?" for none. Also the kind's folder and its TOML
 *  table. */
const char *lathe_kind_name(int32_t kind);

/** LATHE_KIND_* of a name; 0 for none. */
int32_t lathe_kind_id(const char *name);

/** 1 when a text is a component's name: [a-z][a-z0-9_]*. */
int lathe_name_is_valid(const char *name);

/** The newest revision of the kind's interface this core knows; older ones are accepted. */
uint32_t lathe_kind_revision(int32_t kind);

/** Bytes that a table of the kind has at least: through the last member that has to be there. */
uint32_t lathe_kind_table_bytes(int32_t kind);

/** The plugin a run gets when the file names none ("adamw"). */
const char *lathe_kind_default(int32_t kind);

/** 1 when "auto" and a family may stand for a name, and score() decides: attention, device. */
int lathe_kind_is_scored(int32_t kind);

/** 1 when "none" means that the run has no part of this kind: quant. */
int lathe_kind_is_optional(int32_t kind);

#endif
