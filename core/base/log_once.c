/* Logs a message once per process. */
#include "base/log_once.h"

#include <pthread.h>
#include <stdint.h>

enum { MAX_TEXTS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t logged[MAX_TEXTS]; /* hashes */
static int32_t n_logged;

static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *text != '\0'; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    return h;
}

void lathe_log_once(int32_t level, const char *text)
{
    const uint64_t hash = hash_of(text);
    int is_known = 0;
    (void)pthread_mutex_lock(&lock);
    for (int32_t i = 0; i < n_logged; i++)
        is_known |= logged[i] == hash;
    if (!is_known && n_logged < MAX_TEXTS)
        logged[n_logged++] = hash;
    (void)pthread_mutex_unlock(&lock);
    if (!is_known)
        lathe_log(level, "%s", text);
}
