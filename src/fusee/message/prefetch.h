/* Asks the processor for the line of its cache at this address, which is read soon. */
#if defined(__GNUC__)
#define fusee_prefetch(at) __builtin_prefetch(at)
#else
#define fusee_prefetch(at) ((void)(at))
#endif
