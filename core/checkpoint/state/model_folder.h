/* The model that a folder means: one answer for every command and every key that takes a folder.
 *
 *   holds                                     the model is
 *   config.json and weights                   these weights
 *   an adapter alone                          the model that it names, with the adapter
 *   both (adapter.merge_every; an adapter     its own weights with the adapter beside them. Neither
 *   over a new model)                         of the two is a model of any other use: the weights
 *                                             lack what the adapter learnt since the last merge,
 *                                             and the adapter belongs to no other base
 *   average/ as well                          what average/ holds, unless the training weights are
 *                                             asked for: it is what the run evaluated and chose the
 *                                             best checkpoint by
 *   a GGUF file                               what it holds
 *
 * The folder of a run, DIR/best and DIR/latest mean the checkpoint that they name
 * (base/checkpoint_path.h). Where manifest.json covers the weights, they are compared with it
 * (lathe_model_folder_check), and an adapter's base with the hashes that the adapter's manifest has
 * of it (lathe_adapter_base_check).
 */
#ifndef LATHE_CHECKPOINT_MODEL_FOLDER_H
#define LATHE_CHECKPOINT_MODEL_FOLDER_H

#include "base/arena.h"
#include "lathe/status.h"

/** Which weights of a checkpoint are meant: --weights, model.weights. */
enum {
    LATHE_WEIGHTS_AUTO = 0,     /* the average, if there is one */
    LATHE_WEIGHTS_TRAINING = 1, /* those from which the training goes on */
    LATHE_WEIGHTS_AVERAGE = 2   /* the average; it is an error if there is none */
};

typedef struct lathe_model_folder {
    const char *dir;      /* the folder or GGUF file, after `latest` and `best` were followed */
    const char *weights;  /* the folder of the chosen weights: dir, or average/ in it */
    const char *manifest; /* the folder whose manifest covers them; NULL: none does */
    int32_t has_model;    /* 1: a whole model (config.json), or a GGUF file */
    int32_t has_adapter;  /* 1: an adapter, alone or beside its model */
    int32_t has_average;  /* 1: dir has averaged weights */
    int32_t is_average;   /* 1: these are chosen */
    /* 1: the optimizer evaluates at its average alone (schedule-free): the training weights, which
     * are chosen, are points from which it takes gradients, and not the model */
    int32_t is_no_model;
} lathe_model_folder;

/** Returns 1 if the folder contains an adapter's file. */
int32_t lathe_folder_has_adapter(const char *dir);

/** Finds the model that `path` means; which: LATHE_WEIGHTS_*. Texts are in the arena, or `path`.
 *
 *  Errors  LATHE_E_NOT_FOUND, LATHE_E_CORRUPT: best or latest names no checkpoint.
 *          LATHE_E_CONFIG: there is no average, and it was asked for. */
lathe_status lathe_model_folder_find(const char *path, int32_t which, lathe_arena *arena,
                                     lathe_model_folder *out);

/** Compares the files of the chosen weights with the manifest that covers them, if there is one.
 *  Weights and the files that describe them must be what was written; other texts, such as a chat
 *  template, may have been edited, of which a warning tells once for each folder.
 *
 *  Errors  LATHE_E_CORRUPT: a file is missing or has another content; the message names it and says
 *          what to do. */
lathe_status lathe_model_folder_check(const lathe_model_folder *folder);

/** Refuses a folder with an adapter where a whole model is needed; the message says which command
 *  makes one of it. LATHE_E_CONFIG. */
lathe_status lathe_model_folder_refuse_adapter(const lathe_model_folder *folder);

/** Refuses an adapter that is used over `base` where one of the two has a partner of its own: the
 *  adapter stands beside another model, or the model beside another adapter. LATHE_E_CONFIG; the
 *  message says how the folder is used. */
lathe_status lathe_adapter_folder_refuse_merged(const char *dir, const char *base);

/** How a base differs from the one that an adapter was trained over. Texts are in the arena. */
typedef struct lathe_base_difference {
    int32_t is_known;   /* 1: the adapter's manifest has the hashes of its base */
    const char *was;    /* the folder of its base at that time, if is_known */
    const char *detail; /* the first file that differs, and how; NULL: none does */
} lathe_base_difference;

/** Compares the model `base` with the hashes that the manifest of the adapter in `dir` has of the
 *  model that it was trained over. Files that have not changed since they were hashed are not read
 *  again. An error of reading alone. */
lathe_status lathe_adapter_base_compare(const char *dir, const char *base, lathe_arena *arena,
                                        lathe_base_difference *out);

/** Refuses the model `base`, which the adapter in `dir` itself names, if it is not the one that it
 *  was trained over. LATHE_E_CONFIG; the message says how to go on if that is meant. */
lathe_status lathe_adapter_base_check(const char *dir, const char *base);

#endif
