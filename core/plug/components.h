/* The components of a run: one instance per kind that its configuration names. */
#ifndef LATHE_PLUG_COMPONENTS_H
#define LATHE_PLUG_COMPONENTS_H

#include "plug/select.h"

/** Kinds that the run does not use have no component. The run creates and frees the instances. */
typedef struct lathe_components {
    lathe_instance device, optimizer, scheduler, adapter, stage, quant;
    lathe_instance reference_adapter; /* of the reference model; made when the run names one */
    lathe_instance *attention; /* [n_attention] candidates; the device chooses one per problem */
    int64_t n_attention;
    lathe_instance *rewards; /* [n_rewards] one per reward of the file; a reward model has none */
    int32_t n_rewards;
    lathe_instance renderer; /* of the chat template; made when the run needs the template */
} lathe_components;

#endif
