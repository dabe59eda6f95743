/* Two ranks: ping-pong with messages of 8 bytes and of 1 MiB, and a one-way stream, after every byte
 * was verified. Prints half round trips in us, and MB/s. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONG = 1 << 20, VERIFIED = 100 };

static char sent[LONG], came[LONG];

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void there_and_back(int rank, int len)
{
    if (rank == 0) {
        MPI_Send(sent, len, MPI_CHAR, 1, 7, MPI_COMM_WORLD);
        MPI_Recv(came, len, MPI_CHAR, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(came, len, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(came, len, MPI_CHAR, 0, 7, MPI_COMM_WORLD);
    }
}

static void verify(int rank, int len)
{
    for (int round = 0; round < VERIFIED; round++) {
        for (int at = 0; at < len; at++) {
            sent[at] = (char)(at * 31 + at / 251 + round);
            came[at] = 0;
        }
        there_and_back(rank, len);
        for (int at = 0; at < len; at++)
            if (came[at] != sent[at])
                fail("a message came back altered");
    }
}

static double half_us(int rank, int len, int rounds)
{
    double best = 1e9;

    for (int part = 0; part < 5; part++) {
        double since = MPI_Wtime();
        for (int round = 0; round < rounds; round++)
            there_and_back(rank, len);
        double us = (MPI_Wtime() - since) / rounds / 2 * 1e6;
        if (us < best)
            best = us;
    }
    return best;
}

static double stream(int rank, int count)
{
    double since = MPI_Wtime();

    for (int at = 0; at < count; at++) {
        if (rank == 0)
            MPI_Send(sent, LONG, MPI_CHAR, 1, 8, MPI_COMM_WORLD);
        else
            MPI_Recv(came, LONG, MPI_CHAR, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    there_and_back(rank, 0);
    return (double)count * LONG / (MPI_Wtime() - since) / 1e6;
}

int main(int count, char **words)
{
    int rank, ranks;

    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        fail("this is for two ranks");
    verify(rank, 8);
    verify(rank, LONG);
    double small = half_us(rank, 8, 10000), large = half_us(rank, LONG, 100);
    double rate = stream(rank, 1000);
    if (rank == 0)
        printf("%f %f %f\n", small, large, rate);
    MPI_Finalize();
    return 0;
}
