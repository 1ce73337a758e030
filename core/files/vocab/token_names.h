/* The tokens that the files beside tokenizer.json name: special tokens, and tokens with flags that
 * are added to those of tokenizer.json.
 *
 * transformers (5.24) reads them so: tokenizer_config.json names the special tokens. Where it has
 * no added_tokens_decoder, the tokens of special_tokens_map.json replace its own, and
 * added_tokens.json gives more tokens. Then come, in this order, the tokens of added_tokens_decoder
 * or added_tokens.json by their ids, the named special tokens, and extra_special_tokens (or
 * additional_special_tokens). The ids in these files do not count: a token that tokenizer.json
 * lacks gets the next free id.
 */
#ifndef LATHE_FILES_TOKEN_NAMES_H
#define LATHE_FILES_TOKEN_NAMES_H

#include <jansson.h>

#include "lathe/status.h"

typedef struct lathe_token_names {
    /* "bos_token" -> text, of every special token that is named; an object */
    json_t *special;
    /* tokens to add, in order: {"content", "special", "normalized", "lstrip", "rstrip",
     * "single_word", "if_missing": true where a token with this text keeps its flags, "id": of
     * added_tokens.json, whose token an added token of this id in tokenizer.json replaces} */
    json_t *add;
    /* add_prefix_space of tokenizer_config.json where the class of transformers that it names may
     * put it in place of tokenizer.json's: 0 or 1; -1: it says nothing */
    int32_t prefix_space;
} lathe_token_names;

/** The files: objects, or NULL for one that the folder does not have, and their names for messages.
 *  map, added: not read by transformers, and NULL, where config has added_tokens_decoder. */
typedef struct lathe_token_files {
    json_t *config, *map, *added;
    const char *config_place, *map_place, *added_place;
} lathe_token_files;

/** Finds the tokens. Keys that mean nothing here are named in a warning, once per file.
 *  LATHE_E_PARSE, LATHE_E_UNSUPPORTED: file and key. */
lathe_status lathe_token_names_of(const lathe_token_files *files, lathe_token_names *out);
void lathe_token_names_fini(lathe_token_names *names);

/** How Lathe treats a key of tokenizer_config.json or special_tokens_map.json: LATHE_TOKEN_KEY_*.
 */
enum {
    LATHE_TOKEN_KEY_UNKNOWN = 0, /* warned of by its name, unless its value is empty */
    LATHE_TOKEN_KEY_READ = 1,
    LATHE_TOKEN_KEY_HARMLESS = 2, /* changes no token of a text that is read whole */
    LATHE_TOKEN_KEY_REFUSED = 3   /* refused, unless its value changes nothing */
};
int32_t lathe_token_key(const char *key);

#endif
