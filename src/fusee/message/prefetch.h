/* Asks the processor for memory that is read or written soon.
 *
 * What other work has pushed out of the cache comes from memory, and many short copies in a row wait for that each time:
 * the processor's own look-ahead begins anew with every page.
 */
#ifndef FUSEE_PREFETCH_H
#define FUSEE_PREFETCH_H

#include <stddef.h>

#if defined(__GNUC__)
#define fusee_prefetch(at) __builtin_prefetch(at)
#define fusee_prefetch_to_write(at) __builtin_prefetch(at, 1)
#else
#define fusee_prefetch(at) ((void)(at))
#define fusee_prefetch_to_write(at) ((void)(at))
#endif

/* The lines of a copy that is made a little later; they need not exist. */
static inline void fusee_prefetch_copy(void *into, const void *at, size_t size) {
    for (size_t place = 0; place < size; place += 64) {
        fusee_prefetch((const char *)at + place);
        fusee_prefetch_to_write((char *)into + place);
    }
}

#endif
