/* The lists of checks of each kind, each ended by a NULL name. devicecheck has those of devices,
 * collective engines and quantization formats. */
#ifndef LATHE_CHECK_CHECKS_H
#define LATHE_CHECK_CHECKS_H

#include "check/harness/subject.h"

/** The checks of every kind. */
const lathe__check *lathe__checks_common(void);

const lathe__check *lathe__checks_optimizer(void);
const lathe__check *lathe__checks_scheduler(void);
const lathe__check *lathe__checks_adapter(void);
const lathe__check *lathe__checks_stage(void);
/** Checks of stages with iterate(), after those of lathe__checks_stage. */
const lathe__check *lathe__checks_iterate(void);
const lathe__check *lathe__checks_attention(void);
const lathe__check *lathe__checks_model(void);
const lathe__check *lathe__checks_renderer(void);
const lathe__check *lathe__checks_reader(void);
const lathe__check *lathe__checks_reward(void);
const lathe__check *lathe__checks_op(void);
/** Checks of ops that keep a state, after those of lathe__checks_op. */
const lathe__check *lathe__checks_op_state(void);

/** The checks of kinds whose plugins carry code for devices with memory of their own. */
const lathe__check *lathe__checks_optimizer_device(void);

#endif
