/* Shared by all programs here: contents that identify their origin, and failures with a reason. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void fail(const char *format, ...)
{
    va_list words;

    fprintf(stderr, "%s: rank %d: ", __BASE_FILE__, rank);
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CHECK(holds) ((holds) ? (void)0 : fail("line %d: not %s", __LINE__, #holds))

static inline unsigned char byte_of(int seed, size_t at)
{
    return (unsigned char)(seed * 131 + at * 31 + at / 253);
}

static inline void fill(unsigned char *bytes, size_t len, int seed)
{
    for (size_t at = 0; at < len; at++)
        bytes[at] = byte_of(seed, at);
}

static inline void verify(const unsigned char *bytes, size_t len, int seed)
{
    for (size_t at = 0; at < len; at++)
        if (bytes[at] != byte_of(seed, at))
            fail("byte %zu of %zu, seed %d", at, len, seed);
}

/* A program that is compiled with SUITE is called by suite.c, which starts and ends the library. */
static inline void begin(int *count, char ***words)
{
#ifdef SUITE
    (void)count, (void)words;
#else
    MPI_Init(count, words);
#endif
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static inline int end(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
#ifdef SUITE
    return 0;
#else
    if (rank == 0)
        puts("ok");
    return MPI_Finalize();
#endif
}
