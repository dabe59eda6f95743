/* A rank is killed; the other, which waits for a message from it, gets an error. */
#include "dies.h"

int main(int count, char **words)
{
    char byte;

    begin_and_die(&count, &words);
    MPI_Recv(&byte, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    told();
}
