/* Reading tokenizer.json: sections, each in a file of its own, and what they share. A place is the
 * file and the way to a member: "tokenizer.json: normalizer.normalizers[1]". */
#ifndef LATHE_TEXT_TOKENIZER_JSON_H
#define LATHE_TEXT_TOKENIZER_JSON_H

#include "base/json.h"
#include "text/pipeline.h"

#define LATHE_MAX_ID (1 << 24) /* bounds what a file can make us allocate */
#define LATHE_PLACE 4608       /* room for a place */

/** "PLACE.KEY is SEEN; expected ..." (LATHE_E_PARSE). key "": the node itself. */
lathe_status lathe__tj_expected(const char *place, const char *key, const json_t *seen,
                                const char *expected);
/** "PLACE.KEY is "SEEN"; supported: ..." (LATHE_E_UNSUPPORTED). */
lathe_status lathe__tj_unsupported(const char *place, const char *key, const char *seen,
                                   const char *supported);

/** A member that may be missing or null: then `missing`. */
lathe_status lathe__tj_flag(const char *place, const json_t *node, const char *key, int missing,
                            int32_t *out);
/** A string that may be missing or null: then NULL. One with \u0000 is refused. */
lathe_status lathe__tj_text(const char *place, const json_t *node, const char *key,
                            const char **out);
/** The "type" of an object, which must be there. */
lathe_status lathe__tj_type(const char *place, const json_t *node, const char **out);
/** A copy of a string that must be there; it may hold \u0000. */
lathe_status lathe__tj_copy(const char *place, const json_t *node, const char *key,
                            lathe_piece *out);

/** Sections into lists of steps. node: NULL and null are no steps. */
lathe_status lathe__read_normalizer(const char *place, const json_t *node,
                                    lathe_pipeline *pipeline);
lathe_status lathe__read_pre_tokenizer(const char *place, const json_t *node,
                                       lathe_pipeline *pipeline);
lathe_status lathe__read_decoder(const char *place, const json_t *node, lathe_pipeline *pipeline);

/** {"String": ...} or {"Regex": ...} under "pattern". */
lathe_status lathe__read_pattern(const char *place, const json_t *node, lathe_pattern *out);

/** The vocabulary and its model, into tok (kind set; pipeline set for GENERAL). */
lathe_status lathe__read_model(lathe_tokenizer *tok, const char *file, json_t *model);
/** 1 when model.vocab has the character of every byte. */
int lathe__has_all_bytes(const lathe_tokenizer *tok, const json_t *model);

/** What the model needs and the JSON does not: made when that is gone, for the peak of memory. */
lathe_status lathe__finish_model(lathe_tokenizer *tok);

/** The tree of a tokenizer.json, in which model.vocab and model.merges may be empty: for who wants
 *  the rest. *out_merges: how many merges there are. */
lathe_status lathe__tokenizer_tree(const char *name, const char *json, int64_t bytes, json_t **out,
                                   int64_t *out_merges);

/** What stands before and after a text. */
lathe_status lathe__read_post_processor(lathe_tokenizer *tok, const char *place, const json_t *node,
                                        int depth);

#endif
