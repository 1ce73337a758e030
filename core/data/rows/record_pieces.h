/* Records of a dataset as the pieces of a shard: tokenises texts and conversations, and finds which
 * tokens are the prompt, the completion, or targets. */
#ifndef LATHE_DATA_RECORD_PIECES_H
#define LATHE_DATA_RECORD_PIECES_H

#include "base/buffer.h"
#include "data/conversation/chat_record.h"
#include "data/rows/shards_internal.h"

/** Pieces of some records, one after the other. */
typedef struct lathe_pieces {
    lathe_ids ids;
    lathe_shard_piece *list; /* with ids = NULL: the ids are in `ids`, one piece after another */
    int64_t n, capacity;
    double *inputs; /* of each record in turn: the stage's inputs */
    int64_t n_inputs, inputs_capacity;
    lathe_buffer records; /* the records as JSON, for kinds of rows that keep them */
    int64_t line;         /* LATHE_SHARD_LINE of the record that is tokenised */
    lathe_record_counts counts;
    lathe_record_notes notes; /* `loss` and the skipped files are those of the encoders */
} lathe_pieces;

/** Forgets the pieces, and keeps the memory. */
void lathe__pieces_clear(lathe_pieces *pieces);
void lathe__pieces_fini(lathe_pieces *pieces);

/** The memory and tools with which one thread tokenises records. At first all members except job
 *  and enc are zero. */
typedef struct lathe_record_encoder {
    const lathe_shard_job *job;
    lathe_encoder *enc; /* owned */
    lathe_fields fields;
    lathe_ids prompt;                  /* the prompt alone */
    lathe_ids full[LATHE_MAX_ANSWERS]; /* the prompt with each answer */
    lathe_chat_tokens chat;            /* of a conversation */
    int32_t is_rendered;               /* 1: the chat template writes the record */
    char *joined;                      /* prompt + completion */
    int64_t joined_bytes;
} lathe_record_encoder;

void lathe__record_encoder_fini(lathe_record_encoder *encoder);

/** Appends the pieces of a record of the reader, or counts why it has none. Errors name
 *  file:line. */
lathe_status lathe__record_encode(lathe_record_encoder *encoder, const lathe_reader *reader,
                                  const lathe_record *record, lathe_pieces *out);

/** Counts the fields of a record that nothing reads, after it was encoded. */
void lathe__record_note_unread(const lathe_reader *reader, const lathe_record *record,
                               const lathe_fields *fields, int64_t line, lathe_record_notes *notes);

/** Appends the range text[begin, end) of a document of n bytes; `fields` are the fields of its
 *  record. The tokenizer allows cuts at both ends. */
lathe_status lathe__record_encode_range(lathe_record_encoder *encoder, const lathe_fields *fields,
                                        const char *text, int64_t n, int64_t begin, int64_t end,
                                        lathe_pieces *out);

#endif
