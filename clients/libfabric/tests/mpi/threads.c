/* Several threads of each rank at a time, each with a communicator of its own, and with tags of
 * its own in a shared communicator. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, TURNS = 300, LEN = 20000 };
static MPI_Comm own[THREADS];

static void *run(void *number)
{
    int which = (int)(size_t)number, peer = rank ^ 1;
    unsigned char *out = malloc(LEN), *in = malloc(LEN);

    for (int turn = 0; turn < TURNS; turn++) {
        int len = turn * 37 % LEN;
        MPI_Request requests[2];
        fill(out, len, which * 1000 + turn);
        MPI_Comm comm = turn % 2 ? own[which] : MPI_COMM_WORLD;
        MPI_Irecv(in, LEN, MPI_BYTE, peer, which, comm, &requests[0]);
        MPI_Isend(out, len, MPI_BYTE, peer, which, comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        verify(in, len, which * 1000 + turn);
        int sum, mine = rank + turn;
        if (turn % 10 == 1) {
            MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, own[which]);
            CHECK(sum == ranks * turn + ranks * (ranks - 1) / 2);
        }
    }
    free(out);
    free(in);
    return NULL;
}

int main(int count, char **words)
{
    int provided;
    pthread_t all[THREADS];

    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(provided == MPI_THREAD_MULTIPLE && ranks % 2 == 0);
    for (int at = 0; at < THREADS; at++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own[at]);
    for (int at = 0; at < THREADS; at++)
        pthread_create(&all[at], NULL, run, (void *)(size_t)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(all[at], NULL);
    return end();
}
