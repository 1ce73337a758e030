/* Several adapters over one base, each with a name, of which one at a time generates.
 *
 * Each has an instance of its plugin and frozen entries of its own in the table of parameters, with
 * "adapter:NAME:" before their names; the weights of the base are in memory once. There is one
 * generator: it is built again when the adapter changes. */
#ifndef LATHE_RUN_NAMED_ADAPTERS_H
#define LATHE_RUN_NAMED_ADAPTERS_H

#include "run/state/run_state.h"

/* The name that stands for the base without an adapter. */
#define LATHE_NAMED_BASE "base"

typedef struct lathe_named_adapter {
    const char *name, *dir; /* dir: holds adapter_model.safetensors */
    const char *prefix;     /* of the names of its parameters */
    lathe_config *config;   /* its settings; NULL: not read yet */
    lathe_token_rows rows;  /* of the embedding and head, that it has */
    lathe_instance part;    /* made when the run is opened */
} lathe_named_adapter;

typedef struct lathe_named_adapters {
    lathe_arena arena;         /* of the texts */
    lathe_named_adapter *list; /* [n] */
    int32_t n;
    int32_t used; /* index of the one that generates; -1: the base without an adapter */
    int64_t n_drafted, n_accepted; /* draft tokens of the generators that were freed */
} lathe_named_adapters;

/** Makes the list that a run is opened with, empty and with room for n. */
lathe_status lathe__named_adapters_create(int32_t n, lathe_named_adapters **out);
/** Frees the list, its configurations and its instances. NULL is fine. */
void lathe__named_adapters_destroy(lathe_named_adapters *named);

/** Adds an adapter. LATHE_E_ARG: the name is "base", was given before, or has other characters than
 *  letters, digits and "_-.". */
lathe_status lathe__named_adapters_add(lathe_named_adapters *named, const char *name,
                                       const char *dir);

/** The index of a name; -1 for "base". LATHE_E_ARG: there is none; the message lists the names. */
lathe_status lathe__named_adapters_find(const lathe_named_adapters *named, const char *name,
                                        int32_t *out);

/** The adapters of a run; NULL: it has no named ones. */
const lathe_named_adapters *lathe__run_named(const lathe_run *run);

/** The adapter that generates; NULL: the run has no named ones, or the base generates. */
const lathe_named_adapter *lathe__named_adapter_used(const lathe_run *run);

/** Lets adapter `index` generate from now on; -1: the base. */
void lathe__named_adapters_use(lathe_run *run, int32_t index);

/** Calls fn(run) for the base and for each adapter, while it is the one that generates. */
lathe_status lathe__named_adapters_each(lathe_run *run, lathe_status (*fn)(lathe_run *run));

/** Adds an entry for each parameter that an adapter replaces as a whole (modules_to_save, bias),
 *  after the entries of the model. */
lathe_status lathe__named_adapters_params(lathe_run *run);

/** Reads the files of the adapters. LATHE_E_CONFIG: one does not fit the model; LATHE_E_CORRUPT: it
 *  is a damaged checkpoint. */
lathe_status lathe__named_adapters_load(lathe_run *run);

#endif
