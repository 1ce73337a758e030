/* The host table: the functions of the core that plugins may call (lathe/host.h). */
#ifndef LATHE_PLUG_HOST_TABLE_H
#define LATHE_PLUG_HOST_TABLE_H

#include "lathe/host.h"

/** The host table that every plugin gets. It is constant. */
const lathe_host *lathe_host_get(void);

#endif
