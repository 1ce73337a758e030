/* A session is a model that is open to generate, to converse, to evaluate or to train.
 *
 * lathe_session_config.model names the model as the commands do (`lathe chat MODEL`): a Hugging
 * Face folder, a GGUF file, a checkpoint, the folder of a run (its latest checkpoint), the folder
 * of an adapter (the base model that it names is opened with it), or a run file. The session takes
 * the tokenizer, the chat template or renderer, the quantization and the end tokens of that folder.
 *
 * lathe_session_run() gives the run inside the session, for the calls of lathe/lathe.h: forward,
 * backward, step, zero_grad, generate, logprobs, save and load.
 *
 * Threads: one thread at a time calls a session, and need not be the one that opened it. Several
 * sessions may run side by side in threads of one process; they share the threads that compute.
 * lathe_session_cancel may be called from any thread, and from a signal handler. A call that fails
 * leaves its message in lathe_last_error() of the thread that made it. Lines of the log go to
 * stderr, or to the function that lathe_set_log is given.
 */
#ifndef LATHE_SESSION_H
#define LATHE_SESSION_H

#include "lathe.h"

LATHE_EXTERN_C_BEGIN

typedef struct lathe_session lathe_session;

/** Purposes for which a session is opened. */
enum {
    LATHE_SESSION_GENERATE = 0, /* weights and a KV cache; no gradients, no data */
    LATHE_SESSION_EVALUATE = 1, /* weights and data to evaluate on, as `lathe eval`; lathe_forward
                                 * gives the loss */
    /* `model` is a run file: gradients and an optimizer; the caller may pass its own batches, and
     * data.datasets may be left out. The session begins at step 0 with the model that the file
     * names, unless checkpoint.resume is set, in the file or in settings: then it goes on from the
     * checkpoint that this means, "auto" from the latest one of checkpoint.dir. lathe_load goes on
     * from any other. */
    LATHE_SESSION_TRAIN = 2,
};

/** Which weights are taken of a checkpoint that has the trained ones and a running average of them
 *  (train.weight_average). */
enum {
    LATHE_SESSION_WEIGHTS_AUTO = 0,     /* the average, if there is one */
    LATHE_SESSION_WEIGHTS_TRAINING = 1, /* the trained ones, from which the training goes on */
    LATHE_SESSION_WEIGHTS_AVERAGE = 2,  /* the average; an error if there is none */
};

/** One of several adapters that share one base model. */
typedef struct lathe_session_adapter {
    const char *name; /* for lathe_session_use: letters, digits and "_-."; not "base" */
    const char *dir;  /* the adapter's folder */
} lathe_session_adapter;
LATHE_ABI_SIZE(lathe_session_adapter, 16);

typedef struct lathe_session_config {
    uint32_t size;
    int32_t purpose;   /* LATHE_SESSION_* */
    const char *model; /* the folder, file or run file: see above */
    /* [n_settings] "section.key=value", keys of a run file such as "data.seq_len=2048"; they have
     * priority over what the folder or the run file says */
    const char *const *settings;
    int32_t n_settings;
    int32_t weights; /* LATHE_SESSION_WEIGHTS_*; AUTO for TRAIN: a run file has model.weights */
    /* [n_adapters] adapters of the base model in `model`, which is then no adapter and no run file.
     * The base is loaded once. */
    const lathe_session_adapter *adapters;
    int32_t n_adapters;
    int32_t reserved; /* 0 */
    const char *use;  /* name of the adapter that generates first, or "base"; NULL: the last */
    const char *data; /* EVALUATE: file or folder; NULL: the validation data of the run that made
                       * the folder */
} lathe_session_config;
LATHE_ABI_SIZE(lathe_session_config, 64);

/** Opens a session, which reads the weights. After an error *out is NULL.
 *
 *  Errors  LATHE_E_CONFIG: `model` names no model, or the settings do not fit it.
 *          LATHE_E_ARG: a field of config has a wrong value, or no effect beside the others.
 *          LATHE_E_CORRUPT: the weights differ from the hashes in the folder's manifest.json. */
LATHE_EXPORT lathe_status lathe_session_open(const lathe_session_config *config,
                                             lathe_session **out);
/** Closes a session; takes NULL. Destroy its conversations (lathe_dialogue) before it. */
LATHE_EXPORT void lathe_session_close(lathe_session *session);

/** The run inside the session, for the calls of lathe/lathe.h. The session owns it. */
LATHE_EXPORT lathe_run *lathe_session_run(lathe_session *session);

/** The prompt of a run file, its key generate.prompt; "" if there is none. The session owns it. */
LATHE_EXPORT const char *lathe_session_prompt(const lathe_session *session);

/** Generates with another adapter from now on; "base": with the base model alone. LATHE_E_ARG: no
 *  adapter has this name. */
LATHE_EXPORT lathe_status lathe_session_use(lathe_session *session, const char *adapter);

/* ---- text and tokens ---- */

/** Token ids. The session owns the arrays, and the next call that gives ids replaces them. */
typedef struct lathe_session_ids {
    const int32_t *ids; /* [n] */
    int64_t n;
    /* [n] by lathe_session_learn: 1 where the token counts in the loss of a training (it is
     * "learnt"), else 0; NULL after other calls */
    const uint8_t *learnt;
} lathe_session_ids;
LATHE_ABI_SIZE(lathe_session_ids, 24);

/** Encodes text[0, n) as it stands: without tokens before or after it.
 *
 *  Errors  LATHE_E_CONFIG: the model has no tokenizer.
 *          LATHE_E_ARG: the text is not UTF-8, and the tokenizer has no tokens for its bytes.
 *  Characters that the vocabulary lacks are left out or become its unknown token; a line of the log
 *  counts them. */
LATHE_EXPORT lathe_status lathe_session_encode(lathe_session *session, const char *text, int64_t n,
                                               lathe_session_ids *out);

/** Decodes ids[0, n) to text of *out_bytes bytes and a NUL, which the session owns until the next
 *  lathe_session_decode. It is UTF-8, except where the ids end inside a character. LATHE_E_ARG: an
 *  id that is no token. */
LATHE_EXPORT lathe_status lathe_session_decode(lathe_session *session, const int32_t *ids,
                                               int64_t n, const char **out, int64_t *out_bytes);

/** The tokens of a conversation up to where the assistant's answer begins, as the model's chat
 *  template or renderer writes it. json[0, n): a list of messages, [{"role": "user", "content":
 *  "Hi"}], or an object with "messages" and what the template needs besides ("tools", "documents",
 *  "chat_template_kwargs"). LATHE_E_CONFIG: there is no template, or it
 *  refuses the conversation. */
LATHE_EXPORT lathe_status lathe_session_render(lathe_session *session, const char *json, int64_t n,
                                               lathe_session_ids *out);

/** The tokens of a conversation with its answers, and which of them count in the loss of stage
 * `sft` (out->learnt): those that the assistant wrote, without messages that are marked not to be
 *  learnt. json: as for lathe_session_render.
 *  LATHE_E_CONFIG: as above; or the template writes an earlier turn differently once later ones
 *  follow. */
LATHE_EXPORT lathe_status lathe_session_learn(lathe_session *session, const char *json, int64_t n,
                                              lathe_session_ids *out);

/* ---- generation ---- */

/** A piece of a text that is being generated. Pieces are whole characters, in order; together they
 *  are the text of the result. */
typedef struct lathe_session_piece {
    uint32_t size;
    int32_t n_tokens; /* of the answer so far */
    const char *text; /* [bytes], not NUL-terminated; borrowed during the call */
    int64_t bytes;    /* 0: the token completes no character, or may begin a stop string */
} lathe_session_piece;
LATHE_ABI_SIZE(lathe_session_piece, 24);

/** Gets each piece when its token is drawn. A result other than 0 ends the text, which keeps what
 * it has. The function may not generate with the same session: that is LATHE_E_STATE. */
typedef int32_t (*lathe_session_piece_fn)(void *arg, const lathe_session_piece *piece);

/** Continues one prompt as lathe_generate_many does, and gives fn each piece of the text; fn NULL:
 * no pieces are wanted. What *out points to is valid until the next call that generates.
 * out->finish is LATHE_FINISH_CANCELLED after lathe_session_cancel, or after fn ended the text. */
LATHE_EXPORT lathe_status lathe_session_stream(lathe_session *session, const lathe_prompt *prompt,
                                               const lathe_sampling *sampling,
                                               lathe_session_piece_fn fn, void *arg,
                                               lathe_generation *out);

/** Ends the text under way, of lathe_session_stream or lathe_dialogue_say, after its present token.
 *  Without a text under way it does nothing: a cancel that comes late does not cut the next text.
 *  Safe in any thread and in a signal handler. */
LATHE_EXPORT void lathe_session_cancel(lathe_session *session);

/* ---- conversations ---- */

/** A conversation: messages of a user and answers of the session's model. Several conversations may
 *  share a session; one of them answers at a time. */
typedef struct lathe_dialogue lathe_dialogue;

/** Begins a conversation without messages. LATHE_E_CONFIG: the model has no chat template. */
LATHE_EXPORT lathe_status lathe_dialogue_create(lathe_session *session, lathe_dialogue **out);
LATHE_EXPORT void lathe_dialogue_destroy(lathe_dialogue *dialogue);

/** The usual sampling settings of an answer: those of lathe_default_sampling, but the answer ends
 * at an end token, and may fill the context unless generate.max_new_tokens is set. */
LATHE_EXPORT lathe_status lathe_dialogue_sampling(const lathe_dialogue *dialogue,
                                                  lathe_sampling *out);

/** Sets the system message; an empty text removes it. LATHE_E_ARG: not UTF-8. */
LATHE_EXPORT lathe_status lathe_dialogue_system(lathe_dialogue *dialogue, const char *text);

/** Adds text[0, n) as the user's message and generates the answer, which becomes a message too. Of
 * a cancelled answer the whole characters so far become the message. After an error the
 * conversation is as before. The seed of answer k is sampling->seed + k. LATHE_E_ARG: not UTF-8. */
LATHE_EXPORT lathe_status lathe_dialogue_say(lathe_dialogue *dialogue, const char *text, int64_t n,
                                             const lathe_sampling *sampling,
                                             lathe_session_piece_fn fn, void *arg,
                                             lathe_generation *out);

/** Drops the last question and what follows it. LATHE_E_STATE: there is none. */
LATHE_EXPORT lathe_status lathe_dialogue_undo(lathe_dialogue *dialogue);
/** Drops all messages except that of the system. */
LATHE_EXPORT void lathe_dialogue_clear(lathe_dialogue *dialogue);
/** Number of messages. */
LATHE_EXPORT int64_t lathe_dialogue_count(const lathe_dialogue *dialogue);

/** The messages as JSON, {"messages": [...]}; valid until the next call on the conversation. */
LATHE_EXPORT lathe_status lathe_dialogue_json(lathe_dialogue *dialogue, const char **out,
                                              int64_t *out_bytes);

LATHE_EXTERN_C_END

#endif
