/* The names of a record's fields that mean something by themselves. Each reader of records takes
 * its fields from this list, with lathe_record_take, so that a field is read exactly if it is noted
 * as read; docs/data.md has the same list ("Keys of a record").
 */
#ifndef LATHE_DATA_RECORD_KEYS_H
#define LATHE_DATA_RECORD_KEYS_H

#include <jansson.h>
#include <stdint.h>

#include "base/json/json_walk.h"

#define LATHE_RECORD_MESSAGES "messages"
/** The field of LLaMA-Factory's sharegpt conversations. */
#define LATHE_RECORD_SHAREGPT "conversations"
/** The field whose text is the system message of a conversation. */
#define LATHE_RECORD_SYSTEM "system"
/* LLaMA-Factory's alpaca form */
#define LATHE_RECORD_INSTRUCTION "instruction"
#define LATHE_RECORD_INPUT "input"
#define LATHE_RECORD_OUTPUT "output"
#define LATHE_RECORD_HISTORY "history"
/** LLaMA-Factory's name for kto's input label. */
#define LATHE_RECORD_KTO_TAG "kto_tag"

/** Begins the name of a key of messages, where it is told that nothing reads it. */
#define LATHE_RECORD_OF_MESSAGES "messages[]."

/** Where a field is read: bits. */
enum {
    LATHE_RECORD_IS_COLUMN = 1,  /* a column of the rows (LATHE_COLUMN_*) */
    LATHE_RECORD_IS_TALK = 2,    /* the list of messages */
    LATHE_RECORD_IS_BESIDE = 4,  /* the chat template gets it beside the messages */
    LATHE_RECORD_IS_SYSTEM = 8,  /* the text of a system message */
    LATHE_RECORD_IS_ALPACA = 16, /* records of the alpaca form */
    LATHE_RECORD_IS_INPUT = 32,  /* another name of a stage's input */
    /* Nothing reads it; other programs, or another stage, do. It is named in a warning. */
    LATHE_RECORD_IS_FOREIGN = 64
};

typedef struct lathe_record_key {
    const char *name;
    uint32_t where; /* LATHE_RECORD_IS_* */
} lathe_record_key;

enum { LATHE_MAX_RECORD_KEYS = 64 };

/** Key i of the list, which begins with the columns of the rows in the order of LATHE_COLUMN_*;
 *  NULL: there are no more. */
const lathe_record_key *lathe_record_key_get(int32_t i);

/** The bits of a name; 0: it means nothing by itself. */
uint32_t lathe_record_key_where(const char *name);

/** The name of a column or list that `name` is probably a misspelling of: "promt"; NULL: none. */
const char *lathe_record_key_near(const char *name);

/** 1 if the name (or LATHE_RECORD_OF_MESSAGES and the key of a message) means something here or to
 *  other programs, or is misspelt, so that it is worth a warning that nothing reads it. */
int lathe_record_key_means(const char *name);

enum { LATHE_MAX_USES = 40 };

/** Names of a record's fields that are read; the names are borrowed and outlive the record. */
typedef struct lathe_record_uses {
    const char *names[LATHE_MAX_USES];
    int32_t n;
} lathe_record_uses;

/** Adds the name; `uses` may be NULL. More than LATHE_MAX_USES different ones cannot come: a layout
 *  has fewer fields. */
void lathe_record_use(lathe_record_uses *uses, const char *name);
/** Takes the name out; `uses` may be NULL. */
void lathe_record_unuse(lathe_record_uses *uses, const char *name);
/** 1 if the name is in it. */
int lathe_record_is_used(const lathe_record_uses *uses, const lathe_json_string *name);

/** The value of a field that the record has, null included, and notes it as read; NULL: the record
 *  lacks it. uses NULL: not noted. The name outlives the record. */
json_t *lathe_record_take(const json_t *row, lathe_record_uses *uses, const char *name);

#endif
