/* Runs checks on a device with memory of its own. Guarded blocks of host memory have a copy on
 * the device, and are copied together with their guards. */
#ifndef LATHE_CHECK_DEVICE_SIDE_H
#define LATHE_CHECK_DEVICE_SIDE_H

#include "check/harness/subject.h"
#include "exec/program/exec.h"

typedef struct lathe__device_side {
    lathe_arena arena;
    lathe_instance instance;
    lathe_machine machine;
} lathe__device_side;

/** Opens the device with its defaults. LATHE_E_UNSUPPORTED: this machine cannot run it; the message
 *  says why. */
lathe_status lathe__device_side_open(lathe__device_side *d, const lathe_component *component);
/** All zeros is fine. */
void lathe__device_side_close(lathe__device_side *d);

/** Device address of a host address within guarded memory; NULL for NULL. */
void *lathe__on_device(lathe__subject *s, const void *host);
/** Guarded host memory that the device copies from and to, until the check ends. */
void *lathe__pinned(lathe__subject *s, int64_t bytes);
/** Copies every guarded block to the device, or back, and waits for the copies. Skips blocks
 *  without a device copy. */
lathe_status lathe__send(lathe__subject *s);
lathe_status lathe__fetch(lathe__subject *s);
/** Frees the device copies of the blocks of a check. */
void lathe__device_side_release(lathe__subject *s);

/** LATHE_E_UNSUPPORTED: the subject's device has no kernel for a node; the message names the first
 *  one. LATHE_OK without a device. Skips nodes that attention plugins and codecs run. */
lathe_status lathe__has_kernels(const lathe__subject *s, const lathe_graph *g);

#endif
