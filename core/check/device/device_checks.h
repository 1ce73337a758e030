/* The checks of device, collective and quantization plugins. */
#ifndef LATHE_CHECK_DEVICE_CHECKS_H
#define LATHE_CHECK_DEVICE_CHECKS_H

#include "check/harness/subject.h"

/** Checks of a device: of its memory, streams and events; and of its kernels, one check for each
 *  op. A check without a name ends a list. */
const lathe__check *lathe__checks_device(void);
const lathe__check *lathe__checks_kernels(void);
/** Checks of a collective engine; a check without a name ends the list. */
const lathe__check *lathe__checks_collective(void);
/** Checks of a quantization format; checks of its code for devices with memory of their own. */
const lathe__check *lathe__checks_quant(void);
const lathe__check *lathe__checks_quant_device(void);

/* Checks in the list of lathe__checks_device that are functions of other files than that list. A
 * name says what a device that passes does; kernels_are_apart: two kernels that were made for the
 * same op keep no state in common. Functions with two underscores are for this room alone. */
lathe_status lathe__streams_in_order(lathe__subject *s);
lathe_status lathe__events_tell_time(lathe__subject *s);
lathe_status lathe__kernels_are_apart(lathe__subject *s);
lathe_status lathe__kernel_runs_a_thousand_times(lathe__subject *s);
lathe_status lathe__refuses_wrong_problems(lathe__subject *s);
lathe_status lathe__refuses_unknown_numbers(lathe__subject *s);
lathe_status lathe__quantizes_activations(lathe__subject *s);

#endif
