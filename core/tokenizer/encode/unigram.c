/* Unigram: finds the path through a piece whose tokens have the largest sum of scores (Viterbi), as
 * Hugging Face's encode_optimized does: in double, and the first of equal paths is kept. Takes time
 * linear in the piece, times the length of the longest token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/pipeline.h"

/* Difference between the lowest score of a token and the score of an unknown character. */
#define UNK_PENALTY 10.0

/* An edge of the trie, from a node by a byte to a node. */
typedef struct edge {
    uint32_t key; /* node << 8 | byte; UINT32_MAX: empty */
    uint32_t node;
} edge;

enum { MAX_NODES = (1 << 24) - 1 };

struct lathe_unigram {
    edge *edges; /* hash table */
    uint64_t mask;
    int32_t *token; /* [n_nodes] id of the token that ends here, -1: none */
    int64_t n_nodes, node_capacity, n_edges;
    double *scores; /* [n] */
    double unk_score;
};

typedef struct lathe_way {
    double score;
    int32_t id, length; /* of the last token of the best path to here; length 0: no path */
} way;

static edge *slot_of(const lathe_unigram *u, uint32_t key)
{
    uint64_t i = lathe__mix(key);
    while (u->edges[i & u->mask].key != UINT32_MAX && u->edges[i & u->mask].key != key)
        i++;
    return &u->edges[i & u->mask];
}

static lathe_status grow_edges(lathe_unigram *u)
{
    const uint64_t n_old = u->edges ? u->mask + 1 : 0, n = n_old ? n_old * 2 : 4096;
    edge *old = u->edges;
    edge *edges = malloc(n * sizeof *edges);
    if (edges == NULL)
        return lathe_error(LATHE_E_NOMEM, "vocabulary trie");
    for (uint64_t i = 0; i < n; i++)
        edges[i] = (edge){UINT32_MAX, 0};
    u->edges = edges;
    u->mask = n - 1;
    for (uint64_t i = 0; i < n_old; i++)
        if (old[i].key != UINT32_MAX)
            *slot_of(u, old[i].key) = old[i];
    free(old);
    return LATHE_OK;
}

static lathe_status new_node(lathe_unigram *u)
{
    if (u->n_nodes == u->node_capacity) {
        const int64_t capacity = u->node_capacity * 2 + 4096;
        int32_t *token = realloc(u->token, (size_t)capacity * sizeof *token);
        if (token == NULL)
            return lathe_error(LATHE_E_NOMEM, "vocabulary trie");
        u->token = token;
        u->node_capacity = capacity;
    }
    if (u->n_nodes >= MAX_NODES)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "a Unigram vocabulary whose tokens have more than 2^24 beginnings");
    u->token[u->n_nodes++] = -1;
    return LATHE_OK;
}

static lathe_status insert(lathe_unigram *u, const uint8_t *text, int64_t n, int32_t id)
{
    uint32_t node = 0;
    for (int64_t i = 0; i < n; i++) {
        if ((uint64_t)u->n_edges * 4 >= u->mask * 3)
            LATHE_TRY(grow_edges(u));
        edge *e = slot_of(u, node << 8 | text[i]);
        if (e->key == UINT32_MAX) {
            LATHE_TRY(new_node(u));
            *e = (edge){node << 8 | text[i], (uint32_t)(u->n_nodes - 1)};
            u->n_edges++;
        }
        node = e->node;
    }
    if (n > 0)
        u->token[node] = id; /* of two equal tokens, the later counts */
    return LATHE_OK;
}

lathe_status lathe__unigram_create(const lathe_vocab *vocab, double *scores, int64_t n,
                                   lathe_unigram **out)
{
    lathe_unigram *u = calloc(1, sizeof *u);
    if (u == NULL)
        return lathe_error(LATHE_E_NOMEM, "unigram");
    double least = INFINITY;
    lathe_status status = grow_edges(u);
    if (status == LATHE_OK)
        status = new_node(u);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        if (scores[i] < least)
            least = scores[i];
        status = insert(u, vocab->pool + vocab->at[i], vocab->len[i], (int32_t)i);
    }
    if (status != LATHE_OK) {
        lathe__unigram_destroy(u);
        return status;
    }
    u->scores = scores;
    u->unk_score = least - UNK_PENALTY;
    *out = u;
    return LATHE_OK;
}

void lathe__unigram_destroy(lathe_unigram *unigram)
{
    if (unigram == NULL)
        return;
    free(unigram->edges);
    free(unigram->token);
    free(unigram->scores);
    free(unigram);
}

void lathe__model_scratch_fini(lathe_model_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    free(scratch->ways);
    memset(scratch, 0, sizeof *scratch);
}

static void offer(way *to, double score, int32_t id, int32_t length)
{
    if (to->length == 0 || score > to->score)
        *to = (way){score, id, length};
}

/* Fills ways[n + 1] from the left; ways[i] is the best path that ends at byte i. */
static lathe_status find_ways(const lathe_tokenizer *tok, const uint8_t *text, int64_t n, int plain,
                              way *ways)
{
    const lathe_unigram *u = tok->pipeline->unigram;
    memset(ways, 0, (size_t)(n + 1) * sizeof *ways);
    int32_t width;
    for (int64_t at = 0; at < n; at += width) {
        const double here = ways[at].score;
        int has_single = 0;
        lathe_utf8_at(text + at, n - at, &width);
        uint32_t node = 0;
        for (int64_t i = at; i < n; i++) {
            const edge *e = slot_of(u, node << 8 | text[i]);
            if (e->key == UINT32_MAX)
                break;
            node = e->node;
            const int32_t id = u->token[node], length = (int32_t)(i + 1 - at);
            if (id < 0 || (plain && tok->pipeline->is_control[id]))
                continue;
            offer(&ways[i + 1], u->scores[id] + here, id, length);
            has_single |= length == width;
        }
        if (has_single)
            continue;
        if (tok->pipeline->unk >= 0)
            offer(&ways[at + width], u->unk_score + here, tok->pipeline->unk, width);
        else if (ways[at + width].length == 0 || u->unk_score + here > ways[at + width].score)
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "the character \"%.*s\" is in no token and the tokenizer has no "
                               "unknown token",
                               width, (const char *)text + at);
    }
    return LATHE_OK;
}

/* Puts unknown text, as one token or as the tokens of its bytes. */
static lathe_status put_unknown(const lathe_tokenizer *tok, const uint8_t *text, int64_t n,
                                int plain, lathe_text_loss *loss, lathe_ids *ids)
{
    const lathe_pipeline *pipeline = tok->pipeline;
    LATHE_TRY(lathe_ids_reserve(ids, n + 1));
    int32_t id = lathe__vocab_find(&tok->vocab, text, n);
    if (id >= 0 && plain && pipeline->is_control[id])
        id = -1;
    int bytes = id < 0 && pipeline->byte_fallback;
    for (int64_t i = 0; i < n && bytes; i++)
        bytes = pipeline->byte_token[text[i]] >= 0;
    if (!bytes)
        ids->data[ids->n++] = id >= 0 ? id : pipeline->unk;
    if (!bytes && id < 0)
        lathe__count_lost(pipeline, text, n, 1, loss);
    for (int64_t i = 0; i < n && bytes; i++)
        ids->data[ids->n++] = pipeline->byte_token[text[i]];
    return LATHE_OK;
}

/* Reverses the best path: afterwards ways[i] is the token that begins at byte i. */
static void turn_round(way *ways, int64_t n)
{
    way next = ways[n];
    for (int64_t at = n; at > 0;) {
        const int64_t begin = at - next.length;
        const way before = ways[begin];
        ways[begin] = next;
        next = before;
        at = begin;
    }
}

static lathe_status reserve(lathe_model_scratch *scratch, int64_t n)
{
    if (n >= INT32_MAX)
        return lathe_error(LATHE_E_UNSUPPORTED, "a piece of %lld bytes without a split",
                           (long long)n);
    if (n + 1 <= scratch->n_ways)
        return LATHE_OK;
    free(scratch->ways);
    scratch->n_ways = 0;
    scratch->ways = malloc((size_t)(n + 1) * sizeof *scratch->ways);
    if (scratch->ways == NULL)
        return lathe_error(LATHE_E_NOMEM, "a piece of %lld bytes", (long long)n);
    scratch->n_ways = n + 1;
    return LATHE_OK;
}

lathe_status lathe__unigram_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                   const uint8_t *piece, int64_t n, int plain, lathe_ids *ids)
{
    const int32_t unk = tok->pipeline->unk;
    LATHE_TRY(reserve(scratch, n));
    way *ways = scratch->ways;
    LATHE_TRY(find_ways(tok, piece, n, plain, ways));
    turn_round(ways, n);
    for (int64_t at = 0; at < n;) {
        int64_t end = at + ways[at].length;
        if (unk >= 0 && ways[at].id == unk) { /* unknown characters in a row are one token */
            while (end < n && ways[end].id == unk)
                end += ways[end].length;
            LATHE_TRY(put_unknown(tok, piece + at, end - at, plain, scratch->loss, ids));
        } else {
            LATHE_TRY(lathe_ids_reserve(ids, 1));
            ids->data[ids->n++] = ways[at].id;
        }
        at = end;
    }
    return LATHE_OK;
}
