/* The folders of models that a run names: model.path, model.adapter, model.reference_adapter,
 * teacher.path, generate.draft, reward.model. */
#ifndef LATHE_RUN_RUN_FOLDERS_H
#define LATHE_RUN_RUN_FOLDERS_H

#include "run/state/run_state.h"

/** Replaces each folder by that of the weights which it means: average/ of a checkpoint that has
 * one, unless model.weights says otherwise (checkpoint/state/model_folder.h). To be called whenever
 * the configuration was read. LATHE_E_CONFIG, at the key: it means none. */
lathe_status lathe__run_folders_settle(lathe_run *run);

/** Compares the weights of each folder with the manifest that covers them. Says which averages a
 * run file means. LATHE_E_CONFIG, at the key: one is damaged. */
lathe_status lathe__run_folders_check(lathe_run *run);

#endif
