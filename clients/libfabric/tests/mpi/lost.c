/* A rank is killed; the other sends it a few bytes that are never received, and lives on for
 * some seconds. */
#include "dies.h"
#include <unistd.h>

int main(int count, char **words)
{
    char byte = 7;
    int there;

    begin_and_die(&count, &words);
    usleep(100000);
    MPI_Send(&byte, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
    while (MPI_Wtime() - since < 5)
        MPI_Iprobe(0, 3, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
    puts("lived on");
    fflush(stdout);
    _Exit(0);
}
