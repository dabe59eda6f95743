/* mpi_pingpong BYTES ROUNDS: half a round trip, the median of parts, in microseconds.
 * mpi_pingpong BYTES COUNT stream: one way, the median of parts, in GB/s. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 21 };

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sends messages back to back; the receiver confirms the last. */
static void one_way(int rank, char *room, int bytes, long count) {
    for (long i = 0; i < count; i++) {
        if (rank == 0) MPI_Send(room, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        else MPI_Recv(room, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0) MPI_Recv(room, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(room, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    int stream = argc > 3 && strcmp(argv[3], "stream") == 0;
    int rank, bytes = argc > 1 ? atoi(argv[1]) : 8;
    long each = (argc > 2 ? atol(argv[2]) : 10000) / PARTS + 1;
    double took[PARTS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *room = malloc((size_t)bytes + 1);
    /* Written first: unwritten pages all map to the kernel's zero page, which stays in the cache. */
    memset(room, rank + 1, (size_t)bytes + 1);
    for (int part = -1; part < PARTS; part++) {
        double since = MPI_Wtime();
        if (stream) one_way(rank, room, bytes, each);
        for (long i = 0; i < each && !stream; i++) {
            if (rank == 0) MPI_Send(room, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(room, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(room, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        double us = (MPI_Wtime() - since) * 1e6 / (double)each;
        if (part >= 0) took[part] = stream ? bytes / us / 1e3 : us / 2;
    }
    qsort(took, PARTS, sizeof *took, by_size);
    if (rank == 0) printf("%f\n", took[PARTS / 2]);
    free(room);
    return MPI_Finalize();
}
