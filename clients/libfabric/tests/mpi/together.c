/* The other collective operations: with uneven parts, non-blocking, with user operators and
 * types, in place; several at a time. */
#include "check.h"

enum { MOST = 64 };

/* As many elements as the rank's number: gathered, scattered, and from all to all. */
static void uneven(int scale)
{
    int counts[MOST], places[MOST], back[MOST], from[MOST], total = 0, root = ranks - 1;

    for (int of = 0; of < ranks; of++) {
        counts[of] = of * scale + (of != 1);
        places[of] = total + of;
        total += counts[of];
    }
    int mine = counts[rank], *own = calloc((size_t)mine + 1, sizeof *own);
    int *whole = calloc((size_t)(total + ranks), sizeof *whole);
    for (int at = 0; at < mine; at++)
        own[at] = rank * 1000000 + at;
    MPI_Gatherv(own, mine, MPI_INT, whole, counts, places, MPI_INT, root, MPI_COMM_WORLD);
    for (int of = 0; rank == root && of < ranks; of++)
        for (int at = 0; at < counts[of]; at++)
            CHECK(whole[places[of] + at] == of * 1000000 + at);
    memset(own, 0, (size_t)mine * sizeof *own);
    MPI_Scatterv(whole, counts, places, MPI_INT, own, mine, MPI_INT, root, MPI_COMM_WORLD);
    for (int at = 0; at < mine; at++)
        CHECK(own[at] == rank * 1000000 + at);
    free(whole);

    /* A rank gets as many elements as the sum of both numbers. */
    total = 0;
    for (int to = 0; to < ranks; to++) {
        counts[to] = back[to] = (rank + to) * scale;
        places[to] = from[to] = total;
        total += counts[to];
    }
    int *out = malloc((size_t)(total + 1) * sizeof *out), *in = calloc((size_t)total + 1, sizeof *in);
    for (int to = 0; to < ranks; to++)
        for (int at = 0; at < counts[to]; at++)
            out[places[to] + at] = (rank * MOST + to) * 10000 + at % 10000;
    MPI_Request request;
    MPI_Ialltoallv(out, counts, places, MPI_INT, in, back, from, MPI_INT, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int of = 0; of < ranks; of++)
        for (int at = 0; at < back[of]; at++)
            CHECK(in[from[of] + at] == (of * MOST + rank) * 10000 + at % 10000);
    free(own);
    free(out);
    free(in);
}

/* Multiplies matrices of two by two, which is not commutative. */
static void multiply(void *left, void *right, int *count, MPI_Datatype *type)
{
    long *a = left, *b = right;

    (void)type;
    for (int at = 0; at < *count; at++, a += 4, b += 4) {
        long c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                     a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, c, sizeof c);
    }
}

static void own_operator(void)
{
    enum { COUNT = 500 };
    MPI_Datatype matrix;
    MPI_Op product;
    long(*mine)[4] = malloc(COUNT * sizeof *mine), (*all)[4] = malloc(COUNT * sizeof *all);

    MPI_Type_contiguous(4, MPI_LONG, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Op_create(multiply, 0, &product);
    for (int at = 0; at < COUNT; at++)
        memcpy(mine[at], (long[]){1, rank + at % 5, rank % 2, 1}, sizeof *mine);
    MPI_Allreduce(mine, all, COUNT, matrix, product, MPI_COMM_WORLD);
    for (int at = 0; at < COUNT; at++) {
        long expected[4] = {1, 0, 0, 1};
        for (int of = ranks - 1; of >= 0; of--) {
            long one[4] = {1, of + at % 5, of % 2, 1};
            multiply(one, expected, &(int){1}, NULL);
        }
        CHECK(memcmp(all[at], expected, sizeof expected) == 0);
    }
    MPI_Op_free(&product);
    MPI_Type_free(&matrix);
    free(mine);
    free(all);
}

static void built_in(void)
{
    struct {
        double value;
        int where;
    } pair = {rank % 2 ? -rank : rank, rank}, least;
    int highest = (ranks - 1) % 2 ? ranks - 1 : ranks - 2;
    unsigned char bits = (unsigned char)(1 << rank % 8), together, all = 0;
    float product = rank + 1, whole, expected = 1;
    long long sums[MOST], before = -1, mine = rank + 1;

    MPI_Allreduce(&pair, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    CHECK(ranks == 1 || (least.where == highest && least.value == -highest));
    MPI_Allreduce(&bits, &together, 1, MPI_UNSIGNED_CHAR, MPI_BOR, MPI_COMM_WORLD);
    MPI_Allreduce(&product, &whole, 1, MPI_FLOAT, MPI_PROD, MPI_COMM_WORLD);
    for (int of = 0; of < ranks; of++) {
        all |= (unsigned char)(1 << of % 8);
        expected *= (float)(of + 1);
    }
    CHECK(together == all && whole == expected);
    MPI_Exscan(&mine, &before, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(before == (rank ? (long long)rank * (rank + 1) / 2 : -1));
    int counts[MOST];
    for (int of = 0; of < ranks; of++) {
        sums[of] = (long long)of * 100 + rank;
        counts[of] = 1;
    }
    long long got;
    MPI_Reduce_scatter(sums, &got, counts, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(got == (long long)rank * 100 * ranks + (long long)ranks * (ranks - 1) / 2);
    MPI_Reduce_scatter_block(sums, &got, 1, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
    CHECK(got == (long long)rank * 100 + ranks - 1);
    MPI_Allreduce(MPI_IN_PLACE, sums, ranks, MPI_LONG_LONG, MPI_MIN, MPI_COMM_WORLD);
    for (int of = 0; of < ranks; of++)
        CHECK(sums[of] == (long long)of * 100);
}

/* Many non-blocking operations, completed in another order than started. */
static void at_a_time(int len)
{
    enum { KINDS = 6 };
    MPI_Comm comms[2] = {MPI_COMM_WORLD, MPI_COMM_NULL};
    MPI_Request requests[2 * KINDS];
    size_t bytes = (size_t)len * (size_t)ranks * sizeof(int);
    int *out = malloc(bytes), *in[2 * KINDS];

    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    for (int at = 0; at < len * ranks; at++)
        out[at] = rank * 1000 + at % 1000;
    for (int which = 0; which < 2; which++) {
        MPI_Comm comm = comms[which];
        MPI_Request *now = requests + which * KINDS;
        int **to = in + which * KINDS, root = which % ranks;
        for (int at = 0; at < KINDS; at++)
            to[at] = calloc(1, bytes);
        for (int at = 0; at < len && rank == root; at++)
            to[0][at] = at * 5;
        MPI_Ibcast(to[0], len, MPI_INT, root, comm, &now[0]);
        MPI_Iallgather(out, len, MPI_INT, to[1], len, MPI_INT, comm, &now[1]);
        MPI_Ialltoall(out, len, MPI_INT, to[2], len, MPI_INT, comm, &now[2]);
        MPI_Ireduce(out, to[3], len, MPI_INT, MPI_SUM, root, comm, &now[3]);
        MPI_Igather(out, len, MPI_INT, to[4], len, MPI_INT, root, comm, &now[4]);
        MPI_Iscan(out, to[5], len, MPI_INT, MPI_MAX, comm, &now[5]);
    }
    for (int at = 2 * KINDS - 1; at >= 0; at--)
        MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
    for (int which = 0; which < 2; which++) {
        int **to = in + which * KINDS, root = which % ranks;
        for (int at = 0; at < len; at++) {
            CHECK(to[0][at] == at * 5);
            CHECK(to[5][at] == rank * 1000 + at % 1000);
            for (int of = 0; of < ranks; of++) {
                CHECK(to[1][of * len + at] == of * 1000 + at % 1000);
                CHECK(to[2][of * len + at] == of * 1000 + (rank * len + at) % 1000);
                CHECK(rank != root || to[4][of * len + at] == of * 1000 + at % 1000);
            }
            CHECK(rank != root ||
                  to[3][at] == ranks * (ranks - 1) / 2 * 1000 + ranks * (at % 1000));
        }
    }
    for (int at = 0; at < 2 * KINDS; at++)
        free(in[at]);
    free(out);
    MPI_Comm_free(&comms[1]);
}

int main(int count, char **words)
{
    begin(&count, &words);
    CHECK(ranks <= MOST);
    for (int turn = 0; turn < 3; turn++) {
        uneven(1);
        uneven(700);
        own_operator();
        built_in();
        at_a_time(3);
        at_a_time(20000);
    }
    return end();
}
