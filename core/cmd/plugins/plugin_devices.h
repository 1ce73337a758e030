/* Finds the devices on which a plugin works, from the code that it contains. */
#ifndef LATHE_CMD_PLUGIN_DEVICES_H
#define LATHE_CMD_PLUGIN_DEVICES_H

#include "base/arena.h"
#include "plug/registry.h"

enum { LATHE_DEVICES_MOST = 3 };

/** Names for `lathe ls`, NULL after the last. "any" for a kind without device code (schedulers,
 *  adapters, stages); the family for a device; else "cpu", "cuda" or both: an optimizer and a codec
 *  have host code and may contain an image, and an attention backend is asked to score a plain
 *  problem on each device. No name: it works on no device. */
lathe_status lathe_plugin_devices(lathe_registry *registry, const lathe_component *component,
                                  const char *out[LATHE_DEVICES_MOST]);

/** The names of lathe_plugin_devices as text, "cpu,cuda"; "-": none. */
lathe_status lathe_plugin_devices_text(lathe_registry *registry, const lathe_component *component,
                                       char *out, int64_t out_bytes);

#endif
