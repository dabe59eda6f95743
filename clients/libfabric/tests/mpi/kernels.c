/* Three small computations of typical MPI applications, each with a check: a conjugate gradient,
 * a bucket sort, and a Fourier transform of a cube that is transposed between its passes.
 * Results do not depend on the number of ranks. */
#include "check.h"
#include <complex.h>
#include <math.h>

/* The part of 0..whole of this rank. */
static int begin_of(int of, int whole)
{
    return (int)((long)whole * of / ranks);
}

/* The matrix of a membrane of SIDE x SIDE points: 4 in the diagonal, -1 for each neighbour. Each
 * rank has rows of the membrane, and a row of each neighbour. */
enum { SIDE = 96 };

static double dot(const double *a, const double *b, int count)
{
    double part = 0, whole;

    for (int at = 0; at < count; at++)
        part += a[at] * b[at];
    MPI_Allreduce(&part, &whole, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return whole;
}

/* `from` has a row before and a row behind the rows of this rank. */
static void times_matrix(double *from, double *to, int rows)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int below = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];

    memset(from, 0, SIDE * sizeof *from);
    memset(from + (rows + 1) * SIDE, 0, SIDE * sizeof *from);
    MPI_Irecv(from, SIDE, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(from + (rows + 1) * SIDE, SIDE, MPI_DOUBLE, below, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(from + SIDE, SIDE, MPI_DOUBLE, above, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(from + rows * SIDE, SIDE, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (int row = 1; row <= rows; row++)
        for (int at = 0; at < SIDE; at++) {
            const double *here = from + row * SIDE + at;
            double sum = 4 * *here - here[-SIDE] - here[SIDE];
            if (at > 0)
                sum -= here[-1];
            if (at < SIDE - 1)
                sum -= here[1];
            to[(row - 1) * SIDE + at] = sum;
        }
}

static void conjugate_gradient(void)
{
    int first = begin_of(rank, SIDE), rows = begin_of(rank + 1, SIDE) - first, count = rows * SIDE;
    size_t bytes = (size_t)(count + 2 * SIDE) * sizeof(double);
    double *known = calloc(1, bytes), *way = calloc(1, bytes), *found = calloc(1, bytes);
    double *left = calloc(1, bytes), *image = calloc(1, bytes);

    for (int at = 0; at < count; at++)
        known[SIDE + at] = sin(0.37 * (first * SIDE + at)) + 2;
    times_matrix(known, left, rows);
    memcpy(way + SIDE, left, count * sizeof *way);
    double square = dot(left, left, count), begun = square;
    int turn = 0;
    for (; turn < 4 * SIDE && square > 1e-24 * begun; turn++) {
        times_matrix(way, image, rows);
        double step = square / dot(way + SIDE, image, count), before = square;
        for (int at = 0; at < count; at++) {
            found[at] += step * way[SIDE + at];
            left[at] -= step * image[at];
        }
        square = dot(left, left, count);
        for (int at = 0; at < count; at++)
            way[SIDE + at] = left[at] + square / before * way[SIDE + at];
    }
    CHECK(turn > 20 && turn < 4 * SIDE);
    for (int at = 0; at < count; at++)
        CHECK(fabs(found[at] - known[SIDE + at]) < 1e-8);
    free(known);
    free(way);
    free(found);
    free(left);
    free(image);
}

/* Sends each key to the rank that has its part of the range, and sorts there. */
enum { KEYS = 200000, RANGE = 1 << 19 };

static int by_key(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void sums_of(const int *keys, int count, unsigned long sums[3])
{
    unsigned long mine[3] = {(unsigned long)count, 0, 0};

    for (int at = 0; at < count; at++) {
        mine[1] += (unsigned long)keys[at];
        mine[2] += (unsigned long)keys[at] * (unsigned long)keys[at];
    }
    MPI_Allreduce(mine, sums, 3, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
}

static void bucket_sort(void)
{
    int first = begin_of(rank, KEYS), mine = begin_of(rank + 1, KEYS) - first, came = 0;
    int *keys = calloc((size_t)mine, sizeof *keys), *sorted = calloc((size_t)mine, sizeof *sorted);
    int counts[4][64] = {0}, at_most = RANGE / ranks + 1;
    int *out = counts[0], *outs = counts[1], *in = counts[2], *ins = counts[3];
    unsigned long before[3], after[3];

    CHECK(ranks <= 64);
    for (int at = 0; at < mine; at++) {
        unsigned long key = (unsigned long)(first + at + 1) * 0x9e3779b97f4a7c15UL;
        /* Two draws, so that the middle has more keys than the ends. */
        keys[at] = (int)(((key >> 40) % RANGE + (key >> 16 & 0xffffff) % RANGE) / 2);
        out[keys[at] / at_most]++;
    }
    sums_of(keys, mine, before);
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    for (int of = 0; of < ranks; of++) {
        ins[of] = came;
        came += in[of];
        outs[of] = of ? outs[of - 1] + out[of - 1] : 0;
    }
    int next[64];
    memcpy(next, outs, sizeof next);
    for (int at = 0; at < mine; at++)
        sorted[next[keys[at] / at_most]++] = keys[at];
    int *got = malloc(((size_t)came + 1) * sizeof *got);
    MPI_Alltoallv(sorted, out, outs, MPI_INT, got, in, ins, MPI_INT, MPI_COMM_WORLD);
    qsort(got, (size_t)came, sizeof *got, by_key);
    sums_of(got, came, after);
    CHECK(before[0] == KEYS && memcmp(before, after, sizeof before) == 0);
    int last = came ? got[came - 1] : rank * at_most, least = -1;
    MPI_Exscan(&last, &least, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(rank == 0 || came == 0 || least <= got[0]);
    for (int at = 1; at < came; at++)
        CHECK(got[at - 1] <= got[at]);
    free(keys);
    free(sorted);
    free(got);
}

/* A cube of points in slices of its first axis; `turned` contains slices of its last. */
enum { EDGE = 32 };
typedef double complex point;

static void transform(point *line, int step, int sign)
{
    point out[EDGE];

    for (int to = 0; to < EDGE; to++) {
        out[to] = 0;
        for (int of = 0; of < EDGE; of++)
            out[to] += line[of * step] * cexp(sign * 2 * M_PI * I * (to * of % EDGE) / EDGE);
    }
    for (int to = 0; to < EDGE; to++)
        line[to * step] = out[to];
}

/* Swaps the first and the last axis of [ours][EDGE][EDGE]. */
static void turn_over(point *cube, point *room, int slices)
{
    int block = slices * EDGE * slices;

    for (int to = 0; to < ranks; to++)
        for (int x = 0; x < slices; x++)
            for (int y = 0; y < EDGE; y++)
                for (int z = 0; z < slices; z++)
                    room[to * block + (z * EDGE + y) * slices + x] =
                        cube[(x * EDGE + y) * EDGE + to * slices + z];
    MPI_Alltoall(room, block, MPI_C_DOUBLE_COMPLEX, cube, block, MPI_C_DOUBLE_COMPLEX,
                 MPI_COMM_WORLD);
    memcpy(room, cube, (size_t)block * ranks * sizeof *room);
    for (int of = 0; of < ranks; of++)
        for (int z = 0; z < slices; z++)
            for (int y = 0; y < EDGE; y++)
                for (int x = 0; x < slices; x++)
                    cube[(z * EDGE + y) * EDGE + of * slices + x] =
                        room[of * block + (z * EDGE + y) * slices + x];
}

static void all_axes(point *cube, point *room, int slices, int sign)
{
    for (int x = 0; x < slices; x++) {
        for (int y = 0; y < EDGE; y++)
            transform(cube + (x * EDGE + y) * EDGE, 1, sign);
        for (int z = 0; z < EDGE; z++)
            transform(cube + x * EDGE * EDGE + z, EDGE, sign);
    }
    turn_over(cube, room, slices);
    for (int z = 0; z < slices; z++)
        for (int y = 0; y < EDGE; y++)
            transform(cube + (z * EDGE + y) * EDGE, 1, sign);
    turn_over(cube, room, slices);
}

static void fourier(void)
{
    if (EDGE % ranks)
        return;
    int slices = EDGE / ranks, count = slices * EDGE * EDGE;
    point *cube = malloc((size_t)count * sizeof *cube), *room = malloc((size_t)count * sizeof *room);

    /* A single wave (3, 5, 7) has a single line; then other data returns unchanged. */
    for (int at = 0; at < count; at++) {
        int x = rank * slices + at / EDGE / EDGE, y = at / EDGE % EDGE, z = at % EDGE;
        cube[at] = cexp(2 * M_PI * I * (3 * x + 5 * y + 7 * z) / EDGE);
    }
    all_axes(cube, room, slices, -1);
    for (int at = 0; at < count; at++) {
        int x = rank * slices + at / EDGE / EDGE, y = at / EDGE % EDGE, z = at % EDGE;
        double expected = x == 3 && y == 5 && z == 7 ? (double)EDGE * EDGE * EDGE : 0;
        CHECK(cabs(cube[at] - expected) < 1e-6);
    }
    for (int at = 0; at < count; at++)
        cube[at] = (rank * count + at) % 1009 + I * ((rank * count + at) % 613);
    all_axes(cube, room, slices, -1);
    all_axes(cube, room, slices, 1);
    for (int at = 0; at < count; at++) {
        point was = (rank * count + at) % 1009 + I * ((rank * count + at) % 613);
        CHECK(cabs(cube[at] / EDGE / EDGE / EDGE - was) < 1e-8);
    }
    free(cube);
    free(room);
}

int main(int count, char **words)
{
    begin(&count, &words);
    conjugate_gradient();
    bucket_sort();
    fourier();
    return end();
}
