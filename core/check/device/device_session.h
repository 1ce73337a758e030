/* A device under check: its instance, and its memory. */
#ifndef LATHE_CHECK_DEVICE_SESSION_H
#define LATHE_CHECK_DEVICE_SESSION_H

#include "check/harness/subject.h"
#include "lathe/device.h"

typedef struct lathe__session {
    lathe__subject *s;
    lathe_instance instance;
    const lathe_device_v1 *table;
    lathe_device_info info;
} lathe__session;

/** LATHE__SKIP: this machine cannot run the device. The caller calls
 *  lathe_instance_fini(&d->instance). */
lathe_status lathe__session_init(lathe__session *d, lathe__subject *s);

/** Takes device memory and copies `bytes` bytes of host memory into it (NULL: copies nothing). */
lathe_status lathe__session_put(lathe__session *d, const void *host, int64_t bytes, void **out);
lathe_status lathe__session_get(lathe__session *d, const void *device, int64_t bytes, void *host);

/** The compute dtypes in which the device declares that every op runs, as bits. */
uint32_t lathe__session_dtypes(const lathe__session *d);

#endif
