/* Remote memory: exposed to a group for an epoch, under all locks at once, with request-based
 * operations, with operations that fetch, and in pieces. */
#include "check.h"

enum { WORDS = 20000 };

/* Neighbours expose their memory to each other, and to no other rank. */
static void exposed(double *mine, MPI_Win window)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Group world, whom, who;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &next, &whom);
    MPI_Group_incl(world, 1, &before, &who);
    double *out = malloc(WORDS * sizeof *out);
    for (int turn = 0; turn < 20; turn++) {
        int count = turn % 4 == 3 ? WORDS : 1 + turn * 37;
        for (int at = 0; at < count; at++)
            out[at] = rank * 100.5 + turn + at;
        MPI_Win_post(who, 0, window);
        MPI_Win_start(whom, 0, window);
        MPI_Put(out, count, MPI_DOUBLE, next, 0, count, MPI_DOUBLE, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        for (int at = 0; at < count; at++)
            CHECK(mine[at] == before * 100.5 + turn + at);
    }
    MPI_Group_free(&world);
    MPI_Group_free(&whom);
    MPI_Group_free(&who);
    free(out);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All ranks add to the memory of all, and see the result. */
static void all_at_once(double *mine, MPI_Win window)
{
    enum { TURNS = 50 };
    double one = rank + 1, old[4], three[4] = {1, 2, 3, 4};

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    memset(mine, 0, WORDS * sizeof *mine);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int turn = 0; turn < TURNS; turn++)
        for (int of = 0; of < ranks; of++) {
            MPI_Accumulate(&one, 1, MPI_DOUBLE, of, 0, 1, MPI_DOUBLE, MPI_SUM, window);
            MPI_Get_accumulate(three, 4, MPI_DOUBLE, old, 4, MPI_DOUBLE, of, 10, 4, MPI_DOUBLE,
                               MPI_SUM, window);
            MPI_Win_flush(of, window);
            /* All four values are added at once: none is ahead of the others. */
            CHECK(old[1] == 2 * old[0] && old[2] == 3 * old[0] && old[3] == 4 * old[0]);
            CHECK(old[0] >= turn && old[0] < TURNS * ranks);
        }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    CHECK(mine[0] == TURNS * ranks * (ranks + 1) / 2.0 && mine[13] == 4.0 * TURNS * ranks);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Writes and reads that are waited for separately, and a column of a matrix. */
static void by_request(double *mine, MPI_Win window)
{
    enum { ROWS = 100, COLUMNS = 50, EACH = 8 };
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    double out[EACH][100], in[EACH][100], line[ROWS];
    MPI_Request requests[EACH];

    MPI_Win_lock_all(0, window);
    for (int at = 0; at < EACH; at++) {
        for (int word = 0; word < 100; word++)
            out[at][word] = rank * 10000 + at * 100 + word;
        MPI_Rput(out[at], 100, MPI_DOUBLE, next, at * 100, 100, MPI_DOUBLE, window, &requests[at]);
    }
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
    MPI_Win_flush(next, window);
    for (int at = 0; at < EACH; at++)
        MPI_Rget(in[at], 100, MPI_DOUBLE, next, at * 100, 100, MPI_DOUBLE, window, &requests[at]);
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
    CHECK(memcmp(in, out, sizeof in) == 0);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Datatype column;
    MPI_Type_vector(ROWS, 1, COLUMNS, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Win_fence(0, window);
    memset(mine, 0, WORDS * sizeof *mine);
    MPI_Win_fence(0, window);
    for (int row = 0; row < ROWS; row++)
        line[row] = rank * 500 + row;
    MPI_Put(line, ROWS, MPI_DOUBLE, next, 3, 1, column, window);
    MPI_Win_fence(0, window);
    for (int at = 0; at < ROWS * COLUMNS; at++)
        CHECK(mine[at] == (at % COLUMNS == 3 ? before * 500 + at / COLUMNS : 0));
    MPI_Type_free(&column);
}

int main(int count, char **words)
{
    double *mine;
    MPI_Win window;

    begin(&count, &words);
    /* Memory that existed before the window. */
    mine = malloc(WORDS * sizeof *mine);
    MPI_Win_create(mine, WORDS * sizeof *mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    exposed(mine, window);
    all_at_once(mine, window);
    by_request(mine, window);
    MPI_Win_free(&window);
    free(mine);
    return end();
}
