/* Keys of the run files of other trainers, with Lathe's for the same thing, or why there is none.
 * One table serves the suggestions for unknown keys, lathe import, and docs/migrating.md. */
#ifndef LATHE_PLUG_FOREIGN_KEYS_H
#define LATHE_PLUG_FOREIGN_KEYS_H

#include <stdint.h>

/** The trainers, as letters of lathe_foreign_key.programs. TRL's keys are those of transformers'
 *  TrainingArguments too, which LLaMA-Factory also takes. */
#define LATHE_FOREIGN_LLAMA_FACTORY 'L'
#define LATHE_FOREIGN_TRL 'T'
#define LATHE_FOREIGN_AXOLOTL 'A'
#define LATHE_FOREIGN_XORL 'X'

typedef struct lathe_foreign_key {
    const char *programs; /* letters; "T/dpo": only where stage.name is "dpo" */
    const char *name;     /* "learning_rate"; of a nested file "train.lr"; may end with * */
    const char *target;   /* "optimizer.lr"; "": Lathe has no key for it, or needs a rule */
    /* How the value becomes that of the target:
     *   ""            as it is
     *   "=V", "!=V"   V if the value is true, or if it is false; otherwise nothing
     *   "over=V"      V if the value is true, also where another key has set the target
     *   "map a>b c>d" a becomes b; other values have no equal
     *   "overmap ..." as map, also where another key has set the target; others are nothing
     *   "also S.K=V"  as it is, and the key S.K becomes V
     *   "path"        a path of a file or folder
     *   "list"        a list, or a text with commas; "targets" too, where "all" is "all-linear"
     *   "positive"    as it is; 0 and less mean that it is unset
     *   "first"       the first of a list
     *   "optimizer", "scheduler"  a name of such a plugin, by the words of plug/synonyms.h
     *   "lr", "muon"  of xorl: the rate beside muon's own, and what muon alone reads
     *   "data", "template", "share", "warmup", "resume"  as core/cmd/new/imported_run.c says */
    const char *rule;
    const char *remark; /* what a person should know; without a target: why there is none */
} lathe_foreign_key;

/** All rows. */
const lathe_foreign_key *lathe_foreign_keys(int32_t *out_n);

/** The row of a key of `program` in a run of stage `stage` (Lathe's name, or ""); NULL: unknown. A
 *  name in full comes before one with *, and a row of the stage before one of all stages. */
const lathe_foreign_key *lathe_foreign_key_find(char program, const char *stage, const char *name);

#endif
