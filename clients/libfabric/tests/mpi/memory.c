/* Remote memory: writes, reads, accumulation and swaps, between fences and under locks. */
#include "check.h"

enum { WORDS = 40000 };

static void fences(long *mine, MPI_Win window)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

    for (int count = 1; count <= WORDS; count = count * 7 + 3) {
        if (count > WORDS)
            break;
        long *out = malloc(count * sizeof *out), *in = malloc(count * sizeof *in);
        for (int at = 0; at < count; at++)
            out[at] = rank * 100000L + at;
        memset(mine, 0, WORDS * sizeof *mine);
        MPI_Win_fence(0, window);
        MPI_Put(out, count, MPI_LONG, next, 0, count, MPI_LONG, window);
        MPI_Win_fence(0, window);
        for (int at = 0; at < count; at++)
            CHECK(mine[at] == before * 100000L + at);
        MPI_Win_fence(0, window);
        MPI_Get(in, count, MPI_LONG, next, 0, count, MPI_LONG, window);
        MPI_Win_fence(0, window);
        for (int at = 0; at < count; at++)
            CHECK(in[at] == rank * 100000L + at);
        for (int of = 0; of < ranks; of++)
            MPI_Accumulate(out, count, MPI_LONG, of, 0, count, MPI_LONG, MPI_SUM, window);
        MPI_Win_fence(0, window);
        for (int at = 0; at < count; at++) {
            long expected = before * 100000L + at;
            for (int of = 0; of < ranks; of++)
                expected += of * 100000L + at;
            CHECK(mine[at] == expected);
        }
        MPI_Win_fence(0, window);
        free(out);
        free(in);
    }
}

static void locks(long *mine, MPI_Win window)
{
    /* A rank that waits for a lock polls: with more ranks than processors, the duration of a turn
     * grows with the number of ranks. */
    const int turns = 200 / ranks;
    long one = 1, old, zero = 0;

    mine[0] = mine[1] = mine[2] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < turns; turn++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        long seen;
        MPI_Get(&seen, 1, MPI_LONG, 0, 0, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        seen++;
        MPI_Put(&seen, 1, MPI_LONG, 0, 0, 1, MPI_LONG, window);
        MPI_Win_unlock(0, window);
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 1, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(old >= turn && old < (long)turns * ranks);
        do {
            MPI_Compare_and_swap(&one, &zero, &old, MPI_LONG, 0, 2, window);
            MPI_Win_flush(0, window);
        } while (old != 0);
        MPI_Accumulate(&zero, 1, MPI_LONG, 0, 2, 1, MPI_LONG, MPI_REPLACE, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    CHECK(rank != 0 || (mine[0] == (long)turns * ranks && mine[1] == mine[0] && mine[2] == 0));
    MPI_Win_unlock(rank, window);
}

int main(int count, char **words)
{
    long *mine;
    MPI_Win window;

    begin(&count, &words);
    MPI_Win_allocate(WORDS * sizeof *mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &mine,
                     &window);
    fences(mine, window);
    locks(mine, window);
    MPI_Win_free(&window);
    return end();
}
