/* The checks of device, collective and quantization plugins. */
#ifndef LATHE_DEVICECHECK_DEVICE_CHECKS_H
#define LATHE_DEVICECHECK_DEVICE_CHECKS_H

#include "harness/subject.h"

/** Lists of checks, each ended by a NULL name: of the device itself, and one for each op. */
const lathe__check *lathe__checks_device(void);
const lathe__check *lathe__checks_kernels(void);
/** Of a collective engine. */
const lathe__check *lathe__checks_collective(void);
/** Of a quantization format; of its code for devices with memory of their own. */
const lathe__check *lathe__checks_quant(void);
const lathe__check *lathe__checks_quant_device(void);

/* The checks of the first list that are in other files. */
lathe_status lathe__streams_in_order(lathe__subject *s);
lathe_status lathe__events_tell_time(lathe__subject *s);
lathe_status lathe__kernels_are_apart(lathe__subject *s);
lathe_status lathe__kernel_runs_a_thousand_times(lathe__subject *s);
lathe_status lathe__refuses_wrong_problems(lathe__subject *s);
lathe_status lathe__refuses_unknown_numbers(lathe__subject *s);

#endif
