/* How a run ends that fails: one rank says why, and all ranks end.
 *
 *   rank 0        rank 1        rank 2
 *   disk full     waits         waits
 *   tells    -->  learns of it  learns of it     lathe_collective_v1.tell, or files of the launcher
 *   says why      silent        silent
 *   all have said their line: tells once more
 *   ends          ends          ends             lathe_collective_v1.abort, or the launcher
 *
 * Ranks that fail for one reason have the same text, which the lowest of them says. One that fails
 * for another reason says that, too, with its number. One that fails only because others did
 * (LATHE_E_RANK) says so if no rank has a better reason: the others were killed, or hang.
 * (docs/design/035-ranks.md)
 */
#ifndef LATHE_RANKS_LAST_WORDS_H
#define LATHE_RANKS_LAST_WORDS_H

#include "lathe/collective.h"
#include "ranks/ranks.h"

/** Why a rank fails. Plain data: ranks send it to each other. */
typedef struct lathe_rank_words {
    int32_t status; /* lathe_status; LATHE_OK: it does not fail */
    int32_t reserved;
    uint64_t text; /* hash of what it would say */
    uint8_t rest[48];
} lathe_rank_words;
LATHE_ABI_SIZE(lathe_rank_words, 64);

/** What a rank does about it. */
typedef struct lathe_verdict {
    int32_t speaks;     /* 1: it prints its text */
    int32_t names_rank; /* 1: with its number, because not all ranks say the same */
    int32_t rank, n_ranks;
    lathe_status status; /* of the lowest rank with the best reason: all ranks exit with its code */
} lathe_verdict;

/** Decides for `rank`: a function of what all ranks have told.
 *
 *  all   [n_ranks]
 *  told  [n_ranks] 1: all[q] is there; of `rank` it is */
void lathe__verdict_find(const lathe_rank_words *all, const unsigned char *told, int32_t rank,
                         int32_t n_ranks, lathe_verdict *out);

/** The run fails on this rank, which stays in the group: its memory is not freed, because exchanges
 * may be under way in it. NULL: it has not joined the others. */
void lathe_ranks_forsake(lathe_ranks *ranks);
int32_t lathe_ranks_are_forsaken(void);

/** Learns from the other ranks why they fail, and decides what this one does. Takes at most 5 s;
 * then it speaks for itself. Without other ranks, it speaks. Call it once, before anything is
 * printed.
 *
 *  text  what this rank would say */
void lathe_ranks_last_words(lathe_status status, const char *text, lathe_verdict *out);

/** Ends all ranks, when those that speak have spoken (this one before the call). The process then
 * exits with exit_code; the function may do so. Returns at once if there are no other ranks. */
void lathe_ranks_end(int32_t exit_code);

/** Set for the ranks of `lathe launch`, which says itself that a rank was killed. */
#define LATHE_LAUNCH_VARIABLE "LATHE_LAUNCH"

/** Whether a signal from the process `sender` needs no words: a rank of this host has said why the
 * run fails, or mpirun ends this rank for `lathe launch`. [any thread] */
int32_t lathe_ranks_are_ending(int32_t sender);

#endif
