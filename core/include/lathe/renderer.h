/* The interface of renderer plugins: how a family of chat models writes a conversation as text.
 *
 * A renderer turns messages into pieces, in order. Their texts, joined, are the text that the
 * family's chat template gives. A piece is text, or one special token by its name: only pieces of
 * kind LATHE_PIECE_TOKEN become special tokens, so "<|im_start|>" typed by a user is text. A piece
 * says which message it comes from and whether training learns it, so no offsets are searched.
 *
 * The core reads the JSON: tools and arguments of calls arrive as JSON texts, written as the filter
 * `tojson` of transformers writes them; lathe/kit/json_text.h takes such a text apart. The folder's
 * template remains: where render() returns LATHE_E_UNSUPPORTED, and the user named no renderer, the
 * template's interpreter renders.
 *
 * Threads: score() once, before render(); then any number of threads may render at once. All texts
 * are UTF-8, may hold NUL, and are borrowed for the call.
 */
#ifndef LATHE_RENDERER_H
#define LATHE_RENDERER_H

#include "host.h"

#define LATHE_RENDERER_REVISION 1

/** A text. data NULL: there is none, which is not the empty text. Plain data. */
typedef struct lathe_chars {
    const char *data;
    int64_t bytes;
} lathe_chars;
LATHE_ABI_SIZE(lathe_chars, 16);

enum {
    LATHE_CHAT_SYSTEM = 0,
    LATHE_CHAT_USER = 1,
    LATHE_CHAT_ASSISTANT = 2,
    LATHE_CHAT_TOOL = 3,
    LATHE_CHAT_OTHER = 4, /* role_name says which */
};

/** A call of a tool by the assistant. Plain data. */
typedef struct lathe_tool_call {
    lathe_chars name;
    lathe_chars arguments;      /* JSON */
    lathe_chars arguments_text; /* their text if the message gives them as a string, else none */
    lathe_chars id;
    lathe_chars function; /* JSON of the call's member "function"; none: the call has name and
                             arguments itself */
    lathe_chars type;     /* "function" as a rule; none: missing */
} lathe_tool_call;
LATHE_ABI_SIZE(lathe_tool_call, 96);

/** One message. Plain data. */
typedef struct lathe_chat_message {
    int32_t role; /* LATHE_CHAT_* */
    int32_t n_calls;
    const lathe_tool_call *calls; /* [n_calls] */
    lathe_chars role_name;        /* "user" */
    lathe_chars content;          /* none: null or missing */
    lathe_chars reasoning;        /* reasoning_content, thinking or reasoning; none: missing */
    lathe_chars call_id;          /* tool_call_id of a tool's answer */
} lathe_chat_message;
LATHE_ABI_SIZE(lathe_chat_message, 80);

typedef struct lathe_conversation {
    uint32_t size;
    int32_t n_messages; /* at least 1 */
    const lathe_chat_message *messages;
    const lathe_chars *tools; /* [n_tools] JSON of each tool */
    int32_t n_tools;
    int32_t prompt;           /* 1: the text ends with what comes before an answer */
    lathe_chars bos, eos;     /* special tokens of the folder; none: it has none */
    int32_t thinking;         /* enable_thinking: 1, 0, or -1 if it is not given */
    int32_t is_marked;        /* 1: the folder's template marks what is learnt ({% generation %}) */
    int32_t day, month, year; /* today, in local time; month 1 to 12 */
    int32_t reserved;         /* 0 */
} lathe_conversation;
LATHE_ABI_SIZE(lathe_conversation, 88);

enum { LATHE_PIECE_TEXT = 0, LATHE_PIECE_TOKEN = 1 };

/** A part of the text. Plain data. */
typedef struct lathe_piece {
    int32_t kind;     /* LATHE_PIECE_* */
    int32_t message;  /* index of the message it belongs to; -1: none */
    int32_t trained;  /* 1: training learns it; only pieces of the assistant's messages */
    int32_t reserved; /* 0 */
    lathe_chars text; /* of a token: its whole name, "<|im_start|>" */
} lathe_piece;
LATHE_ABI_SIZE(lathe_piece, 32);

/** Takes the pieces. */
typedef struct lathe_piece_sink {
    uint32_t size;
    int32_t reserved; /* 0 */
    void *ctx;
    /** [any] Copies a piece. An error must be returned from render() unchanged. */
    lathe_status (*put)(void *ctx, const lathe_piece *piece);
} lathe_piece_sink;
LATHE_ABI_SIZE(lathe_piece_sink, 24);

/** Facts about the model's folder, from which a renderer tells whether it is the right one. */
typedef struct lathe_renderer_probe {
    uint32_t size;
    int32_t reserved;            /* 0 */
    const char *template_sha256; /* 64 hexadecimal digits, of the text without trailing
                                    newlines; NULL: the folder has no template */
    lathe_chars template_text;   /* none: the folder has no template */
    lathe_chars bos, eos;        /* none: the folder has none */
    const char *model_type;      /* of config.json; NULL: not known */
} lathe_renderer_probe;
LATHE_ABI_SIZE(lathe_renderer_probe, 72);

/* Flags of a renderer. */
enum {
    /* Piece by piece, the prompt of an answer is a prefix of the text with that answer, and this
     * text is a prefix of the prompt of the next answer. A later turn can then reuse all that was
     * computed for an earlier one. */
    LATHE_RENDERER_EXTENDS = 1,
};

typedef struct lathe_renderer_v1 {
    uint32_t size;
    uint32_t revision;
    uint32_t flags;   /* LATHE_RENDERER_* */
    int32_t reserved; /* 0 */
    /** [open] LATHE_SCORE_* for a folder; writes one line of reason. The instance may keep which
     *  variant of its family the folder has. `auto` takes the highest score among the renderers
     *  whose texts equal the folder's template on a set of conversations. NULL: only by name. */
    int32_t (*score)(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes);
    /** [any] Passes the pieces of a conversation to the sink, in order.
     *  Errors  LATHE_E_UNSUPPORTED: the family has no text for this conversation. The message
     *          begins with the message: "message 2 (role \"tool\"): ...". */
    lathe_status (*render)(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink);
} lathe_renderer_v1;
LATHE_ABI_SIZE(lathe_renderer_v1, 32);

#endif
