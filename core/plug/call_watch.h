/* Watches calls of plugins that must return soon, on threads that wait for nothing else.
 *
 * A reader whose column() never returns, or a model whose create() does not, would keep a run
 * waiting for ever, without a word. The library itself never ends a process: without a handler,
 * which the command sets, nothing is watched.
 */
#ifndef LATHE_PLUG_CALL_WATCH_H
#define LATHE_PLUG_CALL_WATCH_H

/** Called on a thread of its own when the function of the plugin at `path` has not returned for
 *  `seconds`. */
typedef void (*lathe_call_handler)(const char *path, const char *function, double seconds);

/** Sets the handler, and after how many seconds it is called; once, before plugins are opened. */
void lathe_call_watch(lathe_call_handler handler, double seconds);

/** Begins and ends a watched call of this thread; calls do not nest. path and function: static, or
 *  borrowed until the end. path NULL: the call is not watched. */
void lathe_call_begin(const char *path, const char *function);
void lathe_call_end(void);

#endif
