/* All collective operations, blocking or not, compared with a local computation of each rank. */
#include "check.h"

enum { LENGTHS = 4 };
static const int COUNTS[LENGTHS] = {1, 17, 1000, 60000};

static double value(int of, int at)
{
    return of * 1000 + at % 97;
}

static void reductions(MPI_Comm comm, int me, int all)
{
    for (int which = 0; which < LENGTHS; which++) {
        int count = COUNTS[which], root = which % all;
        double *mine = malloc(count * sizeof *mine), *sum = malloc(count * sizeof *sum);
        long *whole = malloc(count * sizeof *whole), *most = malloc(count * sizeof *most);
        for (int at = 0; at < count; at++) {
            mine[at] = value(me, at);
            whole[at] = (long)(me + 1) * (at % 13 + 1);
        }
        MPI_Allreduce(mine, sum, count, MPI_DOUBLE, MPI_SUM, comm);
        MPI_Reduce(whole, most, count, MPI_LONG, MPI_MAX, root, comm);
        for (int at = 0; at < count; at++) {
            double expected = 0;
            for (int of = 0; of < all; of++)
                expected += value(of, at);
            CHECK(sum[at] == expected);
            CHECK(me != root || most[at] == (long)all * (at % 13 + 1));
        }
        MPI_Request request;
        MPI_Iallreduce(whole, most, count, MPI_LONG, MPI_BXOR, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int at = 0; at < count; at++) {
            long expected = 0;
            for (int of = 0; of < all; of++)
                expected ^= (long)(of + 1) * (at % 13 + 1);
            CHECK(most[at] == expected);
        }
        MPI_Scan(mine, sum, count, MPI_DOUBLE, MPI_SUM, comm);
        for (int at = 0; at < count; at++) {
            double expected = 0;
            for (int of = 0; of <= me; of++)
                expected += value(of, at);
            CHECK(sum[at] == expected);
        }
        free(mine);
        free(sum);
        free(whole);
        free(most);
    }
}

static void exchanges(MPI_Comm comm, int me, int all)
{
    for (int which = 0; which < LENGTHS; which++) {
        int count = COUNTS[which], root = (which + 1) % all;
        int *out = malloc((size_t)count * all * sizeof *out);
        int *in = malloc((size_t)count * all * sizeof *in);
        for (int at = 0; at < count; at++)
            out[at] = me == root ? at * 3 : -1;
        MPI_Bcast(out, count, MPI_INT, root, comm);
        for (int at = 0; at < count; at++)
            CHECK(out[at] == at * 3);
        for (int to = 0; to < all; to++)
            for (int at = 0; at < count; at++)
                out[to * count + at] = me * 100000 + to * 1000 + at % 1000;
        MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, comm);
        for (int of = 0; of < all; of++)
            for (int at = 0; at < count; at++)
                CHECK(in[of * count + at] == of * 100000 + me * 1000 + at % 1000);
        MPI_Allgather(out, count, MPI_INT, in, count, MPI_INT, comm);
        for (int of = 0; of < all; of++)
            for (int at = 0; at < count; at++)
                CHECK(in[of * count + at] == of * 100000 + at % 1000);
        MPI_Gather(out + me * count, count, MPI_INT, in, count, MPI_INT, root, comm);
        for (int of = 0; me == root && of < all; of++)
            CHECK(in[of * count] == of * 101000);
        MPI_Scatter(out, count, MPI_INT, in, count, MPI_INT, root, comm);
        for (int at = 0; at < count; at++)
            CHECK(in[at] == root * 100000 + me * 1000 + at % 1000);
        MPI_Request requests[2];
        MPI_Ibarrier(comm, &requests[0]);
        MPI_Ibcast(in, count, MPI_INT, root, comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in[0] == root * 101000);
        free(out);
        free(in);
    }
}

/* Each rank gets as many elements as its number. */
static void uneven(MPI_Comm comm, int me, int all)
{
    int counts[64], places[64], total = 0;

    for (int of = 0; of < all; of++) {
        counts[of] = of * 700 + 1;
        places[of] = total;
        total += counts[of];
    }
    short *mine = malloc(counts[me] * sizeof *mine), *whole = malloc(total * sizeof *whole);
    for (int at = 0; at < counts[me]; at++)
        mine[at] = (short)(me * 91 + at);
    MPI_Allgatherv(mine, counts[me], MPI_SHORT, whole, counts, places, MPI_SHORT, comm);
    for (int of = 0; of < all; of++)
        for (int at = 0; at < counts[of]; at++)
            CHECK(whole[places[of] + at] == (short)(of * 91 + at));
    free(mine);
    free(whole);
}

int main(int count, char **words)
{
    MPI_Comm twin, half;
    int me, all;

    begin(&count, &words);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    for (int turn = 0; turn < 3; turn++) {
        reductions(MPI_COMM_WORLD, rank, ranks);
        exchanges(twin, rank, ranks);
        uneven(twin, rank, ranks);
        MPI_Comm_rank(half, &me);
        MPI_Comm_size(half, &all);
        reductions(half, me, all);
        exchanges(half, me, all);
    }
    MPI_Comm_free(&twin);
    MPI_Comm_free(&half);
    return end();
}
