/* The learning rate of a run whose file has none: by what is trained and where it begins
 * (docs/design/055-default-rates.md).
 *
 *                                          share    with AdamW's 1e-3
 *   a new model                            1        1e-3
 *   an adapter over a loaded model         0.2      2e-4
 *   weights of a loaded model              0.02     2e-5
 *   the same two, by preferences           0.01     1e-5
 *   or rewards                             0.001    1e-6
 *
 * The share multiplies every rate that the optimizer's schema has as a default ("lr", "adamw_lr").
 */
#ifndef LATHE_CONFIG_CONFIG_RATE_H
#define LATHE_CONFIG_CONFIG_RATE_H

#include "config/config.h"

typedef struct lathe_default_rate {
    double share;     /* of the default in the optimizer's schema */
    const char *what; /* "an adapter over a loaded model" */
} lathe_default_rate;

/** The row of the table above that a checked configuration belongs to. */
lathe_default_rate lathe_config_default_rate(const lathe_config *config);

#endif
