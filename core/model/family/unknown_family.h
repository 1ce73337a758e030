/* Refuses a model whose layers no plugin has, and says which they are. */
#ifndef LATHE_MODEL_UNKNOWN_FAMILY_H
#define LATHE_MODEL_UNKNOWN_FAMILY_H

#include "model/family/config_reader.h"
#include "plug/model_types.h"

/** Returns LATHE_E_CONFIG: "config.json: model_type is "mixtral", ...": with the layers that the
 *  configuration asks for and no plugin has, as far as its keys say it, the nearest family that
 *  there is, and all of them. match: a wrapper that is known, whose text model is not; NULL: none.
 */
lathe_status lathe_unknown_family_refuse(lathe_registry *registry, const lathe_config_reader *r,
                                         const lathe_wrapper_match *match);

#endif
