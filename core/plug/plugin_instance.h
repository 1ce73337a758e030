/* A plugin that was found, and instances of it. */
#ifndef LATHE_PLUG_PLUGIN_INSTANCE_H
#define LATHE_PLUG_PLUGIN_INSTANCE_H

#include "lathe/plugin.h"

/** An open plugin. Borrowed from the registry. */
typedef struct lathe_component {
    const lathe_plugin *plugin;
    const char *path; /* absolute */
} lathe_component;

/** A plugin and an instance of it. */
typedef struct lathe_instance {
    const lathe_component *component;
    const void *table;         /* the kind's interface */
    void *self;                /* NULL when stateless */
    const lathe_value *values; /* the values it was made from; borrowed */
} lathe_instance;

/** Makes an instance from checked values in schema order. Error messages name the plugin. */
lathe_status lathe_instance_init(lathe_instance *instance, const lathe_component *component,
                                 const lathe_value *values);
/** Frees it; all zeros is fine. */
void lathe_instance_fini(lathe_instance *instance);

/** Whether an attention backend accepts a plain problem (64 tokens, 4 heads of 64, bf16, with
 *  backward) on a device with this instruction set, such as "avx2" or "sm_90". */
int lathe_attention_takes_plain(const lathe_instance *instance, const char *isa,
                                int32_t host_memory);

#endif
